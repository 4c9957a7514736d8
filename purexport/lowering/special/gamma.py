"""The incomplete gamma functions: a series for small x, a continued fraction for large x, in double.

Both stop when no element changes by more than the precision of float32 (DLMF 8.11.4; the continued fraction 8.9.2 by
Lentz's method). In each of the two loops the elements that belong to the other one get an argument for which they
converge at once.
"""

from __future__ import annotations

import math

from proto_schema.legalization.loops import repeat_while
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.elementwise.compare import eq
from purexport.lowering.special.functions import lgamma_in_double

_MOST = 4000  # steps
_ENOUGH = 1e-10


def _double(op: Emitter, number: float) -> Value:
    return op.const(float(number), dtypes.DOUBLE)


def _any(op: Emitter, flags: Value) -> Value:
    whole = op.ReduceMax(op.cast(op.Reshape(flags, [-1]), dtypes.FLOAT), axes=[0], keepdims=0)
    return op.cast(whole, dtypes.BOOL)


def _step_number(op: Emitter, at: Value) -> Value:
    return op.Add(op.cast(op.Squeeze(at, [0]), dtypes.DOUBLE), _double(op, 1))


def _lower_series(op: Emitter, a: Value, x: Value) -> Value:
    """1 + x / (a + 1) + x**2 / ((a + 1) (a + 2)) + ..."""

    def step(op: Emitter, at: Value, term: Value, total: Value) -> tuple[Value, Value, Value]:
        term = op.Div(op.Mul(term, x), op.Add(a, _step_number(op, at)))
        total = op.Add(total, term)
        return _any(op, op.Greater(term, op.Mul(total, _double(op, _ENOUGH)))), term, total

    ones = op.Add(op.Mul(op.Add(a, x), _double(op, 0)), _double(op, 1))
    start = op.const(True, dtypes.BOOL)
    return repeat_while(op, _MOST, start, step, ones, ones)[1]


def _upper_fraction(op: Emitter, a: Value, x: Value) -> Value:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ...)), for x > a + 1."""

    def step(op: Emitter, at: Value, b: Value, c: Value, d: Value, h: Value) -> tuple[Value, ...]:
        number = _step_number(op, at)
        factor = op.Mul(number, op.Sub(a, number))
        b = op.Add(b, _double(op, 2))
        d = op.Reciprocal(op.Add(op.Mul(factor, d), b))
        c = op.Add(b, op.Div(factor, c))
        change = op.Mul(c, d)
        moving = op.Greater(op.Abs(op.Sub(change, _double(op, 1))), _double(op, _ENOUGH))
        return _any(op, moving), b, c, d, op.Mul(h, change)

    b = op.Sub(op.Add(x, _double(op, 1)), a)
    d = op.Reciprocal(b)
    c = op.Add(op.Mul(b, _double(op, 0)), _double(op, 1e300))
    return repeat_while(op, _MOST, op.const(True, dtypes.BOOL), step, b, c, d, d)[3]


def _both(op: Emitter, self: Value, other: Value, upper: bool) -> Value:
    """P(a, x), or Q(a, x) = 1 - P(a, x) if `upper`."""
    a, x = op.cast(self, dtypes.DOUBLE), op.cast(other, dtypes.DOUBLE)
    zero, one, end = _double(op, 0), _double(op, 1), _double(op, math.inf)
    regular = op.And(op.And(op.Greater(a, zero), op.Greater(x, zero)), op.And(op.Less(a, end), op.Less(x, end)))
    a, x = op.Where(regular, a, one), op.Where(regular, x, one)
    far = op.Greater(x, op.Add(a, one))
    scale = op.Exp(op.Sub(op.Sub(op.Mul(a, op.Log(x)), x), lgamma_in_double(op, a)))
    near = op.Mul(op.Div(scale, a), _lower_series(op, a, op.Where(far, zero, x)))
    beyond = op.Mul(scale, _upper_fraction(op, a, op.Where(far, x, op.Add(a, _double(op, 100)))))
    value = op.Where(far, beyond if upper else op.Sub(one, beyond), op.Sub(one, near) if upper else near)
    return op.Where(
        regular, value, _special_values(op, op.cast(self, dtypes.DOUBLE), op.cast(other, dtypes.DOUBLE), upper)
    )


def _special_values(op: Emitter, a: Value, x: Value, upper: bool) -> Value:
    """Where a or x is zero, infinite, negative or NaN."""
    zero, end, nan = _double(op, 0), _double(op, math.inf), _double(op, math.nan)
    low, high = _double(op, float(upper)), _double(op, float(not upper))
    value = op.Where(eq(op, x, zero), low, nan)
    value = op.Where(eq(op, x, end), high, value)
    value = op.Where(eq(op, a, end), op.Where(eq(op, x, end), nan, low), value)
    value = op.Where(eq(op, a, zero), op.Where(op.Greater(x, zero), high, nan), value)
    return op.Where(op.Or(op.Less(a, zero), op.Less(x, zero)), nan, value)


@lower("aten::igamma", "aten::special_gammainc", promote="self other")
def igamma(op: Emitter, self: Value, other: Value) -> Value:
    """aten::igamma(Tensor self, Tensor other) -> Tensor

    The regularized lower incomplete gamma function P(self, other).
    """
    return op.cast(_both(op, self, other, False), self.dtype)


@lower("aten::igammac", "aten::special_gammaincc", promote="self other")
def igammac(op: Emitter, self: Value, other: Value) -> Value:
    """aten::igammac(Tensor self, Tensor other) -> Tensor

    The regularized upper incomplete gamma function Q(self, other) = 1 - P(self, other).
    """
    return op.cast(_both(op, self, other, True), self.dtype)
