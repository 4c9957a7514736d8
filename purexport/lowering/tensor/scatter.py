"""Writing into a copy: into slices and diagonals, and by computed positions.

The functionalization turns writes through views into these operators. Slices are concatenated where the bounds allow
it. Otherwise positions are replaced (`support/positions.py`), so that an empty or clamped slice means what it means in
torch.
"""

from __future__ import annotations

from typing import Any

import torch

from proto_schema.legalization.sizes import nonnegative, numbers_below, times
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.elementwise.arithmetic import floor_divide
from purexport.lowering.support.common import INT64_MAX, axis_of, dims_of, full, permute, reshape
from purexport.lowering.support.positions import replace_along, scatter_add_along
from purexport.lowering.tensor.slices import axes_last, diagonal_positions, slice_axis


@lower("aten::slice_scatter")
def slice_scatter(
    op: Emitter, self: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Value:
    """aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1)
    -> Tensor

    `self` with `self[start:end:step]` along one axis replaced by `src`.
    """
    axis = axis_of(dim, self.rank)
    size = op.dim(self, axis)
    begin, stop, stride = op.known(start or 0), op.known(INT64_MAX if end is None else end), op.known(step)
    src = op.cast(src, self.dtype)
    if isinstance(size, int) and isinstance(begin, int) and isinstance(stop, int) and isinstance(stride, int):
        places = list(range(size)[begin:stop:stride])
        if not places:
            return self
        if stride == 1:
            return _concat(op, self, src, axis, places[0], places[-1] + 1)
        return replace_along(op, self, axis, op.const(places), src)
    if stride == 1 and _is_concat(begin, stop):
        return _concat(op, self, src, axis, begin, stop)
    positions = slice_axis(op, numbers_below(op, size), 0, begin, stop, stride)
    return replace_along(op, self, axis, positions, src)


def _is_concat(begin: Any, stop: Any) -> bool:
    """Whether the result is the concat of slices and `src` for every size of the axis."""
    if begin == 0 or stop == INT64_MAX:
        return True
    known = isinstance(begin, int) and isinstance(stop, int)
    return known and (begin < 0) == (stop < 0) and begin <= stop


def _concat(op: Emitter, value: Value, src: Value, axis: int, begin: Any, stop: Any) -> Value:
    size = op.dim(value, axis)
    inputs = [] if begin == 0 else [slice_axis(op, value, axis, 0, begin)]
    inputs.append(src)
    if stop not in (size, INT64_MAX):
        inputs.append(slice_axis(op, value, axis, stop, INT64_MAX))
    if len(inputs) == 1:
        return src
    written = op.Concat(*inputs, axis=axis)
    # torch takes a source of exactly the size that is left out, wherever the slices are cut
    written.shape = value.shape
    return written


@lower("aten::select_scatter")
def select_scatter(op: Emitter, self: Value, src: Value, dim: int, index: Any) -> Value:
    """aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor

    `self` with `self[index]` along one axis replaced by `src`.
    """
    axis = axis_of(dim, self.rank)
    thick = op.Unsqueeze(op.cast(src, self.dtype), [axis])
    size, position = op.dim(self, axis), op.known(index)
    if not isinstance(position, int):
        place = nonnegative(op, reshape(op, position, [1]), size)
        return replace_along(op, self, axis, place, thick)
    if isinstance(size, int):
        position %= size
    last = position in (-1, size - 1 if isinstance(size, int) else -1)
    return _concat(op, self, thick, axis, position, INT64_MAX if last else position + 1)


@lower("aten::diagonal_scatter")
def diagonal_scatter(op: Emitter, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor

    `self` with a diagonal of the matrices on two axes replaced by `src`, whose last axis is that diagonal.
    """
    order = axes_last(self.rank, dim1, dim2)
    matrices = permute(op, self, order)
    *batch, rows, columns = dims_of(op, matrices)
    flat = reshape(op, matrices, [*batch, times(op, rows, columns)])
    positions = diagonal_positions(op, rows, columns, offset)
    new = replace_along(op, flat, len(batch), positions, src)
    back = reshape(op, new, [*batch, rows, columns])
    return permute(op, back, [order.index(axis) for axis in range(self.rank)])


# By index tensors along one axis --------------------------------------------------------------------------------------


@lower("aten::index_copy")
def index_copy(op: Emitter, self: Value, dim: int, index: Value, source: Value) -> Value:
    """aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor

    `source` replaces the slices at `index`; which one counts at equal positions is undefined in torch.
    """
    axis = axis_of(dim, self.rank)
    if not self.rank:
        return reshape(op, source, [])
    return replace_along(op, self, axis, _row(op, index), source)


@lower("aten::index_fill.int_Scalar", "aten::index_fill.int_Tensor")
def index_fill(op: Emitter, self: Value, dim: int, index: Value, value: Any) -> Value:
    """aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor"""
    axis = axis_of(dim, self.rank)
    if not self.rank:
        return op.like(value, self)
    sizes = dims_of(op, self)
    sizes[axis] = 1
    filler = full(op, sizes, value, self.dtype or dtypes.FLOAT)
    positions = nonnegative(op, _row(op, index), op.dim(self, axis))
    return replace_along(op, self, axis, positions, filler, same_part=True)


def _row(op: Emitter, index: Value) -> Value:
    """An index as a tensor of rank 1; torch takes a zero-dim one too."""
    return op.cast(index if index.rank else reshape(op, index, [1]), dtypes.INT64)


@lower("aten::index_add")
def index_add(op: Emitter, self: Value, dim: int, index: Value, source: Value, alpha: Any = 1) -> Value:
    """aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor"""
    scaled = source if alpha == 1 else op.Mul(source, op.like(alpha, source))
    return _along(op, self, dim, index, scaled, "add")


@lower("aten::index_reduce")
def index_reduce(
    op: Emitter, self: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    """aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True)
    -> Tensor

    With `include_self=False` the old elements at `index` do not count.
    """
    axis, places = _places(op, self, dim, index, source)
    return _reduced(op, self, axis, places, source, reduce, include_self)


def _along(op: Emitter, self: Value, dim: int, index: Value, source: Value, reduction: str) -> Value:
    axis, places = _places(op, self, dim, index, source)
    return _scattered(op, self, axis, places, source, reduction)


def _places(op: Emitter, self: Value, dim: int, index: Value, source: Value) -> tuple[int, Value]:
    """(axis, the index repeated over the slices of `source`)."""
    axis = axis_of(dim, self.rank)
    if not self.rank:
        return 0, _row(op, index)
    thin = reshape(op, _row(op, index), [-1 if place == axis else 1 for place in range(self.rank)])
    places = op.Expand(thin, op.shape(source))
    # torch takes as many slices as there are positions, of which inference may not know
    places.shape = source.shape
    return axis, places


# Element by element ---------------------------------------------------------------------------------------------------

_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}


@lower("aten::scatter.src")
def scatter_src(op: Emitter, self: Value, dim: int, index: Value, src: Value) -> Value:
    """aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor

    Only the elements of `src` that `index` covers are used.
    """
    return _scattered(op, self, axis_of(dim, self.rank), index, src, None)


@lower("aten::scatter.value")
def scatter_value(op: Emitter, self: Value, dim: int, index: Value, value: Any) -> Value:
    """aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor"""
    return _scattered(op, self, axis_of(dim, self.rank), index, _everywhere(op, self, index, value), None)


@lower("aten::scatter.reduce")
def scatter_with(op: Emitter, self: Value, dim: int, index: Value, src: Value, reduce: str) -> Value:
    """aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor"""
    return _scattered(op, self, axis_of(dim, self.rank), index, src, _REDUCTIONS[reduce])


@lower("aten::scatter.value_reduce")
def scatter_value_with(op: Emitter, self: Value, dim: int, index: Value, value: Any, reduce: str) -> Value:
    """aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor"""
    src = _everywhere(op, self, index, value)
    return _scattered(op, self, axis_of(dim, self.rank), index, src, _REDUCTIONS[reduce])


@lower("aten::scatter_add")
def scatter_add(op: Emitter, self: Value, dim: int, index: Value, src: Value) -> Value:
    """aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"""
    return _scattered(op, self, axis_of(dim, self.rank), index, src, "add")


@lower("aten::scatter_reduce.two")
def scatter_reduce(
    op: Emitter, self: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    """aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True)
    -> Tensor

    With `include_self=False` the old elements at `index` do not count. The "mean" of integers is rounded down.
    """
    return _reduced(op, self, axis_of(dim, self.rank), index, src, reduce, include_self)


def _everywhere(op: Emitter, self: Value, index: Value, number: Any) -> Value:
    return full(op, dims_of(op, index), number, self.dtype or dtypes.FLOAT)


def _reduced(op: Emitter, self: Value, axis: int, index: Value, src: Value, reduce: str, include_self: bool) -> Value:
    """The reduction; with `include_self=False` each written element starts from the neutral number of the reduction."""
    if self.dtype == dtypes.BOOL:
        numbers = [op.cast(item, dtypes.INT32) for item in (self, src)]
        return op.cast(_reduced(op, numbers[0], axis, index, numbers[1], reduce, include_self), dtypes.BOOL)
    if reduce == "mean":
        return _mean(op, self, axis, index, src, include_self)
    base = self
    if not include_self:
        neutral = {"sum": 0, "prod": 1, "amax": _lowest(self.dtype), "amin": _highest(self.dtype)}[reduce]
        base = _scattered(op, self, axis, index, _everywhere(op, self, index, neutral), None)
    return _scattered(op, base, axis, index, src, _REDUCTIONS[reduce])


def _mean(op: Emitter, self: Value, axis: int, index: Value, src: Value, include_self: bool) -> Value:
    """Sums divided by counts; of integers rounded down."""
    ones = full(op, dims_of(op, self), 1, self.dtype or dtypes.FLOAT)
    counts = _reduced(op, ones, axis, index, _everywhere(op, self, index, 1), "sum", include_self)
    sums = _reduced(op, self, axis, index, src, "sum", include_self)
    return op.Div(sums, counts) if dtypes.is_floating(self.dtype) else floor_divide(op, sums, counts)


def _lowest(dtype: int | None) -> Any:
    info = dtypes.torch_dtype(dtype or dtypes.FLOAT)
    return -float("inf") if info.is_floating_point else torch.iinfo(info).min


def _highest(dtype: int | None) -> Any:
    info = dtypes.torch_dtype(dtype or dtypes.FLOAT)
    return float("inf") if info.is_floating_point else torch.iinfo(info).max


def _scattered(op: Emitter, self: Value, axis: int, index: Value, src: Value, reduction: str | None) -> Value:
    """ScatterElements. torch uses the elements of a larger `src` that `index` covers, and takes zero-dim tensors."""
    if index.shape is not None and 0 in index.shape:
        return self
    if reduction is not None and self.dtype == dtypes.FLOAT16:  # ONNX Runtime (1.31) cannot reduce float16
        wide = op.cast(self, dtypes.FLOAT)
        return op.cast(_scattered(op, wide, axis, index, src, reduction), self.dtype)
    if not self.rank:
        row = [reshape(op, item, [1]) for item in (self, index, src)]
        return reshape(op, _scattered(op, row[0], 0, row[1], row[2], reduction), [])
    index, src = (reshape(op, item, [1]) if item.shape == () else item for item in (index, src))
    src = op.cast(src, self.dtype)
    for place in range(self.rank):
        extent = op.dim(index, place)
        if src.shape is not None and index.shape is not None and src.shape[place] != index.shape[place]:
            shape = (*src.shape[:place], index.shape[place], *src.shape[place + 1 :])
            src = slice_axis(op, src, place, 0, extent)
            # torch takes no `src` that is smaller than `index`, of which inference knows nothing
            src.shape = shape
    index = op.cast(index, dtypes.INT64)
    return op.ScatterElements(self, index, src, axis=axis, reduction=reduction)


# By masks -----------------------------------------------------------------------------------------------------------


@lower("aten::masked_scatter")
def masked_scatter(op: Emitter, self: Value, mask: Value, source: Value) -> Value:
    """aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor

    The n-th true position of the mask takes the n-th element of `source`. The mask and `self` broadcast.
    """
    wide = mask
    if mask.shape != self.shape:
        wide = op.Expand(mask, op.shape(self))
        self = op.Expand(self, op.shape(wide))
    flat = op.Cast(op.Reshape(wide, [-1]), to=dtypes.INT64)
    rank = op.Sub(op.CumSum(flat, op.const(0)), op.const(1))
    position = op.Mul(rank, flat)  # where the mask is false, any element will do
    elements = reshape(op, source, [-1])
    if not all(isinstance(size, int) and size for size in source.shape or [None]):  # there may be none
        elements = op.Concat(elements, op.Cast(op.const([0]), to=source.dtype), axis=0)
    new = op.Reshape(op.Gather(elements, position, axis=0), op.shape(self))
    return op.Where(wide, new, self) if self.rank else op.Where(wide, op.Reshape(new, op.const([])), self)


@lower("aten::put")
def put(op: Emitter, self: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor

    Elements of the flattened tensor are replaced, or added to with `accumulate`.
    """
    flat = reshape(op, self, [-1])
    size = times(op, *dims_of(op, self))
    positions = nonnegative(op, reshape(op, index, [-1]), size)
    values = reshape(op, source, [-1])
    new = (scatter_add_along if accumulate else replace_along)(op, flat, 0, positions, values)
    return reshape(op, new, dims_of(op, self))
