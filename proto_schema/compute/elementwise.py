"""Operators that compute each element by itself, with numpy's broadcasting.

Before opset 7 a binary operator broadcast only where its attribute `broadcast` says so: the second operand, which has
fewer axes, is laid on those of the first from `axis` on, or on its last ones. Integers divide as in C: quotients are
cut towards zero. Comparisons with NaN are False, and Max and Min keep NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from proto_schema.compute.call import Array, Call
from proto_schema.compute.rows import row
from proto_schema.compute.special import erf

__all__ = ["laid", "wide"]


def wide(x: Array) -> Array:
    """float16 as float32, so that a formula of several steps is rounded once."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _unary(name: str, function: Callable[[Array], Any]) -> None:
    @row(name)
    def compute(call: Call, x: Array) -> Any:
        return function(x)


def _reciprocal(x: Array) -> Any:
    return x.dtype.type(1) / x


_ONE: dict[str, Callable[[Array], Any]] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.invert,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": _reciprocal,
    "Round": np.rint,  # ties to even
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
for _name, _function in _ONE.items():
    _unary(_name, _function)


def laid(call: Call, a: Array, b: Array) -> Array:
    """The second operand of an operator of opset 1 to 6, with axes of size 1 where it has none."""
    if not call.attribute("broadcast"):
        return b
    axis = call.attribute("axis")
    if axis is None:
        return b
    axis = call.axis(axis, a.ndim)
    if axis + b.ndim > a.ndim:
        call.fail(f"an operand of rank {b.ndim} does not fit on rank {a.ndim} from axis {axis} on")
    return b.reshape(b.shape + (1,) * (a.ndim - axis - b.ndim))


def _binary(name: str, function: Callable[[Array, Array], Any]) -> None:
    @row(name)
    def compute(call: Call, a: Array, b: Array) -> Any:
        return function(a, laid(call, a, b))


def _divide(a: Array, b: Array) -> Any:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)).astype(a.dtype)


def _power(a: Array, b: Array) -> Any:
    """In the type of the base. A negative exponent of an integer gives the quotient of 1, cut towards zero."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        if not (b < 0).any():
            return np.power(a, b.astype(np.int64) if b.dtype.kind == "i" else b).astype(a.dtype)
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    if a.dtype.kind in "iu":
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    if b.dtype.kind in "iu" and b.ndim == 0 and int(b) == 2:
        return a * a
    return np.power(a, b.astype(a.dtype) if b.dtype.kind in "iu" or b.dtype.itemsize <= a.dtype.itemsize else b)


def _equal(a: Array, b: Array) -> Any:
    return a == b  # np.equal gives objects for texts


_TWO: dict[str, Callable[[Array, Array], Any]] = {
    "Add": np.add,
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Div": _divide,
    "Equal": _equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": _power,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}
for _name, _of_two in _TWO.items():
    _binary(_name, _of_two)


def _fold(name: str, function: Callable[[Array, Array], Any]) -> None:
    @row(name)
    def compute(call: Call, *inputs: Array) -> Any:
        if not inputs:
            call.fail("it needs an input")
        total: Any = inputs[0]
        for item in inputs[1:]:
            total = function(total, item)
        return total


_fold("Sum", np.add)
_fold("Max", np.maximum)
_fold("Min", np.minimum)


@row("Mean")
def mean(call: Call, *inputs: Array) -> Any:
    """The sum of all, divided by their number."""
    total: Any = wide(inputs[0])
    for item in inputs[1:]:
        total = total + item
    return total / total.dtype.type(len(inputs))


@row("Mod")
def mod(call: Call, a: Array, b: Array) -> Any:
    """The remainder with the sign of the divisor, with `fmod` that of the dividend."""
    if call.attribute("fmod", 0):
        return np.fmod(a, b)
    if a.dtype.kind != "f":
        return np.mod(a, b)
    found = np.mod(wide(a), wide(b))
    return np.where(np.isinf(a) | (b == 0), np.nan, found)


@row("BitShift")
def bit_shift(call: Call, x: Array, by: Array) -> Any:
    """Shifts left or right. By its width or more all bits are lost; to the right, signs stay."""
    left = call.text("direction") == "LEFT"
    width = 8 * x.dtype.itemsize
    within = np.minimum(by, by.dtype.type(width - 1))
    found = np.left_shift(x, within) if left else np.right_shift(x, within)
    return found if not left and x.dtype.kind == "i" else np.where(by >= width, x.dtype.type(0), found)


@row("IsInf")
def is_inf(call: Call, x: Array) -> Any:
    """Of the signs that the attributes ask for."""
    found = np.isinf(x)
    if not call.attribute("detect_positive", 1):
        found &= x < 0
    if not call.attribute("detect_negative", 1):
        found &= x > 0
    return found


@row("Where")
def where(call: Call, condition: Array, x: Array, y: Array) -> Any:
    """`x` where the condition holds, else `y`."""
    return np.where(condition, x, y)


@row("Clip")
def clip(call: Call, x: Array, low: Array | None = None, high: Array | None = None) -> Any:
    """Attributes before opset 11. Where the limits contradict, all is the upper one."""
    least = call.attribute("min") if low is None else low
    most = call.attribute("max") if high is None else high
    if least is not None:
        x = np.maximum(x, np.asarray(least).astype(x.dtype).reshape(()))
    if most is not None:
        x = np.minimum(x, np.asarray(most).astype(x.dtype).reshape(()))
    return x
