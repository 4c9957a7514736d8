"""Reductions. `axes` moved from attribute to input at opset 13 (ReduceSum) and 18; the emitter takes care of it.

A reduction over no named axes is one over all axes; a zero-dim tensor is its own reduction. The sizes of reduced axes
are asked for (`op.dim`), never read from the example, so that means over dynamic axes stay right.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import INT64_MAX, axis_of, full


def axes_of(value: Value, dim: Any) -> list[int] | None:
    """The axes to reduce, counted from the front; None means all."""
    if dim is None or dim == []:
        return None
    dims = dim if isinstance(dim, (list, tuple)) else [dim]
    return sorted({axis_of(item, value.rank) for item in dims})


def reduce(op: Emitter, op_type: str, value: Value, dim: Any, keepdim: bool) -> Value:
    """`op_type` over `dim` (an int, a list, or None for all); `value` itself when it is zero-dim."""
    if value.rank == 0:
        return value
    return op.emit(op_type, value, axes=axes_of(value, dim), keepdims=int(keepdim))


def count(op: Emitter, value: Value, dim: Any) -> int | Value:
    """The number of elements that each result reduces: an int, or a zero-dim int64 value where an axis is dynamic."""
    axes = axes_of(value, dim)
    sizes = [op.dim(value, axis) for axis in (range(value.rank) if axes is None else axes)]
    known = math.prod(size for size in sizes if isinstance(size, int))
    result: int | Value = known
    for size in sizes:
        if isinstance(size, Value):
            result = size if isinstance(result, int) and result == 1 else op.Mul(size, op.like(result, size))
    return result


# Sums and means -----------------------------------------------------------------------------------------------------


@lower("aten::mean", "aten::mean.dim")
def mean(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    """aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor

    The mean of an empty axis is NaN.
    """
    return average(op, op.cast(self, op.result_dtype), dim, keepdim)


def average(op: Emitter, value: Value, dim: Any, keepdim: bool) -> Value:
    """The mean over `dim`. The mean of an empty axis is NaN in torch and zero in ONNX Runtime, so NaN is written."""
    if value.rank and count(op, value, dim) == 0:
        return op.Div(reduce(op, "ReduceSum", value, dim, keepdim), op.like(0, value))
    return reduce(op, "ReduceMean", value, dim, keepdim)


@lower("aten::sum", "aten::sum.dim_IntList")
def sum_rule(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    """aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor

    Integers are summed in int64, as in torch.
    """
    return reduce(op, "ReduceSum", op.cast(self, op.result_dtype), dim, keepdim)


@lower("aten::nansum")
def nansum(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    """aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor

    NaN counts as zero.
    """
    return reduce(op, "ReduceSum", op.cast(_nan_to_zero(op, self), op.result_dtype), dim, keepdim)


def _nan_to_zero(op: Emitter, value: Value) -> Value:
    if not dtypes.is_floating(value.dtype):
        return value
    return op.Where(op.IsNaN(value), op.like(0, value), value)


@lower("aten::nanmean")
def nanmean(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    """aten::nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor

    The mean of the elements that are not NaN; NaN where there is none.
    """
    value = op.cast(self, op.result_dtype)
    numbers = op.cast(op.Not(op.IsNaN(value)), op.result_dtype)
    total = reduce(op, "ReduceSum", _nan_to_zero(op, value), dim, keepdim)
    return op.Div(total, reduce(op, "ReduceSum", numbers, dim, keepdim))


@lower("aten::prod", "aten::prod.dim_int")
def prod(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    """aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor

    Integers are multiplied in int64, as in torch.
    """
    value = op.cast(self, op.result_dtype)
    if dtypes.is_floating(value.dtype) or value.rank == 0:
        return reduce(op, "ReduceProd", value, dim, keepdim)
    return _product_of_integers(op, value, dim, keepdim)


def _product_of_integers(op: Emitter, value: Value, dim: Any, keepdim: bool) -> Value:
    """The product modulo a power of two. ReduceProd of ONNX Runtime (1.31) multiplies integers as doubles.

    A short axis is taken apart, and of a long one the last of the running products counts.
    """
    axes = axes_of(value, dim)
    for axis in range(value.rank) if axes is None else axes:
        size = op.dim(value, axis)
        if isinstance(size, int) and 0 < size <= _FEW:
            parts = op.multi("Split", value, split=[1] * size, axis=axis, outputs=size) if size > 1 else [value]
            value = functools.reduce(op.Mul, parts)
            continue
        shape = [1 if place == axis else op.dim(value, place) for place in range(value.rank)]
        running = op.CumProd(
            op.Concat(full(op, shape, 1, value.dtype or dtypes.INT64), value, axis=axis), op.const(axis)
        )
        value = op.Slice(running, [-1], [INT64_MAX], axes=[axis])
    return value if keepdim else _squeeze(op, value, axes)


_FEW = 8  # elements of an axis that is taken apart


@lower("aten::logsumexp", "aten::special_logsumexp", promote="self", to_float=True)
def logsumexp(op: Emitter, self: Value, dim: Any, keepdim: bool = False) -> Value:
    """aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor

    The maximum is subtracted first: nothing overflows, and infinities do not become NaN.
    """
    if self.rank == 0:
        return self
    axes = axes_of(self, dim)
    top = op.ReduceMax(self, axes=axes, keepdims=1)
    finite = op.Where(op.Less(op.Abs(top), op.like(math.inf, top)), top, op.like(0, top))
    total = op.Log(op.ReduceSum(op.Exp(op.Sub(self, finite)), axes=axes, keepdims=int(keepdim)))
    return op.Add(total, finite if keepdim else _squeeze(op, finite, axes))


def _squeeze(op: Emitter, value: Value, axes: list[int] | None) -> Value:
    """`value` without the axes of size 1 that a reduction over `axes` (all, if None) kept."""
    return op.Squeeze(value, axes=axes)


def _as_vector(op: Emitter, value: Value) -> Value:
    return op.Reshape(value, [-1])


@lower("aten::count_nonzero", "aten::count_nonzero.dim_IntList")
def count_nonzero(op: Emitter, self: Value, dim: Any = None) -> Value:
    """aten::count_nonzero(Tensor self, int? dim=None) -> Tensor"""
    return reduce(op, "ReduceSum", op.cast(op.cast(self, dtypes.BOOL), dtypes.INT64), dim, False)


# Logic --------------------------------------------------------------------------------------------------------------


@lower("aten::any", "aten::any.dim", "aten::any.dims")
def any_rule(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """aten::any(Tensor self) -> Tensor

    False for an empty tensor. The result is bool, but uint8 for uint8 tensors.
    """
    return op.cast(_exists(op, op.cast(self, dtypes.BOOL), dim, keepdim), op.result_dtype)


@lower("aten::all", "aten::all.dim", "aten::all.dims")
def all_rule(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """aten::all(Tensor self) -> Tensor

    True for an empty tensor. The result is bool, but uint8 for uint8 tensors.
    """
    wrong = _exists(op, op.Not(op.cast(self, dtypes.BOOL)), dim, keepdim)
    return op.cast(op.Not(wrong), op.result_dtype)


def _exists(op: Emitter, truth: Value, dim: Any, keepdim: bool) -> Value:
    if not truth.rank:
        return truth
    # a sum, since it is defined for an empty axis; in int64, since ONNX Runtime has no ReduceSum of bool
    return op.cast(reduce(op, "ReduceSum", op.cast(truth, dtypes.INT64), dim, keepdim), dtypes.BOOL)


# Extremes -----------------------------------------------------------------------------------------------------------


@lower("aten::amax", "aten::max")
def amax(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor

    NaN where an element is NaN; ONNX Runtime's ReduceMax ignores it.
    """
    return extreme(op, "ReduceMax", self, dim, keepdim)


@lower("aten::amin", "aten::min")
def amin(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor

    NaN where an element is NaN; ONNX Runtime's ReduceMin ignores it.
    """
    return extreme(op, "ReduceMin", self, dim, keepdim)


def extreme(op: Emitter, op_type: str, value: Value, dim: Any, keepdim: bool) -> Value:
    """`op_type` (ReduceMax or ReduceMin), and NaN where an element is NaN, which ONNX Runtime ignores."""
    result = reduce(op, op_type, value, dim, keepdim)
    if value.rank == 0 or not dtypes.is_floating(value.dtype):
        return result
    missing = _exists(op, op.IsNaN(value), dim, keepdim)
    return op.Where(missing, op.like(math.nan, value), result)


@lower("aten::aminmax")
def aminmax(op: Emitter, self: Value, dim: int | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    """aten::aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)"""
    return amin(op, self, dim, keepdim), amax(op, self, dim, keepdim)


@lower("aten::argmax")
def argmax(op: Emitter, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor

    The position of the first of equal elements; NaN counts as the largest.
    """
    return _position(op, "ArgMax", self, dim, keepdim)


@lower("aten::argmin")
def argmin(op: Emitter, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor

    The position of the first of equal elements; NaN counts as the smallest.
    """
    return _position(op, "ArgMin", self, dim, keepdim)


def _position(op: Emitter, op_type: str, value: Value, dim: int | None, keepdim: bool) -> Value:
    """The position of the extreme, of equal ones the first. Without `dim` it is the position in the
    flattened tensor.
    """
    if value.rank == 0:
        return op.const(0)
    if dim is None:
        flat = _first(op, op_type, _as_vector(op, value), 0, 0)
        return op.Reshape(flat, [1] * value.rank) if keepdim else flat
    return _first(op, op_type, value, axis_of(dim, value.rank), int(keepdim))


def _first(op: Emitter, op_type: str, value: Value, axis: int, keepdims: int) -> Value:
    """`op_type` (ArgMax or ArgMin), or the position of the first NaN: in torch it is both the largest and
    the smallest.
    """
    found = op.emit(op_type, value, axis=axis, keepdims=keepdims)
    if not dtypes.is_floating(value.dtype):
        return found
    missing = op.cast(op.IsNaN(value), dtypes.FLOAT)
    has_nan = op.cast(op.ReduceMax(missing, axes=[axis], keepdims=keepdims), dtypes.BOOL)
    return op.Where(has_nan, op.ArgMax(missing, axis=axis, keepdims=keepdims), found)


@lower("aten::max.dim")
def max_dim(op: Emitter, self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)

    Of equal elements the position is that of the first; NaN counts as the largest.
    """
    return amax(op, self, dim, keepdim), argmax(op, self, dim, keepdim)


@lower("aten::min.dim")
def min_dim(op: Emitter, self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)

    Of equal elements the position is that of the first; NaN counts as the smallest.
    """
    return amin(op, self, dim, keepdim), argmin(op, self, dim, keepdim)


# Variance -----------------------------------------------------------------------------------------------------------


def variance(op: Emitter, value: Value, dim: Any, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    """(variance, mean) over `dim`. Squares are divided by the number of elements less `correction`, but at least by
    zero.
    """
    if value.rank == 0:
        value, dim, keepdim = _as_vector(op, value), [0], False
    axes = axes_of(value, dim)
    kept = average(op, value, dim, True)
    centered = op.Sub(value, kept)
    squares = op.ReduceSum(op.Mul(centered, centered), axes=axes, keepdims=int(keepdim))
    number = count(op, value, dim)
    if isinstance(number, int):
        divisor = op.like(float(max(number - correction, 0)), value)
    else:
        divisor = op.Max(op.Sub(op.cast(number, value.dtype), op.like(correction, value)), op.like(0, value))
    return op.Div(squares, divisor), kept if keepdim else _squeeze(op, kept, axes)


@lower("aten::var.correction")
def var(op: Emitter, self: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    """aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor

    `correction` None means 1 (Bessel's correction).
    """
    return variance(op, self, dim, 1 if correction is None else correction, keepdim)[0]


@lower("aten::var", "aten::var.dim")
def var_unbiased(op: Emitter, self: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Value:
    """aten::var(Tensor self, bool unbiased=True) -> Tensor"""
    return variance(op, self, dim, int(unbiased), keepdim)[0]


@lower("aten::std.correction")
def std(op: Emitter, self: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    """aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor"""
    return op.Sqrt(var(op, self, dim, correction, keepdim))


@lower("aten::std", "aten::std.dim")
def std_unbiased(op: Emitter, self: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Value:
    """aten::std(Tensor self, bool unbiased=True) -> Tensor"""
    return op.Sqrt(var_unbiased(op, self, dim, unbiased, keepdim))


@lower("aten::var_mean.correction")
def var_mean(
    op: Emitter, self: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Value, Value]:
    """aten::var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)
    -> (Tensor, Tensor)
    """
    return variance(op, self, dim, 1 if correction is None else correction, keepdim)


@lower("aten::var_mean", "aten::var_mean.dim")
def var_mean_unbiased(
    op: Emitter, self: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Value, Value]:
    """aten::var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)"""
    return variance(op, self, dim, int(unbiased), keepdim)


@lower("aten::std_mean.correction")
def std_mean(
    op: Emitter, self: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Value, Value]:
    """aten::std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)
    -> (Tensor, Tensor)
    """
    squared, middle = var_mean(op, self, dim, correction, keepdim)
    return op.Sqrt(squared), middle


@lower("aten::std_mean", "aten::std_mean.dim")
def std_mean_unbiased(
    op: Emitter, self: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Value, Value]:
    """aten::std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)"""
    squared, middle = var_mean_unbiased(op, self, dim, unbiased, keepdim)
    return op.Sqrt(squared), middle


# Norms --------------------------------------------------------------------------------------------------------------


@lower("aten::linalg_vector_norm")
def linalg_vector_norm(
    op: Emitter, self: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    """aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *,
    ScalarType? dtype=None) -> Tensor

    For `ord` 0 the number of nonzero elements, for an infinite `ord` the largest or smallest absolute value.
    """
    value = op.cast(self, op.result_dtype)
    return _norm(op, value, ord, dim, keepdim)


def _norm(op: Emitter, value: Value, order: Any, dim: Any, keepdim: bool) -> Value:
    if value.rank == 0:
        value, dim, keepdim = _as_vector(op, value), [0], False
    if order == 2:
        return reduce(op, "ReduceL2", value, dim, keepdim)
    if order == 1:
        return reduce(op, "ReduceL1", value, dim, keepdim)
    size = op.Abs(value)
    if order == 0:
        return reduce(op, "ReduceSum", op.cast(op.cast(size, dtypes.BOOL), value.dtype), dim, keepdim)
    if math.isinf(order):
        return extreme(op, "ReduceMax" if order > 0 else "ReduceMin", size, dim, keepdim)
    powers = reduce(op, "ReduceSum", op.Pow(size, op.like(order, size)), dim, keepdim)
    return op.Pow(powers, op.like(1 / order, size))


@lower("aten::norm.Scalar", "aten::norm.ScalarOpt_dim", "aten::norm.ScalarOpt_dim_dtype", "aten::norm.ScalarOpt_dtype")
def norm_rule(
    op: Emitter, self: Value, p: Any = 2, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    """aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor"""
    return linalg_vector_norm(op, self, 2 if p is None else p, dim, keepdim)


@lower("aten::frobenius_norm.dim")
def frobenius_norm(op: Emitter, self: Value, dim: Sequence[int], keepdim: bool = False) -> Value:
    """aten::frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> Tensor"""
    return linalg_vector_norm(op, self, 2, dim, keepdim)


@lower("aten::dist")
def dist(op: Emitter, self: Value, other: Value, p: Any = 2) -> Value:
    """aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor

    The p-norm of the difference.
    """
    difference = op.Sub(op.cast(self, op.result_dtype), op.cast(other, op.result_dtype))
    return _norm(op, _as_vector(op, difference), p, None, False)
