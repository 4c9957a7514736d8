"""Scripts to the neutral graph: TorchScript is interpreted, once, on what is known at export.

Everything that does not depend on tensor data (numbers, strings, lists, dicts, module attributes, trip counts,
conditions on sizes that cannot change) is computed here, as Python would.  Tensor operators are recorded as calls, and
run on fake tensors for their types, so that implicit casts follow torch's promotion.  Loops whose trip count is known
are unrolled, branches whose condition is known are taken.  Lists, dicts and objects are shared as in the script: what
is appended through one name is seen through the other (``script_values``).

A branch or a loop that depends on tensor data becomes a call with blocks (``script_control``, ``script_loop``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from purexport.aten.graph import Assigned, AtenGraph, Frame, Input, Source, TensorType, Value, tensor_type
from purexport.capture.core import prepacked
from purexport.capture.script.control import branch
from purexport.capture.script.loop import loop
from purexport.capture.script.operators import operate
from purexport.capture.script.prims import HANDLERS
from purexport.capture.script.prune import prune
from purexport.capture.script.record import Recorder
from purexport.capture.script.values import Module, Raised, ScriptDict, imported, returned
from purexport.capture.trace.torchscript import traced_frames
from purexport.errors import ExportError
from purexport.shapes.fakes import Axes, FakeMachine

_FRAME = re.compile(r'^\s*File "(.*)", line (\d+)', re.MULTILINE)
_MOST_STEPS = 100_000


@dataclass
class Script:
    """The graph, and the result as the script nests it, with values of the graph for tensors."""

    graph: AtenGraph
    result: Any
    remarks: list[str]


def interpret(
    model: Any,
    inputs: Sequence[tuple[str, torch.Tensor]],
    arguments: Callable[[Sequence[Value]], Sequence[Any]],
    axes: Mapping[str, Axes],
) -> Script:
    """Interpret a script module's ``forward``, or a script function.

    ``inputs`` are the tensors among the arguments with their names; ``arguments`` makes the positional arguments from
    their values.  Raises ExportError with the script's own line.
    """
    is_function = isinstance(model, torch.jit.ScriptFunction)
    graph = (model if is_function else model.forward).graph.copy()

    def given(run: Interpreter) -> list[Any]:
        values = [run.input(name, tensor_type(tensor), axes.get(name, {})) for name, tensor in inputs]
        return list(arguments(values)) if is_function else [Module(model, ""), *arguments(values)]

    return _interpret(graph, given, bool(axes))


def interpret_trace(
    graph: Any, inputs: Sequence[Input], types: Sequence[TensorType], axes: Mapping[str, Axes]
) -> Script:
    """Interpret a trace that calls scripted functions.  ``types`` are those of the traced tensors, in order."""

    def given(run: Interpreter) -> list[Any]:
        return [
            run.input(item.name, type_, axes.get(item.name, {}))
            if item.tensor is None
            else run.state(item.tensor, item.name, item.kind)
            for item, type_ in zip(inputs, types, strict=True)
        ]

    return _interpret(graph, given, bool(axes))


def _interpret(graph: Any, given: Callable[[Interpreter], list[Any]], dynamic: bool) -> Script:
    torch._C._jit_pass_inline(graph)
    machine = FakeMachine(distinct=True)
    try:
        found = Interpreter(graph, machine).run(given)
        if not machine.fixed():
            return found
    except ExportError:
        if not dynamic:
            raise
    # sizes that equal nothing else may be too large for a table of positions; the example's are not
    return Interpreter(graph, FakeMachine(distinct=False)).run(given)


class Interpreter(Recorder):
    """One interpretation."""

    def __init__(self, script: Any, machine: FakeMachine) -> None:
        super().__init__(machine)
        self.script = script
        self.attributes: dict[tuple[str, str], ScriptDict] = {}
        self.assigned: dict[tuple[str, str], Source] = {}
        self.env: dict[int, Any] = {}
        self.steps = 0

    def run(self, given: Callable[[Interpreter], list[Any]]) -> Script:
        """Interpret the graph on the inputs that ``given`` makes."""
        with self.machine.running():
            results = [returned(item) for item in self.body(self.script, [imported(item) for item in given(self)])]
            self.settle_sizes()
        result = results[0] if len(results) == 1 else tuple(results)
        self._note_buffers()
        prune(self.graph, [result, [item.value for item in self.graph.assigned]])
        return Script(self.graph, result, self._said())

    def _note_buffers(self) -> None:
        """Buffers that are other tensors at the end; what else the script assigns is said in a remark."""
        inputs = {item.name: item for item in self.graph.inputs if item.kind in ("parameter", "buffer")}
        for (path, name), source in list(self.assigned.items()):
            value = self.attributes[path, name]["value"]
            item = inputs.get(f"{path}.{name}" if path else name)
            if item is not None and isinstance(value, Value) and isinstance(value.type, TensorType):
                self.graph.assigned.append(Assigned(item, value, str(source)))
                del self.assigned[path, name]

    def input(self, name: str, type_: TensorType, axes: Axes) -> Value:
        """A graph input."""
        fake = self.machine.tensor(type_, axes)
        value = self.value(fake)
        self.graph.inputs.append(Input(value, name, "user"))
        return value

    def _said(self) -> list[str]:
        written = [
            f"the script assigns {path + '.' if path else ''}{name}; the value is right inside the file, and not kept"
            for path, name in self.assigned
        ]
        fixed = [
            f"axis {axis!r} was declared dynamic, but the script holds it at {size}; the file takes that size only"
            for axis, size in self.machine.fixed().items()
        ]
        return [*written, *fixed, *self.machine.merged(), *self.machine.settled(), *dict.fromkeys(self.remarks)]

    # -- blocks

    def body(self, block: Any, items: Sequence[Any]) -> list[Any]:
        """Run a block on its inputs."""
        for value, item in zip(block.inputs(), items, strict=True):
            self.env[value.unique()] = item
        for node in block.nodes():
            self._node(node)
        return [self.env[value.unique()] for value in block.outputs()]

    def _node(self, node: Any) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise ExportError(
                f"the script takes more than {_MOST_STEPS} steps at export, at {self.source(node)}",
                code="script-too-long",
            )
        kind = node.kind()
        operands = [self.env[value.unique()] for value in node.inputs()]
        if kind == "prim::If":
            self._if(node, operands[0])
        elif kind == "prim::Loop":
            self._loop(node, operands)
        elif kind in HANDLERS:
            self._store(node, HANDLERS[kind](self, node, operands))
        else:
            self._store(node, operate(self, node, operands, self.source(node, operands)))

    def _store(self, node: Any, result: Any) -> None:
        count = node.outputsSize()
        self.store_all(node, [] if not count else [result] if count == 1 else result)

    def store_all(self, node: Any, results: Sequence[Any]) -> None:
        """Bind a node's outputs."""
        for value, item in zip(node.outputs(), results, strict=True):
            self.env[value.unique()] = self.own(item) if type(item) in (list, dict) else item

    def source(self, node: Any, operands: Sequence[Any] = ()) -> Source:
        """Where a node stands."""
        path = node.scopeName().rpartition("/")[2].removeprefix("__module.")
        scope = "" if path in ("(root)", "__module") else path
        scope = scope or next((self.owner(item) for item in operands if self.owner(item)), "")
        script = self.script  # the node lives as long as its graph

        def frames() -> list[Frame]:
            assert script is not None
            place = node.sourceRange()  # of a trace that calls scripts, either form
            return [(path, int(line)) for path, line in reversed(_FRAME.findall(place))] or traced_frames(place)

        return Source(scope, frames)

    def owner(self, item: Any) -> str:
        """The path of the module that a parameter belongs to."""
        return self.owners.get(item, "") if isinstance(item, Value) else ""

    # -- control

    def _if(self, node: Any, condition: Any) -> None:
        if isinstance(condition, Value):
            condition = self.facts.get(condition, condition)
        if isinstance(condition, Value):
            branch(self, node, condition)
            return
        first, second = node.blocks()
        self.store_all(node, self.body(first if condition else second, []))

    def _loop(self, node: Any, operands: list[Any]) -> None:
        most, condition, *carried = operands
        (body,) = node.blocks()
        step = 0
        while not isinstance(condition, Value) and not isinstance(most, Value) and step < most and condition:
            condition, *carried = self.body(body, [step, *carried])
            step += 1
        if isinstance(condition, Value) or (isinstance(most, Value) and condition):
            # what was unrolled until the condition became one of data stays unrolled
            try:
                carried = loop(self, node, most, condition, [step, *carried])
            except Raised as error:
                # where the loop takes no step it does not raise
                raise ExportError(
                    f"{error}, in a loop whose number of steps depends on data", code="script-raises"
                ) from error
        self.store_all(node, carried)

    # -- attributes

    def attribute(self, owner: Module, name: str) -> ScriptDict:
        """The cell that holds a module's attribute, shared by all that read or assign it."""
        key = owner.path, name
        if key not in self.attributes:
            found = self._owned(getattr(owner.module, name), owner.join(name))
            self.attributes[key] = ScriptDict({"value": found})
        return self.attributes[key]

    def _owned(self, found: Any, path: str) -> Any:
        if isinstance(found, (torch.nn.Module, torch.jit.ScriptModule, torch._C.ScriptModule)):
            return Module(found, path)
        if isinstance(found, torch.ScriptObject):
            with self.machine.outside():
                return prepacked.unpacked(found, path.rpartition(".")[0], self.constant)
        if isinstance(found, torch.Tensor):
            kind = "parameter" if isinstance(found, torch.nn.Parameter) or found.requires_grad else "buffer"
            return self.state(found, path, kind)
        if isinstance(found, (list, tuple)):
            parts = [self._owned(item, f"{path}.{index}") for index, item in enumerate(found)]
            return imported(parts) if isinstance(found, list) else tuple(parts)
        if isinstance(found, dict):
            return ScriptDict({key: self._owned(item, f"{path}.{key}") for key, item in found.items()})
        return found
