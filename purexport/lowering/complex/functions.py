"""Powers, exponentials, logarithms and trigonometric functions of complex tensors, from their real and imaginary parts.

Branches are those of torch: the imaginary part of a logarithm lies between -pi and pi, and a negative zero as imaginary
part counts as below the real axis. Inverse functions are computed from logarithms; where two terms would cancel, the
symmetry of the function is used so that they do not.
"""

from __future__ import annotations

import math

from proto_schema.legalization.loops import repeat
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import (
    angle,
    is_nonzero,
    reciprocal,
    result_code,
)
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.elementwise.arithmetic import is_negative
from purexport.lowering.support import fields
from purexport.lowering.support.common import axis_of, dims_of, full
from purexport.lowering.support.fields import Operand, magnitude
from purexport.lowering.support.pairs import Pair, pair_of, zero_part
from purexport.lowering.tensor.create import iota

_MOST_FACTORS = 16


def _pair(op: Emitter, found: Operand) -> Pair:
    return pair_of(op, found, found.dtype or dtypes.FLOAT)


def _times_i(op: Emitter, value: Pair) -> Pair:
    return Pair(op.Neg(value.imag), value.real)


def _over_i(op: Emitter, value: Pair) -> Pair:
    return Pair(value.imag, op.Neg(value.real))


# Exponentials and logarithms ----------------------------------------------------------------------------------------


@lower_complex("aten::exp")
def exp(op: Emitter, self: Pair) -> Pair:
    """aten::exp(Tensor self) -> Tensor"""
    size = op.Exp(self.real)
    return Pair(op.Mul(size, op.Cos(self.imag)), op.Mul(size, op.Sin(self.imag)))


@lower_complex("aten::exp2", "aten::special_exp2")
def exp2(op: Emitter, self: Pair) -> Pair:
    """aten::exp2(Tensor self) -> Tensor"""
    return exp(op, self.map(lambda part: op.Mul(part, op.like(math.log(2), part))))


@lower_complex("aten::expm1", "aten::special_expm1")
def expm1(op: Emitter, self: Pair) -> Pair:
    """aten::expm1(Tensor self) -> Tensor

    The difference is taken in double, because exp(z) - 1 cancels near zero.
    """
    wide = self.map(lambda part: op.cast(part, dtypes.DOUBLE))
    found = exp(op, wide)
    return Pair(op.cast(op.Sub(found.real, op.like(1, found.real)), self.dtype), op.cast(found.imag, self.dtype))


@lower_complex("aten::log")
def log(op: Emitter, self: Pair) -> Pair:
    """aten::log(Tensor self) -> Tensor"""
    return Pair(op.Log(magnitude(op, self)), angle(op, self))


@lower_complex("aten::log2")
def log2(op: Emitter, self: Pair) -> Pair:
    """aten::log2(Tensor self) -> Tensor"""
    return log(op, self).map(lambda part: op.Div(part, op.like(math.log(2), part)))


@lower_complex("aten::log10")
def log10(op: Emitter, self: Pair) -> Pair:
    """aten::log10(Tensor self) -> Tensor"""
    return log(op, self).map(lambda part: op.Div(part, op.like(math.log(10), part)))


@lower_complex("aten::log1p", "aten::special_log1p")
def log1p(op: Emitter, self: Pair) -> Pair:
    """aten::log1p(Tensor self) -> Tensor

    The magnitude of 1 + z is computed in double, because the logarithm loses the small digits near zero otherwise.
    """
    wide = self.map(lambda part: op.cast(part, dtypes.DOUBLE))
    moved = op.Add(wide.real, op.like(1, wide.real))
    square = op.Add(op.Mul(moved, moved), op.Mul(wide.imag, wide.imag))
    size = op.cast(op.Mul(op.Log(square), op.like(0.5, square)), self.dtype)
    return Pair(size, angle(op, Pair(op.cast(moved, self.dtype), self.imag)))


@lower_complex("aten::logcumsumexp")
def logcumsumexp(op: Emitter, self: Pair, dim: int) -> Pair:
    """aten::logcumsumexp(Tensor self, int dim) -> Tensor

    Step by step, as in torch: the imaginary part goes on from that of the larger term and is not wrapped to 2 pi.
    """
    if self.rank == 0:
        return self
    axis = axis_of(dim, self.rank)
    size = op.dim(self.real, axis)
    places = op.Reshape(iota(op, size), [-1, *[1] * (self.rank - axis - 1)])

    def step(op: Emitter, at: Value, *carried: Value) -> list[Value]:
        term = self.map(lambda part: op.Gather(part, at, axis=axis))
        total = _log_add_exp(op, term, Pair(*carried[:2]))
        here = op.Equal(places, at)
        done = [op.Where(here, part, was) for part, was in zip((total.real, total.imag), carried[2:], strict=True)]
        return [total.real, total.imag, *done]

    sizes = [1 if place == axis else item for place, item in enumerate(dims_of(op, self.real))]
    dtype = self.dtype or dtypes.FLOAT
    start = [full(op, sizes, -math.inf, dtype), full(op, sizes, 0, dtype), *[zero_part(op, self.real)] * 2]
    return Pair(*repeat(op, size, step, *start)[2:])


def _log_add_exp(op: Emitter, one: Pair, other: Pair) -> Pair:
    """log(exp(one) + exp(other)); of two infinite terms the angle is that of the smaller one or not known (NaN), and
    NaN spreads to both parts.
    """
    swaps = op.Less(one.real, other.real)
    most = Pair(op.Where(swaps, other.real, one.real), op.Where(swaps, other.imag, one.imag))
    least = Pair(op.Where(swaps, one.real, other.real), op.Where(swaps, one.imag, other.imag))
    added = log1p(op, exp(op, Pair(op.Sub(least.real, most.real), op.Sub(least.imag, most.imag))))
    found = Pair(op.Add(added.real, most.real), op.Add(added.imag, most.imag))
    infinite = op.Equal(op.Abs(least.real), op.like(math.inf, least.real))
    both = op.And(infinite, op.Equal(least.real, most.real))
    turn = op.Where(op.Less(least.real, op.like(0, least.real)), least.imag, op.like(math.nan, least.real))
    found = Pair(op.Where(both, least.real, found.real), op.Where(both, turn, found.imag))
    broken = op.Or(op.IsNaN(op.Add(one.real, one.imag)), op.IsNaN(op.Add(other.real, other.imag)))
    return found.map(lambda part: op.Where(broken, op.like(math.nan, part), part))


@lower_complex("aten::sigmoid", "aten::special_expit")
def sigmoid(op: Emitter, self: Pair) -> Operand:
    """aten::sigmoid(Tensor self) -> Tensor"""
    below = exp(op, self.map(op.Neg))
    return reciprocal(op, Pair(op.Add(below.real, op.like(1, below.real)), below.imag))


# Powers and roots ---------------------------------------------------------------------------------------------------


@lower_complex("aten::sqrt")
def sqrt(op: Emitter, self: Pair) -> Pair:
    """aten::sqrt(Tensor self) -> Tensor

    The root with a real part of at least zero. Its larger part is computed first and the other one from it, so that
    nothing cancels.
    """
    half, zero = op.like(0.5, self.real), op.like(0, self.real)
    large = op.Sqrt(op.Mul(op.Add(magnitude(op, self), op.Abs(self.real)), half))
    small = op.Where(op.cast(large, dtypes.BOOL), op.Div(op.Mul(self.imag, half), large), self.imag)
    left = op.Less(self.real, zero)
    turned = op.Where(is_negative(op, self.imag), op.Neg(large), large)
    return Pair(op.Where(left, op.Abs(small), large), op.Where(left, turned, small))


@lower_complex("aten::rsqrt")
def rsqrt(op: Emitter, self: Pair) -> Operand:
    """aten::rsqrt(Tensor self) -> Tensor"""
    return reciprocal(op, sqrt(op, self))


@lower_complex("aten::pow.Tensor_Scalar", "aten::pow.Tensor_Tensor", "aten::pow.Scalar", promote="self exponent")
def pow_rule(op: Emitter, self: Operand, exponent: Operand) -> Operand:
    """aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor

    A small known integer exponent becomes a product, 0.5 and -0.5 become square roots. Others are exp(exponent *
    log(self)).
    """
    base = pair_of(op, self, result_code(op))
    known = _number_in(exponent)
    if known is not None and known == int(known) and abs(known) <= _MOST_FACTORS:
        return _whole_power(op, base, int(known))
    if known in (0.5, -0.5):
        return sqrt(op, base) if known == 0.5 else rsqrt(op, base)
    return _power(op, base, exponent)


def _number_in(exponent: Operand) -> float | None:
    """The exponent as a Python number where it is one known real number, else None."""
    const = exponent.const if isinstance(exponent, Value) else None
    return None if const is None or const.numel() != 1 else float(const.item())


def _whole_power(op: Emitter, base: Pair, exponent: int) -> Operand:
    if exponent == 0:
        zero = zero_part(op, base.real)
        return Pair(op.Add(zero, op.like(1, zero)), zero)
    result: Operand | None = None
    factor: Operand = base
    left = abs(exponent)
    while left:
        if left & 1:
            result = factor if result is None else fields.mul(op, result, factor)
        left >>= 1
        if left:
            factor = fields.mul(op, factor, factor)
    assert isinstance(result, Pair), "a power of a pair is one"
    return result if exponent > 0 else reciprocal(op, result)


def _power(op: Emitter, base: Pair, exponent: Operand) -> Pair:
    """exp(w log z). It is 0 where z is 0, but NaN for 0**0, as in torch's kernel for tensors."""
    product = fields.mul(op, log(op, base), exponent)
    found = exp(op, _pair(op, product))
    power = _pair(op, exponent)
    to_zero = op.And(op.Not(is_nonzero(op, base)), op.Greater(power.real, op.like(0, power.real)))
    zero = op.like(0, base.real)
    return found.map(lambda part: op.Where(to_zero, zero, part))


# Sine and tangent ---------------------------------------------------------------------------------------------------


@lower_complex("aten::sinh")
def sinh(op: Emitter, self: Pair) -> Pair:
    """aten::sinh(Tensor self) -> Tensor"""
    return Pair(
        op.Mul(op.Sinh(self.real), op.Cos(self.imag)),
        op.Mul(op.Cosh(self.real), op.Sin(self.imag)),
    )


@lower_complex("aten::cosh")
def cosh(op: Emitter, self: Pair) -> Pair:
    """aten::cosh(Tensor self) -> Tensor"""
    return Pair(
        op.Mul(op.Cosh(self.real), op.Cos(self.imag)),
        op.Mul(op.Sinh(self.real), op.Sin(self.imag)),
    )


@lower_complex("aten::tanh")
def tanh(op: Emitter, self: Pair) -> Pair:
    """aten::tanh(Tensor self) -> Tensor

    (1 - e**2, 2 e sin 2y) / (1 + e**2 + 2 e cos 2y) with e = exp(-2 |x|), which does not overflow.
    """
    one, two = op.like(1, self.real), op.like(2, self.real)
    small = op.Exp(op.Neg(op.Mul(two, op.Abs(self.real))))
    square, twice, turn = op.Mul(small, small), op.Mul(two, small), op.Mul(two, self.imag)
    below = op.Add(op.Add(one, square), op.Mul(twice, op.Cos(turn)))
    real = op.Div(op.Mul(op.Sign(self.real), op.Sub(one, square)), below)
    return Pair(real, op.Div(op.Mul(twice, op.Sin(turn)), below))


@lower_complex("aten::sin")
def sin(op: Emitter, self: Pair) -> Pair:
    """aten::sin(Tensor self) -> Tensor"""
    return _over_i(op, sinh(op, _times_i(op, self)))


@lower_complex("aten::cos")
def cos(op: Emitter, self: Pair) -> Pair:
    """aten::cos(Tensor self) -> Tensor"""
    return cosh(op, _times_i(op, self))


@lower_complex("aten::tan")
def tan(op: Emitter, self: Pair) -> Pair:
    """aten::tan(Tensor self) -> Tensor"""
    return _over_i(op, tanh(op, _times_i(op, self)))


@lower_complex("aten::asinh", "aten::arcsinh")
def asinh(op: Emitter, self: Pair) -> Pair:
    """aten::asinh(Tensor self) -> Tensor

    log(z + sqrt(z**2 + 1)) on the right half plane; the left half follows since the function is odd.
    """
    left = op.Less(self.real, op.like(0, self.real))
    right = self.map(lambda part: op.Where(left, op.Neg(part), part))
    inside = fields.add(op, fields.mul(op, right, right), op.like(1, self.real))
    found = log(op, _pair(op, fields.add(op, right, sqrt(op, _pair(op, inside)))))
    return found.map(lambda part: op.Where(left, op.Neg(part), part))


@lower_complex("aten::acosh", "aten::arccosh")
def acosh(op: Emitter, self: Pair) -> Pair:
    """aten::acosh(Tensor self) -> Tensor"""
    one = op.like(1, self.real)
    roots = [sqrt(op, _pair(op, fields.add(op, self, step))) for step in (one, op.Neg(one))]
    return log(op, _pair(op, fields.add(op, self, fields.mul(op, *roots))))


@lower_complex("aten::atanh", "aten::arctanh")
def atanh(op: Emitter, self: Pair) -> Pair:
    """aten::atanh(Tensor self) -> Tensor"""
    one = op.like(1, self.real)
    above = log(op, _pair(op, fields.add(op, self, one)))
    below = log(op, _pair(op, fields.add(op, _pair(op, fields.neg(op, self)), one)))
    return _pair(op, fields.mul(op, fields.add(op, above, fields.neg(op, below)), op.like(0.5, self.real)))


@lower_complex("aten::asin", "aten::arcsin")
def asin(op: Emitter, self: Pair) -> Pair:
    """aten::asin(Tensor self) -> Tensor"""
    return _over_i(op, asinh(op, _times_i(op, self)))


@lower_complex("aten::acos", "aten::arccos")
def acos(op: Emitter, self: Pair) -> Pair:
    """aten::acos(Tensor self) -> Tensor"""
    found = asin(op, self)
    return Pair(op.Sub(op.like(math.pi / 2, found.real), found.real), op.Neg(found.imag))


@lower_complex("aten::atan", "aten::arctan")
def atan(op: Emitter, self: Pair) -> Pair:
    """aten::atan(Tensor self) -> Tensor"""
    return _over_i(op, atanh(op, _times_i(op, self)))
