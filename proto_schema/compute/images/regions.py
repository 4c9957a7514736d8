"""Rows on regions and boxes of images: RoiAlign and NonMaxSuppression."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, pieces, sizes_in
from proto_schema.compute.nn.numbers import wide
from proto_schema.compute.rows import row


def _align_cost(call: Call, data: Array, regions: Array, images: Array) -> Cost:
    """Each region has samples along both axes: as many as the ratio says, else as the region is large."""
    height, width = max(0, call.attribute("output_height", 1)), max(0, call.attribute("output_width", 1))
    ratio, scale = call.attribute("sampling_ratio", 0), abs(float(call.attribute("spatial_scale", 1.0)))
    if data.ndim != 4 or regions.ndim != 2 or regions.shape[1] != 4:
        call.fail(f"data of shape {data.shape} and regions of shape {regions.shape}: ranks 4 and 2 are needed")
    count, channels = len(regions), data.shape[1]
    corners = np.nan_to_num(regions.astype(np.float64) * scale, nan=0.0, posinf=2.0**62, neginf=-(2.0**62))
    extents = np.abs(corners[:, 2:] - corners[:, :2]).max(axis=0, initial=1.0)
    across, down = (
        bins * (ratio if ratio > 0 else int(min(extent / max(1, bins), 2.0**62)) + 1)
        for bins, extent in zip((width, height), extents.tolist(), strict=True)
    )
    matrices = height * data.shape[2] + width * data.shape[3]
    results = channels * height * width
    if call.text("mode", "avg") == "max":
        each = 8 * channels * down * across
    else:
        each = channels * height * (data.shape[2] + width) * data.shape[3] // 16
    held = 4 * channels * down * across if call.text("mode", "avg") == "max" else channels * data.shape[2] * width
    work = count * (each + 100 * (down + across) + matrices + results + pieces(30))
    scratch = WIDE * (20 * (down + across) + 2 * matrices + 2 * held + 2 * data.size + 4 * regions.size)
    return Cost(work, WIDE * count * results, scratch)


@row("RoiAlign", cost=_align_cost)
def roi_align(call: Call, data: Array, regions: Array, images: Array) -> Array:
    """The bins of each region (x1, y1, x2, y2): the mean of samples by bilinear interpolation, or a maximum.

    The weights of a bin are those of rows times those of columns, so that the means are two products of matrices. The
    maximum is over the four weighted pixels of all samples, as the specification's own cases have it.
    """
    values, kind = wide(data), wide(data).dtype.type
    height, width = call.attribute("output_height", 1), call.attribute("output_width", 1)
    ratio, scale = call.attribute("sampling_ratio", 0), kind(call.attribute("spatial_scale", 1.0))
    shifted = call.version >= 16 and call.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    mode = call.text("mode", "avg")
    if mode not in ("avg", "max") or regions.shape[1:] != (4,):
        call.fail(f"mode {mode!r} is not avg or max, or regions of shape {regions.shape} are not (regions, 4)")
    result = np.zeros((len(regions), data.shape[1], height, width), values.dtype)
    for item, region in enumerate(wide(regions)):
        left, top, right, bottom = region * scale - (kind(0.5) if shifted else kind(0))
        extents = (bottom - top, right - left)
        tall, broad = extents if shifted else (max(extents[0], kind(1)), max(extents[1], kind(1)))
        rows = _Samples(top, tall, height, ratio, data.shape[2])
        columns = _Samples(left, broad, width, ratio, data.shape[3])
        if not rows.count or not columns.count:
            continue
        image = values[int(images[item])]
        if mode == "avg":
            down, across = rows.means(), columns.means()
            some, others = _used(down), _used(across)
            part = np.matmul(image[:, some, others], np.ascontiguousarray(across[:, others].T))
            result[item] = np.matmul(down[:, some], part)
        else:
            result[item] = _largest(image, rows, columns)
    return result


def _used(weights: Array) -> slice:
    """The pixels from the first to the last that any bin looks at."""
    found = np.flatnonzero(weights.any(axis=0))
    return slice(int(found[0]), int(found[-1]) + 1) if found.size else slice(0, 0)


class _Samples:
    """Samples along one axis: places in the image, in bins of `count`, with their two neighbours and weights."""

    def __init__(self, start: Any, extent: Any, bins: int, ratio: int, size: int) -> None:
        self.count = ratio if ratio > 0 else max(0, ceil(extent / bins))
        self.bins, self.size = bins, size
        each = extent / type(extent)(bins)
        steps = (np.arange(self.count, dtype=each.dtype) + each.dtype.type(0.5)) * each / max(self.count, 1)
        at = (start + np.arange(bins, dtype=each.dtype)[:, None] * each + steps).reshape(-1)
        inside = (at >= -1) & (at <= size)
        at = np.clip(at, 0, size - 1)
        self.low = np.minimum(at.astype(np.int64), size - 1)
        self.high = np.minimum(self.low + 1, size - 1)
        rest = at - self.low
        self.weights = (np.where(inside, 1 - rest, 0).astype(at.dtype), np.where(inside, rest, 0).astype(at.dtype))

    def means(self) -> Array:
        """(bins, size): the weight of each pixel in the mean of a bin."""
        matrix = np.zeros((self.bins, self.size), self.weights[0].dtype)
        bins = np.repeat(np.arange(self.bins), self.count)
        for places, weights in zip((self.low, self.high), self.weights, strict=True):
            np.add.at(matrix, (bins, places), weights / self.count)
        return matrix


def _largest(image: Array, rows: _Samples, columns: _Samples) -> Array:
    found: Array | None = None
    for places, down in zip((rows.low, rows.high), rows.weights, strict=True):
        for others, across in zip((columns.low, columns.high), columns.weights, strict=True):
            values = image[:, places[:, None], others] * (down[:, None] * across)
            found = values if found is None else np.maximum(found, values)
    assert found is not None
    split = found.reshape(len(image), rows.bins, rows.count, columns.bins, columns.count)
    return np.asarray(split.max(axis=(2, 4)))


def _suppression_cost(call: Call, boxes: Array, scores: Array, most: Array | None = None, *more: Array | None) -> Cost:
    """Each box that stays is compared with all that are left."""
    count = boxes.shape[1] if boxes.ndim == 3 else 1
    classes = scores.shape[0] * scores.shape[1] if scores.ndim == 3 else 1
    kept = classes * min(count, max(0, 0 if most is None else sizes_in(most)[0]))
    work = kept * (20 * count + pieces(20)) // 2 + 100 * scores.size + 10 * boxes.size
    return Cost(work, 3 * WIDE * kept, 250 * kept + WIDE * (30 * count + 4 * boxes.size))


@row("NonMaxSuppression", cost=_suppression_cost)
def non_max_suppression(
    call: Call,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    """(batch, class, box) of the boxes that stay, best first: each that overlaps a better one too much goes."""
    limit = 0 if most is None else int(most.reshape(()))
    threshold = np.float32(0 if overlap is None else overlap.reshape(()))
    if not 0 <= threshold <= 1:
        call.fail(f"iou_threshold is {threshold}, and must be in [0, 1]")
    bound = None if least is None else least.reshape(())
    low, high = _corners_of(boxes, bool(call.attribute("center_point_box", 0)))
    kept = []
    for batch in range(scores.shape[0] if limit > 0 else 0):
        areas = (high[batch] - low[batch]).prod(axis=-1)
        for label in range(scores.shape[1]):
            given = scores[batch, label]
            order = np.argsort(-given, kind="stable")
            if bound is not None:
                order = order[given[order] > bound]
            chosen = _chosen(order, low[batch], high[batch], areas, threshold, limit)
            kept += [(batch, label, box) for box in chosen]
    return np.array(kept, np.int64).reshape(-1, 3)


def _corners_of(boxes: Array, centred: bool) -> tuple[Array, Array]:
    """(batch, boxes, 2) of the lower and of the upper corners."""
    one, other = boxes[..., :2], boxes[..., 2:]
    if centred:
        return one - other / 2, one + other / 2
    return np.minimum(one, other), np.maximum(one, other)


def _chosen(order: Array, low: Array, high: Array, areas: Array, threshold: Any, limit: int) -> list[int]:
    chosen: list[int] = []
    while order.size and len(chosen) < limit:
        best, order = int(order[0]), order[1:]
        chosen.append(best)
        sides = np.minimum(high[order], high[best]) - np.maximum(low[order], low[best])
        common = np.maximum(sides, 0).prod(axis=-1)
        union = areas[order] + areas[best] - common
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where((common > 0) & (union > 0), common / union, 0)
        order = order[ratio <= threshold]
    return chosen
