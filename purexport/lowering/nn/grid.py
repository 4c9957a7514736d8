"""Sampling an image at positions given by a grid, and making such grids.

These are ONNX GridSample (opset 16, volumes 20) and AffineGrid (opset 20) where the opset has them. Before, the corners
of each sample are gathered and weighed, with the arithmetic of torch's kernel for padding. A grid names the last axis
first: x, then y, then z.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.sizes import times, value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import dims_of
from purexport.lowering.support.kernels import largest, smallest

_MODES = ("bilinear", "nearest", "bicubic")
_RENAMED = {"bilinear": "linear", "bicubic": "cubic"}  # the names since opset 20
_PADDING_MODES = ("zeros", "border", "reflection")


@lower("aten::grid_sampler", "aten::grid_sampler_2d", "aten::grid_sampler_3d")
def grid_sampler(
    op: Emitter, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """aten::grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners)
    -> Tensor

    `interpolation_mode` is 0 bilinear, 1 nearest, 2 bicubic; `padding_mode` is 0 zeros, 1 border, 2 reflection. Nearest
    rounds ties to even.
    """
    if interpolation_mode >= len(_MODES) or padding_mode >= len(_PADDING_MODES):
        raise UnsupportedForm(
            f"of mode {interpolation_mode} and padding {padding_mode} has no ONNX form", code="no-onnx-form"
        )
    mode, padding = _MODES[interpolation_mode], _PADDING_MODES[padding_mode]
    # ONNX Runtime has no kernel of opset 16 for float64; halves are computed in float32
    runs = input.dtype != dtypes.DOUBLE or op.runs("GridSample", input.dtype)
    if op.has("GridSample") and runs and (input.rank == 4 or op.means_today("GridSample")):
        name = _RENAMED.get(mode, mode) if op.means_today("GridSample") else mode
        return op.GridSample(input, grid, mode=name, padding_mode=padding, align_corners=int(align_corners))
    return _sampled(op, input, grid, mode, padding, align_corners)


def _sampled(op: Emitter, value: Value, grid: Value, mode: str, padding: str, align_corners: bool) -> Value:
    batch, channels, *sizes = dims_of(op, value)
    wanted = dims_of(op, grid)[1:-1]
    corners = [
        _neighbours(op, grid, axis, size, mode, padding, align_corners) for axis, size in enumerate(reversed(sizes))
    ][::-1]
    flat = op.Reshape(value, [0, 0, -1])
    plane, shape = (op.ints([batch, depth, value_of(op, times(op, *wanted))]) for depth in (1, channels))
    total: Value | None = None
    for corner in itertools.product(*corners):
        found = _taken(op, flat, corner, sizes, shape, plane, padding)
        total = found if total is None else op.Add(total, found)
    assert total is not None
    return op.Reshape(total, op.ints([0, 0, *wanted]))


def _pixel(op: Emitter, grid: Value, axis: int, count: Value, align_corners: bool) -> Value:
    """The sampled positions of one axis, in pixels: [N, ...] without the last axis of the grid."""
    place = op.Gather(grid, op.const(axis), axis=grid.rank - 1)
    one, half = op.like(1, grid), op.like(0.5, grid)
    if align_corners:
        return op.Mul(op.Mul(op.Add(place, one), half), op.Sub(count, one))
    return op.Mul(op.Sub(op.Mul(op.Add(place, one), count), one), half)


def _bounded(op: Emitter, pixel: Value, count: Value, padding: str, align_corners: bool) -> Value:
    """Positions with those beyond the ends moved to where the padding reads; "zeros" leaves them outside."""
    one = op.like(1, pixel)
    if padding == "reflection":
        low = op.like(0.0 if align_corners else -0.5, pixel)
        span = op.Sub(count, one) if align_corners else count
        pixel = _reflected(op, pixel, low, span)
    if padding != "zeros":
        pixel = smallest(op, largest(op, pixel, op.like(0, pixel)), op.Sub(count, one))
    return pixel


def _reflected(op: Emitter, pixel: Value, low: Value, span: Value) -> Value:
    """`pixel` reflected back and forth between low and low + span."""
    two = op.like(2, pixel)
    # an axis of one pixel has a span of 0: every sample is that pixel
    safe = largest(op, span, op.like(1e-6, pixel))
    away = op.Abs(op.Sub(pixel, low))
    rest = op.Sub(away, op.Mul(op.Floor(op.Div(away, op.Mul(safe, two))), op.Mul(safe, two)))
    return op.Add(smallest(op, rest, op.Sub(op.Mul(safe, two), rest)), low)


def _neighbours(
    op: Emitter, grid: Value, axis: int, size: Any, mode: str, padding: str, align_corners: bool
) -> list[tuple[Value, Value | None]]:
    """The pixels that a sample reads along one axis, with their weights: two, four of a cubic, or the nearest one.

    torch bounds the sample, or each of the four pixels.
    """
    count = op.like(size, grid)
    pixel = _pixel(op, grid, axis, count, align_corners)
    one = op.like(1, pixel)
    if mode == "bicubic":
        before = op.Floor(pixel)
        part = op.Sub(pixel, before)
        found: list[tuple[Value, Value | None]] = []
        for tap in (-1, 0, 1, 2):
            place = op.Add(before, op.like(tap, pixel))
            weight = _cubic_weight(op, op.Abs(op.Sub(part, op.like(tap, pixel))), is_near=tap in (0, 1))
            found.append((_bounded(op, place, count, padding, align_corners), weight))
        return found
    position = _bounded(op, pixel, count, padding, align_corners)
    if mode == "nearest":
        return [(op.Round(position), None)]
    before = op.Floor(position)
    part = op.Sub(position, before)
    return [(before, op.Sub(one, part)), (op.Add(before, one), part)]


def _cubic_weight(op: Emitter, distance: Value, *, is_near: bool) -> Value:
    """Keys' cubic convolution (1981) with torch's parameter, within a distance of 1 or from there to 2."""
    a = -0.75
    # by falling powers of the distance
    numbers = (a + 2, -(a + 3), 0, 1) if is_near else (a, -5 * a, 8 * a, -4 * a)
    result = op.like(numbers[0], distance)
    for number in numbers[1:]:
        result = op.Add(op.Mul(result, distance), op.like(number, distance))
    return result


def _taken(
    op: Emitter,
    flat: Value,
    corner: Sequence[tuple[Value, Value | None]],
    sizes: Sequence[Any],
    shape: Any,
    plane: Any,
    padding: str,
) -> Value:
    """The elements at one corner of each sample, times their weights: [N, C, samples]."""
    index: Value = op.const(0)
    shares = [share for _, share in corner if share is not None]
    for (position, _), size in zip(corner, sizes, strict=True):
        last = op.Sub(op.like(size, position), op.like(1, position))
        inside = smallest(op, largest(op, position, op.like(0, position)), last)
        step = op.cast(inside, dtypes.INT64)
        index = op.Add(op.Mul(index, value_of(op, size)), step)
        if padding == "zeros":
            shares.append(op.cast(_is_same(op, inside, position), position.dtype))
    found = op.GatherElements(flat, op.Expand(op.Reshape(index, plane), shape), axis=2)
    return op.Mul(found, op.Reshape(functools.reduce(op.Mul, shares), plane)) if shares else found


def _is_same(op: Emitter, one: Value, other: Value) -> Value:
    return op.Not(op.Or(op.Less(one, other), op.Greater(one, other)))


@lower("aten::affine_grid_generator")
def affine_grid_generator(op: Emitter, theta: Value, size: Sequence[Any], align_corners: bool) -> Value:
    """aten::affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor

    `theta` is [N, d, d + 1] and `size` [N, C, ...d]; the result is a grid [N, ...d, d]. ONNX Runtime's AffineGrid puts
    a single pixel at -1 when corners are aligned, torch at 0.
    """
    if op.has("AffineGrid") and not (align_corners and any(isinstance(n, Value) or n == 1 for n in size[2:])):
        sizes = op.ints(size)
        wanted = sizes if isinstance(sizes, Value) else op.const(sizes)
        return op.AffineGrid(theta, wanted, align_corners=int(align_corners))
    spatial = list(size[2:])
    rank = len(spatial)
    whole = op.ints([*spatial, 1])
    columns = [
        op.Expand(op.Unsqueeze(_steps(op, length, theta, align_corners), _others(rank, axis)), whole)
        for axis, length in enumerate(spatial)
    ][::-1]
    ones = op.Expand(op.like([1.0], theta), whole)
    base = op.Reshape(op.Concat(*columns, ones, axis=rank), [1, -1, rank + 1])
    grid = op.MatMul(base, op.Transpose(theta, perm=[0, 2, 1]))
    return op.Reshape(grid, op.ints([0, *spatial, rank]))


def _others(rank: int, axis: int) -> list[int]:
    return [other for other in range(rank + 1) if other != axis]


def _steps(op: Emitter, size: Any, like: Value, align_corners: bool) -> Value:
    """The coordinates of the pixels of one axis, from -1 to 1; 0 for a single pixel."""
    end = op.const(size) if not isinstance(size, Value) else size
    steps, one = op.cast(op.Range(op.const(0), end, op.const(1)), like.dtype), op.like(1, like)
    count = op.cast(end, like.dtype)
    if not align_corners:
        return op.Sub(op.Div(op.Add(op.Mul(steps, op.like(2, like)), one), count), one)
    last = op.Sub(count, one)
    first = op.Neg(smallest(op, last, one))
    return op.Add(op.Div(op.Mul(steps, op.like(2, like)), largest(op, last, one)), first)
