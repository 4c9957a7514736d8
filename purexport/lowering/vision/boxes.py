"""torchvision's operators on boxes: non-maximum suppression, and regions of interest read by bilinear samples.

Regions ("rois") are [k, 5]: the index of an image, then x1, y1, x2, y2. RoiAlign is native where the opset has the
needed coordinates in a version that ONNX Runtime computes; elsewhere each sample weighs the four pixels around it. The
rules are found by name; torchvision itself is never imported. Source of the semantics: torchvision's CPU kernels.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch

from proto_schema.legalization.sizes import value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import reshape
from purexport.lowering.support.kernels import largest, smallest
from purexport.lowering.support.regions import (
    Pixels,
    bin_numbers,
    channel_count,
    channel_mapping,
    channels_first,
    clip_positions,
    has_kernel,
    image_indices,
    max_count,
    outer_weights,
    roi_columns,
    roi_corner,
    step_numbers,
)


@lower("torchvision::nms")
def nms(op: Emitter, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor

    `dets` is [n, 4] and `scores` [n]. The result holds the int64 positions of the boxes that are kept, by falling
    score; of equal scores the first comes first.
    """
    if dets.dtype == dtypes.DOUBLE:
        raise UnsupportedForm(
            "of float64 boxes is computed in float32 by ONNX; convert them with .float() first",
            code="float64-unsupported",
        )
    if isinstance(iou_threshold, Value) or iou_threshold < 0:
        raise UnsupportedForm("needs an iou_threshold that is a number from 0 on", code="value-not-known")
    # a box whose corners are exchanged overlaps nothing in torch; ONNX would exchange them back
    boxes = op.cast(dets, dtypes.FLOAT)
    low, high = roi_columns(op, boxes, 0, 2), roi_columns(op, boxes, 2, 4)
    boxes = op.Concat(low, largest(op, low, high), axis=1)
    found = op.NonMaxSuppression(
        op.Unsqueeze(boxes, [0]),
        op.Unsqueeze(op.cast(scores, dtypes.FLOAT), [0, 1]),
        reshape(op, value_of(op, op.dim(dets, 0)), [1]),
        op.const([_float_below(min(iou_threshold, 1.0))], dtypes.FLOAT),
    )
    result: Value = op.Gather(found, op.const(2), axis=1)
    return result


def _float_below(number: float) -> float:
    """The largest float32 that is not above `number`. A float32 is larger than `number` exactly when it is larger than
    the result.
    """
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
    """torchvision::roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,
    int sampling_ratio, bool aligned) -> Tensor

    `input` is [n, c, h, w] and `rois` [k, 5]. The result holds means of bilinear samples, [k, c, pooled_height,
    pooled_width].
    """
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
    """torchvision::ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,
    SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)

    `input` is [n, c * bins, h, w]. Each bin reads c channels of its own; the second result says which.
    """
    shape, bins = (pooled_height, pooled_width), pooled_height * pooled_width
    mapping = channel_mapping(op, input, rois, shape)
    if not has_kernel(op, "RoiAlign") or not op.has("RoiAlign", _COORDINATES) or _is_rounded(input, spatial_scale):
        return _written_out(op, input, rois, spatial_scale, shape, sampling_ratio, True, shape), mapping
    every = _aligned(op, input, rois, spatial_scale, shape, sampling_ratio, True)
    own = op.Gather(
        reshape(op, every, [-1, channel_count(op, input, bins), bins * bins]),
        op.const(torch.arange(bins) * (bins + 1)),
        axis=2,
    )
    result = op.Reshape(own, [0, 0, *shape])
    if sampling_ratio <= 0:
        # without samples the mean is NaN here, but 0 in roi_align
        extent = op.Sub(roi_columns(op, rois, 3, 5), roi_columns(op, rois, 1, 3))
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
    if not has_kernel(op, "RoiAlign") or (aligned and not named) or _is_rounded(input, scale):
        return _written_out(op, input, rois, scale, bins, ratio, aligned)
    options: dict[str, Any] = {_COORDINATES: "half_pixel" if aligned else "output_half_pixel"} if named else {}
    result: Value = op.RoiAlign(
        input,
        roi_columns(op, rois, 1, 5),
        image_indices(op, rois),
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
    """roi_align from four pixels for each sample. With `parts` each bin has channels of its own, as in ps_roi_align."""
    pixels = Pixels(op, input, parts)
    y = _samples(op, rois, 1, pixels.height, scale, bins[0], ratio, aligned)
    x = _samples(op, rois, 0, pixels.width, scale, bins[1], ratio, aligned)
    total: Value | None = None
    for (row, row_share), (column, column_share) in itertools.product(y.corners, x.corners):
        weighed = op.Mul(pixels.read(rois, row, column), outer_weights(op, row_share, column_share))
        total = weighed if total is None else op.Add(total, weighed)
    count = op.Mul(y.number, x.number)
    if parts == (1, 1):
        count = largest(op, count, op.like(1, count))
    return channels_first(op, op.Div(op.ReduceSum(total, axes=[2, 4], keepdims=0), op.Unsqueeze(count, [3])))


class _Samples(NamedTuple):
    """The samples of one axis: the pixels before and after each sample with their weights, and the number
    of samples.
    """

    corners: tuple[tuple[Value, Value], tuple[Value, Value]]
    number: Value


def _samples(
    op: Emitter, rois: Value, axis: int, size: Any, scale: float, bins: int, ratio: int, aligned: bool
) -> _Samples:
    """The samples of the regions on an axis (0: x, 1: y) with that many pixels: [k, bins, samples]."""
    corners = op.Mul(rois, op.like(scale, rois))
    start, end = roi_corner(op, corners, axis, 0), roi_corner(op, corners, axis, 1)
    extent, zero, one = op.Sub(end, start), op.like(0, rois), op.like(1, rois)
    if aligned:
        start = op.Sub(start, op.like(0.5, rois))
    else:
        extent = largest(op, extent, one)
    step = op.Div(extent, op.like(bins, rois))
    count = op.like([[[ratio]]], rois) if ratio > 0 else largest(op, op.Ceil(step), zero)
    numbers = step_numbers(op, ratio if ratio > 0 else max_count(op, count), rois.dtype)
    part = op.Div(op.Add(numbers, op.like(0.5, rois)), largest(op, count, one))
    place = op.Add(start, op.Mul(op.Add(bin_numbers(op, bins, rois), part), step))

    length = op.like(size, rois)
    skipped = op.Or(op.Less(place, op.like(-1, rois)), op.Greater(place, length))
    if ratio <= 0:
        skipped = op.Or(skipped, op.Not(op.Less(numbers, count)))
    last = op.Sub(length, one)
    inside = clip_positions(op, place, last)
    before = op.Floor(inside)
    share = op.Sub(inside, before)
    after = smallest(op, op.Add(before, one), last)
    shares = [op.Where(skipped, zero, item) for item in (op.Sub(one, share), share)]
    found = [(op.cast(item, dtypes.INT64), part) for item, part in zip((before, after), shares, strict=True)]
    return _Samples((found[0], found[1]), count)
