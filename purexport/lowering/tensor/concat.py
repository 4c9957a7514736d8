"""Operators that concatenate tensors or repeat their elements along axes.

ONNX Expand broadcasts in both directions, so no arithmetic on sizes is needed to bring tensors to a common shape.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from proto_schema.legalization.sizes import numbers_below, times
from proto_schema.sizes.reshaping import is_copied
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import axis_of, dims_of, full, permute, reshape, reshape_to_result
from purexport.lowering.support.reshaping import size_of
from purexport.lowering.tensor.layout import atleast_1d, atleast_2d, atleast_3d


@lower("aten::cat", "aten::concat", "aten::concatenate")
def cat(op: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    """aten::cat(Tensor[] tensors, int dim=0) -> Tensor

    An empty tensor of rank 1 is skipped, whatever the rank of the others is.
    """
    inputs = [item for item in tensors if item.shape != (0,)] or list(tensors)[:1]
    axis = axis_of(dim, op.result.rank or 1)
    same = [op.cast(item, op.result_dtype) for item in inputs]
    return same[0] if len(same) == 1 else op.Concat(*same, axis=axis)


@lower("aten::stack")
def stack(op: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    """aten::stack(Tensor[] tensors, int dim=0) -> Tensor"""
    axis = dim % (tensors[0].rank + 1)
    inputs = [op.Unsqueeze(op.cast(item, op.result_dtype), [axis]) for item in tensors]
    return op.Concat(*inputs, axis=axis)


@lower("aten::hstack")
def hstack(op: Emitter, tensors: Sequence[Value]) -> Value:
    """aten::hstack(Tensor[] tensors) -> Tensor"""
    inputs = [atleast_1d(op, item) for item in tensors]
    return cat(op, inputs, 0 if tensors[0].rank < 2 else 1)


@lower("aten::vstack", "aten::row_stack")
def vstack(op: Emitter, tensors: Sequence[Value]) -> Value:
    """aten::vstack(Tensor[] tensors) -> Tensor"""
    return cat(op, [atleast_2d(op, item) for item in tensors], 0)


@lower("aten::dstack")
def dstack(op: Emitter, tensors: Sequence[Value]) -> Value:
    """aten::dstack(Tensor[] tensors) -> Tensor"""
    return cat(op, [atleast_3d(op, item) for item in tensors], 2)


@lower("aten::column_stack")
def column_stack(op: Emitter, tensors: Sequence[Value]) -> Value:
    """aten::column_stack(Tensor[] tensors) -> Tensor

    Tensors of rank 0 and 1 become columns.
    """
    inputs = [reshape(op, item, [-1, 1]) if item.rank < 2 else item for item in tensors]
    return op.Concat(*[op.cast(item, op.result_dtype) for item in inputs], axis=1)


# Broadcasting -------------------------------------------------------------------------------------------------------


@lower("aten::expand", "aten::broadcast_to", "aten::expand_copy")
def expand(op: Emitter, self: Value, size: Sequence[Any]) -> Value:
    """aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)

    -1 keeps the size of an axis, as 1 does in ONNX Expand, and as the size itself would.
    """
    shape = op.result.shape
    if shape == self.shape and shape is not None and None not in shape:
        return self
    first = len(size) - self.rank
    asked = [
        1 if item == -1 or (axis >= 0 and is_copied(self.shape or (), axis, size_of(item))) else item
        for axis, item in enumerate(map(op.known, size), -first)
    ]
    return op.Expand(self, op.ints(asked)) if first or any(item != 1 for item in asked) else self


@lower("aten::expand_as")
def expand_as(op: Emitter, self: Value, other: Value) -> Value:
    """aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)"""
    return op.Expand(self, op.shape(other))


@lower("aten::broadcast_tensors")
def broadcast_tensors(op: Emitter, tensors: Sequence[Value]) -> list[Value]:
    """aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]"""
    if all(item.is_static for item in tensors):
        shape = tuple(torch.broadcast_shapes(*[item.sizes for item in tensors]))  # type: ignore[no-untyped-call]
        return [item if item.shape == shape else _expanded(op, item, op.const(list(shape))) for item in tensors]
    return [_with_others(op, item, tensors) for item in tensors]


def _with_others(op: Emitter, value: Value, tensors: Sequence[Value]) -> Value:
    for other in tensors:
        if other is not value and other.rank:
            value = _expanded(op, value, op.shape(other))
    return value


def _expanded(op: Emitter, value: Value, shape: Value) -> Value:
    result: Value = op.Expand(value, shape)
    return result


@lower("aten::meshgrid")
def meshgrid_default(op: Emitter, tensors: Sequence[Value]) -> list[Value]:
    """aten::meshgrid(Tensor[] tensors) -> Tensor[]

    Like `meshgrid` with "ij".
    """
    return meshgrid(op, tensors, "ij")


@lower("aten::meshgrid.indexing")
def meshgrid(op: Emitter, tensors: Sequence[Value], indexing: str) -> list[Value]:
    """aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]

    Each tensor varies along its own axis; "xy" exchanges the first two axes.
    """
    axes = list(range(len(tensors)))
    if indexing == "xy" and len(tensors) > 1:
        axes[:2] = [1, 0]
    thin = [
        reshape(op, item, [-1 if place == axis else 1 for place in range(len(tensors))])
        for axis, item in zip(axes, tensors, strict=True)
    ]
    sizes: list[Any] = [1] * len(tensors)
    for axis, item in zip(axes, tensors, strict=True):
        sizes[axis] = op.dim(item, 0) if item.rank else 1
    return [_expanded(op, item, _vector(op, sizes)) for item in thin] if len(tensors) > 1 else thin


def _vector(op: Emitter, sizes: Sequence[Any]) -> Value:
    found = op.ints(sizes)
    return found if isinstance(found, Value) else op.const(found)


@lower("aten::cartesian_prod")
def cartesian_prod(op: Emitter, tensors: Sequence[Value]) -> Value:
    """aten::cartesian_prod(Tensor[] tensors) -> Tensor"""
    if len(tensors) == 1:
        return tensors[0]
    columns = [reshape(op, item, [-1, 1]) for item in meshgrid(op, tensors, "ij")]
    return op.Concat(*columns, axis=1)


# Repetition ---------------------------------------------------------------------------------------------------------


@lower("aten::repeat")
def repeat(op: Emitter, self: Value, repeats: Sequence[Any]) -> Value:
    """aten::repeat(Tensor self, SymInt[] repeats) -> Tensor"""
    missing = len(repeats) - self.rank
    wide = reshape(op, self, [1] * missing + dims_of(op, self)) if missing else self
    return op.Tile(wide, op.ints(list(repeats))) if len(repeats) else self


@lower("aten::tile")
def tile(op: Emitter, self: Value, dims: Sequence[Any]) -> Value:
    """aten::tile(Tensor self, SymInt[] dims) -> Tensor

    `repeat`, where missing counts are 1.
    """
    return repeat(op, self, [1] * (self.rank - len(dims)) + list(dims))


@lower("aten::repeat_interleave.self_int")
def repeat_interleave(op: Emitter, self: Value, repeats: Any, dim: int | None = None, output_size: Any = None) -> Value:
    """aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None)
    -> Tensor

    Each element `repeats` times in a row: a new axis after `dim`, merged into it.
    """
    flat = reshape(op, self, [-1]) if dim is None else self
    axis = 0 if dim is None else axis_of(dim, self.rank)
    rank = max(self.rank, 1) if dim is not None else 1
    thick = op.Unsqueeze(flat, [axis + 1])
    counts: list[Any] = [1] * (rank + 1)
    counts[axis + 1] = repeats
    sizes = dims_of(op, self) if dim is not None else []
    merged = times(op, sizes[axis], repeats) if sizes else -1  # not -1, since another size may be 0
    return reshape_to_result(op, op.Expand(thick, op.ints(counts)), [*sizes[:axis], merged, *sizes[axis + 1 :]])


@lower("aten::combinations")
def combinations(op: Emitter, self: Value, r: int = 2, with_replacement: bool = False) -> Value:
    """aten::combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor

    The positions are a table. Along a dynamic axis they are those where a mask over `r` axes is true, which lists them
    in the same order.
    """
    length = op.dim(self, 0)
    if not isinstance(length, int) and r > 0:
        places = numbers_below(op, length)
        each = [op.Unsqueeze(places, [axis for axis in range(r) if axis != own]) for own in range(r)]
        masks = [op.Less(one, other) for one, other in pairwise(each)]
        if with_replacement:
            masks = [op.Not(op.Less(other, one)) for one, other in pairwise(each)]
        mask = functools.reduce(op.And, masks) if masks else op.cast(full(op, [length], 1, dtypes.INT64), dtypes.BOOL)
        return op.Gather(self, op.Transpose(op.NonZero(mask), perm=[1, 0]), axis=0)
    if not isinstance(length, int):
        return full(op, [0], 0, self.dtype or dtypes.FLOAT)
    rows = torch.combinations(torch.arange(length), r, with_replacement)
    return op.Gather(self, op.const(rows), axis=0)


@lower("aten::rot90")
def rot90(op: Emitter, self: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    """aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor

    Turns by 90 degrees from the first of `dims` towards the second, `k` times.
    """
    one, other = (axis_of(dim, self.rank) for dim in dims)
    order = list(range(self.rank))
    order[one], order[other] = other, one
    turns = k % 4
    if turns == 0:
        return self
    if turns == 2:
        return flip(op, self, [one, other])
    return permute(op, flip(op, self, [other]), order) if turns == 1 else flip(op, permute(op, self, order), [other])


@lower("aten::fliplr")
def fliplr(op: Emitter, self: Value) -> Value:
    """aten::fliplr(Tensor self) -> Tensor"""
    return flip(op, self, [1])


@lower("aten::flipud")
def flipud(op: Emitter, self: Value) -> Value:
    """aten::flipud(Tensor self) -> Tensor"""
    return flip(op, self, [0])


@lower("aten::flip")
def flip(op: Emitter, self: Value, dims: Sequence[int]) -> Value:
    """aten::flip(Tensor self, int[] dims) -> Tensor

    A Slice with step -1.
    """
    axes = [axis_of(dim, self.rank) for dim in dims]
    if not axes or not self.rank:
        return self
    count = len(axes)
    return op.Slice(self, [-1] * count, [-(2**63)] * count, axes=axes, steps=[-1] * count)
