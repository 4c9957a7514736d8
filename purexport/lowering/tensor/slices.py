"""Operators that take slices of a tensor: slices, chunks, diagonals, windows.

Bounds may be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from proto_schema.legalization.moving import triangle
from proto_schema.legalization.sizes import minus, numbers_below, plus, times, value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import INT64_MAX, axis_of, dims_of, full, permute, reshape
from purexport.lowering.support.kernels import largest, smallest
from purexport.lowering.support.windows import windows


@lower("aten::slice.Tensor", "aten::slice_copy.Tensor")
def slice_rule(op: Emitter, self: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    """aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1)
    -> Tensor(a)

    Bounds are clamped and negative ones count from the end, as in Python and ONNX Slice. The step is positive in torch.
    """
    axis = axis_of(dim, self.rank)
    begin, stop = op.known(0 if start is None else start), op.known(INT64_MAX if end is None else end)
    size = op.dim(self, axis)
    whole = stop == INT64_MAX or (isinstance(stop, int) and isinstance(size, int) and stop >= size)
    if begin == 0 and whole and op.known(step) == 1:
        return self
    return slice_axis(op, self, axis, begin, stop, step)


def slice_axis(op: Emitter, value: Value, axis: int, start: Any, end: Any, step: Any = 1) -> Value:
    """`value[start:end:step]` along one axis; bounds may be computed."""
    start, end, step = op.known(start), op.known(end), op.known(step)
    return op.Slice(value, op.ints([start]), op.ints([end]), axes=[axis], steps=None if step == 1 else [step])


@lower("aten::narrow", "aten::narrow_copy")
def narrow(op: Emitter, self: Value, dim: int, start: Any, length: Any) -> Value:
    """aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)"""
    axis = axis_of(dim, self.rank)
    end = plus(op, start, length)
    if end == 0 and op.known(length) != 0:
        end = INT64_MAX  # a slice from a negative start up to the end of the axis
    return slice_axis(op, self, axis, start, end)


@lower("aten::narrow.Tensor")
def narrow_tensor(op: Emitter, self: Value, dim: int, start: Value, length: Any) -> Value:
    """aten::narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)"""
    return narrow(op, self, dim, op.cast(start, dtypes.INT64), length)


@lower("aten::select.int", "aten::select_copy.int")
def select(op: Emitter, self: Value, dim: int, index: Any) -> Value:
    """aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)"""
    axis = axis_of(dim, self.rank)
    position = op.known(index)
    if isinstance(position, int) and position < 0 and not op.means_today("Gather"):  # which counts from the end
        position = plus(op, op.dim(self, axis), position)
    return op.Gather(self, position if isinstance(position, Value) else op.const(position), axis=axis)


# Lists of chunks ----------------------------------------------------------------------------------------------------


@lower("aten::split.Tensor", "aten::unsafe_split.Tensor", "aten::split_copy.Tensor")
def split(op: Emitter, self: Value, split_size: Any, dim: int = 0) -> list[Value]:
    """aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]

    The last chunk may be smaller.
    """
    size, step = op.dim(self, dim), op.known(split_size)
    if not isinstance(size, int) or not isinstance(step, int):
        return _split_dynamic(op, self, step, dim, size)
    # torch allows a size of 0 for an empty axis
    sizes = [min(step, size - start) for start in range(0, size, step)] if step else []
    return split_with_sizes(op, self, sizes or [0], dim)


def _split_dynamic(op: Emitter, value: Value, step: int | Value, dim: int, size: int | Value) -> list[Value]:
    """As many chunks as the example has.

    Where torch gives fewer, the last size is negative; where it gives more, the sizes are not that of the whole axis.
    Every runtime refuses both.
    """
    count = op.count
    if count is None:  # a script: the list may have any length
        what, code = ("a dynamic axis ", "size-not-known") if isinstance(step, int) else ("", "value-not-known")
        raise UnsupportedForm(f"splits {what}into an unknown number of chunks; give the sizes of the chunks", code=code)
    op.remark(f"makes {count} chunks; for a size of which torch makes fewer or more, the file stops with an error")
    rest = op.Sub(size, op.Mul(step, op.const(count - 1)))
    last = op.Min(rest, step)
    if count > 1:  # 8 in chunks of 4 has no empty third one; but an empty axis has an empty one
        last = op.Sub(last, op.cast(op.Equal(rest, op.const(0)), dtypes.INT64))
    sizes = op.ints([step] * (count - 1) + [last])
    return list(op.multi("Split", value, split=sizes, axis=axis_of(dim, value.rank), outputs=count))


def _known_size(op: Emitter, value: Value, dim: int, verb: str) -> int:
    size = op.dim(value, dim)
    if not isinstance(size, int):
        raise UnsupportedForm(
            f"{verb} a dynamic axis into an unknown number of chunks; declare that axis static", code="size-not-known"
        )
    return size


@lower("aten::split_with_sizes", "aten::unsafe_split_with_sizes", "aten::split_with_sizes_copy")
def split_with_sizes(op: Emitter, self: Value, split_sizes: Sequence[Any], dim: int = 0) -> list[Value]:
    """aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]"""
    if len(split_sizes) == 1:
        return [self]
    axis = axis_of(dim, self.rank)
    found = op.multi("Split", self, split=op.ints(list(split_sizes)), axis=axis, outputs=len(split_sizes))
    return list(found)


@lower("aten::split.sizes")
def split_sizes_rule(op: Emitter, self: Value, split_size: Sequence[Any], dim: int = 0) -> list[Value]:
    """aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]"""
    return split_with_sizes(op, self, split_size, dim)


@lower("aten::chunk", "aten::unsafe_chunk")
def chunk(op: Emitter, self: Value, chunks: int, dim: int = 0) -> list[Value]:
    """aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]

    There may be fewer chunks than asked for: 5 in 4 chunks is 2, 2, 1. An empty axis gives `chunks` empty ones.
    """
    size = op.dim(self, dim)
    if not isinstance(size, int):
        return _chunk_dynamic(op, self, chunks, dim, size)
    if size == 0:
        return [self] * chunks
    return split(op, self, max(-(-size // chunks), 1), dim)


def _chunk_dynamic(op: Emitter, value: Value, chunks: int, dim: int, size: Value) -> list[Value]:
    """As many chunks as asked for. Where torch gives fewer, the last size is negative, which every runtime refuses."""
    op.remark(f"makes {chunks} chunks; for a size of which torch makes fewer, the file stops with an error")
    step = op.Div(op.Add(size, op.const(chunks - 1)), op.const(chunks))
    rest = op.Sub(size, op.Mul(step, op.const(chunks - 1)))
    # 4 in 3 chunks is 2, 2, without an empty third one; but an empty axis has as many empty chunks as asked for
    missing = op.And(op.Equal(rest, op.const(0)), op.Greater(size, op.const(0)))
    return split_with_sizes(op, value, [step] * (chunks - 1) + [op.Sub(rest, op.cast(missing, dtypes.INT64))], dim)


@lower("aten::tensor_split.sections")
def tensor_split_sections(op: Emitter, self: Value, sections: int, dim: int = 0) -> list[Value]:
    """aten::tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]

    Always `sections` chunks, of which the first ones may be longer by one.
    """
    size, each = op.dim(self, dim), op.const(sections)
    if isinstance(size, int):
        return split_with_sizes(op, self, [(size + index) // sections for index in reversed(range(sections))], dim)
    sizes = [op.Div(op.Add(size, op.const(index)), each) for index in reversed(range(sections))]
    return split_with_sizes(op, self, sizes, dim)


@lower("aten::tensor_split.indices")
def tensor_split(op: Emitter, self: Value, indices: Sequence[Any], dim: int = 0) -> list[Value]:
    """aten::tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]

    Plain slices between the positions, which may be negative, out of range or out of order.
    """
    axis = axis_of(dim, self.rank)
    return [slice_axis(op, self, axis, *bounds) for bounds in pairwise([0, *indices, INT64_MAX])]


@lower("aten::tensor_split.tensor_indices_or_sections")
def tensor_split_at(op: Emitter, self: Value, tensor_indices_or_sections: Value, dim: int = 0) -> list[Value]:
    """aten::tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor tensor_indices_or_sections, int dim=0)
    -> Tensor(a)[]

    The positions are elements of the tensor, whose number is known; a number of chunks has to be a constant.
    """
    given = tensor_indices_or_sections
    if not given.rank:
        if given.const is None:
            raise UnsupportedForm("by a number of chunks that the data decides has no rule", code="form-without-rule")
        return tensor_split_sections(op, self, int(given.const), dim)
    count = op.dim(given, 0)
    if not isinstance(count, int):
        raise UnsupportedForm("at positions whose number is dynamic has no rule", code="size-not-known")
    return tensor_split(op, self, [op.Gather(given, op.const(place), axis=0) for place in range(count)], dim)


@lower("aten::hsplit.int")
def hsplit_int(op: Emitter, self: Value, sections: int) -> list[Value]:
    """aten::hsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]"""
    return tensor_split_sections(op, self, sections, 0 if self.rank == 1 else 1)


@lower("aten::hsplit.array")
def hsplit(op: Emitter, self: Value, indices: Sequence[int]) -> list[Value]:
    """aten::hsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]"""
    return tensor_split(op, self, indices, 0 if self.rank == 1 else 1)


@lower("aten::vsplit.int")
def vsplit_int(op: Emitter, self: Value, sections: int) -> list[Value]:
    """aten::vsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]"""
    return tensor_split_sections(op, self, sections, 0)


@lower("aten::vsplit.array")
def vsplit(op: Emitter, self: Value, indices: Sequence[int]) -> list[Value]:
    """aten::vsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]"""
    return tensor_split(op, self, indices, 0)


@lower("aten::dsplit.int")
def dsplit_int(op: Emitter, self: Value, sections: int) -> list[Value]:
    """aten::dsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]"""
    return tensor_split_sections(op, self, sections, 2)


@lower("aten::dsplit.array")
def dsplit(op: Emitter, self: Value, indices: Sequence[int]) -> list[Value]:
    """aten::dsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]"""
    return tensor_split(op, self, indices, 2)


@lower("aten::unbind.int", "aten::unbind_copy.int")
def unbind(op: Emitter, self: Value, dim: int = 0) -> list[Value]:
    """aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]"""
    size = _known_size(op, self, dim, "unbinds")
    axis = axis_of(dim, self.rank)
    return [op.Gather(self, op.const(index), axis=axis) for index in range(size)]


# Diagonals and windows ----------------------------------------------------------------------------------------------


def axes_last(rank: int, dim1: int, dim2: int) -> list[int]:
    """The order of axes in which `dim1` and `dim2` come last."""
    one, other = axis_of(dim1, rank), axis_of(dim2, rank)
    return [*(axis for axis in range(rank) if axis not in (one, other)), one, other]


def diagonal_positions(op: Emitter, rows: Any, columns: Any, offset: int) -> Value:
    """The positions of the elements of the diagonal in a flattened matrix."""
    if isinstance(rows, int) and isinstance(columns, int):
        matrix = torch.arange(rows * columns).reshape(rows, columns)
        return op.const(matrix.diagonal(offset).clone())
    down, right = max(-offset, 0), max(offset, 0)
    height, width = value_of(op, minus(op, rows, down)), value_of(op, minus(op, columns, right))
    length = largest(op, smallest(op, height, width), op.const(0))
    first = plus(op, times(op, columns, down), right)
    steps = op.Mul(numbers_below(op, length), value_of(op, plus(op, columns, 1)))
    return op.Add(steps, value_of(op, first))


@lower("aten::diagonal", "aten::diagonal_copy")
def diagonal(op: Emitter, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)

    The diagonal becomes the last axis; a positive `offset` is above the main diagonal.
    """
    matrices = permute(op, self, axes_last(self.rank, dim1, dim2))
    *batch, rows, columns = dims_of(op, matrices)
    flat = reshape(op, matrices, [*batch, times(op, rows, columns)])
    return op.Gather(flat, diagonal_positions(op, rows, columns, offset), axis=len(batch))


@lower("aten::linalg_diagonal")
def linalg_diagonal(op: Emitter, A: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:  # noqa: N803
    """aten::linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)"""
    return diagonal(op, A, offset, dim1, dim2)


@lower("aten::diag_embed")
def diag_embed(op: Emitter, self: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor

    All positions of the matrix are gathered; off the diagonal they point at a zero after the last element.
    """
    axis, length = self.rank - 1, op.dim(self, -1)
    size = plus(op, length, abs(offset))
    if isinstance(length, int) and isinstance(size, int):
        places = torch.full((size, size), length)
        places.diagonal(offset).copy_(torch.arange(length))
        found = op.const(places)
    else:
        row, column = op.Unsqueeze(numbers_below(op, size), [1]), op.Unsqueeze(numbers_below(op, size), [0])
        on_diagonal = op.Equal(op.Add(row, op.const(offset)), column)
        found = op.Where(on_diagonal, op.Sub(row, op.const(max(-offset, 0))), value_of(op, length))
    sizes = dims_of(op, self)
    sizes[axis] = 1
    zero = full(op, sizes, 0, self.dtype or dtypes.FLOAT)
    matrices = op.Gather(op.Concat(self, zero, axis=axis), found, axis=axis)
    order = axes_last(self.rank + 1, dim1, dim2)
    return permute(op, matrices, [order.index(place) for place in range(self.rank + 1)])


@lower("aten::diag")
def diag(op: Emitter, self: Value, diagonal: int = 0) -> Value:
    """aten::diag(Tensor self, int diagonal=0) -> Tensor

    The diagonal of a matrix, or the matrix with a vector as its diagonal.
    """
    return diag_embed(op, self, diagonal) if self.rank == 1 else linalg_diagonal(op, self, diagonal)


@lower("aten::diagflat")
def diagflat(op: Emitter, self: Value, offset: int = 0) -> Value:
    """aten::diagflat(Tensor self, int offset=0) -> Tensor"""
    flat = self if self.rank == 1 else reshape(op, self, [-1])
    return diag_embed(op, flat, offset)


@lower("aten::unfold", "aten::unfold_copy")
def unfold(op: Emitter, self: Value, dimension: int, size: Any, step: Any) -> Value:
    """aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)

    Windows along an axis, one after the other on it; the new last axis is the position in the window.
    """
    if not self.rank:
        return reshape(op, self, [1])
    axis, length = axis_of(dimension, self.rank), op.dim(self, dimension)
    size, step = op.known(size), op.known(step)
    if any(isinstance(item, Value) for item in (length, size, step)):
        return windows(op, self, axis, size, step)
    found = op.const(torch.arange(0, length - size + 1, step)[:, None] + torch.arange(size))
    order = [*range(axis + 1), *range(axis + 2, self.rank + 1), axis + 1]
    return permute(op, op.Gather(self, found, axis=axis), order)


@lower("aten::tril")
def tril(op: Emitter, self: Value, diagonal: Any = 0) -> Value:
    """aten::tril(Tensor self, SymInt diagonal=0) -> Tensor"""
    return _triangle(op, self, diagonal, upper=False)


@lower("aten::triu")
def triu(op: Emitter, self: Value, diagonal: Any = 0) -> Value:
    """aten::triu(Tensor self, SymInt diagonal=0) -> Tensor"""
    return _triangle(op, self, diagonal, upper=True)


def _triangle(op: Emitter, value: Value, offset: Any, *, upper: bool) -> Value:
    """ONNX Trilu where the runtime has a kernel, else a comparison of rows with columns."""
    bound = value_of(op, op.known(offset))
    if value.dtype in (dtypes.FLOAT, dtypes.DOUBLE, dtypes.INT64, dtypes.BOOL):
        result: Value = op.Trilu(value, bound, upper=int(upper))
        return result
    found: Value = triangle(op, value, bound, int(upper))
    return found
