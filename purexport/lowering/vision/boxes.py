"""torchvision's operators on boxes: suppression, and regions of interest read by bilinear samples.

Regions ("rois") are [k, 5]: the index of an image, then x1, y1, x2, y2.  RoiAlign is native where the opset has the
asked coordinates in a version that runs; elsewhere each sample weighs the four pixels around it.
The rules go by name; torchvision itself is never imported.  Source of the semantics: torchvision's CPU kernels.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import reshape
from purexport.lowering.support.kernels import largest, smallest
from purexport.lowering.support.positions import as_value
from purexport.lowering.support.regions import (
    Pixels,
    across,
    bin_numbers,
    channel_count,
    channel_mapping,
    columns,
    corner,
    image_of,
    most_of,
    pooled,
    runs,
    steps,
    within,
)


@lower("torchvision::nms")
def nms(op: Emitter, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """nms(dets [n, 4], scores [n]): int64 positions of the boxes that stay, by falling score, the first of equals."""
    if dets.dtype == dtypes.DOUBLE:
        raise UnsupportedForm("of float64 boxes is computed in float32 by ONNX; convert them with .float() first")
    if isinstance(iou_threshold, Value) or iou_threshold < 0:
        raise UnsupportedForm("needs an iou_threshold that is a number from 0 on")
    # a box turned inside out overlaps nothing in torch; ONNX would turn it round
    boxes = op.cast(dets, dtypes.FLOAT)
    low, high = columns(op, boxes, 0, 2), columns(op, boxes, 2, 4)
    boxes = op.Concat(low, largest(op, low, high), axis=1)
    found = op.NonMaxSuppression(
        op.Unsqueeze(boxes, [0]),
        op.Unsqueeze(op.cast(scores, dtypes.FLOAT), [0, 1]),
        reshape(op, as_value(op, op.dim(dets, 0)), [1]),
        op.const([_float_below(min(iou_threshold, 1.0))], dtypes.FLOAT),
    )
    result: Value = op.Gather(found, op.const(2), axis=1)
    return result


def _float_below(number: float) -> float:
    """The largest float32 that is not above ``number``: a float32 is larger than one just when it is than the other."""
    nearest = torch.tensor(number, dtype=torch.float32)
    return float(nearest if nearest.item() <= number else torch.nextafter(nearest, torch.tensor(-1.0)))


@lower("torchvision::roi_align")
def roi_align(
    op: Emitter,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Value:
    """roi_align(input [n, c, h, w], rois [k, 5]): means of bilinear samples, [k, c, pooled_height, pooled_width]."""
    return _aligned(op, input, rois, spatial_scale, (pooled_height, pooled_width), sampling_ratio, aligned)


@lower("torchvision::ps_roi_align")
def ps_roi_align(
    op: Emitter,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Value, Value]:
    """ps_roi_align(input [n, c * bins, h, w], rois): each bin reads its own c channels; and which it reads."""
    shape, bins = (pooled_height, pooled_width), pooled_height * pooled_width
    mapping = channel_mapping(op, input, rois, shape)
    if not runs(op, "RoiAlign") or not op.has("RoiAlign", _COORDINATES) or _is_rounded(input, spatial_scale):
        return _written_out(op, input, rois, spatial_scale, shape, sampling_ratio, True, shape), mapping
    every = _aligned(op, input, rois, spatial_scale, shape, sampling_ratio, True)
    own = op.Gather(
        reshape(op, every, [-1, channel_count(op, input, bins), bins * bins]),
        op.const(torch.arange(bins) * (bins + 1)),
        axis=2,
    )
    result = op.Reshape(own, [0, 0, *shape])
    if sampling_ratio <= 0:
        # the mean of no samples is NaN here, and 0 in roi_align
        extent = op.Sub(columns(op, rois, 3, 5), columns(op, rois, 1, 3))
        least = op.Reshape(op.ReduceMin(extent, axes=[1], keepdims=1), [-1, 1, 1, 1])
        result = op.Where(op.Greater(least, op.like(0, extent)), result, op.like(float("nan"), extent))
    return result, mapping


_COORDINATES = "coordinate_transformation_mode"


def _is_rounded(input: Value, scale: float) -> bool:
    """True of doubles whose scale RoiAlign's attribute, a float32, does not hold."""
    return input.dtype == dtypes.DOUBLE and torch.tensor(scale, dtype=torch.float32).item() != scale


def _aligned(
    op: Emitter, input: Value, rois: Value, scale: float, bins: tuple[int, int], ratio: int, aligned: bool
) -> Value:
    named = op.has("RoiAlign", _COORDINATES)
    if not runs(op, "RoiAlign") or (aligned and not named) or _is_rounded(input, scale):
        return _written_out(op, input, rois, scale, bins, ratio, aligned)
    options: dict[str, Any] = {_COORDINATES: "half_pixel" if aligned else "output_half_pixel"} if named else {}
    result: Value = op.RoiAlign(
        input,
        columns(op, rois, 1, 5),
        image_of(op, rois),
        output_height=bins[0],
        output_width=bins[1],
        sampling_ratio=max(ratio, 0),
        spatial_scale=float(scale),
        **options,
    )
    return result


def _written_out(
    op: Emitter,
    input: Value,
    rois: Value,
    scale: float,
    bins: tuple[int, int],
    ratio: int,
    aligned: bool,
    parts: tuple[int, int] = (1, 1),
) -> Value:
    """Four pixels a sample.  ``parts``: each bin has channels of its own, as in ps_roi_align."""
    pixels = Pixels(op, input, parts)
    y = _samples(op, rois, 1, pixels.height, scale, bins[0], ratio, aligned)
    x = _samples(op, rois, 0, pixels.width, scale, bins[1], ratio, aligned)
    total: Value | None = None
    for (row, row_share), (column, column_share) in itertools.product(y.corners, x.corners):
        weighed = op.Mul(pixels.read(rois, row, column), across(op, row_share, column_share))
        total = weighed if total is None else op.Add(total, weighed)
    count = op.Mul(y.number, x.number)
    if parts == (1, 1):
        count = largest(op, count, op.like(1, count))
    return pooled(op, op.Div(op.ReduceSum(total, axes=[2, 4], keepdims=0), op.Unsqueeze(count, [3])))


class _Samples(NamedTuple):
    """The samples of one axis: the pixels before and after each, with their shares; how many there are."""

    corners: tuple[tuple[Value, Value], tuple[Value, Value]]
    number: Value


def _samples(
    op: Emitter, rois: Value, axis: int, size: Any, scale: float, bins: int, ratio: int, aligned: bool
) -> _Samples:
    """Where the regions are sampled on an axis (0: x, 1: y) of that many pixels: [k, bins, samples]."""
    corners = op.Mul(rois, op.like(scale, rois))
    start, end = corner(op, corners, axis, 0), corner(op, corners, axis, 1)
    extent, zero, one = op.Sub(end, start), op.like(0, rois), op.like(1, rois)
    if aligned:
        start = op.Sub(start, op.like(0.5, rois))
    else:
        extent = largest(op, extent, one)
    step = op.Div(extent, op.like(bins, rois))
    count = op.like([[[ratio]]], rois) if ratio > 0 else largest(op, op.Ceil(step), zero)
    numbers = steps(op, ratio if ratio > 0 else most_of(op, count), rois.dtype)
    part = op.Div(op.Add(numbers, op.like(0.5, rois)), largest(op, count, one))
    place = op.Add(start, op.Mul(op.Add(bin_numbers(op, bins, rois), part), step))

    length = op.like(size, rois)
    skipped = op.Or(op.Less(place, op.like(-1, rois)), op.Greater(place, length))
    if ratio <= 0:
        skipped = op.Or(skipped, op.Not(op.Less(numbers, count)))
    last = op.Sub(length, one)
    inside = within(op, place, last)
    before = op.Floor(inside)
    share = op.Sub(inside, before)
    after = smallest(op, op.Add(before, one), last)
    shares = [op.Where(skipped, zero, item) for item in (op.Sub(one, share), share)]
    found = [(op.cast(item, dtypes.INT64), part) for item, part in zip((before, after), shares, strict=True)]
    return _Samples((found[0], found[1]), count)
