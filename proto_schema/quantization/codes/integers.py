"""The numbers of integer blocks: scales, zero points and codes, equal to those of ONNX Runtime to the bit.

ONNX Runtime has two ways, which differ in ties only, and both are here (`Rounding`). MatMulNBits adds the zero point
before it rounds; DequantizeLinear in blocks adds it afterwards. Both multiply by the reciprocal of the scale and round
halves away from zero. Eight bits for a whole channel are those of QuantizeLinear, which divides and rounds halves to
even. Scales are those that the file will hold: they are rounded to its type before anything is divided by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.wire.records import dataclass

__all__ = ["Blocks", "Grid", "Rounding", "as_codes", "encoded", "extremes", "in_blocks", "ranges"]

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
Rounding: TypeAlias = Literal["inside", "outside", "even"]
Extremes: TypeAlias = "tuple[Floats, Floats]"
Rounded: TypeAlias = "Callable[[Floats], Floats]"
"""Rounds scales to the type that the file has them in."""

_HALF = np.nextafter(np.float32(0.5), np.float32(0))  # adding it and cutting rounds halves away; 0.5 would not always
_STEPS = 20  # ranges that a search tries
_SHORT = 256  # elements of a block
_SMALLEST = 0.5  # of the whole range


@dataclass(frozen=True)
class Grid:
    """The integers of a type."""

    bits: int
    signed: bool

    @property
    def low(self) -> int:
        """The least."""
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def high(self) -> int:
        """The greatest."""
        return self.low + (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """What stands for zero where there are no zero points."""
        return 0 if self.signed else 1 << self.bits - 1


@dataclass(frozen=True)
class Blocks:
    """What becomes of some blocks: codes (uint8, low bits used), the scale and the zero point of each."""

    codes: npt.NDArray[np.uint8]
    scales: Floats
    zeros: Floats


def extremes(values: Floats, axis: int) -> Extremes:
    """The least and the greatest of each block, which lies along `axis`."""
    size = values.shape[axis]
    if axis == values.ndim - 1 and size <= _SHORT:  # numpy finds those of many short rows slowly
        turned = np.ascontiguousarray(values.reshape(-1, size).T)
        least, greatest = turned.min(0).reshape(values.shape[:-1]), turned.max(0).reshape(values.shape[:-1])
    else:
        least, greatest = values.min(axis), values.max(axis)
    alike = least == greatest
    if alike.any():  # among zeros of both signs the first one counts, as in ONNX Runtime
        least = np.where(alike, values.take(0, axis), least)
    return least, greatest


def ranges(
    found: Extremes, grid: Grid, rounding: Rounding, *, zero_points: bool, round_scales: Rounded
) -> tuple[Floats, Floats]:
    """The scale and the zero point of each block of these extremes. Raises ValueError where they are not finite."""
    least, greatest = found
    if zero_points:
        least, greatest = np.minimum(least, 0), np.maximum(greatest, 0)
    if not (np.isfinite(least).all() and np.isfinite(greatest).all()):
        raise ValueError("it holds a NaN or an infinity")
    if rounding == "even":
        return _linear_ranges(least, greatest, grid, zero_points, round_scales)
    with np.errstate(over="ignore"):
        if zero_points:
            scales = (greatest - least) / np.float32(grid.high - grid.low)
        else:
            widest = np.where(np.abs(greatest) > np.abs(least), greatest, least)
            scales = widest / np.float32(-(1 << grid.bits - 1))
    if not np.isfinite(scales).all():
        raise ValueError("its numbers are too far apart for a scale of float32")
    if zero_points:
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.where(scales != 0, (0 - least) / scales, least) + np.float32(grid.low)
        zeros = np.floor(np.clip(exact, grid.low, grid.high) + _HALF).astype(np.float32)
    else:
        zeros = np.full(scales.shape, grid.middle, np.float32)
    return round_scales(scales.astype(np.float32)), zeros


def _linear_ranges(
    least: Floats, greatest: Floats, grid: Grid, zero_points: bool, round_scales: Rounded
) -> tuple[Floats, Floats]:
    """As ONNX Runtime's quantizer of QDQ takes them: in float64, and a range of nothing has the scale 1."""
    low, high = least.astype(np.float64), greatest.astype(np.float64)
    if zero_points:
        scales = (high - low) / (grid.high - grid.low)
    else:
        span = grid.high - grid.low - grid.signed  # -128 is left out, so that there are as many below zero as above
        scales = 2 * np.maximum(-low, high) / span
    nothing = scales < np.finfo(np.float32).tiny
    scales[nothing] = 1
    zeros = np.full(scales.shape, grid.middle, np.float32)
    if zero_points:
        zeros = np.where(nothing, 0, np.rint(grid.low - low / scales)).astype(np.float32)
    kept = round_scales(scales.astype(np.float32))
    return np.where(kept == 0, np.float32(1), kept), zeros


def encoded(
    values: Floats, scales: Floats, zeros: Floats, grid: Grid, rounding: Rounding, work: Floats | None = None
) -> npt.NDArray[np.uint8]:
    """The codes of values whose scales and zero points broadcast against them.

    `work` is memory of the values' shape that is written over; it may be `values` itself.
    """
    added: Any = zeros.flat[0] if zeros.size and (zeros == zeros.flat[0]).all() else zeros  # one number is quicker
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if rounding == "even":
            found = np.divide(values, scales, out=work)
            np.rint(found, out=found)
            found += added
        else:
            found = np.multiply(values, np.where(scales != 0, np.float32(1) / scales, np.float32(0)), out=work)
            if rounding == "inside":
                found += added
            if rounding == "inside" and not grid.signed:
                found += _HALF  # what is below zero ends at zero in any case
            else:
                found += np.copysign(_HALF, found)
            if rounding == "outside" and (added is zeros or added):  # otherwise the integers below are cut alike
                np.trunc(found, out=found)
                found += added
    np.minimum(found, np.float32(grid.high), out=found)
    np.maximum(found, np.float32(grid.low), out=found)
    return as_codes(found, grid)


def as_codes(integers: Floats, grid: Grid) -> npt.NDArray[np.uint8]:
    """Integers of the grid in the low bits of bytes."""
    codes = integers.astype(np.int8 if grid.signed else np.uint8).view(np.uint8)
    return codes if grid.bits == 8 else codes & np.uint8((1 << grid.bits) - 1)


def in_blocks(
    values: Floats,
    axis: int,
    grid: Grid,
    rounding: Rounding,
    *,
    zero_points: bool,
    round_scales: Rounded,
    clip: bool = False,
    found: Extremes | None = None,
) -> Blocks:
    """The blocks along `axis` of an array that is written over. `found` are their extremes where they are known."""
    limits = extremes(values, axis) if found is None else found
    scales, zeros = ranges(limits, grid, rounding, zero_points=zero_points, round_scales=round_scales)
    if clip:
        scales, zeros = _searched(values, axis, limits, (scales, zeros), grid, rounding, zero_points, round_scales)
    wide = np.expand_dims(scales, axis), np.expand_dims(zeros, axis)
    return Blocks(encoded(values, *wide, grid, rounding, values), scales, zeros)


def _searched(
    values: Floats,
    axis: int,
    limits: Extremes,
    usual: tuple[Floats, Floats],
    grid: Grid,
    rounding: Rounding,
    zero_points: bool,
    round_scales: Rounded,
) -> tuple[Floats, Floats]:
    """The scales and zero points with the least squared error, among those of smaller ranges too."""
    best_scales, best_zeros = usual
    least = _squared_error(values, axis, best_scales, best_zeros, grid, rounding)
    for factor in np.linspace(1, _SMALLEST, _STEPS, endpoint=False, dtype=np.float32)[1:]:
        smaller = limits[0] * factor, limits[1] * factor
        scales, zeros = ranges(smaller, grid, rounding, zero_points=zero_points, round_scales=round_scales)
        error = _squared_error(values, axis, scales, zeros, grid, rounding)
        better = error < least
        least = np.where(better, error, least)
        best_scales = np.where(better, scales, best_scales)
        best_zeros = np.where(better, zeros, best_zeros)
    return best_scales, best_zeros


def _squared_error(values: Floats, axis: int, scales: Floats, zeros: Floats, grid: Grid, rounding: Rounding) -> Floats:
    wide_scales, wide_zeros = np.expand_dims(scales, axis), np.expand_dims(zeros, axis)
    codes = encoded(values, wide_scales, wide_zeros, grid, rounding)
    difference = (numbers(codes, grid) - wide_zeros) * wide_scales - values
    squares: Floats = np.square(difference).sum(axis)
    return squares


def numbers(codes: npt.NDArray[np.uint8], grid: Grid) -> Floats:
    """The integers that codes stand for."""
    if not grid.signed:
        return codes.astype(np.float32)
    spare = 8 - grid.bits
    return ((codes << spare).view(np.int8) >> spare).astype(np.float32)
