"""The range of each activation: from the least to the greatest number, or cut where little is lost.

The least and the greatest number of all samples come first. "percentile" and "entropy" run the samples again and count
in intervals, so that memory does not grow with the samples. Both cut as ONNX Runtime's calibrators do: the cuts are
edges of intervals, and a cut outside of the numbers that were seen is moved to these. "percentile" counts magnitudes.
"entropy" counts between minus and plus the largest magnitude, tries each width around zero from 128 intervals on, and
takes the one whose distribution, with what lies outside moved to its ends, is nearest to itself in 128 levels (the
Kullback-Leibler divergence). With 128 intervals in all, ONNX Runtime's default, there is one width, and so no cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.calibration.options import CalibrationOptions
from proto_schema.calibration.running import Runner
from proto_schema.calibration.samples import Array, Feed

Counts: TypeAlias = npt.NDArray[np.int64]

LEVELS = 128
_LARGEST = np.float32(1e30)
_EPSILON = 1e-4  # the share that an empty interval gets, so that a divergence is finite


@dataclass(frozen=True)
class Range:
    """The numbers of an activation that keep their place; what is outside is cut."""

    low: np.float32
    high: np.float32

    @property
    def is_unbounded(self) -> bool:
        """Whether it holds numbers beside which all others would become zero, as masks do; not for a NaN."""
        return bool(max(-self.low, self.high) >= _LARGEST)

    @property
    def reason(self) -> str:
        """Why there is no useful scale for it; empty where there is."""
        if not self.low and not self.high:
            return "is 0 in all samples"
        if not self.is_unbounded:
            return ""
        return f"reaches {float(self.low if -self.low >= _LARGEST else self.high):.6g}"


def collected(runner: Runner, samples: Iterable[tuple[str, Feed]], options: CalibrationOptions) -> dict[str, Range]:
    """The range of each float activation that the samples show; one that is empty in all of them has none.

    Raises ValueError for a NaN, with the activation and the sample.
    """
    found: dict[str, Range] = {}
    least: dict[str, np.float32] = {}
    for place, feed in samples:
        for name, array in runner.run(place, feed):
            if not array.size or options.leaves(name):
                continue
            low, high = array.min(), array.max()
            if np.isnan(low):
                raise ValueError(
                    f"{place}: the activation {name!r} holds a NaN, which has no range; correct the sample, or "
                    f"leave the activation in floats with exclude={name!r}"
                )
            known = found.get(name)
            found[name] = Range(low, high) if known is None else Range(min(known.low, low), max(known.high, high))
            if options.method == "percentile":
                least[name] = min(least.get(name, np.float32(np.inf)), np.abs(array).min())
    if options.method == "minmax":
        return found
    for name, (counts, edges) in _counted(runner, samples, found, least, options).items():
        if options.method == "percentile":
            low, high = percentile_cuts(counts, edges, options.percentile)
        else:
            low, high = entropy_cuts(counts, edges)
        found[name] = Range(max(low, found[name].low), min(high, found[name].high))
    return found


def _counted(
    runner: Runner,
    samples: Iterable[tuple[str, Feed]],
    ranges: dict[str, Range],
    least: dict[str, np.float32],
    options: CalibrationOptions,
) -> dict[str, tuple[Counts, Array]]:
    """For each activation how many numbers, or magnitudes from `least` on, are in each interval, and the edges."""
    found: dict[str, tuple[Counts, Array]] = {}
    for place, feed in samples:
        for name, array in runner.run(place, feed):
            if name not in ranges or ranges[name].reason:
                continue
            largest = max(-ranges[name].low, ranges[name].high)
            if options.method == "percentile":
                counts, edges = np.histogram(np.abs(array), options.bins, range=(least[name], largest))  # type: ignore[arg-type]
            else:
                counts, edges = np.histogram(array, options.bins, range=(-largest, largest))
            found[name] = (counts + found[name][0] if name in found else counts, edges)
    return found


def percentile_cuts(counts: Counts, edges: Array, percentile: float) -> tuple[Any, Any]:
    """Minus and plus the edge below which `percentile` percent of the magnitudes are."""
    cut = edges[np.searchsorted(np.cumsum(counts / counts.sum()), percentile / 100.0)]
    return -cut, cut


def entropy_cuts(counts: Counts, edges: Array) -> tuple[Any, Any]:
    """The edges around zero between which the numbers, in `LEVELS` levels, are distributed most like before."""
    middle = counts.size // 2
    half = LEVELS // 2
    best, cuts = np.inf, (edges[0], edges[-1])
    for width in range(half, middle + 1):
        first, end = middle - width, min(middle + width + 1, counts.size)
        divergence = _divergence(counts, first, end)
        if width == half or divergence < best:
            best, cuts = divergence, (edges[first], edges[end])
    return cuts


def _divergence(counts: Counts, first: int, end: int) -> float:
    inside = counts[first:end]
    wanted = inside.copy()
    wanted[0] += counts[:first].sum()
    wanted[-1] += counts[end:].sum()
    merged = inside.size // LEVELS
    used = merged * LEVELS
    sums = inside[:used].reshape(LEVELS, merged).sum(1)
    sums[-1] += inside[used:].sum()
    filled = (wanted[:used] != 0).reshape(LEVELS, merged).sum(1)
    levels = np.zeros_like(wanted)
    # whole numbers, as ONNX Runtime has them; what is left behind the last level stays empty
    levels[:used] = np.repeat((sums / np.maximum(filled, 1)).astype(np.int64) * (filled != 0), merged)
    mine, theirs = _smoothed(wanted), _smoothed(levels)
    if mine is None or theirs is None:
        return float("inf")
    mine, theirs = mine / mine.sum(), theirs / theirs.sum()
    return float(np.sum(mine * np.log(mine / theirs)))


def _smoothed(counts: Counts) -> npt.NDArray[np.float32] | None:
    """The counts with a little of the others' in each empty interval; None where all are empty."""
    empty = counts == 0
    others = counts.size - int(empty.sum())
    if not others:
        return None
    taken = _EPSILON * float(empty.sum()) / others
    result: npt.NDArray[np.float32] = counts.astype(np.float32)
    result += np.where(empty, np.float32(_EPSILON), np.float32(-taken))
    return result
