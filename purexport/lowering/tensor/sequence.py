"""Lists of tensors of a length known at run time only: ONNX sequences (opset 11; across If and Loop opset 13).

The operators (`sequence::at`) are those of this package, recorded when a script is interpreted. torch has no schema for
them. Each one returns a new list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import full


@lower("sequence::construct")
def construct(op: Emitter, items: Sequence[Value], dtype: torch.dtype) -> Value:
    """The list of these tensors; `dtype` is that of the elements, also for an empty list."""
    if items:
        return op.SequenceConstruct(*items)
    return op.SequenceEmpty(dtype=dtypes.onnx_code(dtype))


@lower("sequence::insert")
def insert(op: Emitter, list: Value, item: Value, index: Any) -> Value:
    """The list with `item` before position `index`; with None at the end."""
    return op.SequenceInsert(list, item, None if index is None else _position(op, index))


@lower("sequence::erase")
def erase(op: Emitter, list: Value, index: Any) -> Value:
    """The list without the element at `index`; negative positions count from the end."""
    return op.SequenceErase(list, _position(op, index))


@lower("sequence::at")
def at(op: Emitter, list: Value, index: Any) -> Value:
    """The element at `index`; negative positions count from the end."""
    return op.SequenceAt(list, _position(op, index))


@lower("sequence::length")
def length(op: Emitter, list: Value) -> Value:
    """The number of elements, as a zero-dim int64 value."""
    return op.SequenceLength(list)


@lower("sequence::cat")
def sequence_cat(op: Emitter, list: Value, dim: int) -> Value:
    """The elements concatenated along the axis `dim`."""
    return op.ConcatFromSequence(list, axis=dim)


@lower("sequence::stack")
def sequence_stack(op: Emitter, list: Value, dim: int) -> Value:
    """The elements stacked along a new axis `dim`."""
    return op.ConcatFromSequence(list, axis=dim, new_axis=1)


@lower("sequence::split")
def sequence_split(op: Emitter, self: Value, size: int | None, dim: int) -> Value:
    """Slices of `size` along `dim`, of which the last may be smaller. With None they have size 1, and the axis is
    removed.
    """
    if size is None:
        return op.SplitToSequence(self, axis=dim, keepdims=0)
    return op.SplitToSequence(self, op.const(size), axis=dim)


def copy(op: Emitter, value: Value) -> Value:
    """A new value equal to `value`, which is a tensor or a sequence."""
    if value.element is None or op.takes_sequences("Identity"):
        return op.Identity(value)
    dtype, shape = value.element
    filler = full(op, [1] * len(shape or ()), 0, dtype)
    return op.SequenceErase(op.SequenceInsert(value, filler), op.const(-1))


def _position(op: Emitter, index: Any) -> Value:
    return op.like(index, Value(dtypes.INT64))
