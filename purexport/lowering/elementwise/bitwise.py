"""Bits of integers. ONNX has these operators from opset 18 on; before that there are only and, or and xor of booleans,
and `~`.

ONNX BitShift takes unsigned integers only, so shifts of signed ones multiply and divide by powers of two.
"""

from __future__ import annotations

from typing import Any

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import Rule, add, lower
from purexport.lowering.elementwise.arithmetic import floor_divide


def _bitwise(name: str, logical: str, bits: str) -> None:
    """A row for one operator: the logical form on booleans, the bitwise form on integers."""

    def rule(op: Emitter, self: Value, other: Value) -> Value:
        result: Value = op.emit(logical if self.dtype == dtypes.BOOL else bits, self, other)
        return result

    targets = [f"aten::bitwise_{name}.{form}" for form in ("Tensor", "Scalar", "Scalar_Tensor")]
    targets += [f"aten::__{name}__.{form}" for form in ("Tensor", "Scalar")]
    add(Rule(rule, ("self", "other"), ("self", "other")), *targets)


_bitwise("and", "And", "BitwiseAnd")
_bitwise("or", "Or", "BitwiseOr")
_bitwise("xor", "Xor", "BitwiseXor")


@lower("aten::bitwise_not")
def bitwise_not(op: Emitter, self: Value) -> Value:
    """aten::bitwise_not(Tensor self) -> Tensor

    Booleans are negated.
    """
    if self.dtype == dtypes.BOOL:
        return op.Not(self)
    return op.BitwiseNot(self)


def _is_signed(value: Value) -> bool:
    return dtypes.torch_dtype(value.dtype or dtypes.INT64).is_signed


@lower(
    "aten::bitwise_left_shift.Tensor",
    "aten::bitwise_left_shift.Tensor_Scalar",
    "aten::bitwise_left_shift.Scalar_Tensor",
    "aten::__lshift__.Tensor",
    "aten::__lshift__.Scalar",
    promote="self other",
)
def bitwise_left_shift(op: Emitter, self: Value, other: Value) -> Value:
    """aten::bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor

    `self * 2**other`; 0 for a shift that is negative or moves all bits out.
    """
    beyond, zero = _beyond(op, other, _bits(self)), op.like(0, self)
    places = other if beyond is None else op.Where(beyond, zero, other)
    shifted = op.Mul(self, _power_of_two(op, places))
    return shifted if beyond is None else op.Where(beyond, zero, shifted)


@lower(
    "aten::bitwise_right_shift.Tensor",
    "aten::bitwise_right_shift.Tensor_Scalar",
    "aten::bitwise_right_shift.Scalar_Tensor",
    "aten::__rshift__.Tensor",
    "aten::__rshift__.Scalar",
    promote="self other",
)
def bitwise_right_shift(op: Emitter, self: Value, other: Value) -> Value:
    """aten::bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor

    `self / 2**other`, rounded down: the sign is shifted in. A shift that is negative or too large leaves only the sign,
    0 or -1.
    """
    beyond, zero = _beyond(op, other, _bits(self) - _is_signed(self)), op.like(0, self)
    places = other if beyond is None else op.Where(beyond, zero, other)
    if op.has("BitShift") and self.dtype in (dtypes.UINT8, dtypes.UINT32, dtypes.UINT64):
        shifted = op.BitShift(self, places, direction="RIGHT")
    else:
        shifted = floor_divide(op, self, _power_of_two(op, places))
    if beyond is None:
        return shifted
    sign = op.Where(op.Less(self, zero), op.like(-1, self), zero) if _is_signed(self) else zero
    return op.Where(beyond, sign, shifted)


def _bits(value: Value) -> int:
    return 8 * dtypes.torch_dtype(value.dtype or dtypes.INT64).itemsize


def _beyond(op: Emitter, places: Value, most: int) -> Value | None:
    """Where a shift is not one of 0 to `most` - 1 places; None where no element can be so."""
    if places.const is not None and bool(((places.const >= 0) & (places.const < most)).all()):
        return None
    number = op.cast(places, dtypes.INT64)
    beyond: Value = op.Or(op.Less(number, op.const(0)), op.Less(op.const(most - 1), number))
    return beyond


def _power_of_two(op: Emitter, exponent: Any) -> Value:
    """2**exponent, wrapping as a shift does. It is exact, since double holds every power of two."""
    power = op.Pow(op.const(2.0, dtypes.DOUBLE), op.cast(exponent, dtypes.DOUBLE))
    return op.cast(power, exponent.dtype)


@lower("aten::gcd", promote="self other")
def gcd(op: Emitter, self: Value, other: Value) -> Value:
    """aten::gcd(Tensor self, Tensor other) -> Tensor

    Euclid's algorithm, written out with as many steps as the largest numbers of the dtype can need (Lame's theorem).
    """
    bits = _bits(self) - _is_signed(self)
    one, two = op.Abs(self), op.Abs(other)
    nought, unit = op.like(0, self), op.like(1, self)
    for _ in range(int(bits / 0.694) + 2):
        done = op.Not(op.cast(two, dtypes.BOOL))
        left = op.Mod(one, op.Where(done, unit, two))
        one, two = op.Where(done, one, two), op.Where(done, nought, left)
    return one


@lower("aten::lcm", promote="self other")
def lcm(op: Emitter, self: Value, other: Value) -> Value:
    """aten::lcm(Tensor self, Tensor other) -> Tensor

    |self / gcd * other|, and 0 where either is 0.
    """
    common = gcd(op, self, other)
    nothing = op.Not(op.cast(common, dtypes.BOOL))
    part = op.Div(self, op.Where(nothing, op.like(1, self), common))
    return op.Abs(op.Mul(part, other))


@lower("aten::ldexp.Tensor")
def ldexp(op: Emitter, self: Value, other: Value) -> Value:
    """aten::ldexp.Tensor(Tensor self, Tensor other) -> Tensor

    `self * 2**other`.
    """
    power = op.Pow(op.const(2.0, op.result_dtype), op.cast(other, op.result_dtype))
    return op.Mul(op.cast(self, op.result_dtype), power)
