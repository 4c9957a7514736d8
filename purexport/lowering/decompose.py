"""The safety net: one call without a rule, expanded by torch's own decomposition of that one call.

The call is traced on fake tensors of its recorded types, its decomposition is recorded, and the pieces come back as a
neutral graph without writes.  Sizes that can change are symbols while the call is traced, so that the pieces compute
what follows from them.  A decomposition that took another way for other sizes is not used: whatever it asked of a
symbol must hold for all sizes but the smallest few, which torch's own shape functions leave open too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from proto_schema.sizes import Dim, evaluated
from purexport.aten.graph import AtenGraph, AtenValue, Call, Input, ListType, TensorType, Type, map_values, with_values
from purexport.aten.names import operator_of
from purexport.errors import ExportError
from purexport.functionalize.graph import functionalize
from purexport.fx.reader import read_module
from purexport.shapes.fakes import FakeMachine
from purexport.shapes.guards import holds_but_for_the_smallest
from purexport.shapes.symbols import Symbols

_FAILURES = (RuntimeError, TypeError, ValueError, NotImplementedError, LookupError, ExportError)


def expand(call: Call, type_of: Callable[[AtenValue], Type]) -> AtenGraph | None:
    """The pieces of `call` as a graph over the call's own input values; None when it cannot be expanded.

    `type_of` gives the types of these values.  The graph's outputs are those of the call; a call that gives one list
    has one output, a list.
    """
    own = list(dict.fromkeys(call.inputs()))
    given = {value: AtenValue(type_of(value)) for value in own}
    found = _expanded(with_values(call, given.__getitem__))
    if found is None:
        return None
    back = {value: one for one, value in given.items()}

    def original(value: AtenValue) -> AtenValue:
        return back.get(value, value)

    inputs = [replace(item, value=original(item.value)) for item in found.inputs]
    calls = [with_values(piece, original) for piece in found.calls]
    return AtenGraph(inputs, calls, map_values(found.outputs, original))


def _expanded(call: Call) -> AtenGraph | None:
    overload = operator_of(call.target)
    values = list(dict.fromkeys(call.inputs()))
    if overload is None or not all(map(_is_known, values)) or not all(map(_has_form, call.outputs)):
        return None
    definition = _definitions().get(overload, overload)
    composite = overload.has_kernel_for_dispatch_key("CompositeImplicitAutograd")
    if definition is overload and not composite and overload not in _table():
        return None

    def run(*tensors: torch.Tensor) -> Any:
        known = dict(zip(values, tensors, strict=True))
        return definition(**{name: map_values(arg, known.__getitem__) for name, arg in call.args.items()})

    inputs = [Input(value, f"input_{index}", "user") for index, value in enumerate(values)]
    try:
        if all(_is_static(value) for value in values):
            examples = [_example(value.tensor) for value in values]
            read = read_module(make_fx(run, decomposition_table=_table(), tracing_mode="fake")(*examples), inputs)
        else:
            found = _traced_with_symbols(run, values, inputs)
            if found is None:
                return None
            read = found
        graph = functionalize(read).graph
    except _FAILURES:
        return None
    if any(piece.target == call.target for piece in graph.calls):
        return None
    if len(call.outputs) == 1 and isinstance(call.outputs[0].type, ListType):
        graph = replace(graph, outputs=[list(graph.outputs)])
    return graph if len(graph.outputs) == len(call.outputs) or not read.outputs else None


def _traced_with_symbols(run: Any, values: Sequence[AtenValue], inputs: Sequence[Input]) -> AtenGraph | None:
    """The graph of the decomposition; None where it depends on sizes that can change."""
    machine = FakeMachine(distinct=True)
    with machine.running():
        examples = [_symbolic(machine, value.tensor) for value in values]
    module = make_fx(run, decomposition_table=_table(), tracing_mode="symbolic")(*examples)
    if machine.fixed() or not all(holds_but_for_the_smallest(guard.expr) for guard in machine.shapes.guards):
        return None
    return read_module(module, inputs, Symbols(machine.names))


def _example(type_: TensorType) -> torch.Tensor:
    shape = [size for size in type_.shape or () if isinstance(size, int)]
    return torch.empty(shape, dtype=type_.dtype, device="meta")


def _symbolic(machine: FakeMachine, type_: TensorType) -> torch.Tensor:
    shape = [_size(machine, size) for size in type_.shape or () if size is not None]  # `_is_known`: none is
    return torch.empty(shape, dtype=type_.dtype)


def _size(machine: FakeMachine, size: Dim) -> Any:
    """A symbolic size of torch's for one of ours."""

    def symbol(name: str) -> Any:
        return machine.symbol(name, _EXAMPLE)

    return evaluated(size, symbol, _least, _greatest)


def _least(*sizes: Any) -> Any:
    return functools.reduce(torch.sym_min, sizes)


def _greatest(*sizes: Any) -> Any:
    return functools.reduce(torch.sym_max, sizes)


_EXAMPLE = 12  # only a hint: it stands for any size


def _is_known(value: AtenValue) -> bool:
    """True for a tensor whose sizes are all numbers or expressions of axis names, and for a list of results."""
    type_ = value.type
    if isinstance(type_, ListType):
        return True
    return isinstance(type_, TensorType) and type_.shape is not None and None not in type_.shape


def _has_form(value: AtenValue) -> bool:
    """True for a tensor, of whatever sizes, and for a list of results."""
    return isinstance(value.type, (TensorType, ListType))


def _is_static(value: AtenValue) -> bool:
    return all(isinstance(size, int) for size in value.tensor.shape or ())


@functools.cache
def _table() -> Mapping[Any, Any]:
    from torch._decomp import core_aten_decompositions

    return dict(core_aten_decompositions())


def _definitions() -> Mapping[Any, Any]:
    """The functions by which torch.onnx.ops, where a model has loaded it, computes operators of ONNX."""
    module: Any = sys.modules.get("torch.onnx.ops")
    found: Mapping[Any, Any] = {} if module is None else module.aten_decompositions()
    return found
