"""The number types in which rows compute.

float16 is computed in float32, as bfloat16 is, whose arrays are float32 already. float32 and float64 stay. Products of
small integers are computed by BLAS in a float type that holds each partial sum exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.compute.call import Array
from proto_schema.minifloat import bfloat16_codes
from proto_schema.onnx import TensorProto

__all__ = ["exact", "narrowed", "rounded_to", "wide"]

_EXACT_IN_SINGLE = 2**24


def wide(array: Array) -> Array:
    """The array in the type in which it is computed: float32 for float16, else itself."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def exact(terms: int) -> type[np.float32] | type[np.float64]:
    """The float type that holds a sum of that many products of differences of 8-bit integers."""
    return np.float32 if terms * 255 * 255 < _EXACT_IN_SINGLE else np.float64


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
