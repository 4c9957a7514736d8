"""Plain kernels of torchvision's operators, for machines on which the compiled ones cannot be loaded.

Written for clarity, box by box; each computes what torchvision's CPU kernel computes, which
`tests/test_torchvision_shim.py` holds them to where the compiled ones load.  Boxes are x1, y1, x2, y2; regions of
interest ("rois") have the index of their image before that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Greedy suppression: indices kept, by falling score.  dets [n, 4]; scores [n]."""
    area = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    order = scores.argsort(descending=True, stable=True)
    kept = []
    while order.numel():
        best, order = order[0], order[1:]
        kept.append(best)
        low = torch.maximum(dets[best, :2], dets[order, :2])
        high = torch.minimum(dets[best, 2:], dets[order, 2:])
        overlap = (high - low).clamp(min=0).prod(dim=1)
        suppressed = (overlap / (area[best] + area[order] - overlap)).double() > iou_threshold
        order = order[~suppressed]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)


# Means of bilinear samples ----------------------------------------------------------------------------------------


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Mean of bilinear samples in each bin.  input [n, c, h, w]; rois [k, 5]; result [k, c, height, width]."""
    bins = (pooled_height, pooled_width)
    pooled = [
        torch.einsum("yh,chw,xw->cyx", *_sampled(input, roi, spatial_scale, bins, sampling_ratio, aligned, 1))
        for roi in rois
    ]
    return torch.stack(pooled) if pooled else input.new_empty((0, input.shape[1], *bins))


def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """As roi_align, aligned, but each bin reads channels of its own.  input [n, c * height * width, h, w]."""
    bins = (pooled_height, pooled_width)
    pooled = []
    for roi in rois:
        rows, image, columns = _sampled(input, roi, spatial_scale, bins, sampling_ratio, True, 0)
        own = image.unflatten(0, (-1, *bins))
        pooled.append(torch.einsum("yh,cyxhw,xw->cyx", rows, own, columns))
    return _with_channels(input, bins, pooled)


def _sampled(
    input: Tensor, roi: Tensor, scale: float, bins: tuple[int, int], sampling_ratio: int, aligned: bool, fewest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The weights of rows [height, h], the image, the weights of columns [width, w]."""
    image = input[int(roi[0])]
    x1, y1, x2, y2 = (roi[1:] * scale - (0.5 if aligned else 0.0)).tolist()
    smallest = -math.inf if aligned else 1.0
    weights = []
    for start, end, count, size in ((y1, y2, bins[0], image.shape[1]), (x1, x2, bins[1], image.shape[2])):
        extent = max(end - start, smallest)
        samples = sampling_ratio if sampling_ratio > 0 else math.ceil(extent / count)
        steps = (torch.arange(count * max(samples, 0), dtype=image.dtype) + 0.5) * (extent / count / max(samples, 1))
        # roi_align takes the mean of no samples to be 0, ps_roi_align to be NaN
        shares = _linear_weights(start + steps, size).view(count, -1, size).sum(dim=1) / max(samples, fewest)
        weights.append(shares)
    return weights[0], image, weights[1]


def _linear_weights(at: Tensor, size: int) -> Tensor:
    """Row i interpolates a line of `size` values at at[i]; outside (-1, size) the value is zero."""
    inside = (at >= -1) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor().to(torch.int64)
    high = (low + 1).clamp(max=size - 1)
    share = at - low
    weights = torch.zeros(len(at), size, dtype=at.dtype)
    rows = torch.arange(len(at))
    weights.index_put_((rows, low), 1 - share, accumulate=True)
    weights.index_put_((rows, high), share, accumulate=True)
    return weights * inside[:, None]


def _with_channels(input: Tensor, bins: tuple[int, int], pooled: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The pooled rois, and the channel of the input that each element was read from."""
    shape = (len(pooled), input.shape[1] // math.prod(bins), *bins)
    channels = torch.arange(math.prod(shape[1:]), dtype=torch.int32).view(shape[1:]).expand(shape)
    return (torch.stack(pooled) if pooled else input.new_empty(shape)), channels.clone()


# Pools of whole pixels --------------------------------------------------------------------------------------------


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The largest pixel of each bin and its place in the image; 0 and -1 where the bin is empty."""
    height, width = input.shape[2:]
    shape = (len(rois), input.shape[1], pooled_height, pooled_width)
    pooled, places = input.new_zeros(shape), torch.full(shape, -1, dtype=torch.int32)
    for k, roi in enumerate(rois):
        x1, y1, x2, y2 = (_rounded(number * spatial_scale) for number in roi[1:])
        rows = _bins(y1, max(y2 - y1 + 1, 1), pooled_height, height)
        columns = _bins(x1, max(x2 - x1 + 1, 1), pooled_width, width)
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                found = input[int(roi[0]), :, top:bottom, left:right]
                if found.numel():
                    pooled[k, :, i, j], at = found.flatten(1).max(dim=1)
                    places[k, :, i, j] = (top + at // (right - left)) * width + left + at % (right - left)
    return pooled, places


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Mean of each bin, which reads channels of its own.  The last row and column of the image are never read."""
    bins = (pooled_height, pooled_width)
    height, width = input.shape[2:]
    pooled = []
    for roi in rois:
        x1, y1, x2, y2 = (_rounded(number * spatial_scale) for number in roi[1:])
        own = input[int(roi[0])].unflatten(0, (-1, *bins))
        rows = _bins(y1, max(y2 - y1, 1), pooled_height, height - 1)
        columns = _bins(x1, max(x2 - x1, 1), pooled_width, width - 1)
        out = input.new_zeros(own.shape[:3])
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                found = own[:, i, j, top:bottom, left:right]
                if found.numel():
                    out[:, i, j] = found.mean(dim=(1, 2))
        pooled.append(out)
    return _with_channels(input, bins, pooled)


def _rounded(number: Tensor) -> int:
    """Halves go away from zero, as C's round does it."""
    return int(math.copysign(math.floor(abs(float(number)) + 0.5), float(number)))


def _bins(start: int, extent: int, count: int, last: int) -> list[tuple[int, int]]:
    """From where to where each bin reaches, within 0 and `last`."""
    edges = torch.arange(count + 1.0) * (torch.tensor(float(extent)) / count)
    low, high = edges[:-1].floor() + start, edges[1:].ceil() + start
    return list(zip(low.clamp(0, last).int().tolist(), high.clamp(0, last).int().tolist(), strict=True))


# Deformable convolution -------------------------------------------------------------------------------------------


def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """A convolution whose every tap is moved by an offset (y, x), read bilinearly, and weighed by the mask."""
    batch, channels, height, width = input.shape
    taps_h, taps_w = weight.shape[2:]
    moved = offset.view(batch, offset_groups, taps_h, taps_w, 2, *offset.shape[2:])
    rows = _taps(taps_h, dilation_h)[:, None, None, None] + _taps(offset.shape[2], stride_h)[:, None] - pad_h
    columns = _taps(taps_w, dilation_w)[:, None, None] + _taps(offset.shape[3], stride_w) - pad_w
    y, x = moved[..., 0, :, :] + rows, moved[..., 1, :, :] + columns
    weigh = mask.view(batch, offset_groups, taps_h, taps_w, *offset.shape[2:]) if use_mask else torch.ones_like(y)
    own = input.view(batch, offset_groups, channels // offset_groups, height, width)
    # the weight of pixel (i, j) in the sample at (y, x) is (1 - |y - i|)(1 - |x - j|) within one pixel, else zero
    near_y = (1 - (y[..., None] - torch.arange(height)).abs()).clamp(min=0)
    near_x = (1 - (x[..., None] - torch.arange(width)).abs()).clamp(min=0)
    read = torch.einsum("ngabyxi,ngcij,ngabyxj->ngcabyx", near_y * weigh[..., None], own, near_x)
    read = read.reshape(batch, groups, channels // groups, taps_h, taps_w, *offset.shape[2:])
    kernels = weight.view(groups, -1, *weight.shape[1:])
    return torch.einsum("ngcabyx,gocab->ngoyx", read, kernels).flatten(1, 2) + bias[:, None, None]


def _taps(count: int, step: int) -> Tensor:
    return torch.arange(count) * step


# Shapes -----------------------------------------------------------------------------------------------------------


def _roi_align_shape(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    return input.new_empty((rois.shape[0], input.shape[1], pooled_height, pooled_width))


def _roi_pool_shape(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    shape = (rois.shape[0], input.shape[1], pooled_height, pooled_width)
    return input.new_empty(shape), input.new_empty(shape, dtype=torch.int32)


def _ps_roi_shape(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int = 0
) -> tuple[Tensor, Tensor]:
    shape = (rois.shape[0], input.shape[1] // (pooled_height * pooled_width), pooled_height, pooled_width)
    return input.new_empty(shape), input.new_empty(shape, dtype=torch.int32)


def _deform_conv2d_shape(input: Tensor, weight: Tensor, offset: Tensor, *others: Any) -> Tensor:
    return input.new_empty((input.shape[0], weight.shape[0], *offset.shape[2:]))


# by operator: the kernel, and what gives its shapes (torchvision itself brings that of nms)
KERNELS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "nms": (nms, None),
    "roi_align": (roi_align, _roi_align_shape),
    "roi_pool": (roi_pool, _roi_pool_shape),
    "ps_roi_align": (ps_roi_align, _ps_roi_shape),
    "ps_roi_pool": (ps_roi_pool, _ps_roi_shape),
    "deform_conv2d": (deform_conv2d, _deform_conv2d_shape),
}
