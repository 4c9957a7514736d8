"""Special functions by asymptotic series, recurrences and reflections, in double; functions without such a form are
fitted.

A fitted function of one variable is a table of polynomials, one for each of equal intervals. Its coefficients come from
torch's own values in double at the Chebyshev points of each interval, so the error is that of float32. In the graph the
interval is found by rounding, its coefficients are gathered, and the powers are summed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import Rule, add, lower
from purexport.lowering.elementwise.arithmetic import log1p
from purexport.lowering.elementwise.compare import eq
from purexport.lowering.support.kernels import largest, smallest

Function = Callable[[torch.Tensor], Any]
special = torch.special


@functools.cache
def _fit(function: Function, low: float, high: float, intervals: int, degree: int) -> torch.Tensor:
    """Coefficients [intervals, degree + 1] of polynomials in the local variable, which is in [-1, 1]."""
    points = np.polynomial.chebyshev.chebpts1(degree + 1)
    width = (high - low) / intervals
    middles = low + width * (np.arange(intervals) + 0.5)
    places = torch.from_numpy(middles[:, None] + 0.5 * width * points[None, :])
    values = function(places).numpy()
    rows = [np.polynomial.polynomial.Polynomial.fit(points, row, degree, domain=[-1, 1]).coef for row in values]
    return torch.tensor(np.stack([np.pad(row, (0, degree + 1 - len(row))) for row in rows]))


def _fitted(
    op: Emitter, value: Value, function: Function, low: float, high: float, intervals: int = 16, degree: int = 9
) -> Value:
    """`function` of a double `value`. Outside [low, high] the result is meaningless."""
    place = op.Div(op.Sub(value, op.like(low, value)), op.like((high - low) / intervals, value))
    # NaN becomes an arbitrary integer, which is clipped to a valid position
    interval = op.cast(op.Floor(place), dtypes.INT64)
    interval = smallest(op, largest(op, interval, op.const(0)), op.const(intervals - 1))
    start = op.cast(interval, dtypes.DOUBLE)
    local = op.Sub(op.Mul(op.Sub(place, start), op.like(2, value)), op.like(1, value))
    coefficients = op.Gather(op.const(_fit(function, low, high, intervals, degree)), interval, axis=0)
    exponents = op.const([float(power) for power in range(degree + 1)], dtypes.DOUBLE)
    powers = op.Pow(op.Unsqueeze(local, axes=[value.rank]), exponents)
    return op.ReduceSum(op.Mul(coefficients, powers), axes=[value.rank], keepdims=0)


def _in_double(function: Callable[[Emitter, Value], Value], *targets: str, operand: str = "self") -> None:
    """Register a rule that computes `function(op, x)` in double and returns the dtype of the result; integers are
    promoted.
    """

    def rule(op: Emitter, **arguments: Value) -> Value:
        return op.cast(function(op, op.cast(arguments[operand], dtypes.DOUBLE)), op.result_dtype)

    add(Rule(rule, (operand,), (operand,), True), *targets)


def _where(op: Emitter, condition: Value, one: Value, other: Value, like: Value) -> Value:
    return op.Where(condition, one, other)


def _number(op: Emitter, number: float) -> Value:
    return op.const(float(number), dtypes.DOUBLE)


def _below(op: Emitter, value: Value, bound: float) -> Value:
    return op.Less(value, _number(op, bound))


# The error function -------------------------------------------------------------------------------------------------


@lower("aten::erf", "aten::special_erf", promote="self", to_float=True)
def erf(op: Emitter, self: Value) -> Value:
    """aten::erf(Tensor self) -> Tensor"""
    return op.Erf(self)


def _scaled_from_share(share: torch.Tensor) -> Any:
    return special.erfcx(2 / share - 2) / share


def _erfcx_positive(op: Emitter, x: Value) -> Value:
    """erfcx of x >= 0, as a function of 2 / (2 + x), of which it is smooth and which is bounded."""
    share = op.Div(_number(op, 2), op.Add(x, _number(op, 2)))
    return op.Mul(share, _fitted(op, share, _scaled_from_share, 0.0, 1.0, intervals=24))


def _gauss(op: Emitter, x: Value, sign: float = -1.0) -> Value:
    return op.Exp(op.Mul(_number(op, sign), op.Mul(x, x)))


def _erfc(op: Emitter, x: Value) -> Value:
    size = op.Abs(x)
    positive = op.Mul(_erfcx_positive(op, size), _gauss(op, size))
    return _where(op, _below(op, x, 0), op.Sub(_number(op, 2), positive), positive, x)


def _erfcx(op: Emitter, x: Value) -> Value:
    size = op.Abs(x)
    positive = _erfcx_positive(op, size)
    mirrored = op.Sub(op.Mul(_number(op, 2), _gauss(op, size, 1.0)), positive)
    return _where(op, _below(op, x, 0), mirrored, positive, x)


def _erfinv_share(w: torch.Tensor) -> Any:
    """erfinv(x) / x at w = -log(1 - x * x), where x can be closer to 1 than double can represent."""
    tail = torch.exp(-w)
    x = torch.sqrt(-torch.expm1(-w))
    return -special.ndtri(tail / (2 * (1 + x))) / math.sqrt(2) / x


def _erfinv_at(op: Emitter, x: Value, rest: Value) -> Value:
    """erfinv(x), where `rest` is 1 - x * x."""
    w = op.Neg(op.Log(rest))
    bounded = op.Min(w, _number(op, 100))
    inside = op.Mul(x, _fitted(op, bounded, _erfinv_share, 0.0, 100.0, intervals=100, degree=8))
    edge = op.Mul(x, _number(op, math.inf))
    return _where(op, op.Greater(w, _number(op, 1e4)), edge, inside, x)


def _erfinv(op: Emitter, x: Value) -> Value:
    one = _number(op, 1)
    return _erfinv_at(op, x, op.Mul(op.Sub(one, x), op.Add(one, x)))


def _ndtri(op: Emitter, p: Value) -> Value:
    centered = op.Sub(op.Mul(_number(op, 2), p), _number(op, 1))
    rest = op.Mul(op.Mul(_number(op, 4), p), op.Sub(_number(op, 1), p))
    return op.Mul(_number(op, math.sqrt(2)), _erfinv_at(op, centered, rest))


def _ndtr(op: Emitter, x: Value) -> Value:
    scaled = op.Mul(x, _number(op, -math.sqrt(0.5)))
    return op.Mul(_number(op, 0.5), _erfc(op, scaled))


def _log_ndtr(op: Emitter, x: Value) -> Value:
    left = op.Mul(x, _number(op, -math.sqrt(0.5)))
    half = _number(op, 0.5)
    tail = op.Sub(op.Log(op.Mul(half, _erfcx(op, left))), op.Mul(left, left))
    body = log1p(op, op.Neg(op.Mul(half, _erfc(op, op.Neg(left)))))
    return op.Where(_below(op, x, -1), tail, body)


_in_double(_erfc, "aten::erfc", "aten::special_erfc")
_in_double(_erfcx, "aten::special_erfcx")
_in_double(_erfinv, "aten::erfinv", "aten::special_erfinv")
_in_double(_ndtri, "aten::special_ndtri")
_in_double(_ndtr, "aten::special_ndtr")
_in_double(_log_ndtr, "aten::special_log_ndtr")


# The gamma function -------------------------------------------------------------------------------------------------

_SHIFT = 8


def _reflected(op: Emitter, x: Value) -> tuple[Value, Value]:
    """(whether x is below one half, x or 1 - x, which is at least one half)."""
    left = _below(op, x, 0.5)
    return left, _where(op, left, op.Sub(_number(op, 1), x), x, x)


def _series(op: Emitter, start: Value, x: Value, coefficients: list[float], ratio: Value) -> Value:
    """start + x * (c0 + c1 * ratio + c2 * ratio**2 + ...)"""
    total = _number(op, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = op.Add(op.Mul(total, ratio), _number(op, coefficient))
    return op.Add(start, op.Mul(total, x))


def lgamma_in_double(op: Emitter, x: Value) -> Value:
    """log|gamma(x)| by Stirling's series (DLMF 5.11.1) after eight recurrence steps up, and by reflection for x below
    one half.
    """
    left, positive = _reflected(op, x)
    product = positive
    for step in range(1, _SHIFT):
        product = op.Mul(product, op.Add(positive, _number(op, step)))
    z = op.Add(positive, _number(op, _SHIFT))
    main = op.Sub(op.Mul(op.Sub(z, _number(op, 0.5)), op.Log(z)), z)
    main = op.Add(main, _number(op, 0.5 * math.log(2 * math.pi)))
    inverse = op.Reciprocal(z)
    up = _series(op, main, inverse, [1 / 12, -1 / 360, 1 / 1260, -1 / 1680], op.Mul(inverse, inverse))
    right = op.Sub(up, op.Log(product))
    # for huge numbers the product overflows, and the difference of infinities would be NaN
    huge = op.Mul(positive, op.Sub(op.Log(positive), _number(op, 1)))
    right = op.Where(op.Less(positive, _number(op, 1e30)), right, huge)
    sine = op.Abs(op.Sin(op.Mul(_number(op, math.pi), _fraction(op, x))))
    mirrored = op.Sub(op.Sub(_number(op, math.log(math.pi)), op.Log(sine)), right)
    return op.Where(left, mirrored, right)


def _fraction(op: Emitter, x: Value) -> Value:
    """x less its floor: pi times it has an accurate sine, also for large x."""
    return op.Sub(x, op.Floor(x))


def _digamma(op: Emitter, x: Value) -> Value:
    """The derivative of lgamma by its series (DLMF 5.11.2) after eight recurrence steps up, and by reflection for x
    below one half.
    """
    left, positive = _reflected(op, x)
    down = op.Reciprocal(positive)
    for step in range(1, _SHIFT):
        down = op.Add(down, op.Reciprocal(op.Add(positive, _number(op, step))))
    z = op.Add(positive, _number(op, _SHIFT))
    inverse = op.Reciprocal(z)
    start = op.Sub(op.Log(z), op.Mul(_number(op, 0.5), inverse))
    square = op.Mul(inverse, inverse)
    up = _series(op, start, square, [-1 / 12, 1 / 120, -1 / 252, 1 / 240], square)
    right = op.Sub(up, down)
    angle = op.Mul(_number(op, math.pi), _fraction(op, x))
    mirrored = op.Sub(right, op.Div(op.Mul(_number(op, math.pi), op.Cos(angle)), op.Sin(angle)))
    result = op.Where(left, mirrored, right)
    # poles: minus infinity at zero, NaN at negative integers
    whole = op.And(eq(op, op.Floor(x), x), left)
    pole = op.Where(_below(op, x, 0), _number(op, math.nan), _number(op, -math.inf))
    return op.Where(whole, pole, result)


_in_double(lgamma_in_double, "aten::lgamma", "aten::special_gammaln")
_in_double(_digamma, "aten::digamma", "aten::special_digamma", "aten::special_psi")

_TERMS = 24  # the terms of zeta that are added one by one
_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6]


def _zeta(op: Emitter, s: Value, q: Value) -> Value:
    """Hurwitz zeta by Euler-Maclaurin summation (DLMF 25.11.5), for s > 1."""
    minus = op.Neg(s)
    total = op.Pow(q, minus)
    for step in range(1, _TERMS):
        total = op.Add(total, op.Pow(op.Add(q, _number(op, step)), minus))
    z = op.Add(q, _number(op, _TERMS))
    power = op.Pow(z, minus)
    total = op.Add(total, op.Div(op.Mul(power, z), op.Sub(s, _number(op, 1))))
    total = op.Add(total, op.Mul(_number(op, 0.5), power))
    factor = op.Div(op.Mul(s, power), z)
    for number, bernoulli in enumerate(_BERNOULLI, 1):
        total = op.Add(total, op.Mul(factor, _number(op, bernoulli / math.factorial(2 * number))))
        rising = op.Mul(op.Add(s, _number(op, 2 * number - 1)), op.Add(s, _number(op, 2 * number)))
        factor = op.Div(op.Mul(factor, rising), op.Mul(z, z))
    return total


@lower(
    "aten::special_zeta",
    "aten::special_zeta.self_scalar",
    "aten::special_zeta.other_scalar",
    promote="self other",
    to_float=True,
)
def zeta(op: Emitter, self: Value, other: Value) -> Value:
    """aten::special_zeta(Tensor self, Tensor other) -> Tensor

    Hurwitz zeta: infinite at `self` 1 and where `other` is zero or a negative integer; NaN for `self` below 1.
    """
    s, q = op.cast(self, dtypes.DOUBLE), op.cast(other, dtypes.DOUBLE)
    result = _zeta(op, s, q)
    one = _number(op, 1)
    left = op.Not(op.Greater(q, _number(op, 0)))
    broken = op.And(left, op.Not(eq(op, op.Floor(s), s)))
    result = op.Where(broken, _number(op, math.nan), result)
    result = op.Where(op.And(left, eq(op, op.Floor(q), q)), _number(op, math.inf), result)
    result = op.Where(op.Less(s, one), _number(op, math.nan), result)
    return op.cast(op.Where(eq(op, s, one), _number(op, math.inf), result), self.dtype)


@lower("aten::polygamma", "aten::special_polygamma", promote="self", to_float=True)
def polygamma(op: Emitter, n: int, self: Value) -> Value:
    """aten::polygamma(int n, Tensor self) -> Tensor

    The n-th derivative of digamma, (-1)**(n + 1) * n! * zeta(n + 1, x).
    """
    x = op.cast(self, dtypes.DOUBLE)
    if n == 0:
        return op.cast(_digamma(op, x), self.dtype)
    if n < 0:
        raise UnsupportedForm(f"of order {n} is not defined; use an order of zero or more", code="no-onnx-form")
    scale = _number(op, (-1.0) ** (n + 1) * math.factorial(n))
    return op.cast(op.Mul(scale, zeta(op, _number(op, n + 1), x)), self.dtype)


# Bessel functions ---------------------------------------------------------------------------------------------------


def _near_and_far(
    op: Emitter, x: Value, near: Function, far: Function, boundary: float, intervals: int = 16
) -> tuple[Value, Value, Value]:
    """(whether x < boundary, `near` of x, `far` of boundary / x), for x >= 0."""
    inverse = op.Div(_number(op, boundary), x)
    low = _fitted(op, op.Min(x, _number(op, boundary)), near, 0.0, boundary, intervals)
    high = _fitted(op, op.Min(inverse, _number(op, 1)), far, 0.0, 1.0, intervals)
    return _below(op, x, boundary), low, high


def _modified(function: Function, odd: bool) -> Callable[[Emitter, Value], Value]:
    """A rule for exp(-|x|) * I(x). Up to 8 the function itself is fitted, beyond that its product with the square root
    of x.
    """

    def far(share: torch.Tensor) -> Any:
        return function(8 / share) * torch.sqrt(8 / share)

    def rule(op: Emitter, x: Value) -> Value:
        size = op.Abs(x)
        is_near, low, high = _near_and_far(op, size, function, far, 8.0)
        value = op.Where(is_near, low, op.Div(high, op.Sqrt(size)))
        return op.Mul(op.Sign(x), value) if odd else value

    return rule


_i0e, _i1e = _modified(special.i0e, False), _modified(special.i1e, True)


def _grown(scaled: Callable[[Emitter, Value], Value]) -> Callable[[Emitter, Value], Value]:
    return lambda op, x: op.Mul(scaled(op, x), op.Exp(op.Abs(x)))


bessel_i0, _i1 = _grown(_i0e), _grown(_i1e)
_in_double(_i0e, "aten::special_i0e")
_in_double(_i1e, "aten::special_i1e")
_in_double(bessel_i0, "aten::i0", "aten::special_i0", "aten::special_modified_bessel_i0")
_in_double(_i1, "aten::special_i1", "aten::special_modified_bessel_i1")


def _rest_of_k0(x: torch.Tensor) -> Any:
    return special.modified_bessel_k0(x) + torch.log(x / 2) * special.i0(x)


def _rest_of_k1(x: torch.Tensor) -> Any:
    return x * (special.modified_bessel_k1(x) - torch.log(x / 2) * special.i1(x))


def _second_kind(order: int, scaled: bool) -> Callable[[Emitter, Value], Value]:
    """K0 and K1. Below 2 a logarithm and a power are split off before the fit, above 2 the exponential and the square
    root of x.
    """
    function = special.scaled_modified_bessel_k1 if order else special.scaled_modified_bessel_k0

    def far(share: torch.Tensor) -> Any:
        return function(2 / share) * torch.sqrt(2 / share)

    def rule(op: Emitter, x: Value) -> Value:
        is_near, low, high = _near_and_far(op, x, _rest_of_k1 if order else _rest_of_k0, far, 2.0)
        logarithm = op.Mul(op.Log(op.Mul(_number(op, 0.5), x)), (_i1 if order else bessel_i0)(op, x))
        low = op.Add(op.Div(low, x), logarithm) if order else op.Sub(low, logarithm)
        high = op.Div(high, op.Sqrt(x))
        if scaled:
            low = op.Mul(low, op.Exp(x))
        else:
            high = op.Mul(high, op.Exp(op.Neg(x)))
        value = op.Where(is_near, low, high)
        value = op.Where(_below(op, x, 0), _number(op, math.nan), value)
        return op.Where(eq(op, x, _number(op, 0)), _number(op, math.inf), value)

    return rule


for _order in (0, 1):
    _in_double(_second_kind(_order, False), f"aten::special_modified_bessel_k{_order}")
    _in_double(_second_kind(_order, True), f"aten::special_scaled_modified_bessel_k{_order}", operand="x")

_WAVES = 8.0


def _wave(order: int, second: bool) -> Callable[[Emitter, Value], Value]:
    """J and Y. Up to 8 the functions are fitted, beyond that their modulus and phase (DLMF 10.17.3), two smooth
    functions of 8 / x.
    """
    j, y = (special.bessel_j1, special.bessel_y1) if order else (special.bessel_j0, special.bessel_y0)
    offset = math.pi * (0.25 + 0.5 * order)

    def part(share: torch.Tensor, of_sine: bool) -> Any:
        x = _WAVES / share
        angle, scale = x - offset, torch.sqrt(math.pi / 2 * x)
        if of_sine:
            return scale * (y(x) * torch.cos(angle) - j(x) * torch.sin(angle))
        return scale * (j(x) * torch.cos(angle) + y(x) * torch.sin(angle))

    def near(x: torch.Tensor) -> Any:
        if not second:
            return j(x)
        rest = y(x) - 2 / math.pi * torch.log(x / 2) * j(x)
        return x * (rest + 2 / (math.pi * x)) if order else rest

    parts = (functools.partial(part, of_sine=False), functools.partial(part, of_sine=True))

    def rule(op: Emitter, x: Value) -> Value:
        size = op.Abs(x)
        is_near, low, even = _near_and_far(op, size, near, parts[0], _WAVES)
        inverse = op.Min(op.Div(_number(op, _WAVES), size), _number(op, 1))
        odd = _fitted(op, inverse, parts[1], 0.0, 1.0)
        angle = op.Sub(size, _number(op, offset))
        sine, cosine = op.Sin(angle), op.Cos(angle)
        both = (op.Mul(even, sine), op.Mul(odd, cosine)) if second else (op.Mul(even, cosine), op.Mul(odd, sine))
        wave = op.Add(*both) if second else op.Sub(*both)
        high = op.Mul(wave, op.Sqrt(op.Div(_number(op, 2 / math.pi), size)))
        if not second:
            value = op.Where(is_near, low, high)
            return op.Mul(op.Sign(x), value) if order else value
        first = _wave(order, False)(op, size)
        if order:
            low = op.Sub(op.Div(low, size), op.Div(_number(op, 2 / math.pi), size))
        logarithm = op.Mul(op.Log(op.Mul(_number(op, 0.5), size)), first)
        value = op.Where(is_near, op.Add(low, op.Mul(_number(op, 2 / math.pi), logarithm)), high)
        value = op.Where(_below(op, x, 0), _number(op, math.nan), value)
        return op.Where(eq(op, x, _number(op, 0)), _number(op, -math.inf), value)

    return rule


for _order in (0, 1):
    _in_double(_wave(_order, False), f"aten::special_bessel_j{_order}")
    _in_double(_wave(_order, True), f"aten::special_bessel_y{_order}")


def _quotient_of_sine(op: Emitter, x: Value) -> Value:
    at_zero = eq(op, x, _number(op, 0))
    value = op.Where(at_zero, _number(op, 1), op.Div(op.Sin(x), x))
    return op.Where(op.Greater(op.Abs(x), _number(op, 1e300)), _number(op, 0), value)


def _sinc(op: Emitter, x: Value) -> Value:
    angle = op.Mul(_number(op, math.pi), x)
    return op.Where(eq(op, x, _number(op, 0)), _number(op, 1), op.Div(op.Sin(angle), angle))


_in_double(_quotient_of_sine, "aten::special_spherical_bessel_j0", operand="x")
_in_double(_sinc, "aten::sinc", "aten::special_sinc")


# The Airy function --------------------------------------------------------------------------------------------------

_AIRY, _AIRY_TERMS = 8.0, 14
_AIRY_JUMP = -2.09  # torch's own values have a step of 3e-6 here


def _airy(op: Emitter, x: Value) -> Value:
    """Ai. Up to 8 from zero it is fitted, beyond that it is a series in 1 / z for z = 2/3 |x|**1.5 (DLMF 9.7.5 and
    9.7.9).
    """
    size, one = op.Max(op.Abs(x), _number(op, _AIRY)), _number(op, 1)
    near = op.Max(op.Min(x, _number(op, _AIRY)), _number(op, -_AIRY))
    low = _fitted(op, near, special.airy_ai, -_AIRY, _AIRY_JUMP, intervals=24, degree=11)
    high = _fitted(op, near, special.airy_ai, _AIRY_JUMP, _AIRY, intervals=40, degree=11)
    near = op.Where(_below(op, x, _AIRY_JUMP), low, high)
    root = op.Sqrt(size)
    z = op.Mul(op.Mul(size, root), _number(op, 2 / 3))
    inverse, power, term = op.Div(one, z), one, 1.0
    alternating, even, odd = one, one, _number(op, 0)
    for k in range(1, _AIRY_TERMS):
        term *= (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1))
        power = op.Mul(power, inverse)
        alternating = op.Add(alternating, op.Mul(power, _number(op, term * (-1) ** k)))
        part = op.Mul(power, _number(op, term * (-1) ** (k // 2)))
        even, odd = (even, op.Add(odd, part)) if k % 2 else (op.Add(even, part), odd)
    scale = op.Div(_number(op, math.pi**-0.5), op.Sqrt(root))
    falling = op.Mul(op.Mul(op.Mul(_number(op, 0.5), scale), op.Exp(op.Neg(z))), alternating)
    angle = op.Sub(z, _number(op, math.pi / 4))
    wave = op.Mul(scale, op.Add(op.Mul(op.Cos(angle), even), op.Mul(op.Sin(angle), odd)))
    far = op.Where(_below(op, x, 0), wave, falling)
    finite = op.Sub(x, x)  # 0, or NaN as in torch
    return op.Add(op.Where(_below(op, op.Abs(x), _AIRY), near, far), finite)


_in_double(_airy, "aten::special_airy_ai", operand="x")


# Products with logarithms -------------------------------------------------------------------------------------------


def _product(names: str, logarithm: Callable[[Emitter, Value], Value]) -> None:
    """A row for self * logarithm(other): zero where `self` is zero, but NaN where `other` is NaN."""

    def rule(op: Emitter, self: Value, other: Value) -> Value:
        zero = op.like(0, self)
        value = op.Where(eq(op, self, zero), zero, op.Mul(self, logarithm(op, other)))
        return op.Where(op.IsNaN(other), other, value)

    add(Rule(rule, ("self", "other"), ("self", "other"), True), *names.split())


_product(
    "aten::xlogy.Tensor aten::xlogy.Scalar_Other aten::xlogy.Scalar_Self "
    "aten::special_xlogy aten::special_xlogy.other_scalar aten::special_xlogy.self_scalar",
    lambda op, value: op.Log(value),
)
_product(
    "aten::special_xlog1py aten::special_xlog1py.other_scalar aten::special_xlog1py.self_scalar",
    log1p,
)


@lower("aten::special_entr", promote="self", to_float=True)
def entr(op: Emitter, self: Value) -> Value:
    """aten::special_entr(Tensor self) -> Tensor

    -x * log(x); 0 for 0, minus infinity for negative numbers.
    """
    zero = op.like(0, self)
    value = op.Where(eq(op, self, zero), zero, op.Neg(op.Mul(self, op.Log(self))))
    return op.Where(op.Less(self, zero), op.like(-math.inf, self), value)
