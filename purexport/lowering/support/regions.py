"""Regions of an image, read pixel by pixel: what pools of regions have in common.

A region's rows and columns are read by positions of their own, so that one Gather takes their crossings.  All regions
read as many pixels an axis as the largest wants; what a smaller one reads too much is repeated or weighs nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import permute, reshape
from purexport.lowering.support.kernels import largest, smallest
from purexport.lowering.support.positions import as_value, count_up, times


def runs(op: Emitter, op_type: str) -> bool:
    """Whether this opset has the operator in a version that ONNX Runtime computes: not those that take bfloat16."""
    return op.has(op_type) and not op.takes(op_type, dtypes.BFLOAT16)


def image_of(op: Emitter, rois: Value) -> Value:
    """Which image each region is of: int64 [k]."""
    found: Value = op.cast(op.Gather(rois, op.const(0), axis=1), dtypes.INT64)
    return found


def columns(op: Emitter, rois: Value, start: int, end: int) -> Value:
    """Some columns of the regions."""
    found: Value = op.Slice(rois, [start], [end], axes=[1])
    return found


def corner(op: Emitter, rois: Value, axis: int, far: int) -> Value:
    """Where the regions begin, or with ``far`` end, on an axis (0: x, 1: y): [k, 1, 1], a row a region, bin, step."""
    number = 1 + axis + 2 * far
    found: Value = op.Reshape(columns(op, rois, number, number + 1), [-1, 1, 1])
    return found


def bin_numbers(op: Emitter, bins: int, like: Value, first: int = 0) -> Value:
    """0, 1, ... along the axis of bins."""
    return op.like([[float(number)] for number in range(first, first + bins)], like)


def steps(op: Emitter, most: Any, dtype: int | None) -> Value:
    """0, 1, ..., most - 1 along the axis of steps."""
    return op.cast(reshape(op, count_up(op, 0, most), [1, 1, -1]), dtype)


def most_of(op: Emitter, counts: Value) -> Value:
    """The largest of the regions' counts, at least 1, as an int64 size."""
    with_one = op.Concat(op.like([1], counts), op.Reshape(counts, [-1]), axis=0)
    return op.cast(op.ReduceMax(with_one, axes=[0], keepdims=0), dtypes.INT64)


def channel_count(op: Emitter, value: Value, parts: int = 1) -> int:
    """The channels of each of ``parts`` equal parts."""
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
    """The pixels of images [n, c, h, w], one a row of c numbers; ``bins``: each bin has channels of its own."""

    def __init__(self, op: Emitter, images: Value, bins: tuple[int, int] = (1, 1)) -> None:
        self.op = op
        self.bins = bins
        self.height, self.width = op.dim(images, 2), op.dim(images, 3)
        self.channels = channel_count(op, images, bins[0] * bins[1])
        parts = reshape(op, images, [-1, self.channels, *bins, self.height, self.width])
        self.flat = op.Reshape(permute(op, parts, [0, 2, 3, 4, 5, 1]), [-1, self.channels])

    def read(self, rois: Value, y: Value, x: Value) -> Value:
        """The pixels where rows y [k, rows, steps] meet columns x (int64): [k, rows, steps, columns, steps, c]."""
        op = self.op
        plane = as_value(op, times(op, self.height, self.width))
        image = op.Mul(image_of(op, rois), as_value(op, times(op, *self.bins, self.height, self.width)))
        down = op.Mul(y, as_value(op, self.width))
        if self.bins != (1, 1):
            numbers = [op.const(torch.arange(count).reshape(1, -1, 1)) for count in self.bins]
            down = op.Add(down, op.Mul(numbers[0], op.Mul(plane, op.const(self.bins[1]))))
            x = op.Add(x, op.Mul(numbers[1], plane))
        start = op.Add(op.Unsqueeze(down, [3, 4]), op.Reshape(image, [-1, 1, 1, 1, 1]))
        places = op.Add(start, op.Unsqueeze(x, [1, 2]))
        found: Value = op.Gather(self.flat, places, axis=0)
        return found


def across(op: Emitter, y: Value, x: Value) -> Value:
    """The product of what holds for rows [k, height, steps] and columns, ready to weigh what ``Pixels.read`` gives."""
    product: Value = op.Mul(op.Unsqueeze(y, [3, 4, 5]), op.Unsqueeze(x, [1, 2, 5]))
    return product


def pooled(op: Emitter, total: Value) -> Value:
    """[k, height, width, c] as [k, c, height, width]."""
    return permute(op, total, [0, 3, 1, 2])


def within(op: Emitter, place: Value, last: Value) -> Value:
    """Places brought between 0 and ``last``."""
    return smallest(op, largest(op, place, op.like(0, place)), last)
