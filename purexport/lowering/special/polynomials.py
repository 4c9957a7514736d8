"""Orthogonal polynomials by their recurrences: `next = a(k, x) * this - b(k) * last`, from degrees 0 and 1 on.

The degree is a tensor like x, so the steps run up to the largest degree, and each element stops at its own. They are
written out where the degree is known and small. As in torch, the degree is truncated to an integer, and a negative one
gives zero. Recurrences: DLMF 18.9; the third and fourth kinds of Chebyshev polynomials start with 2x - 1 and 2x + 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proto_schema.legalization.loops import repeat
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import Rule, add
from purexport.lowering.support.common import reshape

# (op, k, x) -> value, where k is a value and x in the same dtype
Factor = Callable[[Emitter, Value, Value], Value]


def _number(op: Emitter, number: float, like: Value) -> Value:
    return op.const(float(number), like.dtype or dtypes.FLOAT)


def _times(op: Emitter, number: float, value: Value) -> Value:
    return op.Mul(_number(op, number, value), value)


def _plus(op: Emitter, value: Value, number: float) -> Value:
    return op.Add(value, _number(op, number, value))


def _polynomial(name: str, first: Factor, step: Callable[[Emitter, Value, Value, Value, Value], Value]) -> None:
    """A row: `first(op, k, x)` is degree 1, `step(op, k, x, last, this)` is degree k + 1."""

    def rule(op: Emitter, x: Value, n: Value) -> Value:
        degree = op.cast(n, dtypes.INT64)
        zero = op.Mul(op.like(0, x), op.Add(x, op.cast(degree, x.dtype)))  # broadcasts x and the degree
        shape = op.result.shape
        at = _spread(op, x, zero, shape)
        degrees = op.Add(degree, op.cast(_spread(op, op.like(0, x), zero, shape), dtypes.INT64))
        ones = _spread(op, op.like(1, x), zero, shape)
        start = first(op, _number(op, 0, x), at)

        def once(op: Emitter, number: Value, last: Value, this: Value) -> tuple[Value, Value]:
            k = op.cast(op.Add(reshape(op, number, []), op.const(1)), x.dtype)
            later = op.Greater(degrees, op.Add(reshape(op, number, []), op.const(1)))
            following = step(op, k, at, last, this)
            return op.Where(later, this, last), op.Where(later, following, this)

        known = op.known(degree) if degree.const is not None and degree.const.numel() == 1 else None
        count = max(known - 1, 0) if isinstance(known, int) else _most(op, degree)
        _, result = repeat(op, count, once, ones, start)
        result = op.Where(op.Less(degrees, op.const(1)), ones, result)
        return op.Where(op.Less(degrees, op.const(0)), op.like(0, x), result)

    for overload in ("", ".x_scalar", ".n_scalar"):
        add(Rule(rule, ("x", "n"), ("x", "n"), True), f"aten::special_{name}{overload}")


def _spread(op: Emitter, value: Value, zero: Value, shape: Any) -> Value:
    """`value` broadcast to the shape of the result."""
    return op.Where(op.Not(op.Less(zero, zero)), value, value)


def _most(op: Emitter, degree: Value) -> Value:
    """The number of steps for the largest degree."""
    least = op.Reshape(op.Concat(op.Reshape(degree, [-1]), op.const([1]), axis=0), [-1])
    largest = op.cast(op.ReduceMax(op.cast(least, dtypes.INT32), axes=[0], keepdims=0), dtypes.INT64)
    return op.Sub(largest, op.const(1))


def _chebyshev(shifted: bool, slope: float, offset: float) -> tuple[Factor, Any]:
    """A pair of functions: degree 1 is slope * z + offset, where z is x, or 2x - 1 for the shifted polynomials."""

    def place(op: Emitter, x: Value) -> Value:
        return _plus(op, _times(op, 2, x), -1) if shifted else x

    def first(op: Emitter, k: Value, x: Value) -> Value:
        return _plus(op, _times(op, slope, place(op, x)), offset)

    def step(op: Emitter, k: Value, x: Value, last: Value, this: Value) -> Value:
        return op.Sub(op.Mul(_times(op, 2, place(op, x)), this), last)

    return first, step


for _kind, _slope, _offset in (("t", 1.0, 0.0), ("u", 2.0, 0.0), ("v", 2.0, -1.0), ("w", 2.0, 1.0)):
    _polynomial(f"chebyshev_polynomial_{_kind}", *_chebyshev(False, _slope, _offset))
    _polynomial(f"shifted_chebyshev_polynomial_{_kind}", *_chebyshev(True, _slope, _offset))


def _physicists(op: Emitter, k: Value, x: Value, last: Value, this: Value) -> Value:
    return op.Sub(op.Mul(_times(op, 2, x), this), op.Mul(op.Add(k, k), last))


def _probabilists(op: Emitter, k: Value, x: Value, last: Value, this: Value) -> Value:
    return op.Sub(op.Mul(x, this), op.Mul(k, last))


def _laguerre(op: Emitter, k: Value, x: Value, last: Value, this: Value) -> Value:
    factor = op.Sub(op.Add(op.Add(k, k), _number(op, 1, x)), x)
    return op.Div(op.Sub(op.Mul(factor, this), op.Mul(k, last)), op.Add(k, _number(op, 1, x)))


def _legendre(op: Emitter, k: Value, x: Value, last: Value, this: Value) -> Value:
    factor = op.Mul(op.Add(op.Add(k, k), _number(op, 1, x)), x)
    return op.Div(op.Sub(op.Mul(factor, this), op.Mul(k, last)), op.Add(k, _number(op, 1, x)))


_polynomial("hermite_polynomial_h", lambda op, k, x: _times(op, 2, x), _physicists)
_polynomial("hermite_polynomial_he", lambda op, k, x: _times(op, 1, x), _probabilists)
_polynomial("laguerre_polynomial_l", lambda op, k, x: _plus(op, _times(op, -1, x), 1), _laguerre)
_polynomial("legendre_polynomial_p", lambda op, k, x: _times(op, 1, x), _legendre)
