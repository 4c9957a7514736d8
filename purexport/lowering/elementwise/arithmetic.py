"""Elementwise arithmetic: one row where ONNX has the same operator, a short function where it does not.

Type promotion has happened before a rule runs. What differs between torch and ONNX concerns NaN, integers, rounding and
the sign of zero. Integers go through the emitter, which computes them in a dtype that ONNX Runtime has a kernel
for.
"""

from __future__ import annotations

import math
from typing import Any

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import Rule, add, lower, unary
from purexport.lowering.support.fields import hypotenuse, wider_float

for _names, _op_type in {
    "sigmoid special_expit": "Sigmoid",
    "tanh": "Tanh",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin arcsin": "Asin",
    "acos arccos": "Acos",
    "atan arctan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh arcsinh": "Asinh",
    "acosh arccosh": "Acosh",
    "atanh arctanh": "Atanh",
    "reciprocal": "Reciprocal",
}.items():
    for _name in _names.split():
        unary(f"aten::{_name}", _op_type, to_float=True)


def _integers_too(op_type: str, *targets: str) -> None:
    """A row for an operator of one operand that keeps the dtype of integers; a trace also calls it with a number."""

    def rule(op: Emitter, self: Value) -> Value:
        return op.emit(op_type, self)

    add(Rule(rule, ("self",), ("self",)), *targets)


_integers_too("Abs", "aten::abs", "aten::absolute")
_integers_too("Neg", "aten::neg", "aten::negative")


def _scaled(op: Emitter, value: Value, alpha: Any) -> Value:
    return value if not isinstance(alpha, Value) and alpha == 1 else op.Mul(value, op.like(alpha, value))


# Arithmetic ---------------------------------------------------------------------------------------------------------


@lower("aten::add.Tensor", "aten::add.Scalar", promote="self other")
def add_rule(op: Emitter, self: Value, other: Value, alpha: Any = 1) -> Value:
    """aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor

    Booleans are added as a logical or.
    """
    if self.dtype == dtypes.BOOL:
        return op.Or(self, other) if alpha else self
    return op.Add(self, _scaled(op, other, alpha))


@lower("aten::sub.Tensor", "aten::sub.Scalar", "aten::subtract.Tensor", "aten::subtract.Scalar", promote="self other")
def sub(op: Emitter, self: Value, other: Value, alpha: Any = 1) -> Value:
    """aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    return op.Sub(self, _scaled(op, other, alpha))


@lower("aten::rsub.Tensor", "aten::rsub.Scalar", promote="self other")
def rsub(op: Emitter, self: Value, other: Value, alpha: Any = 1) -> Value:
    """aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor

    `other - alpha * self`.
    """
    return op.Sub(other, _scaled(op, self, alpha))


@lower("aten::mul.Tensor", "aten::mul.Scalar", "aten::multiply.Tensor", "aten::multiply.Scalar", promote="self other")
def mul(op: Emitter, self: Value, other: Value) -> Value:
    """aten::mul.Tensor(Tensor self, Tensor other) -> Tensor

    Booleans are multiplied as a logical and.
    """
    return op.And(self, other) if self.dtype == dtypes.BOOL else op.Mul(self, other)


@lower(
    "aten::div.Tensor",
    "aten::div.Scalar",
    "aten::divide.Tensor",
    "aten::divide.Scalar",
    "aten::true_divide.Tensor",
    "aten::true_divide.Scalar",
    promote="self other",
    to_float=True,
)
def div(op: Emitter, self: Value, other: Value) -> Value:
    """aten::div.Tensor(Tensor self, Tensor other) -> Tensor

    True division: integers are divided in the default float dtype.
    """
    return op.Div(self, other)


@lower(
    "aten::div.Tensor_mode",
    "aten::div.Scalar_mode",
    "aten::divide.Tensor_mode",
    "aten::divide.Scalar_mode",
    promote="self other",
)
def div_mode(op: Emitter, self: Value, other: Value, rounding_mode: str | None = None) -> Value:
    """aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor

    "floor" rounds towards minus infinity, "trunc" towards zero, None is true division.
    """
    if rounding_mode is None:
        return op.Div(op.cast(self, op.result_dtype), op.cast(other, op.result_dtype))
    return floor_divide(op, self, other) if rounding_mode == "floor" else _trunc_divide(op, self, other)


@lower("aten::floor_divide", "aten::floor_divide.Scalar", promote="self other")
def floor_divide(op: Emitter, self: Value, other: Value) -> Value:
    """aten::floor_divide(Tensor self, Tensor other) -> Tensor

    Rounds towards minus infinity, for integers too; ONNX Div rounds integers towards zero.
    """
    if dtypes.is_floating(self.dtype):
        return _floor_divide_floats(op, self, other)
    # one less than the truncated quotient where the signs differ and the remainder is not zero
    quotient = op.Div(self, other)
    if _is_unsigned(self) or (op.is_at_least(self, 0) and op.is_at_least(other, 1)):
        return quotient
    left = op.Sub(self, op.Mul(quotient, other))
    zero = op.like(0, self)
    differs = op.Xor(op.Less(left, zero), op.Less(other, zero))
    down = op.And(differs, op.cast(left, dtypes.BOOL))
    return op.Sub(quotient, op.cast(down, self.dtype))


def _floor_divide_floats(op: Emitter, self: Value, other: Value) -> Value:
    if _is_power_of_two(other):
        return op.Floor(op.Div(self, other))
    # torch's div_floor_floating starts from the exact remainder: 1.0 // 0.1 is 9, though 1.0 / 0.1 rounds to 10
    left = _truncated_remainder(op, self, other)
    zero = op.like(0, self)
    whole = op.Div(op.Sub(self, left), other)
    down = op.And(op.Xor(op.Less(left, zero), op.Less(other, zero)), op.cast(left, dtypes.BOOL))
    quotient = round_rule(op, op.Sub(whole, op.cast(down, self.dtype)))
    if other.const is not None and bool((other.const != 0).all()):
        return quotient
    return op.Where(op.cast(other, dtypes.BOOL), quotient, op.Div(self, other))


def _is_power_of_two(value: Value) -> bool:
    return value.const is not None and value.const.numel() == 1 and math.frexp(abs(value.const.item()))[0] == 0.5


def _is_unsigned(value: Value) -> bool:
    return value.dtype in (dtypes.BOOL, dtypes.UINT8, dtypes.UINT16, dtypes.UINT32, dtypes.UINT64)


def _trunc_divide(op: Emitter, self: Value, other: Value) -> Value:
    quotient = op.Div(self, other)
    return trunc(op, quotient) if dtypes.is_floating(self.dtype) else quotient


@lower("aten::fmod.Tensor", "aten::fmod.Scalar", promote="self other")
def fmod(op: Emitter, self: Value, other: Value) -> Value:
    """aten::fmod.Tensor(Tensor self, Tensor other) -> Tensor

    The remainder has the sign of `self`, as in C; ONNX Mod with `fmod=1`.
    """
    if dtypes.is_floating(self.dtype):
        return _truncated_remainder(op, self, other)
    return op.Mod(self, other, fmod=1)


@lower("aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor", promote="self other")
def remainder(op: Emitter, self: Value, other: Value) -> Value:
    """aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor

    The remainder has the sign of `other`, as in Python; ONNX Mod does this for integers only.
    """
    if not dtypes.is_floating(self.dtype):
        return op.Mod(self, other)
    left = _truncated_remainder(op, self, other)
    zero = op.like(0, self)
    differs = op.And(op.Xor(op.Less(left, zero), op.Less(other, zero)), op.cast(left, dtypes.BOOL))
    return op.Where(differs, op.Add(left, other), left)


def _truncated_remainder(op: Emitter, self: Value, other: Value) -> Value:
    if op.has("Mod"):
        return op.Mod(self, other, fmod=1)
    # exact for float32: double holds the quotients and products
    one, by = op.cast(self, dtypes.DOUBLE), op.cast(other, dtypes.DOUBLE)
    quotient = trunc(op, op.Div(one, by))
    product = op.Mul(quotient, by)
    left = op.Sub(one, product)
    if self.dtype == dtypes.DOUBLE:
        left = _within(op, op.Sub(left, _product_error(op, quotient, by, product)), one, by)
    return op.cast(op.Where(op.cast(quotient, dtypes.BOOL), left, one), self.dtype)


def _product_error(op: Emitter, one: Value, other: Value, product: Value) -> Value:
    """What the rounding of a product of doubles left out: one * other - product, exactly (Dekker 1971).

    0 for numbers beyond 2 ** 996, whose halves are none.
    """
    (high, low), (top, rest) = (_halves(op, item) for item in (one, other))
    error = op.Sub(op.Mul(high, top), product)
    for left, right in ((high, rest), (low, top), (low, rest)):
        error = op.Add(error, op.Mul(left, right))
    return op.Where(op.IsNaN(error), op.like(0, error), error)


def _halves(op: Emitter, value: Value) -> tuple[Value, Value]:
    """Two doubles of 26 bits each whose sum is `value`, so that their products are exact."""
    wide = op.Mul(value, op.like(2.0**27 + 1, value))
    high = op.Sub(wide, op.Sub(wide, value))
    return high, op.Sub(value, high)


def _within(op: Emitter, left: Value, one: Value, by: Value) -> Value:
    """The remainder where the rounded quotient was one too large (another sign than `one`) or too small."""
    step = op.Where(op.Less(one, op.like(0, one)), op.Neg(op.Abs(by)), op.Abs(by))
    over = op.And(op.Xor(op.Less(left, op.like(0, left)), op.Less(one, op.like(0, one))), op.cast(left, dtypes.BOOL))
    left = op.Where(over, op.Add(left, step), left)
    return op.Where(op.Less(op.Abs(left), op.Abs(by)), left, op.Sub(left, step))


@lower("aten::addcmul", promote="self tensor1 tensor2")
def addcmul(op: Emitter, self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    """aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"""
    return op.Add(self, _scaled(op, op.Mul(tensor1, tensor2), value))


@lower("aten::addcdiv", promote="self tensor1 tensor2")
def addcdiv(op: Emitter, self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    """aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"""
    return op.Add(self, _scaled(op, op.Div(tensor1, tensor2), value))


@lower("aten::lerp.Scalar")
def lerp(op: Emitter, self: Value, end: Value, weight: Any) -> Value:
    """aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor

    `self + weight * (end - self)`: `self` where the weight is 0, `end` where it is 1.
    """
    return op.Add(self, op.Mul(op.Sub(end, self), op.like(weight, self)))


@lower("aten::lerp.Tensor")
def lerp_tensor(op: Emitter, self: Value, end: Value, weight: Value) -> Value:
    """aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor"""
    return lerp(op, self, end, weight)


@lower("aten::hypot", promote="self other")
def hypot(op: Emitter, self: Value, other: Value) -> Value:
    """aten::hypot(Tensor self, Tensor other) -> Tensor

    Squares are taken in double, where those of float32 numbers do not overflow.
    """
    return hypotenuse(op, self, other)


# Rounding -----------------------------------------------------------------------------------------------------------


@lower("aten::ceil")
def ceil(op: Emitter, self: Value) -> Value:
    """aten::ceil(Tensor self) -> Tensor

    Integers stay as they are.
    """
    return op.Ceil(self) if dtypes.is_floating(self.dtype) else self


@lower("aten::floor")
def floor(op: Emitter, self: Value) -> Value:
    """aten::floor(Tensor self) -> Tensor

    Integers stay as they are.
    """
    return op.Floor(self) if dtypes.is_floating(self.dtype) else self


@lower("aten::trunc", "aten::fix")
def trunc(op: Emitter, self: Value) -> Value:
    """aten::trunc(Tensor self) -> Tensor

    Rounds towards zero, for which ONNX has no operator.
    """
    if not dtypes.is_floating(self.dtype):
        return self
    return op.Mul(op.Sign(self), op.Floor(op.Abs(self)))


@lower("aten::frac")
def frac(op: Emitter, self: Value) -> Value:
    """aten::frac(Tensor self) -> Tensor

    `self - trunc(self)`, which has the sign of `self`.
    """
    return op.Sub(self, trunc(op, self))


@lower("aten::round")
def round_rule(op: Emitter, self: Value) -> Value:
    """aten::round(Tensor self) -> Tensor

    Ties go to the even number, as in ONNX Round.
    """
    return op.Round(self) if dtypes.is_floating(self.dtype) else self


@lower("aten::round.decimals", "aten::special_round")
def round_decimals(op: Emitter, self: Value, decimals: int = 0) -> Value:
    """aten::round.decimals(Tensor self, *, int decimals) -> Tensor

    The number is scaled by a power of ten, rounded with ties to even, and scaled back.
    """
    if decimals == 0 or not dtypes.is_floating(self.dtype):
        return round_rule(op, self)
    scale = op.like(10.0 ** abs(decimals), self)
    if decimals > 0:
        return op.Div(round_rule(op, op.Mul(self, scale)), scale)
    return op.Mul(round_rule(op, op.Div(self, scale)), scale)


# Powers, exponentials, logarithms -----------------------------------------------------------------------------------


@lower("aten::pow.Tensor_Tensor", "aten::pow.Scalar", promote="self exponent")
def pow_tensor(op: Emitter, self: Value, exponent: Value) -> Value:
    """aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor

    Integers are raised in double, which is exact up to 2**53; ONNX Runtime does the same for integers.  A negative
    power of 0 is 0 for torch, and infinite in double.
    """
    if dtypes.is_floating(self.dtype):
        return op.Pow(self, exponent)
    base, power = op.cast(self, dtypes.DOUBLE), op.cast(exponent, dtypes.DOUBLE)
    if exponent.const is None or bool((exponent.const < 0).any()):
        infinite = op.And(op.Less(op.Abs(base), op.like(1.0, base)), op.Less(power, op.like(0.0, power)))
        base = op.Where(infinite, op.like(2.0, base), base)  # of which each negative power is cut to 0
    return op.cast(op.Pow(base, power), self.dtype)


@lower("aten::pow.Tensor_Scalar", promote="self exponent")
def pow_scalar(op: Emitter, self: Value, exponent: Value) -> Value:
    """aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor

    Exponents 1, 2, 3, 0.5, -0.5 and -1 have kernels of their own in torch, which are written here too: integers stay
    exact.
    """
    number = exponent.const.item() if exponent.const is not None and exponent.const.numel() == 1 else None
    if self.dtype == dtypes.BOOL:
        return op.Or(self, op.const(number == 0, dtypes.BOOL))
    if number in (1, 2, 3):
        result = self
        for _ in range(int(number) - 1):
            result = op.Mul(result, self)
        return result
    if number == 0.5:
        return op.Sqrt(self)
    if number == -0.5:
        return rsqrt(op, self)
    if number == -1 and dtypes.is_floating(self.dtype):
        return op.Reciprocal(self)
    return pow_tensor(op, self, exponent)


@lower("aten::float_power.Tensor_Tensor", "aten::float_power.Scalar", "aten::float_power.Tensor_Scalar")
def float_power(op: Emitter, self: Any, exponent: Any) -> Value:
    """aten::float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor

    Computed in double, and the result is double.
    """
    double = Value(dtypes.DOUBLE)
    return op.Pow(op.like(self, double), op.like(exponent, double))


@lower("aten::square")
def square(op: Emitter, self: Value) -> Value:
    """aten::square(Tensor self) -> Tensor

    The square of a boolean is an int64.
    """
    return op.cast(self, op.result_dtype) if self.dtype == dtypes.BOOL else op.Mul(self, self)


@lower("aten::rsqrt", promote="self", to_float=True)
def rsqrt(op: Emitter, self: Value) -> Value:
    """aten::rsqrt(Tensor self) -> Tensor"""
    return op.Reciprocal(op.Sqrt(self))


@lower("aten::exp2", "aten::special_exp2", promote="self", to_float=True)
def exp2(op: Emitter, self: Value) -> Value:
    """aten::exp2(Tensor self) -> Tensor"""
    return op.Pow(op.like(2, self), self)


@lower("aten::expm1", "aten::special_expm1", promote="self", to_float=True)
def expm1(op: Emitter, self: Value) -> Value:
    """aten::expm1(Tensor self) -> Tensor

    exp(x) - 1, taken in double because the difference cancels near zero.
    """
    inside = op.Exp(op.cast(self, wider_float(self.dtype)))
    return op.cast(op.Sub(inside, op.like(1, inside)), self.dtype)


@lower("aten::log1p", "aten::special_log1p", promote="self", to_float=True)
def log1p(op: Emitter, self: Value) -> Value:
    """aten::log1p(Tensor self) -> Tensor

    log(1 + x), taken in double because 1 + x loses the small digits near zero.
    """
    inside = op.cast(self, wider_float(self.dtype))
    return op.cast(op.Log(op.Add(inside, op.like(1, inside))), self.dtype)


@lower("aten::log2", promote="self", to_float=True)
def log2(op: Emitter, self: Value) -> Value:
    """aten::log2(Tensor self) -> Tensor"""
    return op.Div(op.Log(self), op.like(math.log(2), self))


@lower("aten::log10", promote="self", to_float=True)
def log10(op: Emitter, self: Value) -> Value:
    """aten::log10(Tensor self) -> Tensor"""
    return op.Div(op.Log(self), op.like(math.log(10), self))


@lower("aten::logaddexp", promote="self other")
def logaddexp(op: Emitter, self: Value, other: Value) -> Value:
    """aten::logaddexp(Tensor self, Tensor other) -> Tensor

    log(exp(a) + exp(b)) without overflow; two equal infinities give that infinity.
    """
    return _logaddexp(op, self, other, 1.0)


@lower("aten::logaddexp2", promote="self other")
def logaddexp2(op: Emitter, self: Value, other: Value) -> Value:
    """aten::logaddexp2(Tensor self, Tensor other) -> Tensor

    log2(2**a + 2**b) without overflow; two equal infinities give that infinity.
    """
    return _logaddexp(op, self, other, math.log(2))


def _logaddexp(op: Emitter, self: Value, other: Value, base: float) -> Value:
    """The logarithm of a sum of powers, in a stable form; `base` is the natural logarithm of the base."""
    difference = op.Abs(op.Sub(self, other))
    # the difference of equal infinities is NaN but their sum is the same infinity; a real NaN comes back through Max
    difference = op.Where(op.IsNaN(difference), op.like(0, self), difference)
    rest = log1p(op, op.Exp(op.Mul(difference, op.like(-base, self))))
    return op.Add(op.Max(self, other), op.Div(rest, op.like(base, self)))


@lower("aten::deg2rad")
def deg2rad(op: Emitter, self: Value) -> Value:
    """aten::deg2rad(Tensor self) -> Tensor"""
    return op.Mul(op.cast(self, op.result_dtype), op.const(math.pi / 180, op.result_dtype))


@lower("aten::rad2deg")
def rad2deg(op: Emitter, self: Value) -> Value:
    """aten::rad2deg(Tensor self) -> Tensor"""
    return op.Mul(op.cast(self, op.result_dtype), op.const(180 / math.pi, op.result_dtype))


# Signs and angles ---------------------------------------------------------------------------------------------------


def is_negative(op: Emitter, value: Value) -> Value:
    """True below zero and for the negative zero, which is told from zero by its reciprocal."""
    zero = op.like(0, value)
    below = op.Less(value, zero)
    return op.Or(below, op.Less(op.Reciprocal(value), zero)) if dtypes.is_floating(value.dtype) else below


@lower("aten::signbit")
def signbit(op: Emitter, self: Value) -> Value:
    """aten::signbit(Tensor self) -> Tensor

    True for the negative zero too.
    """
    return is_negative(op, self)


@lower("aten::copysign.Tensor", "aten::copysign.Scalar", promote="self other", to_float=True)
def copysign(op: Emitter, self: Value, other: Value) -> Value:
    """aten::copysign.Tensor(Tensor self, Tensor other) -> Tensor

    The sign of a negative zero counts.
    """
    size = op.Abs(self)
    return op.Where(is_negative(op, other), op.Neg(size), size)


@lower("aten::atan2", "aten::arctan2", promote="self other", to_float=True)
def atan2(op: Emitter, self: Value, other: Value) -> Value:
    """aten::atan2(Tensor self, Tensor other) -> Tensor

    The angle of the point (other, self), from -pi to pi. Zeros keep their signs, as in C.
    """
    zero = op.like(0, self)
    ratio = op.Div(self, other)
    # torch follows C: 0/0 is an angle of zero, inf/inf one of 45 degrees
    ratio = op.Where(op.IsNaN(ratio), op.Mul(op.Sign(self), op.Sign(other)), ratio)
    left = op.Where(is_negative(op, self), op.like(-math.pi, self), op.like(math.pi, self))
    angle = op.Add(op.Atan(ratio), op.Where(is_negative(op, other), left, zero))
    return op.Where(op.Or(op.IsNaN(self), op.IsNaN(other)), op.Add(self, other), angle)


@lower("aten::angle")
def angle(op: Emitter, self: Value) -> Value:
    """aten::angle(Tensor self) -> Tensor

    The angle of a real number: pi below zero, 0 from zero on, NaN for NaN.
    """
    if self.dtype is not None and dtypes.torch_dtype(self.dtype).is_complex:
        raise UnsupportedForm(
            "on complex numbers has no rule yet; use atan2 of the imaginary and the real part", code="complex-tensor"
        )
    value = op.cast(self, op.result_dtype)
    zero = op.like(0, value)
    result = op.Where(op.Less(value, zero), op.like(math.pi, value), zero)
    return op.Where(op.IsNaN(value), value, result)


@lower("aten::sign", "aten::sgn")
def sign(op: Emitter, self: Value) -> Value:
    """aten::sign(Tensor self) -> Tensor

    0 for NaN; ONNX Sign returns NaN for it.
    """
    if not dtypes.is_floating(self.dtype):
        return op.Sign(self)
    return op.Where(op.IsNaN(self), op.like(0, self), op.Sign(self))


@lower("aten::heaviside", promote="self values")
def heaviside(op: Emitter, self: Value, values: Value) -> Value:
    """aten::heaviside(Tensor self, Tensor values) -> Tensor

    `values` where `self` is zero, else 0 below and 1 above. For NaN the result is 0.
    """
    zero = op.like(0, self)
    positive = op.cast(op.Greater(self, zero), self.dtype)
    is_zero = op.Not(op.cast(self, dtypes.BOOL))
    return op.Where(is_zero, values, positive)
