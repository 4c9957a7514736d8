"""Values of a wide numpy type to the nearest ones of a data type that numpy lacks."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import from_array, from_codes, to_array, to_codes
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.tensors.minifloat import FORMATS

__all__ = ["rounded", "wide_integers"]

Array: TypeAlias = npt.NDArray[Any]


def rounded(array: Array, code: int) -> Array:
    """The array, of the numpy type of the data type's row, with each value rounded to the nearest, ties to even.

    What is out of the range of a small float becomes its largest value; bfloat16 and float8e5m2 keep infinities.
    Integers keep their low bits. Values of the type stay as they are, and so do all of a type that numpy has.
    """
    row = DTYPES[code]
    if row.native or not row.bits:
        return array
    if row.numpy == "u1":
        return array & ((1 << row.bits) - 1)
    if row.numpy == "i1":
        spare = 8 - row.bits
        shifted: Array = (array << spare).astype(np.int8) >> spare
        return shifted
    if code == TensorProto.BFLOAT16:
        return _bfloat16(array)
    if code in FORMATS and FORMATS[code].nan is None:
        array = np.where(np.isnan(array), array.dtype.type(0), array)
    found = to_array(from_codes(to_codes(from_array(array, None, code)), code))
    return np.where(np.isinf(array), array, found) if row.name == "FLOAT8E5M2" else found


def _bfloat16(array: Array) -> Array:
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    # adding just below half of the last kept bit, and that bit, carries exactly where the value rounds up
    nearest = bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))
    nearest &= np.uint32(0xFFFF0000)
    result: Array = nearest.view(np.float32).reshape(array.shape)
    missing = np.isnan(array)
    return np.where(missing, np.float32(np.nan), result) if missing.any() else result


def wide_integers(array: Array) -> Array:
    """Numbers as integers of 64 bits, floats cut towards zero."""
    return array.astype(np.int64) if array.dtype.kind in "fb" else array
