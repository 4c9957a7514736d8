"""Forms of GridSample, AffineGrid and DeformConv: the corners of each sample are gathered and weighed.

A grid names the last axis first: x, then y, then z.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from proto_schema.legalization.operators import (
    DOUBLE,
    FLOAT,
    INT64,
    Operators,
    RefusedError,
    Value,
    dtype_of,
    rank_of,
)
from proto_schema.legalization.sizes import item, numbers_below, quotient, times, value_of
from proto_schema.legalization.table import older

_MOST = 1 << 16  # elements of a grid that is a constant


@older("GridSample", before=20, is_asked_first=True)  # opset 16 says nothing of volumes
def grid_sample_of_volumes(
    op: Operators, X: Value, grid: Value, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Value | None:
    """Images stay; of others, and where there is no kernel, the corners of each sample are gathered and weighed."""
    if rank_of(X) == 4 and (dtype_of(X) != DOUBLE or op.runs("GridSample", DOUBLE)):
        return None
    return grid_sample(op, X, grid, align_corners, mode, padding_mode)


@older("GridSample", before=16)
def grid_sample(
    op: Operators, X: Value, grid: Value, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Value:
    """The corners of each sample are gathered, weighed and added."""
    batch, channels, *sizes = (op.dim(X, axis) for axis in range(rank_of(X)))
    wanted = [op.dim(grid, axis) for axis in range(1, rank_of(grid) - 1)]
    corners = [
        _neighbours(op, grid, axis, size, mode, padding_mode, bool(align_corners))
        for axis, size in enumerate(reversed(sizes))
    ][::-1]
    flat = op.Reshape(X, [0, 0, -1])
    plane, shape = (op.ints([batch, depth, times(op, *wanted)]) for depth in (1, channels))
    found = [_taken(op, flat, corner, sizes, shape, plane, padding_mode) for corner in itertools.product(*corners)]
    return op.Reshape(functools.reduce(op.Add, found), op.ints([0, 0, *wanted]))


def _number(op: Operators, size: Any, like: Value) -> Value:
    """A size in the data type of a value."""
    return op.like(size, like) if isinstance(size, int) else op.cast(size, like.dtype)


def _pixel(op: Operators, grid: Value, axis: int, size: Value, align_corners: bool) -> Value:
    """The sampled positions of one axis, in pixels: [N, ...] without the last axis of the grid."""
    place = op.Gather(grid, op.const(axis), axis=rank_of(grid) - 1)
    one, half = op.like(1, grid), op.like(0.5, grid)
    if align_corners:
        return op.Mul(op.Mul(op.Add(place, one), half), op.Sub(size, one))
    return op.Mul(op.Sub(op.Mul(op.Add(place, one), size), one), half)


def _bounded(op: Operators, pixel: Value, size: Value, padding: str, align_corners: bool) -> Value:
    """Positions with those beyond the ends moved to where the padding reads; "zeros" leaves them outside."""
    one = op.like(1, pixel)
    if padding == "reflection":
        low = op.like(0.0 if align_corners else -0.5, pixel)
        span = op.Sub(size, one) if align_corners else size
        pixel = _reflected(op, pixel, low, span)
    if padding != "zeros":
        pixel = op.Min(op.Max(pixel, op.like(0, pixel)), op.Sub(size, one))
    return pixel


def _reflected(op: Operators, pixel: Value, low: Value, span: Value) -> Value:
    """`pixel` reflected back and forth between low and low + span."""
    two = op.like(2, pixel)
    # an axis of one pixel has a span of 0: every sample is that pixel
    safe = op.Max(span, op.like(1e-6, pixel))
    away = op.Abs(op.Sub(pixel, low))
    rest = op.Sub(away, op.Mul(op.Floor(op.Div(away, op.Mul(safe, two))), op.Mul(safe, two)))
    return op.Add(op.Min(rest, op.Sub(op.Mul(safe, two), rest)), low)


def _neighbours(
    op: Operators, grid: Value, axis: int, size: Any, mode: str, padding: str, align_corners: bool
) -> list[tuple[Value, Value | None]]:
    """The pixels that a sample reads along one axis, with their weights: two, four of a cubic, or the nearest one.

    The sample is bounded, or each of the four pixels.
    """
    number = _number(op, size, grid)
    pixel = _pixel(op, grid, axis, number, align_corners)
    one = op.like(1, pixel)
    if mode == "cubic":
        before = op.Floor(pixel)
        part = op.Sub(pixel, before)
        found: list[tuple[Value, Value | None]] = []
        for tap in (-1, 0, 1, 2):
            place = op.Add(before, op.like(tap, pixel))
            weight = _cubic_weight(op, op.Abs(op.Sub(part, op.like(tap, pixel))), is_near=tap in (0, 1))
            found.append((_bounded(op, place, number, padding, align_corners), weight))
        return found
    position = _bounded(op, pixel, number, padding, align_corners)
    if mode == "nearest":
        return [(op.Round(position), None)]
    before = op.Floor(position)
    part = op.Sub(position, before)
    return [(before, op.Sub(one, part)), (op.Add(before, one), part)]


def _cubic_weight(op: Operators, distance: Value, *, is_near: bool) -> Value:
    """Keys' cubic convolution (1981) of the parameter -0.75, within a distance of 1 or from there to 2."""
    a = -0.75
    # by falling powers of the distance
    numbers = (a + 2, -(a + 3), 0, 1) if is_near else (a, -5 * a, 8 * a, -4 * a)
    result = op.like(numbers[0], distance)
    for number in numbers[1:]:
        result = op.Add(op.Mul(result, distance), op.like(number, distance))
    return result


def _taken(
    op: Operators,
    flat: Value,
    corner: Sequence[tuple[Value, Value | None]],
    sizes: Sequence[Any],
    shape: Any,
    plane: Any,
    padding: str,
) -> Value:
    """The elements at one corner of each sample, times their weights: [N, C, samples]."""
    index: Value = None
    shares = [share for _, share in corner if share is not None]
    for (position, _), size in zip(corner, sizes, strict=True):
        last = op.Sub(_number(op, size, position), op.like(1, position))
        inside = op.Min(op.Max(position, op.like(0, position)), last)
        step = op.cast(inside, INT64)
        index = step if index is None else op.Add(op.Mul(index, value_of(op, size)), step)
        if padding == "zeros":
            differs = op.Or(op.Less(inside, position), op.Greater(inside, position))
            shares.append(op.cast(op.Not(differs), dtype_of(position)))
    found = op.GatherElements(flat, op.Expand(op.Reshape(index, plane), shape), axis=2)
    return op.Mul(found, op.Reshape(functools.reduce(op.Mul, shares), plane)) if shares else found


@older("AffineGrid", before=20)
def affine_grid(op: Operators, theta: Value, size: Value, align_corners: int = 0) -> Value:
    """The grid of all positions, times the matrices."""
    count = size.shape[0] if size.shape else None
    if not isinstance(count, int):
        raise RefusedError("the rank of its grid is not known")
    return moved_grid(op, theta, [item(op, size, axis) for axis in range(2, count)], bool(align_corners), -1.0)


def moved_grid(op: Operators, theta: Value, sizes: Sequence[Any], align_corners: bool, single: float) -> Value:
    """`affine_grid` of these sizes; where corners are aligned, a single pixel is at `single`."""
    rank, dtype = len(sizes), dtype_of(theta)
    wide = op.cast(theta, dtype if dtype == DOUBLE else FLOAT)
    lines = [_line(op, size, wide, align_corners, single) for size in sizes]
    arrays = [line.array() for line in lines]
    if all(array is not None for array in arrays) and np.prod([len(array) for array in arrays]) <= _MOST:
        grid = np.meshgrid(*arrays, indexing="ij")
        points = np.stack([*reversed(grid), np.ones_like(grid[0])], axis=-1).reshape(1, -1, rank + 1)
        base = op.const(points, dtype_of(wide))
    else:
        whole = op.ints([*sizes, 1])
        columns = [
            op.Expand(op.Unsqueeze(line, [other for other in range(rank + 1) if other != axis]), whole)
            for axis, line in enumerate(lines)
        ]
        ones = op.Expand(op.like(1, wide), whole)
        base = op.Reshape(op.Concat(*reversed(columns), ones, axis=rank), [1, -1, rank + 1])
    grid = op.MatMul(base, op.Transpose(wide, perm=[0, 2, 1]))
    return op.cast(op.Reshape(grid, op.ints([0, *sizes, rank])), dtype)


def _line(op: Operators, size: Any, like: Value, align_corners: bool, single: float) -> Value:
    """The coordinates of the pixels of one axis, from -1 to 1."""
    if isinstance(size, int):
        if align_corners:
            return op.const(np.linspace(-1, 1, size) if size > 1 else np.full(size, single), dtype_of(like))
        return op.const((2 * np.arange(size) + 1) / max(size, 1) - 1, dtype_of(like))
    steps, one = op.cast(numbers_below(op, size), dtype_of(like)), op.like(1, like)
    number = op.cast(size, dtype_of(like))
    if not align_corners:
        return op.Sub(op.Div(op.Add(op.Mul(steps, op.like(2, like)), one), number), one)
    last = op.Sub(number, one)
    first = op.like(-1, like) if single else op.Neg(op.Min(last, one))
    return op.Add(op.Div(op.Mul(steps, op.like(2, like)), op.Max(last, one)), first)


@older("DeformConv", before=19)
def deform_conv(
    op: Operators,
    X: Value,
    W: Value,
    offset: Value,
    B: Value | None = None,
    mask: Value | None = None,
    dilations: Sequence[int] = (1, 1),
    group: int = 1,
    kernel_shape: Sequence[int] = (),
    offset_group: int = 1,
    pads: Sequence[int] = (0, 0, 0, 0),
    strides: Sequence[int] = (1, 1),
) -> Value:
    """A grid of samples, and one product of matrices."""
    outputs, taken, *taps = (op.dim(W, axis) for axis in range(rank_of(W)))
    sizes = [op.dim(offset, axis) for axis in (2, 3)]
    if len(taps) != 2 or not all(isinstance(size, int) for size in (outputs, taken, *taps)):
        raise RefusedError("the shape of its weight is not known, or has other than two axes of space")
    steps = list(zip(strides, pads, dilations, strict=False))
    read = _read_at(op, X, taps, offset, steps, offset_group)
    plane, inside = times(op, *sizes), taps[0] * taps[1]
    if mask is not None:
        read = op.Reshape(read, op.ints([-1, offset_group, taken * group // offset_group, inside, plane]))
        read = op.Mul(read, op.Reshape(mask, op.ints([-1, offset_group, 1, inside, plane])))
    columns = op.Reshape(read, op.ints([-1, group, taken * inside, plane]))
    kernels = op.Reshape(W, [1, group, outputs // group, taken * inside])
    result = op.Reshape(op.MatMul(kernels, columns), op.ints([-1, outputs, *sizes]))
    return result if B is None else op.Add(result, op.Reshape(B, [1, -1, 1, 1]))


def _read_at(
    op: Operators, x: Value, taps: Sequence[int], offset: Value, steps: Sequence[tuple[int, int, int]], parts: int
) -> Value:
    """The input sampled at each tap of each output element: [n * parts, c / parts, taps * oh, ow]."""
    channels, *sizes = (op.dim(x, axis) for axis in (1, 2, 3))
    wanted = [op.dim(offset, axis) for axis in (2, 3)]
    moved = op.Reshape(offset, op.ints([-1, *taps, 2, *wanted]))
    axes = []
    for axis, (stride, pad, dilation) in enumerate(steps):
        # the position of each tap on this axis before the offset is added
        first = op.const(np.arange(taps[axis]).reshape(-1, 1) * dilation - pad)
        at = op.Add(first, op.Mul(op.Unsqueeze(numbers_below(op, wanted[axis]), [0]), op.const(stride)))
        at = op.Unsqueeze(op.cast(at, dtype_of(offset)), [1, 3] if axis == 0 else [0, 2])
        place = op.Add(op.Gather(moved, op.const(axis), axis=3), at)
        # GridSample without aligned corners has pixel p of n at (2p + 1) / n - 1
        one, two = op.like(1, offset), op.like(2, offset)
        grid = op.Sub(op.Div(op.Add(op.Mul(place, two), one), _number(op, sizes[axis], offset)), one)
        axes.append(op.Unsqueeze(grid, [5]))
    both = op.Concat(*reversed(axes), axis=5)
    grid = op.Reshape(both, op.ints([-1, times(op, *taps, wanted[0]), wanted[1], 2]))
    images = x if parts == 1 else op.Reshape(x, op.ints([-1, quotient(op, channels, parts), *sizes]))
    return op.GridSample(images, grid, mode="linear", padding_mode="zeros", align_corners=0)
