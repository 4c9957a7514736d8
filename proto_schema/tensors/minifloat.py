"""Numbers to the bit codes of the small float types: bfloat16 and the float8, float6 and float4 families.

A format is a row: how its codes count up. The positive codes of every such format ascend with their values, so that
rounding to nearest, ties to even, is a search among the midpoints between neighbours. What is out of range saturates,
as in onnx.helper.make_tensor, and as there a float64 becomes a float32 first (which may round twice). The two types
with other rules (bfloat16 rounds like a cast and reaches infinity, float8e8m0 rounds up to a power of two) have
functions of their own.

Sources: the onnx "Float stored in 8 bits", "4 bits" and "6 bits" technical pages; OCP Microscaling Formats 1.0.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from proto_schema.wire.records import dataclass

__all__ = ["FORMATS", "Format", "bfloat16_codes", "codes", "float8e8m0_codes"]

_BLOCK = 1 << 15  # elements that are computed at once: what they take fits into a cache


@dataclass(frozen=True, slots=True)
class Format:
    """One float format: the widths of its parts, its exponent's bias, its largest finite positive code, its NaN.

    `nan` is None where no code means NaN. `signed_zero` is False where the code of minus zero means NaN ("uz").
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: int
    nan: int | None
    signed_zero: bool = True

    @property
    def sign_bit(self) -> int:
        """The code's sign bit, as a mask."""
        return 1 << (self.exponent_bits + self.mantissa_bits)


FORMATS: dict[int, Format] = {  # by TensorProto.DataType
    17: Format("FLOAT8E4M3FN", 4, 3, 7, 0x7E, 0x7F),
    18: Format("FLOAT8E4M3FNUZ", 4, 3, 8, 0x7F, 0x80, signed_zero=False),
    19: Format("FLOAT8E5M2", 5, 2, 15, 0x7B, 0x7E),
    20: Format("FLOAT8E5M2FNUZ", 5, 2, 16, 0x7F, 0x80, signed_zero=False),
    23: Format("FLOAT4E2M1", 2, 1, 1, 0x07, None),
    27: Format("FLOAT6E2M3", 2, 3, 1, 0x1F, None),
    28: Format("FLOAT6E3M2", 3, 2, 3, 0x1F, None),
}


def codes(values: npt.ArrayLike, form: Format) -> npt.NDArray[np.uint8]:
    """The codes of the values, shape kept: nearest, ties to even, out of range and infinite to the largest.

    Raises ValueError for a NaN where the format has none.
    """
    numbers = _singles(values)
    missing = np.isnan(numbers)
    if form.nan is None and missing.any():
        raise ValueError(f"{form.name} has no NaN; replace the {int(missing.sum())} NaN values before storing them")
    middles = _middles(form)
    magnitudes = np.abs(np.where(missing, np.float32(0), numbers))
    found = np.searchsorted(middles, magnitudes, side="left")
    ties = middles[np.minimum(found, len(middles) - 1)] == magnitudes
    found += ties & (found % 2 == 1)
    negative = np.signbit(numbers) & (form.signed_zero | (found > 0))
    result = (found | np.where(negative, form.sign_bit, 0)).astype(np.uint8)
    if form.nan is not None:
        nan_sign = np.where(np.signbit(numbers), form.sign_bit, 0) if form.signed_zero else 0
        result = np.where(missing, form.nan | nan_sign, result).astype(np.uint8)
    return result


def bfloat16_codes(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """The upper halves of the values as float32, nearest, ties to even; a NaN becomes the quiet one of its sign."""
    singles = np.asarray(values)
    if singles.dtype != np.float32:
        singles = _singles(singles)
    flat = np.ascontiguousarray(singles).reshape(-1)
    found = np.empty(flat.shape, np.uint16)
    room = np.empty(min(flat.size, _BLOCK), np.uint32)  # new memory for each step would take longer than the step
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        bits, rounded = part.view(np.uint32), room[: part.size]
        np.right_shift(bits, 16, out=rounded)
        rounded &= 1
        rounded += 0x7FFF
        rounded += bits
        rounded >>= 16
        nans = np.isnan(part)
        if nans.any():
            np.copyto(rounded, bits >> 16 & 0x8000 | 0x7FC0, where=nans)
        found[start : start + _BLOCK] = rounded
    return found.reshape(singles.shape)


def float8e8m0_codes(values: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """The exponents of the values as float32, rounded up to a power of two; 0xFF for NaN and infinity.

    The sign is dropped and what exceeds 2**127 saturates, as onnx.helper.make_tensor does it.
    """
    bits = _singles(values).view(np.uint32)
    exponents = (bits >> 23) & 0xFF
    inexact = (bits & 0x7FFFFF) != 0
    rounded: npt.NDArray[np.uint8] = (exponents + (inexact & (exponents < 0xFE))).astype(np.uint8)
    return rounded


def _singles(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float32)


@cache
def _middles(form: Format) -> npt.NDArray[np.float32]:
    positive = np.arange(form.largest + 1)
    exponents, fractions = positive >> form.mantissa_bits, positive & ((1 << form.mantissa_bits) - 1)
    significands = fractions + np.where(exponents > 0, 1 << form.mantissa_bits, 0)
    numbers = np.ldexp(significands.astype(np.float64), np.maximum(exponents, 1) - form.bias - form.mantissa_bits)
    middles: npt.NDArray[np.float32] = ((numbers[:-1] + numbers[1:]) / 2).astype(np.float32)
    return middles
