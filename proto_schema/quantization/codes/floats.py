"""The numbers of blocks of small floats: the largest magnitude of a block becomes the largest finite number.

Codes are found in a table over the upper half of a float32 and whether the lower half is empty: no format here has
more than three bits of fraction, so that this decides the rounding, ties included. Numbers are rounded to nearest, ties
to even, and saturate, as in `minifloat`.

Sources: OCP Microscaling Formats 1.0, section 6.3 (scales of MX blocks); NVFP4: blocks of 16 whose scales are E4M3,
with one more scale for the whole tensor.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import from_codes, to_array
from proto_schema.tensors.minifloat import FORMATS, codes

Floats: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.uint8]

E4M3, E8M0 = TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E8M0


@cache
def _table(code: int) -> Codes:
    """The code for each upper half of a float32, twice: with an empty lower half, and with another."""
    uppers = np.arange(1 << 16, dtype=np.uint32) << 16
    pair = np.stack([uppers, uppers | 1], axis=1).reshape(-1).view(np.float32)
    finite = np.where(np.isnan(pair), np.float32(0), pair)
    made = codes(finite, FORMATS[code])
    made.flags.writeable = False
    return made


def rounded(values: Floats, code: int) -> Codes:
    """The codes of finite values in a small float type."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    found: Codes = _table(code)[(bits >> 16 << 1) | ((bits & 0xFFFF) != 0)]
    return found


def values_of(found: Codes, code: int) -> Floats:
    """The numbers that codes stand for."""
    array: npt.NDArray[Any] = to_array(from_codes(found.reshape(-1), code))
    return array.astype(np.float32, copy=False).reshape(found.shape)


def largest(code: int) -> float:
    """The largest finite number of a type."""
    return float(values_of(np.array([FORMATS[code].largest], np.uint8), code)[0])


def scales_of(magnitudes: Floats, code: int, scale_code: int, whole: float) -> tuple[npt.NDArray[Any], Floats]:
    """The scales of blocks with these largest magnitudes: as the file holds them, and as numbers.

    `scale_code` is the type of the scales: a small one of codes, or 0 where they are float32. `whole` is the scale of
    E4M3 scales. Raises ValueError for a magnitude that is not finite.
    """
    if not np.isfinite(magnitudes).all():
        raise ValueError("it holds a NaN or an infinity")
    if scale_code == E8M0:
        exponents = np.frexp(np.maximum(magnitudes, np.float32(2.0**-126)))[1] - 1 - _greatest_exponent(code)
        kept = np.clip(exponents + 127, 0, 254).astype(np.uint8)
        return kept, np.ldexp(np.float32(1), kept.astype(np.int32) - 127)
    if not np.isfinite(whole):
        raise ValueError("it holds a NaN or an infinity")
    scales = magnitudes / np.float32(largest(code))
    if scale_code == E4M3:
        kept = rounded(scales / np.float32(whole) if whole else scales, E4M3)
        return kept, values_of(kept, E4M3) * np.float32(whole)
    return scales, scales


def encoded(values: Floats, scales: Floats, code: int) -> Codes:
    """The codes of values over their scales, which broadcast; those of a block without a scale are zero."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotients = np.where(scales != 0, values / scales, np.float32(0))
    return rounded(quotients.astype(np.float32, copy=False), code)


def whole_scale(magnitude: float, code: int) -> float:
    """The scale of a tensor whose blocks have E4M3 scales: the largest of these is the largest E4M3 number."""
    return float(np.float32(magnitude) / np.float32(largest(code) * largest(E4M3)))


def _greatest_exponent(code: int) -> int:
    return int(np.frexp(largest(code))[1]) - 1
