"""Functions and activations in float64 from those that ONNX Runtime computes in it: Exp, Log, Sin, Cos, Sqrt, Tanh.

Each form is within a few units in the last place over its whole range: sums that would cancel are written as products
or by log1p, and exponentials that would overflow too early are split in two.  An arctangent begins with the float32
one and adds the angle that is left, tan(a - b) = (tan a - tan b) / (1 + tan a tan b), which is small enough to be its
own arctangent.  Identities: DLMF 4.35 to 4.38 (hyperbolic functions and their inverses), 7.6.1 (the error function).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.running import form

_FAR = 1e8  # from there on x * x + 1 is x * x


def _log1p(op: Emitter, x: Value) -> Value:
    """log(1 + x) for x > -1 as log(u) * x / (u - 1) with u = 1 + x: the error of u cancels."""
    one = op.Add(x, 1.0)
    rest = op.Sub(one, 1.0)
    apart = op.cast(rest, dtypes.BOOL)
    found = op.Mul(op.Log(one), op.Div(x, op.Where(apart, rest, op.like(1.0, x))))
    return op.Where(op.Greater(x, 1e300), x, op.Where(apart, found, x))


def _expm1(op: Emitter, x: Value) -> Value:
    """exp(x) - 1, near zero 2 t / (1 - t) with t = tanh(x / 2)."""
    t = op.Tanh(op.Mul(x, 0.5))
    near = op.Div(op.Mul(t, 2.0), op.Sub(op.like(1.0, x), t))
    return op.Where(op.Less(op.Abs(x), 0.5), near, op.Sub(op.Exp(x), 1.0))


@form("Sinh")
def sinh(op: Emitter, x: Value) -> Value:
    """Near zero 2 t / (1 - t * t) with t = tanh(x / 2); elsewhere from exponentials of half the argument."""
    t, size = op.Tanh(op.Mul(x, 0.5)), op.Abs(x)
    near = op.Div(op.Mul(t, 2.0), op.Sub(op.like(1.0, x), op.Mul(t, t)))
    root = op.Exp(op.Mul(size, 0.5))
    far = op.Sub(op.Mul(op.Mul(root, 0.5), root), op.Div(op.Div(op.like(0.5, x), root), root))
    return op.Where(op.Less(size, 1.0), near, op.Mul(op.Sign(x), far))


@form("Cosh")
def cosh(op: Emitter, x: Value) -> Value:
    """From exponentials of half the argument, which do not overflow before the result does."""
    root = op.Exp(op.Mul(op.Abs(x), 0.5))
    return op.Add(op.Mul(op.Mul(root, 0.5), root), op.Div(op.Div(op.like(0.5, x), root), root))


@form("Tan")
def tan(op: Emitter, x: Value) -> Value:
    """sin(x) / cos(x)."""
    return op.Div(op.Sin(x), op.Cos(x))


@form("Asinh")
def asinh(op: Emitter, x: Value) -> Value:
    """log(|x| + sqrt(x * x + 1)) with the sign of x."""
    size = op.Abs(x)
    inside = op.Min(size, _FAR)
    square = op.Mul(inside, inside)
    near = _log1p(op, op.Add(inside, op.Div(square, op.Add(op.Sqrt(op.Add(square, 1.0)), 1.0))))
    far = op.Add(op.Log(op.Max(size, 1.0)), math.log(2))
    found = op.Where(op.Less(size, _FAR), near, far)
    return op.Where(op.Less(x, 0.0), op.Neg(found), found)


@form("Acosh")
def acosh(op: Emitter, x: Value) -> Value:
    """log(x + sqrt(x * x - 1)); NaN below 1."""
    above = op.Sub(op.Min(x, _FAR), 1.0)
    near = _log1p(op, op.Add(above, op.Mul(op.Sqrt(above), op.Sqrt(op.Add(above, 2.0)))))
    far = op.Add(op.Log(x), math.log(2))
    return op.Where(op.Less(x, _FAR), near, far)


@form("Atanh")
def atanh(op: Emitter, x: Value) -> Value:
    """log1p(2 |x| / (1 - |x|)) / 2 with the sign of x."""
    size = op.Abs(x)
    found = op.Mul(_log1p(op, op.Div(op.Mul(size, 2.0), op.Sub(op.like(1.0, x), size))), 0.5)
    return op.Where(op.Less(x, 0.0), op.Neg(found), found)


@form("Atan")
def atan(op: Emitter, x: Value) -> Value:
    """The float32 arctangent and the angle that it is off by."""
    inside = op.Max(op.Min(x, 1e18), -1e18)
    first = op.cast(op.Atan(op.cast(inside, dtypes.FLOAT)), dtypes.DOUBLE)
    sine, cosine = op.Sin(first), op.Cos(first)
    rest = op.Div(op.Sub(op.Mul(inside, cosine), sine), op.Add(op.Mul(inside, sine), cosine))
    return op.Add(first, rest)


@form("Asin")
def asin(op: Emitter, x: Value) -> Value:
    """atan(x / sqrt(1 - x * x)); NaN outside of [-1, 1]."""
    one = op.like(1.0, x)
    return op.Atan(op.Div(x, op.Sqrt(op.Mul(op.Sub(one, x), op.Add(one, x)))))


@form("Acos")
def acos(op: Emitter, x: Value) -> Value:
    """2 * atan(sqrt((1 - x) / (1 + x))); NaN outside of [-1, 1]."""
    one = op.like(1.0, x)
    return op.Mul(op.Atan(op.Sqrt(op.Div(op.Sub(one, x), op.Add(one, x)))), 2.0)


@form("Softplus")
def softplus(op: Emitter, x: Value) -> Value:
    """max(x, 0) + log1p(exp(-|x|))."""
    return op.Add(op.Max(x, 0.0), _log1p(op, op.Exp(op.Neg(op.Abs(x)))))


@form("Softsign")
def softsign(op: Emitter, x: Value) -> Value:
    """x / (1 + |x|)."""
    return op.Div(x, op.Add(op.Abs(x), 1.0))


@form("Elu")
def elu(op: Emitter, x: Value, alpha: float = 1.0) -> Value:
    """alpha * (exp(x) - 1) below zero."""
    return op.Where(op.Less(x, 0.0), op.Mul(_expm1(op, op.Min(x, 0.0)), float(alpha)), x)


@form("HardSigmoid")
def hard_sigmoid(op: Emitter, x: Value, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """max(0, min(1, alpha * x + beta))."""
    return op.Max(op.Min(op.Add(op.Mul(x, float(alpha)), float(beta)), 1.0), 0.0)


@form("LeakyRelu")
def leaky_relu(op: Emitter, x: Value, alpha: float = 0.01) -> Value:
    """alpha * x below zero."""
    return op.Where(op.Less(x, 0.0), op.Mul(x, float(alpha)), x)


@form("ThresholdedRelu")
def thresholded_relu(op: Emitter, x: Value, alpha: float = 1.0) -> Value:
    """x above alpha, else 0."""
    return op.Where(op.Greater(x, float(alpha)), x, op.like(0.0, x))


@form("PRelu")
def prelu(op: Emitter, x: Value, slope: Value) -> Value:
    """slope * x below zero."""
    return op.Where(op.Less(x, op.like(0, x)), op.Mul(x, slope), x)


@form("Clip")
def clip(op: Emitter, x: Value, min: Any = None, max: Any = None) -> Value:
    """The bounds one after the other; NaN stays."""
    for bound, name in ((min, "Max"), (max, "Min")):
        x = x if bound is None else op.emit(name, x, op.like(bound, x))
    return x


@form("NonZero")
def non_zero(op: Emitter, x: Value) -> Value:
    """Where x differs from zero, NaN among that."""
    return op.NonZero(op.cast(x, dtypes.BOOL))


@form("InstanceNormalization")
def instance_normalization(op: Emitter, x: Value, scale: Value, shift: Value, epsilon: float = 1e-5) -> Value:
    """Each plane by its mean and variance."""
    spatial = list(range(2, x.rank))
    centered = op.Sub(x, op.ReduceMean(x, axes=spatial, keepdims=1))
    variance = op.ReduceMean(op.Mul(centered, centered), axes=spatial, keepdims=1)
    normal = op.Div(centered, op.Sqrt(op.Add(variance, float(epsilon))))
    scale, shift = (op.Unsqueeze(item, axes=[place - 1 for place in spatial]) for item in (scale, shift))
    return op.Add(op.Mul(normal, scale), shift)


@form("Mul", dtypes.BOOL)
def mul(op: Emitter, one: Value, other: Any) -> Value:
    """The product of truth values."""
    return op.And(one, op.like(other, one))


@form("Add", dtypes.BOOL)
def add(op: Emitter, one: Value, other: Any) -> Value:
    """The sum of truth values, where two of them are one."""
    return op.Or(one, op.like(other, one))


# The error function -------------------------------------------------------------------------------------------------


@form("Erf")
def erf(op: Emitter, x: Value) -> Value:
    """On [-1, 1] x times a polynomial in x * x; beyond, 1 - erfc, with erfc(x) * exp(x * x) smooth in 2 / (2 + x)."""
    size = op.Abs(x)
    inside = op.Min(size, 1.0)
    near = op.Mul(x, _polynomial(op, op.Mul(inside, inside), _core_of_square, 0.0, 1.0, 13))
    outside = op.Max(op.Min(size, 6.0), 1.0)
    share = op.Div(op.like(2.0, x), op.Add(outside, 2.0))
    tail = op.Mul(_polynomial(op, share, _tail_of_share, 0.25, 2 / 3, 18), op.Exp(op.Neg(op.Mul(outside, outside))))
    far = op.Mul(op.Sign(x), op.Sub(op.like(1.0, x), tail))
    return op.Where(op.Less(size, 1.0), near, far)


def _core_of_square(square: torch.Tensor) -> torch.Tensor:
    root = square.sqrt()
    result: torch.Tensor = torch.special.erf(root) / root
    return result


def _tail_of_share(share: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = torch.special.erfcx(2 / share - 2)
    return result


@functools.cache
def _coefficients(
    function: Callable[[torch.Tensor], torch.Tensor], low: float, high: float, degree: int
) -> list[float]:
    """Of the polynomial through torch's values at Chebyshev points, in a variable that is in [-1, 1]."""
    points = np.polynomial.chebyshev.chebpts1(degree + 1)
    values = function(torch.from_numpy((low + high) / 2 + (high - low) / 2 * points)).numpy()
    fitted = np.polynomial.chebyshev.chebfit(points, values, degree)
    return [float(number) for number in np.polynomial.chebyshev.cheb2poly(fitted)]


def _polynomial(
    op: Emitter,
    value: Value,
    function: Callable[[torch.Tensor], torch.Tensor],
    low: float,
    high: float,
    degree: int,
) -> Value:
    """`function` of a value in [low, high] by Horner's scheme."""
    local = op.Div(op.Sub(value, (low + high) / 2), (high - low) / 2)
    *rest, total = _coefficients(function, low, high, degree)
    result = op.like(total, value)
    for number in reversed(rest):
        result = op.Add(op.Mul(result, local), number)
    return result
