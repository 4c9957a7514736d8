"""How far an output is from what it should be, in the numbers that people compare files by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from purexport.runtime.sessions import as_real

_MOST_ROWS = 20


@dataclass(frozen=True)
class Measures:
    """Over all elements of an output, in float64.

    `largest` and `mean` are absolute differences, `relative` is the largest one over the largest element of the
    reference, `cosine` the similarity of the two as vectors, and `snr` the ratio of the reference's squares to those of
    the difference, in dB: infinite where nothing differs.  Elements that are not finite are left out where both sides
    have the same; otherwise the differences are infinite.
    """

    largest: float
    mean: float
    relative: float
    cosine: float
    snr: float

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        names = ("largest", "mean", "relative", "cosine", "snr")
        return {name: getattr(self, name) for name in names}


def measures(mine: torch.Tensor, theirs: torch.Tensor) -> Measures | None:
    """The numbers for two tensors of one shape; None for other ones."""
    theirs = as_real(theirs).detach().cpu()
    if mine.shape != theirs.shape or mine.is_complex():
        return None
    one, other = mine.double().flatten(), theirs.double().flatten()
    odd = ~(one.isfinite() & other.isfinite())
    alike = odd & ((one == other) | (one.isnan() & other.isnan()))
    one, other = one[~alike], other[~alike]
    if not one.numel():
        return Measures(0.0, 0.0, 0.0, 1.0, math.inf)
    apart = (one - other).abs().nan_to_num(nan=math.inf)
    largest, size = float(apart.max()), float(other.abs().max())
    noise, signal = float(apart.square().sum()), float(other.square().sum())
    lengths = math.sqrt(float(one.square().sum())) * math.sqrt(signal)
    return Measures(
        largest,
        float(apart.mean()),
        0.0 if largest == 0 else largest / size if size and math.isfinite(size) else math.inf,
        float(one @ other) / lengths if lengths and math.isfinite(lengths) else (1.0 if noise == 0 else 0.0),
        math.inf if noise == 0 else _decibels(signal, noise),
    )


def _decibels(signal: float, noise: float) -> float:
    if not signal or not math.isfinite(noise) or not math.isfinite(signal):
        return -math.inf
    return 10 * math.log10(signal / noise)


def numbers_table(rows: Sequence[tuple[str, Measures]]) -> list[str]:
    """A line for each output, below a line of titles; of many outputs those with the least SNR."""
    if not rows:
        return []
    shown = list(rows)
    if len(rows) > _MOST_ROWS:
        worst = sorted(range(len(rows)), key=lambda place: rows[place][1].snr)[: _MOST_ROWS - 1]
        shown = [rows[place] for place in sorted(worst)]
    width = max(len("output"), *(len(name) for name, _ in shown))
    lines = [
        f"{'output':<{width}}  {'largest error':>13}  {'mean error':>10}  {'relative':>8}  {'cosine':>9}  {'SNR':>9}"
    ]
    lines += [
        f"{name:<{width}}  {item.largest:>13.3g}  {item.mean:>10.3g}  {item.relative:>8.2g}  {item.cosine:>9.6f}  "
        f"{_snr(item.snr):>9}"
        for name, item in shown
    ]
    if len(shown) < len(rows):
        lines.append(f"and {len(rows) - len(shown)} outputs more, whose SNR is higher")
    return lines


def _snr(value: float) -> str:
    return f"{value:.1f} dB" if math.isfinite(value) else "exact" if value > 0 else "none"
