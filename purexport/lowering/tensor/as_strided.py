"""as_strided_copy and as_strided_scatter: elements by their position in memory. (as_strided, a view, is resolved
before.)

A file has no strides. So the tensor is first laid out as torch holds it, which its recorded strides say, and the
positions in memory become a table of indices. A tensor that is a slice of a larger one is refused: its memory goes
beyond its elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from purexport.aten.graph import TensorType
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import permute, reshape
from purexport.lowering.support.positions import replace_along

_CUTS = ("Slice", "Gather", "Split", "GatherElements", "GatherND")


def _memory_order(op: Emitter, value: Value) -> list[int]:
    """The axes from the largest stride to the smallest. A tensor that does not fill its memory without gaps
    is refused.
    """
    type_ = op.operands["self"]
    strides = type_.known_strides if isinstance(type_, TensorType) else None
    if strides is None or not isinstance(type_, TensorType) or not value.is_static:
        raise UnsupportedForm(
            "needs known sizes and strides; declare its axes static, or index the elements instead",
            code="size-not-known",
        )
    if _is_cut(value, type_):
        raise UnsupportedForm(
            "of a slice of a tensor reads memory outside that slice; call .clone() on it before",
            code="memory-layout",
        )
    order = sorted(range(value.rank), key=lambda axis: (-strides[axis], axis))
    order = [axis for axis in order if value.sizes[axis] == 1] + [axis for axis in order if value.sizes[axis] != 1]
    expected = 1
    for axis in reversed(order):
        if value.sizes[axis] != 1 and strides[axis] != expected:
            raise UnsupportedForm(
                "of a tensor that does not fill its memory has no rule; call .contiguous() before", code="memory-layout"
            )
        expected *= value.sizes[axis]
    return order


def _is_cut(value: Value, type_: TensorType) -> bool:
    """Whether the value is a part of another one. The parts of a complex input are taken from it, but fill it."""
    node = value.node
    if node is None or node.op_type not in _CUTS:
        return False
    (source, *_) = node.inputs
    return not (type_.dtype.is_complex and node.op_type == "Gather" and source is not None and source.node is None)


def _places(value: Value, size: Sequence[int], stride: Sequence[int], offset: int | None) -> torch.Tensor:
    """The position in memory of each element of the result."""
    places = torch.tensor(offset or 0)
    for count, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(count) * step
    if places.numel() and int(places.max()) >= math.prod(value.sizes):
        raise UnsupportedForm("reads memory outside its tensor", code="memory-layout")
    return places


def _known(op: Emitter, items: Sequence[object]) -> list[int]:
    found = op.ints(items)
    if isinstance(found, Value):
        raise UnsupportedForm(
            "with computed sizes or strides has no rule; index the elements instead", code="value-not-known"
        )
    return found


@lower("aten::as_strided_copy")
def as_strided_copy(
    op: Emitter, self: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    """aten::as_strided_copy(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor

    The element at index i is the one at `storage_offset + sum(i * stride)` in the memory of the tensor.
    """
    order = _memory_order(op, self)
    places = _places(self, _known(op, size), _known(op, stride), storage_offset)
    flat = reshape(op, permute(op, self, order), [math.prod(self.sizes)])
    return op.Gather(flat, op.const(places), axis=0)


@lower("aten::as_strided_scatter")
def as_strided_scatter(
    op: Emitter, self: Value, src: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    """aten::as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None)
    -> Tensor

    `self` with the elements that as_strided would give replaced by `src`.
    """
    order = _memory_order(op, self)
    places = _places(self, _known(op, size), _known(op, stride), storage_offset).flatten()
    flat = reshape(op, permute(op, self, order), [math.prod(self.sizes)])
    written = replace_along(op, flat, 0, op.const(places), reshape(op, src, [places.numel()]))
    back = reshape(op, written, [self.sizes[axis] for axis in order])
    return permute(op, back, [order.index(axis) for axis in range(self.rank)])
