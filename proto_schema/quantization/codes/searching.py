"""Scales and zero points of blocks with less error than those of the whole range.

Each function takes blocks along an axis, and no more than these. The error that it makes less is a sum over a block:

    clipped         the squares; only ranges inside the whole one are tried
    weighted        the squares, times the root mean square of the block plus the magnitude (k-quants of llama.cpp)
    half_quadratic  the magnitudes to the power 0.7, in which few large errors count less (HQQ)

For codes that are known, the best scale is a quotient of sums, and so is the best offset; codes follow from these
again. A block keeps the scale and the zero point of the least error, the usual ones among them, so that none is worse.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from proto_schema.quantization.codes.integers import Codes, Extremes, Floats, Rules, Search, numbers

_STEPS = 20  # ranges that a search tries
_SMALLEST = 0.5  # of the whole range
_FACTORS = np.linspace(0.7, 1.05, 10, dtype=np.float32)  # of the usual scale, where codes are fitted
_POWER = 0.7
_ROUNDS = 20
_FIRST_WEIGHT, _GROWTH = 10.0, 1.01  # of HQQ's penalty, for errors in units of the scale

Error = Callable[[Floats], Floats]


def clipped(
    values: Floats, axis: int, limits: Extremes, usual: tuple[Floats, Floats], rules: Rules
) -> tuple[Floats, Floats]:
    """The scales and zero points with the least squared error, among those of smaller ranges too."""
    best = _Best(values, axis, rules, usual, np.square)
    for factor in np.linspace(1, _SMALLEST, _STEPS, endpoint=False, dtype=np.float32)[1:]:
        best.tried(rules.ranges((limits[0] * factor, limits[1] * factor)))
    return best.scales, best.zeros


def weighted(
    values: Floats, axis: int, limits: Extremes, usual: tuple[Floats, Floats], rules: Rules
) -> tuple[Floats, Floats]:
    """The scales and zero points with the least squared error, in which large elements count more."""
    weights = np.sqrt(np.square(values).mean(axis, keepdims=True)) + np.abs(values)
    best = _Best(values, axis, rules, usual, lambda apart: weights * np.square(apart))
    for factor in _FACTORS:
        scales, zeros = usual
        if rules.zero_points:
            scales, zeros = rules.ranges((limits[0] * factor, limits[1] * factor))
        else:
            scales = rules.round_scales(scales * factor)
        best.tried(_fitted(values, axis, best.codes(scales, zeros), (scales, zeros), rules, weights))
    return best.scales, best.zeros


def half_quadratic(
    values: Floats, axis: int, limits: Extremes, usual: tuple[Floats, Floats], rules: Rules
) -> tuple[Floats, Floats]:
    """The scales and zero points with the least sum of errors to the power 0.7.

    In turns, errors are shrunk to what would be left as outliers, and scales and zero points fit the rest.
    """
    best = _Best(values, axis, rules, usual, lambda apart: np.abs(apart) ** np.float32(_POWER))
    scales, zeros = usual
    weight = _FIRST_WEIGHT
    for _ in range(_ROUNDS):
        codes = best.codes(scales, zeros)
        with np.errstate(divide="ignore", invalid="ignore"):
            unit = np.abs(np.expand_dims(scales, axis))
            apart = np.nan_to_num((values - best.meant(codes, scales, zeros)) / unit, posinf=0.0, neginf=0.0)
            size = np.abs(apart)
            kept = np.maximum(size - np.power(size, np.float32(_POWER - 1)) / np.float32(weight), 0)
        outliers = np.where(size > 0, np.copysign(kept, apart), np.float32(0)) * unit
        scales, zeros = _fitted(values - outliers, axis, codes, (scales, zeros), rules, None)
        best.tried((scales, zeros))
        weight *= _GROWTH
    return best.scales, best.zeros


SEARCHES: dict[str, Search] = {"clip": clipped, "k-quant": weighted, "hqq": half_quadratic}


class _Best:
    """The scales and zero points of the least error of each block so far."""

    def __init__(self, values: Floats, axis: int, rules: Rules, usual: tuple[Floats, Floats], error: Error) -> None:
        self.values, self.axis, self.rules, self.error = values, axis, rules, error
        self.scales, self.zeros = usual
        self._least = self._error_of(usual)

    def codes(self, scales: Floats, zeros: Floats) -> Codes:
        """The codes of all values."""
        return self.rules.encoded(self.values, np.expand_dims(scales, self.axis), np.expand_dims(zeros, self.axis))

    def meant(self, codes: Codes, scales: Floats, zeros: Floats) -> Floats:
        """What codes stand for."""
        offset, unit = np.expand_dims(zeros, self.axis), np.expand_dims(scales, self.axis)
        made: Floats = (numbers(codes, self.rules.grid) - offset) * unit
        return made

    def tried(self, pair: tuple[Floats, Floats]) -> None:
        """Keep those of the blocks that have less error with these."""
        error = self._error_of(pair)
        better = error < self._least
        self._least = np.where(better, error, self._least)
        self.scales = np.where(better, pair[0], self.scales)
        self.zeros = np.where(better, pair[1], self.zeros)

    def _error_of(self, pair: tuple[Floats, Floats]) -> Floats:
        apart = self.meant(self.codes(*pair), *pair) - self.values
        found: Floats = self.error(apart).sum(self.axis)
        return found


def _fitted(
    values: Floats, axis: int, codes: Codes, before: tuple[Floats, Floats], rules: Rules, weights: Floats | None
) -> tuple[Floats, Floats]:
    """The scales, and the zero points where there are any, with the least squares for these codes."""
    places = numbers(codes, rules.grid)
    zeros = before[1]
    if rules.zero_points:
        zeros = _offsets(values, axis, places, before, rules, weights)
    steps = places - np.expand_dims(zeros, axis)
    heavy = steps if weights is None else steps * weights
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = (heavy * values).sum(axis) / (heavy * steps).sum(axis)
    usable = np.isfinite(scales) & (scales != 0)
    return rules.round_scales(np.where(usable, scales, before[0]).astype(np.float32)), zeros


def _offsets(
    values: Floats, axis: int, places: Floats, before: tuple[Floats, Floats], rules: Rules, weights: Floats | None
) -> Floats:
    """The zero points of the line through values and codes with the least squares; integers where they must be."""
    heavy = np.ones_like(values) if weights is None else weights
    total = heavy.sum(axis)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_place, mean_value = (heavy * places).sum(axis) / total, (heavy * values).sum(axis) / total
        apart = places - np.expand_dims(mean_place, axis)
        slope = (heavy * apart * values).sum(axis) / (heavy * np.square(apart)).sum(axis)
        exact = mean_place - mean_value / slope
    if rules.exact_zeros:
        return rules.round_scales(np.where(np.isfinite(exact), exact, before[1]).astype(np.float32))
    zeros = np.where(np.isfinite(exact), np.rint(exact), before[1])
    return np.clip(zeros, rules.grid.low, rules.grid.high).astype(np.float32)
