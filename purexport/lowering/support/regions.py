"""Regions of an image, read pixel by pixel: what the pools of regions have in common.

The rows and columns of a region are read by their own positions, so that one Gather takes all crossings. All regions
read as many pixels on an axis as the largest one needs; what a smaller region reads too much is a repeated pixel or has
weight zero.
"""

from __future__ import annotations

from typing import Any

import torch

from proto_schema.legalization.sizes import numbers_below, times, value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import permute, reshape
from purexport.lowering.support.kernels import largest, smallest


def has_kernel(op: Emitter, op_type: str) -> bool:
    """Whether this opset has the operator in a version that ONNX Runtime computes; it does not compute the versions
    that take bfloat16.
    """
    return op.has(op_type) and not op.takes(op_type, dtypes.BFLOAT16)


def image_indices(op: Emitter, rois: Value) -> Value:
    """The image of each region, int64 [k]."""
    found: Value = op.cast(op.Gather(rois, op.const(0), axis=1), dtypes.INT64)
    return found


def roi_columns(op: Emitter, rois: Value, start: int, end: int) -> Value:
    """The columns `start` to `end` of the table of regions."""
    found: Value = op.Slice(rois, [start], [end], axes=[1])
    return found


def roi_corner(op: Emitter, rois: Value, axis: int, far: int) -> Value:
    """The start, or with `far` the end, of each region on an axis (0: x, 1: y): [k, 1, 1] for region, bin, step."""
    number = 1 + axis + 2 * far
    found: Value = op.Reshape(roi_columns(op, rois, number, number + 1), [-1, 1, 1])
    return found


def bin_numbers(op: Emitter, bins: int, like: Value, first: int = 0) -> Value:
    """0, 1, ... along the axis of bins."""
    return op.like([[float(number)] for number in range(first, first + bins)], like)


def step_numbers(op: Emitter, most: Any, dtype: int | None) -> Value:
    """0, 1, ..., most - 1 along the axis of steps."""
    return op.cast(reshape(op, numbers_below(op, most), [1, 1, -1]), dtype)


def max_count(op: Emitter, counts: Value) -> Value:
    """The largest of the regions' counts, at least 1, as an int64 size."""
    with_one = op.Concat(op.like([1], counts), op.Reshape(counts, [-1]), axis=0)
    return op.cast(op.ReduceMax(with_one, axes=[0], keepdims=0), dtypes.INT64)


def channel_count(op: Emitter, value: Value, parts: int = 1) -> int:
    """The number of channels of each of `parts` equal groups. Raises UnsupportedForm when it is dynamic."""
    channels = op.dim(value, 1)
    if isinstance(channels, Value):
        raise UnsupportedForm("needs a known number of channels; declare that axis static", code="size-not-known")
    return channels // parts


def channel_mapping(op: Emitter, input: Value, rois: Value, bins: tuple[int, int]) -> Value:
    """The channel that each element of a position-sensitive pool reads: int32 [k, c, height, width]."""
    channels = torch.arange(channel_count(op, input), dtype=torch.int32).reshape(1, -1, *bins)
    mapping: Value = op.Expand(op.const(channels), op.ints([op.dim(rois, 0), 1, 1, 1]))
    return mapping


class Pixels:
    """The pixels of images [n, c, h, w], as rows of c numbers. With `bins` each bin has channels of its own."""

    def __init__(self, op: Emitter, images: Value, bins: tuple[int, int] = (1, 1)) -> None:
        self.op = op
        self.bins = bins
        self.height, self.width = op.dim(images, 2), op.dim(images, 3)
        self.channels = channel_count(op, images, bins[0] * bins[1])
        parts = reshape(op, images, [-1, self.channels, *bins, self.height, self.width])
        self.flat = op.Reshape(permute(op, parts, [0, 2, 3, 4, 5, 1]), [-1, self.channels])

    def read(self, rois: Value, y: Value, x: Value) -> Value:
        """The pixels where rows y [k, rows, steps] cross columns x (int64): [k, rows, steps, columns, steps, c]."""
        op = self.op
        plane = value_of(op, times(op, self.height, self.width))
        image = op.Mul(image_indices(op, rois), value_of(op, times(op, *self.bins, self.height, self.width)))
        down = op.Mul(y, value_of(op, self.width))
        if self.bins != (1, 1):
            numbers = [op.const(torch.arange(count).reshape(1, -1, 1)) for count in self.bins]
            down = op.Add(down, op.Mul(numbers[0], op.Mul(plane, op.const(self.bins[1]))))
            x = op.Add(x, op.Mul(numbers[1], plane))
        start = op.Add(op.Unsqueeze(down, [3, 4]), op.Reshape(image, [-1, 1, 1, 1, 1]))
        places = op.Add(start, op.Unsqueeze(x, [1, 2]))
        found: Value = op.Gather(self.flat, places, axis=0)
        return found


def outer_weights(op: Emitter, y: Value, x: Value) -> Value:
    """The product of weights for rows [k, height, steps] and for columns, in the shape of the result of
    `Pixels.read`.
    """
    product: Value = op.Mul(op.Unsqueeze(y, [3, 4, 5]), op.Unsqueeze(x, [1, 2, 5]))
    return product


def channels_first(op: Emitter, total: Value) -> Value:
    """[k, height, width, c] as [k, c, height, width]."""
    return permute(op, total, [0, 3, 1, 2])


def clip_positions(op: Emitter, place: Value, last: Value) -> Value:
    """Positions clipped to 0 and `last`."""
    return smallest(op, largest(op, place, op.like(0, place)), last)
