"""The number types in which rows compute.

float16 is computed in float32, as bfloat16 is, whose arrays are float32 already. float32 and float64 stay. Products of
small integers are computed by BLAS in a float type that holds each partial sum exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.compute.call import Array
from proto_schema.onnx import TensorProto
from proto_schema.tensors.minifloat import bfloat16_codes

__all__ = ["exact", "narrowed", "rounded_to", "wide"]

_EXACT_IN_SINGLE = 2**24


def wide(array: Array) -> Array:
    """The array in the type in which it is computed: float32 for float16, else itself."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def exact(one: Array, other: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Two float32 arrays of integers, as float64 unless float32 holds every sum of their products exactly.

    `axes` are those of the second over which products are summed.
    """
    most = np.abs(other).sum(axis=axes, dtype=np.float64).max(initial=0)
    if float(np.abs(one).max(initial=0)) * float(most) < _EXACT_IN_SINGLE:
        return one, other
    return one.astype(np.float64), other.astype(np.float64)


def rounded_to(values: Array, dtype: np.dtype[Any]) -> Array:
    """Rounded to nearest, ties to even, and saturated to the range of an integer type."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


def narrowed(values: Array, code: int) -> Array:
    """Rounded to the precision of a type, in float32 or wider."""
    if code == TensorProto.FLOAT16:
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    if code == TensorProto.BFLOAT16:
        bits: Array = bfloat16_codes(values).astype(np.uint32) << 16
        return bits.view(np.float32)
    return values
