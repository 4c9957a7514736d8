"""Forms of comparisons, extremes, remainders, bits, and of kinds of numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from proto_schema.legalization.operators import (
    BFLOAT16,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT64,
    UINT32,
    UINT64,
    Operators,
    RefusedError,
    Value,
    dtype_of,
    is_float,
    is_integer,
    is_unsigned,
    rank_of,
)
from proto_schema.legalization.table import Form, older
from proto_schema.tensors.dtypes import DTYPES

LARGEST = {
    FLOAT: 3.4028234663852886e38,
    DOUBLE: 1.7976931348623157e308,
    FLOAT16: 65504.0,
    BFLOAT16: 3.3895313892515355e38,
}
"""The largest finite number of a data type."""

# Comparison -----------------------------------------------------------------------------------------------------------


@older("Equal", before=11)
def equal(op: Operators, A: Value, B: Value) -> Value | None:
    """Floats: neither is less, and neither is NaN."""
    if not is_float(dtype_of(A)):
        return None
    differs = op.Or(op.Less(A, B), op.Greater(A, B))
    # where neither is less, the sum is NaN only if one of them is
    return op.Not(op.Or(differs, op.IsNaN(op.Add(A, B))))


def _or_equal(strict: str, opposite: str) -> Form:
    def form(op: Operators, A: Value, B: Value) -> Value:
        if is_integer(dtype_of(A)):
            return op.Not(getattr(op, opposite)(A, B))
        return op.Or(getattr(op, strict)(A, B), op.Equal(A, B))

    form.__doc__ = f"{strict}, or Equal; of integers not {opposite}."
    return form


older("GreaterOrEqual", before=12)(_or_equal("Greater", "Less"))
older("LessOrEqual", before=12)(_or_equal("Less", "Greater"))


def _extreme(largest: bool) -> Form:
    def form(op: Operators, data_0: Sequence[Value]) -> Value | None:
        if not is_integer(dtype_of(data_0[0])):
            return None

        def one_of(one: Value, two: Value) -> Value:
            return op.Where(op.Less(one, two), *((two, one) if largest else (one, two)))

        return functools.reduce(one_of, data_0)

    form.__doc__ = "Integers: chosen by Less."
    return form


older("Max", before=12)(_extreme(True))
older("Min", before=12)(_extreme(False))


@older("Clip", before=12)
def clip_integers(op: Operators, input: Value, min: Value | None = None, max: Value | None = None) -> Value | None:
    """Integers: the larger of them and the lower bound, then the smaller one."""
    return clip(op, input, min, max) if is_integer(dtype_of(input)) else None


@older("Clip", before=11)
def clip(op: Operators, input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """Bounds that are computed: the same by Max and Min."""
    made = input if min is None else op.Max(input, min)
    return made if max is None else op.Min(made, max)


# Remainders and whole numbers -----------------------------------------------------------------------------------------


@older("Mod", before=28)
def floored_floats(op: Operators, A: Value, B: Value, fmod: int = 0) -> Value | None:
    """Floats whose remainder has the sign of the divisor: fmod, and the divisor once more where signs differ."""
    if fmod or not is_float(dtype_of(A)):
        return None
    left = op.Mod(A, B, fmod=1)
    there = op.Not(op.Equal(left, 0.0))
    differs = op.And(there, op.Xor(op.Less(left, 0.0), op.Less(B, 0.0)))
    return op.Where(differs, op.Add(left, B), left)


@older("Mod", before=10)
def modulo(op: Operators, A: Value, B: Value, fmod: int = 0) -> Value:
    """Integers: what is left of the quotient, with the sign of the divisor, or with fmod that of the dividend."""
    if is_float(dtype_of(A)):
        raise RefusedError("the remainder of floats is not exact in older operators")
    left = op.Sub(A, op.Mul(op.Div(A, B), B))
    if fmod or is_unsigned(A.dtype):
        return left
    differs = op.And(op.Xor(op.Less(left, 0), op.Less(B, 0)), op.cast(left, BOOL))
    return op.Where(differs, op.Add(left, B), left)


@older("Round", before=11)
def half_to_even(op: Operators, X: Value) -> Value:
    """To the nearest whole number, halves to the even one."""
    below = op.Floor(X)
    left = op.Sub(X, below)
    odd = op.Greater(op.Sub(below, op.Mul(op.Floor(op.Mul(below, 0.5)), 2.0)), 0.5)
    tie = op.Not(op.Or(op.Less(left, 0.5), op.Greater(left, 0.5)))
    up = op.cast(op.Or(op.Greater(left, 0.5), op.And(tie, odd)), dtype_of(X))
    # infinity less infinity is NaN
    return op.Where(op.Less(op.Abs(X), math.inf), op.Add(below, up), X)


# Bits -----------------------------------------------------------------------------------------------------------------


def _bitwise(logical: str) -> Form:
    def form(op: Operators, A: Value, B: Value) -> Value:
        dtype = dtype_of(A)
        signed = not is_unsigned(dtype) or dtype == UINT64
        bits = DTYPES[dtype].bits - signed
        least = -(1 << bits)
        weights = op.const(np.array([1 << place for place in range(bits)], np.int64))
        wide = [op.cast(item, INT64) for item in (A, B)]
        negative = [op.Less(item, 0) for item in wide]
        if signed:  # without its sign bit, a negative number is what it is more than the least one
            wide = [op.Where(sign, op.Sub(x, op.const(least)), x) for sign, x in zip(negative, wide, strict=True)]
        apart = []
        for x, own in zip(wide, (rank_of(A), rank_of(B)), strict=True):
            places = op.Div(op.Unsqueeze(x, [own]), weights)  # an axis of bits behind the others
            apart.append(op.cast(op.Sub(places, op.Mul(op.Div(places, 2), 2)), BOOL))
        # ONNX Runtime (1.31) sums int64 in double precision, and multiplies matrices of it exactly
        made = op.MatMul(op.cast(getattr(op, logical)(*apart), INT64), weights)
        if signed:
            made = op.Add(made, op.Mul(op.cast(getattr(op, logical)(*negative), INT64), op.const(least)))
        return op.cast(made, dtype)

    form.__doc__ = f"{logical} of each bit; the bits are an axis of their own."
    return form


older("BitwiseAnd", before=18)(_bitwise("And"))
older("BitwiseOr", before=18)(_bitwise("Or"))
older("BitwiseXor", before=18)(_bitwise("Xor"))


@older("BitwiseNot", before=18)
def bitwise_not(op: Operators, X: Value) -> Value:
    """-1 - x, and the largest number less x without a sign."""
    dtype = dtype_of(X)
    return op.Sub(op.like((1 << DTYPES[dtype].bits) - 1 if is_unsigned(dtype) else -1, X), X)


@older("BitShift", before=28)
def shift_signed(op: Operators, X: Value, Y: Value, direction: str) -> Value | None:
    """Numbers with a sign: products, and quotients that are rounded down."""
    dtype = dtype_of(X)
    if is_unsigned(dtype):
        return None
    bits = DTYPES[dtype].bits
    places, wide = op.cast(Y, INT64), op.cast(X, INT64)
    left = direction == "LEFT"
    # a negative number of places counts as too many
    past = op.Or(op.Less(places, 0), op.Greater(places, bits - 1 if left else bits - 2))
    with np.errstate(over="ignore"):
        powers = np.left_shift(np.int64(1), np.arange(64, dtype=np.int64))
    power = op.Gather(op.const(powers), op.Where(past, op.const(0), places))
    if left:
        return op.cast(op.Where(past, op.const(0), op.Mul(wide, power)), dtype)
    quotient = op.Div(wide, power)
    rest = op.Less(op.Sub(wide, op.Mul(quotient, power)), 0)
    below = op.Sub(quotient, op.cast(rest, INT64))
    return op.cast(op.Where(past, op.Neg(op.cast(op.Less(wide, 0), INT64)), below), dtype)


@older("BitShift", before=11)
def shift(op: Operators, X: Value, Y: Value, direction: str) -> Value:
    """The product with a power of two, or the quotient."""
    dtype = dtype_of(X)
    wide = UINT64 if dtype == UINT64 else UINT32
    bits = DTYPES[dtype].bits
    places = op.cast(Y, INT64)
    past = op.Greater(places, bits - 1)
    table = op.const(np.array([1 << place for place in range(bits)], DTYPES[wide].numpy))
    power = op.Gather(table, op.Where(past, op.const(0), places))
    shifted = getattr(op, "Mul" if direction == "LEFT" else "Div")(op.cast(X, wide), power)
    return op.cast(op.Where(past, op.const(0, wide), shifted), dtype)


@older("BitCast", before=26)
def same_bits(op: Operators, input: Value, to: int) -> Value:
    """Integers of one width, which a cast takes modulo a power of two, too."""
    given = dtype_of(input)
    if is_integer(given) and is_integer(to) and DTYPES[given].bits == DTYPES[to].bits:
        return op.cast(input, to)
    if given != to:
        raise RefusedError("older operators do not look at the bits of numbers")
    return input


# Which numbers these are ----------------------------------------------------------------------------------------------


@older("IsInf", before=10)
def is_infinite(op: Operators, X: Value, detect_positive: int = 1, detect_negative: int = 1) -> Value:
    """Past the largest finite number."""
    edge = LARGEST.get(dtype_of(X))
    if edge is None:
        raise RefusedError("its data type has no infinite numbers that older operators compare")
    if not detect_positive and not detect_negative:
        return op.And(op.Greater(X, edge), op.Less(X, -edge))
    if not detect_positive:
        return op.Less(X, -edge)
    return op.Greater(op.Abs(X) if detect_negative else X, edge)


@older("IsNaN", before=9)
def is_not_a_number(op: Operators, X: Value) -> Value:
    """Neither below infinity nor above its negative."""
    return op.Not(op.Or(op.Less(X, math.inf), op.Greater(X, -math.inf)))


@older("Sign", before=9)
def sign(op: Operators, input: Value) -> Value:
    """1 above 0, less 1 below."""
    dtype = dtype_of(input)
    return op.Sub(op.cast(op.Greater(input, 0), dtype), op.cast(op.Less(input, 0), dtype))
