"""Rows that quantize and dequantize.

A scale and its zero point are one number, one for each place of an axis, or one for each block along an axis; either
is spread to the shape of the data first. The quotient is rounded to nearest, ties to even, before the zero point is
added. It is rounded before to the type that `precision` names, else to the scale's.
"""

from __future__ import annotations

import numpy as np

from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.costs import passes
from proto_schema.compute.nn.numbers import narrowed, wide
from proto_schema.compute.rows import row
from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import from_codes, to_array
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.tensors.minifloat import FORMATS, codes

_INFINITE = {TensorProto.FLOAT8E5M2}
_KEPT_EVEN = {TensorProto.FLOAT8E4M3FN}  # half a step above the largest value rounds down to it


def _spread(call: Call, numbers: Array, data: Array) -> Array:
    """A scale or zero point in a shape that broadcasts with the data."""
    if numbers.size == 1:
        return numbers.reshape(())
    if numbers.ndim == 1 and data.ndim > 1 and not call.attribute("block_size", 0):
        axis = call.axis(call.attribute("axis", 1), data.ndim)
        if numbers.shape[0] != data.shape[axis]:
            call.fail(
                f"a scale or zero point of {numbers.shape[0]} numbers does not fit {data.shape[axis]} along {axis}"
            )
        return numbers.reshape(-1, *(1,) * (data.ndim - axis - 1))
    if numbers.shape == data.shape:
        return numbers
    axis, block = call.axis(call.attribute("axis", 1), data.ndim), call.attribute("block_size", 0)
    fits = numbers.ndim == data.ndim and all(
        size == (-(-whole // block) if place == axis and block > 0 else whole)
        for place, (size, whole) in enumerate(zip(numbers.shape, data.shape, strict=True))
    )
    if not fits or block < 1:
        call.fail(f"a scale or zero point of shape {numbers.shape} does not fit {data.shape} with block_size {block}")
    cut = (slice(None),) * axis + (slice(0, data.shape[axis]),)
    return np.asarray(np.repeat(numbers, block, axis=axis)[cut])


@row("QuantizeLinear", cost=passes(48))
def quantize(call: Call, data: Array, scale: Array, zero: Array | None = None) -> Typed:
    """saturate(round(x / scale) + zero point), in the zero point's type, or that of `output_dtype`, or uint8."""
    code = call.dtype(2) or call.attribute("output_dtype", 0) or TensorProto.UINT8
    exact = np.float64 if data.dtype.kind in "iu" or data.dtype == np.float64 else np.float32
    divisor = _spread(call, scale, data).astype(exact)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = narrowed(data.astype(exact) / divisor, call.attribute("precision", 0) or call.dtype(1))
    point = None if zero is None else _spread(call, zero, data)
    return Typed(_stored(call, np.asarray(values), point, code), code)


def _stored(call: Call, values: Array, zero: Array | None, code: int) -> Array:
    kind = DTYPES.get(code)
    if code in FORMATS:
        shifted = values if zero is None else values + zero
        return _small(np.asarray(shifted), code, bool(call.attribute("saturate", 1)))
    if kind is None or np.dtype(kind.numpy).kind not in "iu":
        call.fail(f"the data type {code} is not one that tensors are quantized to")
    signed = np.dtype(kind.numpy).kind == "i"
    low, high = (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if signed else (0, (1 << kind.bits) - 1)
    rounded: Array = np.asarray(np.rint(values))
    if zero is not None:
        rounded += zero.astype(rounded.dtype)
    # of NaN and a number, these take the number: NaN becomes the lowest
    rounded = np.asarray(np.fmin(np.fmax(rounded, low, out=rounded), high, out=rounded))
    return np.asarray(rounded.astype(kind.numpy))


def _small(values: Array, code: int, saturate: bool) -> Array:
    """The nearest values of a small float; out of its range the largest, or NaN or infinity without `saturate`."""
    form = FORMATS[code]
    if form.nan is None:
        values = np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
    found = to_array(from_codes(codes(values, form), code)).reshape(values.shape)
    if saturate or form.nan is None:
        return found
    last = to_array(from_codes(np.array([form.largest - 1, form.largest], np.uint8), code))
    limit = last[1] + (last[1] - last[0]) / 2
    beyond = np.abs(values) > limit if code in _KEPT_EVEN else np.abs(values) >= limit
    instead = np.copysign(np.float32(np.inf), values) if code in _INFINITE else np.float32(np.nan)
    return np.where(beyond, instead, found).astype(np.float32)


@row("DequantizeLinear", cost=passes(48))
def dequantize(call: Call, data: Array, scale: Array, zero: Array | None = None) -> Typed:
    """(x - zero point) * scale, in the scale's type, or that of `output_dtype`."""
    code = call.attribute("output_dtype", 0) or call.dtype(1)
    values = data if zero is None else _less(data, _spread(call, zero, data))
    result = values.astype(np.float32) * wide(_spread(call, scale, data))
    return Typed(narrowed(np.asarray(result), code), code)


def _less(data: Array, zero: Array) -> Array:
    kind = np.int64 if data.dtype.kind in "iu" else np.float32
    return np.asarray(data.astype(kind) - zero.astype(kind))


@row("DynamicQuantizeLinear", cost=passes(48))
def quantize_dynamically(call: Call, data: Array) -> tuple[Array, Array, Array]:
    """uint8 over the range of the data, which is widened to hold 0; with its scale and zero point."""
    kind = np.float32
    low = min(kind(0), data.min(initial=kind(0)))
    high = max(kind(0), data.max(initial=kind(0)))
    scale = kind((high - low) / kind(255)) if high > low else kind(1)
    point = np.clip(np.rint(-low / scale), 0, 255)
    values = np.clip(np.rint(data / scale) + point, 0, 255)
    return values.astype(np.uint8), np.asarray(scale), np.asarray(point, np.uint8)
