"""Exponents and neighbours of floats, frexp and nextafter, computed without reading bits.

ONNX reads the bits of a float only since its newest opset. So the exponent comes from a logarithm in double, corrected
by one where rounding took it across a power of two. All products are with powers of two, and therefore exact.
"""

from __future__ import annotations

import functools
import math

import torch

from proto_schema.legalization.sizes import times
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.elementwise.compare import eq
from purexport.lowering.support.common import dims_of, reshape


def _double(op: Emitter, number: float) -> Value:
    return op.const(float(number), dtypes.DOUBLE)


def _power(op: Emitter, exponent: Value) -> Value:
    """2 ** exponent, a double."""
    return op.Pow(_double(op, 2), exponent)


def _scaled(op: Emitter, value: Value, exponent: Value) -> Value:
    """`value * 2 ** -exponent`, in two steps that neither overflow nor underflow."""
    half = op.Floor(op.Mul(exponent, _double(op, 0.5)))
    return op.Mul(op.Mul(value, _power(op, op.Neg(half))), _power(op, op.Sub(half, exponent)))


def _split(op: Emitter, value: Value) -> tuple[Value, Value, Value]:
    """(mantissa in [0.5, 1), exponent, whether the number is finite and not zero) of a double; the first two are
    doubles.
    """
    size = op.Abs(value)
    regular = op.And(op.Greater(size, _double(op, 0)), op.Less(size, _double(op, math.inf)))
    safe = op.Where(regular, value, _double(op, 1))
    exponent = op.Floor(op.Mul(op.Log(op.Abs(safe)), _double(op, 1 / math.log(2))))
    exponent = op.Add(exponent, _double(op, 1))
    for _ in range(2):
        found = op.Abs(_scaled(op, safe, exponent))
        up = op.cast(op.Not(op.Less(found, _double(op, 1))), dtypes.DOUBLE)
        down = op.cast(op.Less(found, _double(op, 0.5)), dtypes.DOUBLE)
        exponent = op.Sub(op.Add(exponent, up), down)
    return _scaled(op, safe, exponent), exponent, regular


@lower("aten::frexp.Tensor")
def frexp(op: Emitter, self: Value) -> tuple[Value, Value]:
    """aten::frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)

    Zero, infinity and NaN are their own mantissa, with exponent 0.
    """
    value = op.cast(self, dtypes.DOUBLE)
    mantissa, exponent, regular = _split(op, value)
    mantissa = op.Where(regular, mantissa, value)
    exponent = op.Where(regular, exponent, _double(op, 0))
    return op.cast(mantissa, self.dtype), op.cast(exponent, dtypes.INT32)


@lower("aten::nextafter", promote="self other")
def nextafter(op: Emitter, self: Value, other: Value) -> Value:
    """aten::nextafter(Tensor self, Tensor other) -> Tensor

    The next number of the dtype after `self` in the direction of `other`; NaN where either is NaN.
    """
    kind = torch.finfo(dtypes.torch_dtype(self.dtype or dtypes.FLOAT))
    least = kind.smallest_normal * kind.eps
    here, there = op.cast(self, dtypes.DOUBLE), op.cast(other, dtypes.DOUBLE)
    mantissa, exponent, regular = _split(op, here)
    inwards = op.Less(op.Mul(op.Sign(here), op.Sub(there, here)), _double(op, 0))
    # just below a power of two the distance between neighbours is half as large
    close = op.cast(op.And(inwards, eq(op, op.Abs(mantissa), _double(op, 0.5))), dtypes.DOUBLE)
    gap = op.Mul(_scaled(op, _double(op, kind.eps / 2), op.Neg(op.Sub(exponent, close))), _double(op, 1))
    gap = op.Max(gap, _double(op, least))
    gap = op.Where(regular, gap, _double(op, least))
    moved = op.Where(op.Less(here, there), op.Add(here, gap), op.Sub(here, gap))
    # the neighbour of infinity is the largest finite number
    endless = eq(op, op.Abs(here), _double(op, math.inf))
    moved = op.Where(endless, op.Mul(op.Sign(here), _double(op, kind.max)), moved)
    result = op.Where(eq(op, here, there), there, moved)
    missing = op.Or(op.IsNaN(here), op.IsNaN(there))
    return op.cast(op.Where(missing, _double(op, math.nan), result), self.dtype)


# As other numbers -----------------------------------------------------------------------------------------------------

_UNSIGNED = {8: dtypes.UINT8, 16: dtypes.UINT16, 32: dtypes.UINT32, 64: dtypes.UINT64}


@lower("aten::view.dtype")
def view_dtype(op: Emitter, self: Value, dtype: torch.dtype) -> Value:
    """aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)

    The same bytes as other numbers. The last axis grows or shrinks with the width of an element, the lowest bits first.
    """
    given, wanted = self.dtype or dtypes.FLOAT, op.result_dtype
    before, after = (8 * dtypes.torch_dtype(code).itemsize for code in (given, wanted))
    if before == after:
        return _with_bits_of(op, self, wanted)
    dims, last, count = dims_of(op, self), self.rank - 1, max(before, after) // min(before, after)
    bits = op.cast(_with_bits_of(op, self, _UNSIGNED[before]), dtypes.UINT64)
    places = [place * min(before, after) for place in range(count)]
    if before > after:
        parts = op.BitShift(op.Unsqueeze(bits, [self.rank]), op.const(places, dtypes.UINT64), direction="RIGHT")
        merged = times(op, dims[last], count)
        found = reshape(op, op.cast(parts, _UNSIGNED[after]), [*dims[:last], merged])
        return _with_bits_of(op, found, wanted)
    size = dims[last]
    rows = reshape(op, bits, [*dims[:last], size // count if isinstance(size, int) else op.Div(size, count), count])
    parts = op.cast(op.BitShift(rows, op.const(places, dtypes.UINT64), direction="LEFT"), dtypes.INT64)
    pieces = op.multi("Split", parts, split=[1] * count, axis=last + 1, outputs=count)
    whole = op.Squeeze(functools.reduce(op.Add, pieces), [last + 1])
    return _with_bits_of(op, op.cast(whole, _UNSIGNED[after]), wanted)


def _with_bits_of(op: Emitter, value: Value, dtype: int) -> Value:
    """A value as another dtype of the same width; a truth value has the bits of 0 or 1."""
    if value.dtype == dtype:
        return value
    if dtypes.BOOL in (value.dtype, dtype):
        return op.cast(value, dtype)
    found: Value = op.BitCast(value, to=dtype)
    return found
