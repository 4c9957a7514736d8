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

__all__ = ["Blocks", "Grid", "Rounding", "Rules", "Search", "as_codes", "encoded", "extremes", "in_blocks", "ranges"]

Array: TypeAlias = npt.NDArray[Any]
Codes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]
Rounding: TypeAlias = Literal["inside", "outside", "even"]
Extremes: TypeAlias = "tuple[Floats, Floats]"
Rounded: TypeAlias = "Callable[[Floats], Floats]"
"""Rounds scales to the type that the file has them in."""

_HALF = np.nextafter(np.float32(0.5), np.float32(0))  # adding it and cutting rounds halves away; 0.5 would not always
_SHORT = 256  # elements of a block


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

    codes: Codes
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
) -> Codes:
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


def as_codes(integers: Floats, grid: Grid) -> Codes:
    """Integers of the grid in the low bits of bytes."""
    codes = integers.astype(np.int8 if grid.signed else np.uint8).view(np.uint8)
    return codes if grid.bits == 8 else codes & np.uint8((1 << grid.bits) - 1)


@dataclass(frozen=True)
class Rules:
    """How ranges become scales and zero points, and numbers become codes.

    With `exact_zeros` the file has zero points as floats, so a search may choose any.
    """

    grid: Grid
    rounding: Rounding
    zero_points: bool
    round_scales: Rounded
    exact_zeros: bool = False

    def ranges(self, found: Extremes) -> tuple[Floats, Floats]:
        """The scale and the zero point of each block of these extremes."""
        return ranges(found, self.grid, self.rounding, zero_points=self.zero_points, round_scales=self.round_scales)

    def encoded(self, values: Floats, scales: Floats, zeros: Floats, work: Floats | None = None) -> Codes:
        """The codes of values whose scales and zero points broadcast against them."""
        return encoded(values, scales, zeros, self.grid, self.rounding, work)


Search: TypeAlias = "Callable[[Floats, int, Extremes, tuple[Floats, Floats], Rules], tuple[Floats, Floats]]"
"""Finds other scales and zero points of blocks: from values, their axis, extremes, and the usual scales and zeros."""


def in_blocks(
    values: Floats, axis: int, rules: Rules, search: Search | None = None, found: Extremes | None = None
) -> Blocks:
    """The blocks along `axis` of an array that is written over. `found` are their extremes where they are known."""
    limits = extremes(values, axis) if found is None else found
    scales, zeros = rules.ranges(limits)
    if search is not None:
        scales, zeros = search(values, axis, limits, (scales, zeros), rules)
    wide = np.expand_dims(scales, axis), np.expand_dims(zeros, axis)
    return Blocks(rules.encoded(values, *wide, values), scales, zeros)


def numbers(codes: Codes, grid: Grid) -> Floats:
    """The integers that codes stand for."""
    if not grid.signed:
        return codes.astype(np.float32)
    spare = 8 - grid.bits
    return ((codes << spare).view(np.int8) >> spare).astype(np.float32)
