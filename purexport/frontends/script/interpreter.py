"""Scripts become the neutral graph: TorchScript is interpreted once, with the facts that are known at export.

Everything that does not depend on tensor data (numbers, strings, lists, dicts, module attributes, trip counts,
conditions on sizes that cannot change) is computed here, as Python would.  Tensor operators are recorded as calls, and
run on fake tensors for their types, so that implicit casts follow torch's promotion.  Loops with a known trip count are
unrolled while it is small, and of a branch with a known condition one side is taken.  Lists, dicts and objects may have
several names, as in the script: an element appended through one name is visible through the other (`values`).  A branch
or a loop that depends on tensor data becomes a call with blocks (`operators/branches.py`, `operators/loops.py`).

The layers, from the lowest: `values` (the contents of variables), `state` (the state of the current body), `recorder`
(calls on fake tensors), `registry` (declares handlers), `machine` (runs nodes), `operators/` (the handlers), and this
module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from purexport.aten.graph import (
    AtenGraph,
    AtenValue,
    Call,
    SequenceType,
    map_values,
    tensor_type,
    with_values,
)
from purexport.errors import ExportError
from purexport.frontends.script.handlers import registered
from purexport.frontends.script.machine import LongLoop, Machine
from purexport.frontends.script.prune import pruned
from purexport.frontends.script.values import Module, imported, returned
from purexport.shapes.fakes import Axes, FakeMachine
from purexport.torch_patches.torch_jit import ScriptFunction, inline, inline_forks


@dataclass
class Script:
    """The graph, and the result as the script nests it, with values of the graph for tensors.

    `fixed` are the axes that were declared dynamic and have one size only.
    """

    graph: AtenGraph
    result: Any
    fixed: dict[str, int]
    remarks: list[str]


def interpret(
    model: Any,
    inputs: Sequence[tuple[str, torch.Tensor]],
    arguments: Callable[[Sequence[AtenValue]], Sequence[Any]],
    axes: Mapping[str, Axes],
    *,
    lists: bool,
) -> Script:
    """Interpret a script module's `forward`, or a script function.

    `inputs` are the tensors among the arguments with their names; `arguments` makes the positional arguments from
    their values.  Without `lists`, a loop of known steps that carries a list of tensors is unrolled.  Raises
    ExportError with the script's own line.
    """
    is_function = isinstance(model, ScriptFunction)
    graph = (model if is_function else model.forward).graph.copy()

    def given(machine: Machine) -> list[Any]:
        values = [machine.input(name, tensor_type(tensor), axes.get(name, {})) for name, tensor in inputs]
        return list(arguments(values)) if is_function else [Module(model, ""), *arguments(values)]

    return _interpret(graph, given, bool(axes), lists)


def interpret_call(model: Any, path: str, given: Callable[[Machine], Sequence[Any]], *, lists: bool) -> Script:
    """Interpret a script that the module at `path` is, or a script function, in a model that is captured otherwise.

    `given` makes the positional arguments; the inputs of the graph are those tensors that it declares.  `lists` is that
    of `interpret`.
    """
    is_function = isinstance(model, ScriptFunction)
    graph = (model if is_function else model.forward).graph.copy()

    def arguments(machine: Machine) -> list[Any]:
        return list(given(machine)) if is_function else [Module(model, path), *given(machine)]

    return _interpret(graph, arguments, True, lists)


def _interpret(graph: Any, given: Callable[[Machine], list[Any]], dynamic: bool, lists: bool) -> Script:
    inline(graph)
    inline_forks(graph)  # a file has no other threads
    inline(graph)
    kept: frozenset[int] = frozenset()
    while True:
        try:
            found = _with_sizes(graph, given, dynamic, kept)
            if kept and not lists:
                _refuse_lists(found.graph.calls)
            return found
        except LongLoop as loop:
            kept |= {loop.key}
        except ExportError as error:
            if not kept:
                raise
            return _unrolled(graph, given, dynamic, error)


def _refuse_lists(calls: Sequence[Call]) -> None:
    """Raises ExportError for a loop that carries a list of tensors."""
    for call in calls:
        if call.target == "prim::Loop" and any(isinstance(value.type, SequenceType) for value in call.outputs):
            raise ExportError(
                f"the loop at {call.source} carries a list of tensors, which ONNX Loop does not take at this opset",
                code="list-of-unknown-length",
            )
        for block in call.blocks:
            _refuse_lists(block.calls)


def _unrolled(graph: Any, given: Callable[[Machine], list[Any]], dynamic: bool, error: ExportError) -> Script:
    """The interpretation with all loops of known steps unrolled; `error` says why a loop could not stay one."""
    try:
        return _with_sizes(graph, given, dynamic, None)
    except ExportError as unrolled:
        if unrolled.code != "script-too-long":
            raise
        raise ExportError(f"{unrolled}, because a loop cannot stay one: {error}", code=unrolled.code) from error


def _with_sizes(
    graph: Any, given: Callable[[Machine], list[Any]], dynamic: bool, kept: frozenset[int] | None
) -> Script:
    shapes = FakeMachine(distinct=True)
    try:
        found = _run(graph, given, shapes, kept)
        if not shapes.fixed():
            return found
    except ExportError:
        if not dynamic:
            raise
    # sizes that equal no other size may be too large for a table of positions; the example's sizes are not
    return _run(graph, given, FakeMachine(distinct=False), kept)


def _run(graph: Any, given: Callable[[Machine], list[Any]], shapes: FakeMachine, kept: frozenset[int] | None) -> Script:
    """Interpret the graph on the inputs that `given` makes."""
    machine = Machine(graph, shapes, registered(), kept)
    with shapes.running():
        results = [returned(item) for item in machine.run_block(graph, [imported(item) for item in given(machine)])]
        settled = machine.settled_values()
    result = results[0] if len(results) == 1 else tuple(results)
    written, assigned = machine.attributes.assigned()
    calls = pruned(machine.graph.calls, [result, [item.value for item in written]])
    graph = AtenGraph(machine.graph.inputs, calls, assigned=written)
    if settled:
        graph, result = _with_values(graph, result, settled)
    remarks = [*assigned, *shapes.merged(), *shapes.settled(), *dict.fromkeys(machine.state.remarks)]
    return Script(graph, result, shapes.fixed(), remarks)


def _with_values(graph: AtenGraph, result: Any, others: Mapping[AtenValue, AtenValue]) -> tuple[AtenGraph, Any]:
    """The graph and the result with other values in place of some."""

    def other(value: AtenValue) -> AtenValue:
        return others.get(value, value)

    inputs = {item: replace(item, value=other(item.value)) for item in graph.inputs}
    calls = [with_values(call, other, other) for call in graph.calls]
    written = [replace(item, input=inputs[item.input], value=map_values(item.value, other)) for item in graph.assigned]
    leaves = pytree.tree_map(lambda leaf: other(leaf) if isinstance(leaf, AtenValue) else leaf, result)
    return replace(graph, inputs=list(inputs.values()), calls=calls, assigned=written), leaves
