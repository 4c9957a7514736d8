"""Lists of tensors whose length only the run knows: ONNX sequences (opset 11, across If and Loop 13).

The calls are our own (`sequence::at`), recorded by the interpretation of scripts; an operation gives a new list.
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
    """The list of these tensors; `dtype` is that of the elements, also where there is none."""
    if items:
        return op.SequenceConstruct(*items)
    return op.SequenceEmpty(dtype=dtypes.onnx_code(dtype))


@lower("sequence::insert")
def insert(op: Emitter, list: Value, item: Value, index: Any) -> Value:
    """`item` before position `index`; None: at the end."""
    return op.SequenceInsert(list, item, None if index is None else _position(op, index))


@lower("sequence::erase")
def erase(op: Emitter, list: Value, index: Any) -> Value:
    return op.SequenceErase(list, _position(op, index))


@lower("sequence::at")
def at(op: Emitter, list: Value, index: Any) -> Value:
    return op.SequenceAt(list, _position(op, index))


@lower("sequence::length")
def length(op: Emitter, list: Value) -> Value:
    return op.SequenceLength(list)


@lower("sequence::cat")
def cat(op: Emitter, list: Value, dim: int) -> Value:
    return op.ConcatFromSequence(list, axis=dim)


@lower("sequence::stack")
def stack(op: Emitter, list: Value, dim: int) -> Value:
    return op.ConcatFromSequence(list, axis=dim, new_axis=1)


@lower("sequence::split")
def split(op: Emitter, self: Value, size: int | None, dim: int) -> Value:
    """Pieces of `size` along `dim`, the last one maybe smaller; None: of size 1, and without that axis."""
    if size is None:
        return op.SplitToSequence(self, axis=dim, keepdims=0)
    return op.SplitToSequence(self, op.const(size), axis=dim)


def copy(op: Emitter, value: Value) -> Value:
    """A value of its own that holds what `value` holds, a tensor or a sequence."""
    if value.element is None or op.takes_sequences("Identity"):
        return op.Identity(value)
    dtype, shape = value.element
    filler = full(op, [1] * len(shape or ()), 0, dtype)
    return op.SequenceErase(op.SequenceInsert(value, filler), op.const(-1))


def _position(op: Emitter, index: Any) -> Value:
    return op.like(index, Value(dtypes.INT64))
