"""Running sums, products, extremes and logarithms of sums along an axis, and differences.

ONNX has CumSum and CumProd. All others are reductions of a triangle: the axis is repeated as a
second axis, later elements are replaced by the neutral element, and the second axis is reduced. That takes memory of
the square of the axis.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import INT64_MAX, axis_of
from purexport.lowering.support.kernels import widened_dtype
from purexport.lowering.tensor.create import iota
from purexport.lowering.tensor.slices import slice_axis


def _triangle(op: Emitter, value: Value, axis: int) -> Value:
    """True where position j (axis + 1) is not after position i (axis), in a shape that broadcasts against the doubled
    axis.
    """
    place = iota(op, op.dim(value, axis))
    later = op.Less(op.Unsqueeze(place, axes=[1]), op.Unsqueeze(place, axes=[0]))
    behind = value.rank - axis - 1
    earlier = op.Not(later)
    return op.Unsqueeze(earlier, axes=list(range(2, 2 + behind))) if behind else earlier


def _running(op: Emitter, op_type: str, value: Value, dim: int, neutral: Any) -> Value:
    if value.rank == 0:
        return value
    axis = axis_of(dim, value.rank)
    doubled = op.Unsqueeze(value, axes=[axis])
    masked = op.Where(_triangle(op, value, axis), doubled, op.like(neutral, value))
    return op.emit(op_type, masked, axes=[axis + 1], keepdims=0)


@lower("aten::cumsum")
def cumsum(op: Emitter, self: Value, dim: int, dtype: Any = None) -> Value:
    """aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor

    Integers are summed in int64, as in torch.
    """
    return running_sum(op, op.cast(self, op.result_dtype), dim)


def running_sum(op: Emitter, value: Value, dim: int) -> Value:
    """The cumulative sum along `dim`, in the dtype of `value`."""
    return _of_axis(op, "CumSum", value, dim)


def _of_axis(op: Emitter, op_type: str, value: Value, dim: int) -> Value:
    if not value.rank:
        return value
    inside = op.cast(value, widened_dtype(op, op_type, value.dtype) or value.dtype)
    return op.cast(op.emit(op_type, inside, op.const(axis_of(dim, value.rank))), value.dtype)


@lower("aten::diff", promote="prepend self append")
def diff(
    op: Emitter, self: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None
) -> Value:
    """aten::diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor

    Each element less the one before it, `n` times in turn. For booleans the result says whether they differ.
    """
    axis = axis_of(dim, self.rank)
    parts = [part for part in (prepend, self, append) if part is not None]
    value = op.Concat(*parts, axis=axis) if len(parts) > 1 else self
    size = op.dim(value, axis)
    for _ in range(min(n, size) if isinstance(size, int) else n):
        after, before = slice_axis(op, value, axis, 1, INT64_MAX), slice_axis(op, value, axis, 0, -1)
        value = op.Xor(after, before) if value.dtype == dtypes.BOOL else op.Sub(after, before)
    return value


@lower("aten::cumprod")
def cumprod(op: Emitter, self: Value, dim: int, dtype: Any = None) -> Value:
    """aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor

    Integers are multiplied in int64, as in torch.
    """
    return _of_axis(op, "CumProd", op.cast(self, op.result_dtype), dim)


@lower("aten::vander")
def vander(op: Emitter, x: Value, N: int | None = None, increasing: bool = False) -> Value:  # noqa: N803  the schema's name
    """aten::vander(Tensor x, int? N=None, bool increasing=False) -> Tensor

    Row i holds the powers of element i, as running products: the first power is 1.
    """
    rows = op.dim(x, 0)
    columns = rows if N is None else op.known(N)
    base = op.Unsqueeze(op.cast(x, op.result_dtype), [1])
    wide = op.Expand(base, op.ints([rows, columns]))
    is_first = op.Equal(op.Unsqueeze(iota(op, columns), [0]), op.const(0))
    powers = _of_axis(op, "CumProd", op.Where(is_first, op.like(1, base), wide), 1)
    return powers if increasing else op.Slice(powers, [-1], [-INT64_MAX], axes=[1], steps=[-1])


@lower("aten::logcumsumexp")
def logcumsumexp(op: Emitter, self: Value, dim: int) -> Value:
    """aten::logcumsumexp(Tensor self, int dim) -> Tensor

    log(cumsum(exp(x))), in a stable form with the running maximum.
    """
    if self.rank == 0:
        return self
    axis = axis_of(dim, self.rank)
    top = _running(op, "ReduceMax", self, dim, -math.inf)
    finite = op.Where(op.Less(op.Abs(top), op.like(math.inf, top)), top, op.like(0, top))
    terms = op.Exp(op.Sub(op.Unsqueeze(self, axes=[axis]), op.Unsqueeze(finite, axes=[axis + 1])))
    masked = op.Where(_triangle(op, self, axis), terms, op.like(0, self))
    return op.Add(op.Log(op.ReduceSum(masked, axes=[axis + 1], keepdims=0)), finite)


@lower("aten::cummax")
def cummax(op: Emitter, self: Value, dim: int) -> tuple[Value, Value]:
    """aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)

    Of equal elements the position is that of the last one. From a NaN on the maximum is NaN.
    """
    return _running_extreme(op, "ReduceMax", self, dim)


@lower("aten::cummin")
def cummin(op: Emitter, self: Value, dim: int) -> tuple[Value, Value]:
    """aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)

    Of equal elements the position is that of the last one. From a NaN on the minimum is NaN.
    """
    return _running_extreme(op, "ReduceMin", self, dim)


def _running_extreme(op: Emitter, op_type: str, value: Value, dim: int) -> tuple[Value, Value]:
    """(values, positions); for equal elements the last position so far."""
    if value.rank == 0:
        return value, op.const(0)
    axis = axis_of(dim, value.rank)
    found = _running(op, op_type, value, dim, _worst(value, op_type == "ReduceMax"))
    one, best = op.Unsqueeze(value, axes=[axis]), op.Unsqueeze(found, axes=[axis + 1])
    beaten = op.Less(one, best) if op_type == "ReduceMax" else op.Greater(one, best)
    place = iota(op, op.dim(value, axis))
    place = op.Reshape(place, [-1, *[1] * (value.rank - axis - 1)])
    candidate = op.And(_triangle(op, value, axis), op.Not(beaten))
    places = op.Where(candidate, place, op.const(-1))
    return found, op.ReduceMax(places, axes=[axis + 1], keepdims=0)


def _worst(value: Value, for_maximum: bool) -> Any:
    """The number that is never chosen as maximum (or minimum) over another one."""
    dtype = dtypes.torch_dtype(value.dtype or dtypes.FLOAT)
    if dtype is torch.bool:
        return not for_maximum
    if dtype.is_floating_point:
        return -math.inf if for_maximum else math.inf
    bounds = torch.iinfo(dtype)
    return bounds.min if for_maximum else bounds.max
