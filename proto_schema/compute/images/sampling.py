"""Rows that sample an image at coordinates, and the sampling itself, for any number of spatial axes.

A sample is a sum over the corners around it: two along each axis for "linear", four for "cubic", one for "nearest".
Each corner is one gather over all samples and channels. A corner outside of the image is 0, or is moved inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, made, pieces, sizes_in
from proto_schema.compute.nn.numbers import rounded_to, wide
from proto_schema.compute.rows import row

__all__ = ["sampled"]

_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}
Inside = Callable[[Array, int], Array]


def _sampled_cost(call: Call, data: Array, grid: Array) -> Cost:
    """A gather for each of the corners around a place."""
    axes = max(0, data.ndim - 2)
    corners = {"linear": 2, "cubic": 4}.get(_MODES.get(call.text("mode", "linear")) or "", 1) ** axes
    places = grid.size // max(1, axes)
    each = places // max(1, grid.shape[0]) if grid.ndim else 0
    results = places * (data.shape[1] if data.ndim > 1 else 1)
    work = corners * (4 * results + 20 * places * (1 + axes)) + pieces(10 * corners * len(data))
    scratch = 4 * results // max(1, len(data)) + each * (30 + 12 * axes) + 4 * grid.size + 2 * data.size + results
    return Cost(work, WIDE * results, WIDE * scratch)


@row("GridSample", cost=_sampled_cost)
def grid_sample(call: Call, data: Array, grid: Array) -> Array:
    """(N, C, sizes) at grid (N, places, axes), whose coordinates run from -1 to 1, the last axis first."""
    axes, sizes = data.ndim - 2, data.shape[2:]
    if grid.ndim != data.ndim or grid.shape[-1] != axes or grid.shape[0] != data.shape[0]:
        call.fail(f"a grid of shape {grid.shape} does not fit data of shape {data.shape}")
    mode, padding = _MODES.get(call.text("mode", "linear")), call.text("padding_mode", "zeros")
    if mode is None or padding not in ("zeros", "border", "reflection"):
        call.fail(f"mode {call.text('mode')!r} or padding_mode {padding!r} is not one of the specification")
    aligned = bool(call.attribute("align_corners", 0))
    places = wide(grid).reshape(grid.shape[0], prod(grid.shape[1:-1]), axes)
    kind = places.dtype.type
    coordinates = []
    for axis, size in enumerate(sizes):
        at = places[:, :, axes - 1 - axis]
        at = (at + 1) / kind(2) * kind(size - 1) if aligned else ((at + 1) * kind(size) - 1) / kind(2)
        if padding == "reflection":
            at = _reflected(at, *_borders(size, aligned))
        coordinates.append(at)

    def inside(index: Array, size: int) -> Array:
        low, high = _borders(size, aligned)
        return _reflected(index, low, high).astype(np.int64) if padding == "reflection" else index.clip(0, size - 1)

    smooth = mode != "nearest"
    values = data.astype(np.float64) if smooth and data.dtype.kind in "iub" else wide(data) if smooth else data
    moved = inside if padding != "zeros" else None
    shape = (data.shape[0], data.shape[1], *grid.shape[1:-1])
    result = np.zeros((data.shape[0], data.shape[1], places.shape[1]), values.dtype)
    if data.size:
        for item in range(data.shape[0]):
            result[item] = sampled(values[item], [at[item] for at in coordinates], mode, moved)
    return (
        rounded_to(result, data.dtype).reshape(shape) if smooth and data.dtype.kind in "iu" else result.reshape(shape)
    )


def _borders(size: int, aligned: bool) -> tuple[float, float]:
    return (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)


def _reflected(at: Array, low: float, high: float) -> Array:
    """Mirrored at both borders until inside."""
    extent = high - low
    if extent <= 0:
        return np.zeros_like(at)
    folded = np.mod(at - low, 2 * extent)
    return np.asarray(
        (low + np.where(folded > extent, 2 * extent - folded, folded)).astype(np.result_type(at, np.float32))
    )


def sampled(data: Array, coordinates: Sequence[Array], mode: str, inside: Inside | None = None) -> Array:
    """(C, sizes) at coordinates, one array of places an axis, gives (C, places). `inside` moves indices into the
    image; without it what is outside is 0."""
    sizes = data.shape[1:]
    flat = data.reshape(data.shape[0], -1)
    choices = [_corners(at, mode) for at in coordinates]
    total: Array | None = None
    for corner in product(*[range(len(choice)) for choice in choices]):
        index: Array = np.zeros(len(coordinates[0]), np.int64)
        weight: Array | None = None
        for axis, (size, pick) in enumerate(zip(sizes, corner, strict=True)):
            place, share = choices[axis][pick]
            if inside is None:
                present = (place >= 0) & (place < size)
                share = np.where(present, share, share.dtype.type(0))
                place = np.clip(place, 0, size - 1)
            else:
                place = np.clip(inside(place, size), 0, size - 1)
            index = index * size + place
            weight = share if weight is None else weight * share
        assert weight is not None
        values = flat.take(index, axis=1)
        if mode == "nearest":
            absent = weight == 0
            if absent.any():
                values[:, absent] = "" if values.dtype == object else 0
            return values
        values = values * weight.astype(data.dtype)
        total = values if total is None else np.add(total, values, out=total)
    assert total is not None
    return total


def _corners(at: Array, mode: str) -> list[tuple[Array, Array]]:
    """Indices and weights along an axis. A coordinate that is not finite counts as outside."""
    at = np.nan_to_num(at, nan=-9e8, posinf=9e8, neginf=-9e8).clip(-1e9, 1e9)
    if mode == "nearest":
        return [(np.rint(at).astype(np.int64), np.ones_like(at))]
    base = np.floor(at)
    rest, first = at - base, base.astype(np.int64)
    if mode == "linear":
        return [(first, 1 - rest), (first + 1, rest)]
    a = at.dtype.type(-0.75)

    def near(x: Array) -> Array:
        return np.asarray(((a + 2) * x - (a + 3)) * x * x + 1)

    def far(x: Array) -> Array:
        return np.asarray(((a * x - 5 * a) * x + 8 * a) * x - 4 * a)

    weights = (far(1 + rest), near(rest), near(1 - rest), far(2 - rest))
    return [(first + shift - 1, weight) for shift, weight in enumerate(weights)]


def _grid_cost(call: Call, theta: Array, size: Array) -> Cost:
    sizes = sizes_in(size)[2:]
    found = made([*sizes, len(sizes) + 1], WIDE, times=10, scratch=4)
    results = made([theta.shape[0] if theta.ndim else 1, *sizes, len(sizes)], WIDE, times=4)
    lines = WIDE * 4 * max([0, *sizes])
    return Cost(found.work + results.work, results.results, found.results + found.scratch + results.scratch + lines)


@row("AffineGrid", cost=_grid_cost)
def affine_grid(call: Call, theta: Array, size: Array) -> Array:
    """(N, axes, axes + 1) times the coordinates of an image of that size, the last axis first."""
    sizes = [int(item) for item in size[2:]]
    if theta.shape[1:] != (len(sizes), len(sizes) + 1):
        call.fail(f"theta has shape {theta.shape}, and images have {len(sizes)} axes")
    lines = []
    for count in sizes:
        if call.attribute("align_corners", 0):
            lines.append(np.linspace(-1, 1, count) if count > 1 else np.zeros(count))
        else:
            lines.append((2 * np.arange(count) + 1) / max(count, 1) - 1)
    places = [*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(sizes)]
    flat = np.stack(places, axis=-1).reshape(-1, len(sizes) + 1).astype(wide(theta).dtype)
    found: Array = np.matmul(flat, wide(theta).swapaxes(1, 2))
    return found.reshape(theta.shape[0], *sizes, len(sizes))
