"""Comparisons, logic, choices and bounds.

Comparisons with NaN are false, except "not equal". maximum, minimum and clamp propagate NaN; fmax and fmin do not.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.kernels import largest, smallest, widened_dtype

# Order --------------------------------------------------------------------------------------------------------------


@lower("aten::eq.Tensor", "aten::eq.Scalar", promote="self other")
def eq(op: Emitter, self: Value, other: Value) -> Value:
    """aten::eq.Tensor(Tensor self, Tensor other) -> Tensor"""
    return op.Equal(self, other)


@lower("aten::ne.Tensor", "aten::ne.Scalar", "aten::not_equal.Tensor", "aten::not_equal.Scalar", promote="self other")
def ne(op: Emitter, self: Value, other: Value) -> Value:
    """aten::ne.Tensor(Tensor self, Tensor other) -> Tensor"""
    return op.Not(eq(op, self, other))


@lower("aten::lt.Tensor", "aten::lt.Scalar", "aten::less.Tensor", "aten::less.Scalar", promote="self other")
def lt(op: Emitter, self: Value, other: Value) -> Value:
    """aten::lt.Tensor(Tensor self, Tensor other) -> Tensor"""
    return op.Less(self, other)


@lower("aten::gt.Tensor", "aten::gt.Scalar", "aten::greater.Tensor", "aten::greater.Scalar", promote="self other")
def gt(op: Emitter, self: Value, other: Value) -> Value:
    """aten::gt.Tensor(Tensor self, Tensor other) -> Tensor"""
    return op.Greater(self, other)


@lower("aten::le.Tensor", "aten::le.Scalar", "aten::less_equal.Tensor", "aten::less_equal.Scalar", promote="self other")
def le(op: Emitter, self: Value, other: Value) -> Value:
    """aten::le.Tensor(Tensor self, Tensor other) -> Tensor"""
    return op.LessOrEqual(self, other)


@lower(
    "aten::ge.Tensor",
    "aten::ge.Scalar",
    "aten::greater_equal.Tensor",
    "aten::greater_equal.Scalar",
    promote="self other",
)
def ge(op: Emitter, self: Value, other: Value) -> Value:
    """aten::ge.Tensor(Tensor self, Tensor other) -> Tensor"""
    return op.GreaterOrEqual(self, other)


# Kinds of numbers ---------------------------------------------------------------------------------------------------


def _everywhere(op: Emitter, value: Value, answer: bool) -> Value:
    """`answer` in the shape of `value`, which holds integers."""
    no = op.Less(value, value)
    return op.Not(no) if answer else no


@lower("aten::isnan")
def isnan(op: Emitter, self: Value) -> Value:
    """aten::isnan(Tensor self) -> Tensor"""
    return op.IsNaN(self) if dtypes.is_floating(self.dtype) else _everywhere(op, self, False)


@lower("aten::isinf")
def isinf(op: Emitter, self: Value) -> Value:
    """aten::isinf(Tensor self) -> Tensor"""
    return op.IsInf(self) if dtypes.is_floating(self.dtype) else _everywhere(op, self, False)


def _largest_number(value: Value) -> float:
    return torch.finfo(dtypes.torch_dtype(value.dtype or dtypes.FLOAT)).max


@lower("aten::isfinite")
def isfinite(op: Emitter, self: Value) -> Value:
    """aten::isfinite(Tensor self) -> Tensor"""
    if not dtypes.is_floating(self.dtype):
        return _everywhere(op, self, True)
    return op.Less(op.Abs(self), op.like(math.inf, self))


@lower("aten::isposinf")
def isposinf(op: Emitter, self: Value) -> Value:
    """aten::isposinf(Tensor self) -> Tensor"""
    if not dtypes.is_floating(self.dtype):
        return _everywhere(op, self, False)
    return op.Greater(self, op.like(_largest_number(self), self))


@lower("aten::isneginf")
def isneginf(op: Emitter, self: Value) -> Value:
    """aten::isneginf(Tensor self) -> Tensor"""
    if not dtypes.is_floating(self.dtype):
        return _everywhere(op, self, False)
    return op.Less(self, op.like(-_largest_number(self), self))


@lower("aten::isreal")
def isreal(op: Emitter, self: Value) -> Value:
    """aten::isreal(Tensor self) -> Tensor

    True everywhere: a real tensor has no imaginary part.
    """
    if dtypes.torch_dtype(self.dtype or dtypes.FLOAT).is_complex:
        raise UnsupportedForm("on complex numbers has no rule yet", code="complex-tensor")
    if dtypes.is_floating(self.dtype):
        return op.Or(op.IsNaN(self), op.Not(op.IsNaN(self)))
    return _everywhere(op, self, True)


@lower("aten::isclose", promote="self other")
def isclose(
    op: Emitter, self: Value, other: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    """aten::isclose(Tensor self, Tensor other, float rtol=1.0000000000000001e-05, float atol=1e-08,
    bool equal_nan=False) -> Tensor

    |self - other| <= atol + rtol * |other|, or equal, as infinities may be.
    """
    same = eq(op, self, other)
    if not dtypes.is_floating(self.dtype):
        # torch subtracts integers as integers, and computes the bound in the default float dtype
        distance = op.cast(op.Abs(op.Sub(self, other)), dtypes.FLOAT)
        size = op.cast(op.Abs(other), dtypes.FLOAT)
    else:
        distance, size = op.Abs(op.Sub(self, other)), op.Abs(other)
    bound = op.Add(op.like(atol, size), op.Mul(op.like(rtol, size), size))
    near = op.And(op.Less(distance, op.like(math.inf, distance)), op.Not(op.Greater(distance, bound)))
    close = op.Or(same, near)
    if equal_nan and dtypes.is_floating(self.dtype):
        close = op.Or(close, op.And(op.IsNaN(self), op.IsNaN(other)))
    return close


@lower("aten::nan_to_num")
def nan_to_num(
    op: Emitter, self: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    """aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor

    NaN becomes 0 and infinities the largest and smallest number of the dtype, where no number is given.
    """
    if not dtypes.is_floating(self.dtype):
        return self
    most = _largest_number(self)
    result = op.Where(op.IsNaN(self), op.like(0.0 if nan is None else nan, self), self)
    result = op.Where(isposinf(op, self), op.like(most if posinf is None else posinf, self), result)
    return op.Where(isneginf(op, self), op.like(-most if neginf is None else neginf, self), result)


# Logic --------------------------------------------------------------------------------------------------------------


@lower("aten::logical_not")
def logical_not(op: Emitter, self: Value) -> Value:
    """aten::logical_not(Tensor self) -> Tensor"""
    return op.Not(op.cast(self, dtypes.BOOL))


@lower("aten::logical_and")
def logical_and(op: Emitter, self: Value, other: Value) -> Value:
    """aten::logical_and(Tensor self, Tensor other) -> Tensor"""
    return op.And(op.cast(self, dtypes.BOOL), op.cast(other, dtypes.BOOL))


@lower("aten::logical_or")
def logical_or(op: Emitter, self: Value, other: Value) -> Value:
    """aten::logical_or(Tensor self, Tensor other) -> Tensor"""
    return op.Or(op.cast(self, dtypes.BOOL), op.cast(other, dtypes.BOOL))


@lower("aten::logical_xor")
def logical_xor(op: Emitter, self: Value, other: Value) -> Value:
    """aten::logical_xor(Tensor self, Tensor other) -> Tensor"""
    return op.Xor(op.cast(self, dtypes.BOOL), op.cast(other, dtypes.BOOL))


# Choices ------------------------------------------------------------------------------------------------------------


@lower(
    "aten::where.self", "aten::where.ScalarSelf", "aten::where.ScalarOther", "aten::where.Scalar", promote="self other"
)
def where(op: Emitter, condition: Value, self: Value, other: Value) -> Value:
    """aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor

    Also takes a uint8 condition, as torch does.
    """
    return op.Where(op.cast(condition, dtypes.BOOL), self, other)


@lower("aten::masked_fill.Scalar", "aten::masked_fill.Tensor")
def masked_fill(op: Emitter, self: Value, mask: Value, value: Any) -> Value:
    """aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor

    `mask` broadcasts to `self`; `value` takes the dtype of `self`.
    """
    return op.Where(op.cast(mask, dtypes.BOOL), op.like(value, self), self)


@lower("aten::threshold")
def threshold(op: Emitter, self: Value, threshold: Any, value: Any) -> Value:
    """aten::threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor

    `self` where it is greater than `threshold`, else `value`. NaN stays NaN.
    """
    small = le(op, self, op.like(threshold, self))
    return op.Where(small, op.like(value, self), self)


# Bounds -------------------------------------------------------------------------------------------------------------


@lower("aten::clamp", "aten::clamp.Tensor", "aten::clip", "aten::clip.Tensor", promote="self min max")
def clamp(op: Emitter, self: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor

    Where `min` is greater than `max` the result is `max`, and a bound of NaN gives NaN. ONNX Clip serves for known
    bounds in order only.
    """
    found = widened_dtype(op, "Clip", self.dtype)
    if found is not None and _is_plain(min, max) and _in_attributes(op, found, min, max):
        low, high = (None if bound is None else op.cast(bound, found) for bound in (min, max))
        return op.cast(op.Clip(op.cast(self, found), min=low, max=high), self.dtype)
    result = self if min is None else largest(op, self, min)
    return result if max is None else smallest(op, result, max)


def _in_attributes(op: Emitter, dtype: int, *bounds: Value | None) -> bool:
    """False where Clip's bounds are attributes, which are float32, and would be rounded by that."""
    if dtype != dtypes.DOUBLE or op.optional("Clip", "min"):
        return True
    numbers = [bound.const.item() for bound in bounds if bound is not None and bound.const is not None]
    return all(torch.tensor(number, dtype=torch.float32).item() == number for number in numbers)


def _is_plain(*bounds: Value | None) -> bool:
    """True for known numbers in ascending order of which none is NaN."""
    tensors = [bound.const for bound in bounds if bound is not None]
    if any(tensor is None or tensor.dim() for tensor in tensors):
        return False
    numbers = [tensor.item() for tensor in tensors if tensor is not None]
    return numbers == sorted(numbers) and not any(math.isnan(number) for number in numbers)


@lower("aten::clamp_min", "aten::clamp_min.Tensor", promote="self min")
def clamp_min(op: Emitter, self: Value, min: Value) -> Value:
    """aten::clamp_min(Tensor self, Scalar min) -> Tensor"""
    return clamp(op, self, min=min)


@lower("aten::clamp_max", "aten::clamp_max.Tensor", promote="self max")
def clamp_max(op: Emitter, self: Value, max: Value) -> Value:
    """aten::clamp_max(Tensor self, Scalar max) -> Tensor"""
    return clamp(op, self, max=max)


@lower("aten::maximum", "aten::max.other", promote="self other")
def maximum(op: Emitter, self: Value, other: Value) -> Value:
    """aten::maximum(Tensor self, Tensor other) -> Tensor

    NaN where either operand is NaN.
    """
    return largest(op, self, other)


@lower("aten::minimum", "aten::min.other", promote="self other")
def minimum(op: Emitter, self: Value, other: Value) -> Value:
    """aten::minimum(Tensor self, Tensor other) -> Tensor

    NaN where either operand is NaN.
    """
    return smallest(op, self, other)


@lower("aten::fmax", promote="self other")
def fmax(op: Emitter, self: Value, other: Value) -> Value:
    """aten::fmax(Tensor self, Tensor other) -> Tensor

    The greater operand. Where one operand is NaN, the other one.
    """
    return _without_nan(op, largest(op, self, other), self, other)


@lower("aten::fmin", promote="self other")
def fmin(op: Emitter, self: Value, other: Value) -> Value:
    """aten::fmin(Tensor self, Tensor other) -> Tensor

    The smaller operand. Where one operand is NaN, the other one.
    """
    return _without_nan(op, smallest(op, self, other), self, other)


def _without_nan(op: Emitter, result: Value, self: Value, other: Value) -> Value:
    if not dtypes.is_floating(self.dtype):
        return result
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, result))
