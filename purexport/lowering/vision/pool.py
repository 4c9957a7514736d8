"""torchvision's pools of whole pixels: roi_pool and ps_roi_pool.

The corners of a region are rounded to pixels, and each bin covers a range of rows and a range of columns. ONNX
MaxRoiPool is torchvision's roi_pool. Where it does not run, and for the positions of the maxima, the pixels of each bin
are gathered.
"""

from __future__ import annotations

from typing import NamedTuple

from proto_schema.legalization.sizes import value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.kernels import largest, smallest
from purexport.lowering.support.regions import (
    Pixels,
    bin_numbers,
    channel_mapping,
    channels_first,
    clip_positions,
    has_kernel,
    max_count,
    outer_weights,
    roi_corner,
    step_numbers,
)


@lower("torchvision::roi_pool")
def roi_pool(
    op: Emitter, input: Value, rois: Value, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Value, Value]:
    """torchvision::roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width)
    -> (Tensor, Tensor)

    `input` is [n, c, h, w] and `rois` [k, 5]. The results are the largest pixel of each bin, and its position in the
    image.
    """
    pixels = Pixels(op, input)
    y = _reach(op, rois, 1, pixels.height, spatial_scale, pooled_height, 1)
    x = _reach(op, rois, 0, pixels.width, spatial_scale, pooled_width, 1)
    # a bin that is smaller than others reads its last pixel several times
    rows, columns = (smallest(op, axis.pixels, op.Sub(axis.end, op.like(1, axis.end))) for axis in (y, x))
    rows, columns = (op.cast(largest(op, item, op.like(0, item)), dtypes.INT64) for item in (rows, columns))
    found = pixels.read(rois, rows, columns)
    empty = op.Not(op.And(*_each_bin(op, op.Less(y.start, y.end), op.Less(x.start, x.end))))
    if has_kernel(op, "MaxRoiPool"):
        shape = [pooled_height, pooled_width]
        result = op.MaxRoiPool(input, rois, pooled_shape=shape, spatial_scale=float(spatial_scale))
    else:
        most = op.ReduceMax(found, axes=[2, 4], keepdims=0)
        result = channels_first(op, op.Where(empty, op.like(0, most), most))
    # of equal pixels the first one by row, then by column
    ordered = op.Transpose(found, perm=[0, 1, 3, 5, 2, 4])
    first = op.ArgMax(op.Reshape(ordered, [0, 0, 0, 0, -1]), axis=4, keepdims=0)
    wide = value_of(op, _steps_of(op, x))
    row = op.Div(first, wide)
    column = op.Sub(first, op.Mul(row, wide))
    tops, lefts = (op.cast(item, dtypes.INT64) for item in _each_bin(op, y.start, x.start))
    place = op.Add(op.Mul(op.Add(tops, row), value_of(op, pixels.width)), op.Add(lefts, column))
    places = op.Where(empty, op.const(-1), place)
    return result, channels_first(op, op.cast(places, dtypes.INT32))


@lower("torchvision::ps_roi_pool")
def ps_roi_pool(
    op: Emitter, input: Value, rois: Value, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Value, Value]:
    """torchvision::ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,
    SymInt pooled_width) -> (Tensor, Tensor)

    `input` is [n, c * bins, h, w]. The results are the mean of each bin over its own c channels, and which channel each
    element reads.
    """
    shape = (pooled_height, pooled_width)
    pixels = Pixels(op, input, shape)
    # torchvision's kernel never reads the last row and the last column
    y = _reach(op, rois, 1, pixels.height, spatial_scale, pooled_height, 0)
    x = _reach(op, rois, 0, pixels.width, spatial_scale, pooled_width, 0)
    kept = [op.Less(axis.pixels, axis.end) for axis in (y, x)]
    rows, columns = (
        op.cast(op.Where(inside, axis.pixels, op.like(0, axis.pixels)), dtypes.INT64)
        for inside, axis in zip(kept, (y, x), strict=True)
    )
    found = op.Mul(pixels.read(rois, rows, columns), outer_weights(op, *(op.cast(item, input.dtype) for item in kept)))
    area = op.Mul(*_each_bin(op, op.Sub(y.end, y.start), op.Sub(x.end, x.start)))
    mean = op.Div(op.ReduceSum(found, axes=[2, 4], keepdims=0), largest(op, area, op.like(1, area)))
    return channels_first(op, mean), channel_mapping(op, input, rois, shape)


class _Reach(NamedTuple):
    """The bins of one axis: start and end of each, [k, bins, 1], and its pixels, [k, bins, steps]."""

    start: Value
    end: Value
    pixels: Value


def _reach(op: Emitter, rois: Value, axis: int, size: object, scale: float, bins: int, last: int) -> _Reach:
    """The bins of an axis (0: x, 1: y) with that many pixels, as floats.

    `last` is 1 where the far corner of a region and the last pixel of the image belong to it, else 0.
    """
    corners = _rounded(op, op.Mul(rois, op.like(scale, rois)))
    begin, one = roi_corner(op, corners, axis, 0), op.like(1, rois)
    extent = largest(op, op.Add(op.Sub(roi_corner(op, corners, axis, 1), begin), op.like(last, rois)), one)
    step = op.Div(extent, op.like(bins, rois))
    limit = op.Sub(op.like(size, rois), op.like(1 - last, rois))
    start = clip_positions(op, op.Add(op.Floor(op.Mul(bin_numbers(op, bins, rois), step)), begin), limit)
    end = clip_positions(op, op.Add(op.Ceil(op.Mul(bin_numbers(op, bins, rois, 1), step)), begin), limit)
    most = max_count(op, op.Sub(end, start))
    return _Reach(start, end, op.Add(start, step_numbers(op, most, rois.dtype)))


def _steps_of(op: Emitter, axis: _Reach) -> Value:
    size: Value = op.Gather(op.Shape(axis.pixels), op.const(2), axis=0)
    return size


def _each_bin(op: Emitter, y: Value, x: Value) -> tuple[Value, Value]:
    """Values for the rows and for the columns of bins, [k, bins, 1], shaped to broadcast: [k, height, 1, 1] and [k, 1,
    width, 1].
    """
    return op.Unsqueeze(y, [3]), op.Unsqueeze(x, [1])


def _rounded(op: Emitter, value: Value) -> Value:
    """Rounded to integers, with halves away from zero."""
    size = op.Abs(value)
    whole = op.Floor(size)
    up = op.cast(op.Not(op.Less(op.Sub(size, whole), op.like(0.5, value))), value.dtype)
    result: Value = op.Mul(op.Sign(value), op.Add(whole, up))
    return result
