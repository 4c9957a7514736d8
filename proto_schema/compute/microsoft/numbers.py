"""What rows of com.microsoft share: codes out of packed bytes, integers as numbers and back, results in a type."""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.nn.numbers import narrowed, rounded_to
from proto_schema.compute.rows import MICROSOFT as DOMAIN

__all__ = ["DOMAIN", "coded", "dynamic", "in_blocks", "like", "number", "real", "sigmoid", "unpacked"]


def like(call: Call, values: Array, place: int = 0) -> Typed:
    """A result in the type of an input, rounded once."""
    code = call.dtype(place)
    return Typed(narrowed(np.asarray(values), code), code)


def unpacked(data: Array, bits: int, count: int) -> Array:
    """The first `count` codes in the bytes along the last axis, low bits first."""
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    codes = (data.astype(np.uint8)[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(codes.reshape(*data.shape[:-1], -1)[..., :count])


def in_blocks(codes: Array, scales: Array, zeros: Array | float, block: int) -> Array:
    """float32 numbers of codes [..., k]; scales and zero points [..., blocks] count for `block` codes each."""
    size = codes.shape[-1]

    def spread(numbers: Array) -> Array:
        return np.asarray(np.repeat(numbers.astype(np.float32), block, axis=-1)[..., :size])

    points = zeros if isinstance(zeros, float) else spread(zeros)
    return np.asarray((codes.astype(np.float32) - points) * spread(scales))


def number(call: Call, array: Array | None, default: float = 0.0) -> Any:
    """The one number of a scale or zero point."""
    if array is None:
        return np.float32(default)
    if array.size != 1:
        call.fail(f"{array.size} numbers where one scale or zero point is needed")
    return np.float32(array.reshape(()))


def real(call: Call, codes: Array, scale: Array, zero: Array | None) -> Array:
    """The numbers that codes of one scale stand for."""
    return np.asarray((codes.astype(np.float32) - number(call, zero)) * number(call, scale))


def coded(call: Call, values: Array, scale: Array, zero: Array | None, kind: np.dtype[Any]) -> Array:
    """The codes of numbers, in the type of the input."""
    quotient = np.asarray(values, np.float32) / number(call, scale)
    return rounded_to(np.rint(quotient) + number(call, zero), kind)


def sigmoid(values: Array) -> Array:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-values)))


def dynamic(values: Array) -> tuple[Array, Any, Any]:
    """(codes as float32, scale, zero point): uint8 over the range of all values, widened to hold 0."""
    low, high = min(0.0, float(values.min(initial=0))), max(0.0, float(values.max(initial=0)))
    scale = np.float32(np.float32(high - low) / np.float32(255)) if high > low else np.float32(1)
    zero = np.float32(np.clip(np.rint(np.float32(-low) / scale), 0, 255))
    codes = np.clip(np.rint(values.astype(np.float32) / scale) + zero, 0, 255)
    return codes.astype(np.float32), scale, zero
