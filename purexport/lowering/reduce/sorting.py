"""Order along an axis: sort, topk, k-th values, medians, and positions in sorted sequences.

ONNX TopK puts the lower position first among equal elements, so with k the size of the axis it is a stable sort. NaN is
larger than all numbers, as in torch. ONNX does not specify its order, so NaN is replaced before the comparison (see
`_key`).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.elementwise.compare import ge, gt, le, lt
from purexport.lowering.reduce.reductions import extreme
from purexport.lowering.support.common import axis_of
from purexport.lowering.support.kernels import largest, widened_dtype
from purexport.lowering.tensor.create import iota

# larger than any float32, float16 or bfloat16 number, and less than infinity
_ABOVE = torch.finfo(torch.float64).max


def top_k(
    op: Emitter, value: Value, k: Any, dim: int, greatest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    """(values, positions) of the `k` largest or smallest along `dim`; NaN is the largest."""
    if value.rank == 0:
        return value, op.const(0)
    axis, dtype = axis_of(dim, value.rank), value.dtype
    has_key = dtypes.is_floating(dtype)
    compared = _key(op, value) if has_key else op.cast(value, widened_dtype(op, "TopK", dtype) or dtype)
    found, places = op.multi(
        "TopK", compared, op.ints([k]), outputs=2, axis=axis, largest=int(greatest), sorted=int(sorted)
    )
    if has_key:
        found = op.GatherElements(value, places, axis=axis)
    return op.cast(found, dtype), places


def _key(op: Emitter, value: Value) -> Value:
    """A double in the order of `value`: infinity for NaN, and the largest double for infinity."""
    wide = op.cast(value, dtypes.DOUBLE)
    return op.Where(op.IsNaN(wide), op.like(math.inf, wide), op.Min(wide, op.like(_ABOVE, wide)))


# Sorting ------------------------------------------------------------------------------------------------------------


@lower("aten::topk")
def topk(
    op: Emitter, self: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    """aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values,
    Tensor indices)

    NaN counts as the largest. Of equal elements the one at the lower position comes first.
    """
    return top_k(op, self, op.known(k), dim, largest, sorted)


@lower("aten::sort", "aten::sort.stable")
def sort(
    op: Emitter, self: Value, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> tuple[Value, Value]:
    """aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)

    Stable. NaN comes last, or first if `descending`.
    """
    if self.rank == 0:
        return self, op.const(0)
    size = op.dim(self, dim)
    return top_k(op, self, size, dim, greatest=descending)


@lower("aten::msort")
def msort(op: Emitter, self: Value) -> Value:
    """aten::msort(Tensor self) -> Tensor"""
    return sort(op, self, 0)[0]


@lower("aten::argsort", "aten::argsort.stable")
def argsort(op: Emitter, self: Value, dim: int = -1, descending: bool = False, stable: bool = False) -> Value:
    """aten::argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor

    Stable, also where it is not asked for.
    """
    return sort(op, self, dim, descending)[1]


@lower("aten::kthvalue")
def kthvalue(op: Emitter, self: Value, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """aten::kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)

    (values, positions) of the k-th smallest element, counted from one.
    """
    return _nth(op, self, op.known(k), dim, keepdim)


def _nth(op: Emitter, value: Value, k: int | Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    """The `k`-th smallest along `dim`, and its position."""
    if value.rank == 0:
        return value, op.const(0)
    found, places = top_k(op, value, k, dim, greatest=False)
    axis = axis_of(dim, value.rank)
    last = op.const(k - 1) if isinstance(k, int) else op.Sub(k, op.const(1))
    if keepdim:
        last = op.Unsqueeze(last, axes=[0])
    return op.Gather(found, last, axis=axis), op.Gather(places, last, axis=axis)


# Medians and quantiles ----------------------------------------------------------------------------------------------


def _flat(op: Emitter, value: Value) -> Value:
    return op.Reshape(value, [-1])


@lower("aten::median.dim")
def median_dim(op: Emitter, self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """aten::median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)

    (values, positions). Of two middle values it is the lower one; NaN where an element is NaN.
    """
    if self.rank == 0:
        return self, op.const(0)
    size = op.dim(self, dim)
    half = (size + 1) // 2 if isinstance(size, int) else op.Div(op.Add(size, op.const(1)), op.const(2))
    found, places = _nth(op, self, half, dim, keepdim)
    if not dtypes.is_floating(self.dtype):
        return found, places
    missing = op.cast(op.IsNaN(self), dtypes.FLOAT)
    axis = axis_of(dim, self.rank)
    has_nan = op.cast(op.ReduceMax(missing, axes=[axis], keepdims=int(keepdim)), dtypes.BOOL)
    where = op.ArgMax(missing, axis=axis, keepdims=int(keepdim))
    return op.Where(has_nan, op.like(math.nan, self), found), op.Where(has_nan, where, places)


@lower("aten::median")
def median(op: Emitter, self: Value) -> Value:
    """aten::median(Tensor self) -> Tensor

    Of two middle values it is the lower one; NaN where an element is NaN.
    """
    return median_dim(op, _flat(op, self), 0)[0]


@lower("aten::nanmedian.dim")
def nanmedian_dim(op: Emitter, self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """aten::nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)

    The median of the elements that are not NaN.
    """
    if not dtypes.is_floating(self.dtype) or self.rank == 0:
        return median_dim(op, self, dim, keepdim)
    axis = axis_of(dim, self.rank)
    missing = op.IsNaN(self)
    found, places = top_k(op, self, op.dim(self, axis), axis, greatest=False)
    count = op.ReduceSum(op.cast(op.Not(missing), dtypes.INT64), axes=[axis], keepdims=1)
    # where all elements are NaN, the position is 0 and the value NaN
    at = largest(op, op.Sub(op.Div(op.Add(count, op.const(1)), op.const(2)), op.const(1)), op.const(0))
    value, place = op.GatherElements(found, at, axis=axis), op.GatherElements(places, at, axis=axis)
    nothing = op.Not(op.cast(count, dtypes.BOOL))
    value = op.Where(nothing, op.like(math.nan, self), value)
    if keepdim:
        return value, place
    return op.Squeeze(value, axes=[axis]), op.Squeeze(place, axes=[axis])


@lower("aten::nanmedian")
def nanmedian(op: Emitter, self: Value) -> Value:
    """aten::nanmedian(Tensor self) -> Tensor

    The median of the elements that are not NaN; of two middle values the lower one.
    """
    return nanmedian_dim(op, _flat(op, self), 0)[0]


@lower("aten::quantile", "aten::quantile.scalar")
def quantile(
    op: Emitter, self: Value, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear"
) -> Value:
    """aten::quantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation="linear") -> Tensor

    Values between the sorted elements; the axis of `q` comes first in the result.
    """
    rank, dim = self.rank, None if self.rank == 0 else dim
    value = _flat(op, self) if dim is None else self
    axis = axis_of(dim or 0, value.rank)
    many = isinstance(q, Value) and q.rank == 1
    size = op.dim(value, axis)
    ordered, _ = top_k(op, value, size, axis, greatest=False)
    fraction = op.Reshape(op.like(q, value), [-1])
    place = op.Mul(fraction, op.cast(op.Sub(op.like(size, op.const(0)), op.const(1)), value.dtype))
    result = _between(op, ordered, place, axis, interpolation, value.rank)
    # if an element is NaN, all quantiles along its axis are NaN
    missing = extreme(op, "ReduceMax", value, axis, True) if value.rank else value
    result = op.Where(op.IsNaN(missing), missing, result)
    return _quantile_shape(op, result, axis, many, keepdim, rank if dim is None else value.rank, dim is None)


def _between(op: Emitter, ordered: Value, place: Value, axis: int, interpolation: str, rank: int) -> Value:
    """Values at fractional positions along `axis`, by `interpolation`."""
    below, above = op.Floor(place), op.Ceil(place)
    if interpolation == "nearest":
        below = above = op.Round(place)
    if interpolation in ("lower", "higher"):
        below = above = below if interpolation == "lower" else above
    low, high = (op.Gather(ordered, op.cast(side, dtypes.INT64), axis=axis) for side in (below, above))
    if interpolation not in ("linear", "midpoint"):
        return low
    weight = op.Sub(place, below) if interpolation == "linear" else op.Mul(op.Sub(above, below), op.like(0.5, place))
    weight = op.Reshape(weight, [-1, *[1] * (rank - axis - 1)])
    return op.Add(low, op.Mul(weight, op.Sub(high, low)))


def _quantile_shape(op: Emitter, value: Value, axis: int, many: bool, keepdim: bool, rank: int, flat: bool) -> Value:
    """The result with the axis of the quantiles in front or removed, and with the reduced axes if they are kept."""
    if flat:
        shape = [*([-1] if many else []), *([1] * rank if keepdim else [])]
        return op.Reshape(value, shape) if shape else op.Squeeze(value, axes=[0])
    if not many:
        return value if keepdim else op.Squeeze(value, axes=[axis])
    moved = op.Transpose(value, perm=[axis, *[i for i in range(rank) if i != axis]]) if axis else value
    return op.Unsqueeze(moved, axes=[axis + 1]) if keepdim else moved


# Positions in sorted sequences --------------------------------------------------------------------------------------


@lower("aten::searchsorted.Tensor", promote="sorted_sequence self")
def searchsorted(
    op: Emitter,
    sorted_sequence: Value,
    self: Value,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False,
    str? side=None, Tensor? sorter=None) -> Tensor

    The number of elements of the sequence before each value, with `right` also those equal to it. NaN comes last.
    """
    if sorter is not None:
        sorted_sequence = op.GatherElements(sorted_sequence, sorter, axis=-1)
    after = right or side == "right"
    rank = sorted_sequence.rank
    row = op.Unsqueeze(sorted_sequence, axes=[rank - 1]) if rank > 1 else sorted_sequence
    column = op.Unsqueeze(self, axes=[self.rank])
    compare = gt if after else ge
    # the elements after the value are counted: NaN comes last, so no comparison with it is needed
    behind = op.ReduceSum(op.cast(compare(op, row, column), dtypes.INT64), axes=[max(rank - 1, self.rank)], keepdims=0)
    size = op.dim(sorted_sequence, -1)
    return op.cast(op.Sub(op.like(size, op.const(0)), behind), op.result_dtype)


@lower("aten::searchsorted.Scalar", promote="sorted_sequence self")
def searchsorted_number(
    op: Emitter,
    sorted_sequence: Value,
    self: Value,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False,
    str? side=None, Tensor? sorter=None) -> Tensor
    """
    return searchsorted(op, sorted_sequence, self, out_int32, right, side, sorter)


@lower("aten::bucketize.Tensor", promote="self boundaries")
def bucketize(op: Emitter, self: Value, boundaries: Value, out_int32: bool = False, right: bool = False) -> Value:
    """aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor

    `searchsorted` with the arguments exchanged.
    """
    return searchsorted(op, boundaries, self, out_int32, right)


@lower("aten::bucketize.Scalar", promote="self boundaries")
def bucketize_number(
    op: Emitter, self: Value, boundaries: Value, out_int32: bool = False, right: bool = False
) -> Value:
    """aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor"""
    return searchsorted(op, boundaries, self, out_int32, right)


@lower("aten::histc")
def histc(op: Emitter, self: Value, bins: int = 100, min: Any = 0, max: Any = 0) -> Value:
    """aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor

    Counts in bins of equal width; the last bin includes its upper edge. Equal bounds stand for those of the data.
    """
    flat = _flat(op, self)
    low, high = op.like(min, self), op.like(max, self)
    computed = isinstance(min, Value) or isinstance(max, Value)
    if computed or min == max:
        least, most = op.ReduceMin(flat, keepdims=0), op.ReduceMax(flat, keepdims=0)
        if computed:
            first, last = (op.like(bound, Value(dtypes.DOUBLE)) for bound in (min, max))
            differ = op.Or(op.Less(first, last), op.Greater(first, last))
            low, high = op.Where(differ, low, least), op.Where(differ, high, most)
        else:
            low, high = least, most
        alone = op.cast(op.Not(op.Less(low, high)), self.dtype)
        low, high = op.Sub(low, alone), op.Add(high, alone)
    place = op.Floor(op.Div(op.Mul(op.Sub(flat, low), op.like(bins, self)), op.Sub(high, low)))
    last = op.like(bins - 1, self)
    place = op.Where(op.Greater(place, last), last, place)
    inside = op.And(le(op, low, flat), le(op, flat, high))
    place = op.Where(inside, place, op.like(-1, self))
    bins_ = op.Unsqueeze(op.cast(iota(op, bins), self.dtype), axes=[1])
    half = op.like(0.5, self)
    hits = op.Less(op.Abs(op.Sub(op.Unsqueeze(place, axes=[0]), bins_)), half)
    return op.ReduceSum(op.cast(hits, op.result_dtype), axes=[1], keepdims=0)


@lower("aten::mode")
def mode(op: Emitter, self: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)

    (values, positions). Of the most frequent values it is the smallest, at its last position.
    """
    if self.rank == 0:
        return self, op.const(0)
    axis = axis_of(dim, self.rank)
    size = op.dim(self, axis)
    ordered, places = top_k(op, self, size, axis, greatest=False)
    one, other = op.Unsqueeze(ordered, axes=[axis + 1]), op.Unsqueeze(ordered, axes=[axis])
    same = op.Not(op.Or(lt(op, one, other), gt(op, one, other)))
    counts = op.ReduceSum(op.cast(same, dtypes.INT64), axes=[axis + 1], keepdims=0)
    first = op.ArgMax(counts, axis=axis, keepdims=1)
    # equal values are adjacent in the order of their positions: the last of them
    many = op.ReduceMax(counts, axes=[axis], keepdims=1)
    last = op.Sub(op.Add(first, many), op.const(1))
    found = op.GatherElements(ordered, last, axis=axis)
    place = op.GatherElements(places, last, axis=axis)
    if keepdim:
        return found, place
    return op.Squeeze(found, axes=[axis]), op.Squeeze(place, axes=[axis])
