"""Blocks of neutral calls to the bodies of If, Loop and Scan.

A subgraph sees outer names.  Each of its outputs is made by a node of its own, because ONNX wants an output to be
produced inside; what comes from outside, or twice, goes through an Identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purexport import dtypes
from purexport.aten.graph import AtenValue, Block, Dim, ScalarType, SequenceType, TensorType, Type
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.state import LowerCalls, LoweringState
from purexport.lowering.support.pairs import Pair, from_interleaved, part_code, to_interleaved
from purexport.lowering.tensor import sequence

_NUMBERS = {int: dtypes.INT64, float: dtypes.DOUBLE, bool: dtypes.BOOL}


def add_input(state: LoweringState, op: Emitter, value: AtenValue, name: str) -> None:
    """One more input of the body that `op` writes, which stands for `value`."""
    type_ = state.type(value)
    made = typed(Value(name=name), type_)
    state.env[value] = from_border(op, made, type_)
    op.graph.inputs.append(made)


def to_border(op: Emitter, item: Any, type_: Type) -> Value:
    """What crosses the border of a body: a value in the type's dtype, a complex one with a last axis of size 2."""
    return to_interleaved(op, item) if isinstance(item, Pair) else op.like(item, Value(code(type_)))


def from_border(op: Emitter, value: Value, type_: Type) -> Value | Pair:
    """What has crossed the border, as rules know it."""
    return from_interleaved(op, value) if isinstance(type_, TensorType) and type_.dtype.is_complex else value


def fill(
    state: LoweringState,
    op: Emitter,
    block: Block,
    types: Sequence[Type],
    lower_calls: LowerCalls,
    open_sizes: bool = False,
) -> None:
    """The block's calls, and its outputs in the types that the node promises; without outputs where a call failed.

    With `open_sizes` a size that the node does not promise is that of the body.
    """
    before, body = len(state.gaps), op.graph
    op = lower_calls(op, block.calls, block.outputs)
    if len(state.gaps) > before:
        return
    for output, type_ in zip(block.outputs, types, strict=True):
        result = to_border(op, state.argument(output), type_)
        if result.node not in body.nodes or result in body.outputs:
            result = sequence.copy(op, result)
        body.outputs.append(typed(result, type_, open_sizes))


def typed(value: Value, type_: Type, open_sizes: bool = False) -> Value:
    """`value` with the dtype and shape of a neutral type; with `open_sizes` it keeps sizes that this does not say."""
    if isinstance(type_, SequenceType):
        value.element = (dtypes.onnx_code(type_.element.dtype), type_.element.shape)
        return value
    said, known = shape(type_), value.shape
    value.dtype = code(type_)
    if open_sizes and known is not None and said is not None and len(known) == len(said):
        value.shape = tuple([own if size is None else size for size, own in zip(said, known, strict=True)])
    else:
        value.shape = said
    return value


def code(type_: Type) -> int | None:
    """The ONNX data type of a tensor or a number; None for a sequence."""
    if isinstance(type_, SequenceType):
        return None
    if isinstance(type_, TensorType):
        return part_code(type_.dtype)
    assert isinstance(type_, ScalarType), "the capture lets no list through"
    return _NUMBERS[type_.kind]


def shape(type_: Type) -> tuple[Dim, ...] | None:
    """The shape of a tensor or a number, None where unknown."""
    if not isinstance(type_, TensorType):
        return ()
    return (*type_.shape, 2) if type_.dtype.is_complex and type_.shape is not None else type_.shape
