"""Older forms of operators that compute each element by itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.context import OlderForm
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.kernels import native_dtype, widened, widened_where
from purexport.lowering.support.loops import repeat

# Comparison -----------------------------------------------------------------------------------------------------------


def equal(op: Emitter, A: Value, B: Value) -> Value | None:  # noqa: N803  the names of ONNX
    """Equal of floats (opset 11) and of small integers: neither operand is less, and neither is NaN."""
    dtype = native_dtype(op, "Equal", A.dtype)
    if dtype is not None:
        return op.Equal(op.cast(A, dtype), op.cast(B, dtype))
    if not op.takes("Less", A.dtype):
        return None
    differs = op.Or(op.Less(A, B), op.Greater(A, B))
    if dtypes.is_floating(A.dtype):
        differs = op.Or(differs, op.Or(op.IsNaN(A), op.IsNaN(B)))
    same: Value = op.Not(differs)
    return same


def less_or_equal(op: Emitter, A: Value, B: Value) -> Value:  # noqa: N803
    """LessOrEqual (opset 12)."""
    found: Value = op.Or(op.Less(A, B), op.Equal(A, B))
    return found


def greater_or_equal(op: Emitter, A: Value, B: Value) -> Value:  # noqa: N803
    """GreaterOrEqual (opset 12)."""
    found: Value = op.Or(op.Greater(A, B), op.Equal(A, B))
    return found


# Extremes -------------------------------------------------------------------------------------------------------------


def maximum(op: Emitter, data_0: Sequence[Value]) -> Value | None:
    """Max of integers (opset 12)."""
    if dtypes.is_floating(data_0[0].dtype) or not op.takes("Less", data_0[0].dtype):
        return None
    return functools.reduce(lambda one, other: widened_where(op, op.Less(one, other), other, one), data_0)


def minimum(op: Emitter, data_0: Sequence[Value]) -> Value | None:
    """Min of integers (opset 12)."""
    if dtypes.is_floating(data_0[0].dtype) or not op.takes("Less", data_0[0].dtype):
        return None
    return functools.reduce(lambda one, other: widened_where(op, op.Less(one, other), one, other), data_0)


def clip(op: Emitter, input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """Clip to computed bounds (opset 11), and of integers (opset 12)."""
    result = input if min is None else op.Max(input, min)
    return result if max is None else op.Min(result, max)


# Arithmetic -----------------------------------------------------------------------------------------------------------


def of_small_integers(op_type: str) -> OlderForm:
    """Add, Sub, Mul and Div of integers of 8 and 16 bits (opset 14), which wrap when they are cast back."""

    def form(op: Emitter, A: Value, B: Value) -> Value | None:  # noqa: N803
        dtype = native_dtype(op, op_type, A.dtype)
        if dtype is None:
            return None
        return op.cast(op.emit(op_type, op.cast(A, dtype), op.cast(B, dtype)), A.dtype)

    form.__doc__ = f"{op_type} of integers of 8 and 16 bits (opset 14), in 32 bits."
    return form


# Whole numbers --------------------------------------------------------------------------------------------------------


def half_to_even(op: Emitter, X: Value) -> Value:  # noqa: N803
    """Round (opset 11)."""
    below = op.Floor(X)
    left = op.Sub(X, below)
    half = op.like(0.5, X)
    odd = op.Greater(op.Sub(below, op.Mul(op.Floor(op.Mul(below, half)), op.like(2, X))), half)
    tie = op.Not(op.Or(op.Less(left, half), op.Greater(left, half)))
    up = op.cast(op.Or(op.Greater(left, half), op.And(tie, odd)), X.dtype)
    # infinity less infinity is NaN
    return op.Where(op.Less(op.Abs(X), op.like(math.inf, X)), op.Add(below, up), X)


def modulo(op: Emitter, A: Value, B: Value, fmod: int = 0) -> Value | None:  # noqa: N803
    """Mod of integers (opset 10): the remainder has the sign of `B`, or with `fmod` that of `A`."""
    if dtypes.is_floating(A.dtype):
        return None
    left = widened(op, "Sub", A, widened(op, "Mul", widened(op, "Div", A, B), B))
    if fmod or not dtypes.torch_dtype(A.dtype or dtypes.INT64).is_signed:
        return left
    zero = op.like(0, A)
    sign = op.Xor(widened(op, "Less", left, zero), widened(op, "Less", B, zero))
    differs = op.And(sign, op.cast(left, dtypes.BOOL))
    return widened_where(op, differs, widened(op, "Add", left, B), left)


def bitwise(logical: str) -> OlderForm:
    """BitwiseAnd, BitwiseOr and BitwiseXor (opset 18), by the operator for booleans that is asked of each bit.

    The bits are taken off from below.  Without its sign bit a negative number is what it is more than the least one.
    """

    def form(op: Emitter, A: Value, B: Value) -> Value:  # noqa: N803
        dtype = dtypes.torch_dtype(A.dtype or dtypes.INT64)
        bits = 8 * dtype.itemsize
        has_sign = dtype.is_signed or bits == 64
        places = bits - has_sign
        least = op.const(-(2**places))
        operands = [op.cast(item, dtypes.INT64) for item in (A, B)]
        negative = [op.Less(item, op.const(0)) for item in operands]
        if has_sign:
            operands = [
                op.Where(below, op.Sub(item, least), item) for below, item in zip(negative, operands, strict=True)
            ]
        result = op.Mul(op.const(0), op.Add(*operands))  # in the shape that the two broadcast to

        def step(op: Emitter, at: Value, weight: Value, *values: Value) -> list[Value]:
            rest = [op.Div(item, op.const(2)) for item in values[:2]]
            ones = [
                op.cast(op.Sub(item, op.Mul(half, op.const(2))), dtypes.BOOL)
                for item, half in zip(values, rest, strict=False)
            ]
            bit = op.Mul(op.cast(op.emit(logical, *ones), dtypes.INT64), weight)
            return [op.Mul(weight, op.const(2)), *rest, op.Add(values[2], bit)]

        result = repeat(op, places, step, op.const(1), *operands, result)[-1]
        if has_sign:
            result = op.Add(result, op.Mul(op.cast(op.emit(logical, *negative), dtypes.INT64), least))
        return op.cast(result, A.dtype)

    form.__doc__ = f"Bitwise{logical} (opset 18), bit by bit."
    return form
