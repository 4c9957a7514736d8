"""Rows of pools.

A maximum or a sum over a window is one along each axis in turn, and along an axis it is as many whole-array operations
as the kernel is long. Only MaxPool's indices look at whole windows, some channels at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, made, pieces, sizes_in
from proto_schema.compute.nn.numbers import wide
from proto_schema.compute.nn.windows import KernelWindows, numbers, windows
from proto_schema.compute.rows import row

_WINDOWS = 1 << 22
"""The most elements of windows that are copied at a time."""


def _windows(call: Call, data: Array) -> KernelWindows:
    kernel = call.attribute("kernel_shape")
    if not kernel:
        call.fail("kernel_shape is missing")
    if data.ndim != len(kernel) + 2:
        call.fail(f"kernel_shape has {len(kernel)} numbers, and the data has rank {data.ndim}")
    return windows(call, data.shape[2:], kernel)


def pool_cost(call: Call, data: Array) -> Cost:
    """The padded data, and along each axis a pass over the places for each element of the kernel. Counts of padding
    look at each element of the kernel at each place of an axis, and places of maxima at whole windows."""
    window = _windows(call, data)
    planes, width = prod(data.shape[:2]), max(4, data.itemsize)
    left, work, turns = planes * prod(window.reach), 0, sum(window.kernel)
    padded = max(left, data.size)
    for count, kernel, reach in zip(window.places, window.kernel, window.reach, strict=True):
        left = left // max(1, reach) * count
        work += left * kernel
    results = planes * prod(window.places)
    scratch = 3 * padded * width + 2 * results * width
    scratch += 3 * WIDE * max(count * size for count, size in zip(window.places, window.kernel, strict=True))
    if call.schema.name == "MaxPool" and call.wants(1):
        seen = max(_WINDOWS, prod(window.places) * prod(window.kernel))
        scratch += 2 * width * seen + 4 * WIDE * (prod(window.kernel) + results)
        work += 2 * results * prod(window.kernel) + seen
    return Cost(2 * padded + work + pieces(3 * turns), results * (width + WIDE), scratch)


def _along(data: Array, window: KernelWindows, operation: np.ufunc) -> Array:
    """`operation` over the windows of padded data."""
    for axis in range(len(window.kernel)):
        found: Array | None = None
        for index in range(window.kernel[axis]):
            start = index * window.dilations[axis]
            stop = start + (window.places[axis] - 1) * window.strides[axis] + 1
            step = data[(slice(None),) * (axis + 2) + (slice(start, stop, window.strides[axis]),)]
            found = step.copy() if found is None else operation(found, step, out=found)
        data = data if found is None else found
    return data


def _empty(data: Array, window: KernelWindows) -> bool:
    return not (data.size and prod(window.places))


@row("MaxPool", cost=pool_cost)
def max_pool(call: Call, data: Array) -> Array | tuple[Array, Array]:
    """The largest element of each window, and its place in the flattened data."""
    window = _windows(call, data)
    made = (*data.shape[:2], *window.places)
    if _empty(data, window):
        return np.zeros(made, data.dtype), np.zeros(made, np.int64)
    least = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    held = window.padded(data, least)
    if call.wants(1):
        return _with_places(held, data.shape, window, bool(call.attribute("storage_order", 0)))
    return _along(held, window, np.maximum)


def _with_places(
    held: Array, shape: tuple[int, ...], window: KernelWindows, columns_first: bool
) -> tuple[Array, Array]:
    batch, channels, *sizes = shape
    count = len(sizes)
    each = [prod(sizes[:axis]) if columns_first else prod(sizes[axis + 1 :]) for axis in range(count)]
    below = window.below(held)
    largest = np.empty((batch, channels, *window.places), held.dtype)
    places = np.empty(largest.shape, np.int64)
    starts: Array = np.zeros((1,) * count, np.int64)
    inner: Array = np.zeros((1,) * count, np.int64)
    for axis in range(count):
        form = [1] * count
        form[axis] = -1
        start = np.arange(window.places[axis]) * window.strides[axis] - window.before[axis]
        starts = starts + (start * each[axis]).reshape(form)
        inner = inner + (np.arange(window.kernel[axis]) * window.dilations[axis] * each[axis]).reshape(form)
    inner = inner.reshape(-1)
    step = max(1, _WINDOWS // (prod(window.places) * inner.size))
    for item in range(batch):
        for first in range(0, channels, step):
            part = below[item, first : first + step]
            flat = part.reshape(part.shape[0], inner.size, *window.places)
            at = flat.argmax(axis=1)
            largest[item, first : first + step] = np.take_along_axis(flat, at[:, None], axis=1)[:, 0]
            places[item, first : first + step] = inner[at] + starts
    planes = np.arange(batch * channels).reshape(batch, channels, *(1,) * count) * prod(sizes)
    return largest, places + planes


@row("AveragePool", cost=pool_cost)
def average_pool(call: Call, data: Array) -> Array:
    """The mean of each window; padding counts if it is asked for, but never what `ceil_mode` adds behind it."""
    window, data = _windows(call, data), wide(data)
    made = (*data.shape[:2], *window.places)
    if _empty(data, window):
        return np.zeros(made, data.dtype)
    sums = _along(window.padded(data), window, np.add)
    counts: Array = np.ones((1,) * len(window.kernel), data.dtype)
    with_padding = bool(call.attribute("count_include_pad", 0))
    for axis, size in enumerate(data.shape[2:]):
        places = np.arange(window.places[axis])[:, None] * window.strides[axis]
        places = places + np.arange(window.kernel[axis]) * window.dilations[axis]
        low = 0 if with_padding else window.before[axis]
        high = window.before[axis] + size + (window.after[axis] if with_padding else 0)
        form = [1] * len(window.kernel)
        form[axis] = -1
        counts = counts * ((places >= low) & (places < high)).sum(1).astype(data.dtype).reshape(form)
    sums /= np.maximum(counts, 1)
    return sums


@row("LpPool", cost=pool_cost)
def lp_pool(call: Call, data: Array) -> Array:
    """The p-norm of each window."""
    window, data = _windows(call, data), wide(data)
    if _empty(data, window):
        return np.zeros((*data.shape[:2], *window.places), data.dtype)
    power = call.attribute("p", 2)
    return _root(_along(_powers(window.padded(data), power), window, np.add), power)


def _powers(data: Array, power: float) -> Array:
    return data * data if power == 2 else np.abs(data) if power == 1 else np.abs(data) ** data.dtype.type(power)


def _root(sums: Array, power: float) -> Array:
    return np.sqrt(sums) if power == 2 else sums if power == 1 else sums ** sums.dtype.type(1 / power)


def _spatial(data: Array) -> tuple[int, ...]:
    return tuple(range(2, data.ndim))


@row("GlobalAveragePool")
def global_average_pool(call: Call, data: Array) -> Array:
    """(N, C, sizes) to (N, C, 1, ...): the mean."""
    return np.asarray(wide(data).mean(axis=_spatial(data), keepdims=True))


@row("GlobalMaxPool")
def global_max_pool(call: Call, data: Array) -> Array:
    """(N, C, sizes) to (N, C, 1, ...): the maximum."""
    return np.asarray(data.max(axis=_spatial(data), keepdims=True))


@row("GlobalLpPool")
def global_lp_pool(call: Call, data: Array) -> Array:
    """(N, C, sizes) to (N, C, 1, ...): the p-norm."""
    data, power = wide(data), call.attribute("p", 2)
    return _root(_powers(data, power).sum(axis=_spatial(data), keepdims=True), power)


def _unpool_cost(call: Call, data: Array, places: Array, asked: Array | None = None) -> Cost:
    kernel, count = call.attribute("kernel_shape") or (), data.ndim - 2
    strides, pads = numbers(call, "strides", count, 1), numbers(call, "pads", 2 * count, 0)
    sizes = [
        (size - 1) * stride + width - low - high
        for size, stride, width, low, high in zip(
            data.shape[2:], strides, kernel, pads[:count], pads[count:], strict=False
        )
    ]
    both = made([*data.shape[:2], *sizes], data.itemsize).results + made(sizes_in(asked), data.itemsize).results
    return Cost(both + 10 * data.size, both, both + 3 * WIDE * data.size)


@row("MaxUnpool", cost=_unpool_cost)
def max_unpool(call: Call, data: Array, places: Array, asked: Array | None = None) -> Array:
    """The values at their places, zeros elsewhere. The places count in the size that the pool's attributes give; a
    larger size that is asked for is filled behind it."""
    kernel, count = call.attribute("kernel_shape"), data.ndim - 2
    if not kernel or len(kernel) != count:
        call.fail(f"kernel_shape is {kernel}, and the data has {count} spatial axes")
    strides, pads = numbers(call, "strides", count, 1), numbers(call, "pads", 2 * count, 0)
    sizes = [
        (data.shape[axis + 2] - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[axis + count]
        for axis in range(count)
    ]
    if asked is None:
        return _placed(call, data, places, (*data.shape[:2], *sizes))
    wanted = tuple(int(size) for size in asked)
    if len(wanted) != data.ndim:
        call.fail(f"output_shape has {len(wanted)} sizes, and the data has rank {data.ndim}")
    if any(size < made for size, made in zip(wanted[2:], sizes, strict=True)):
        return _placed(call, data, places, wanted)
    result = np.zeros(wanted, data.dtype)
    result[tuple(slice(0, size) for size in (*data.shape[:2], *sizes))] = _placed(
        call, data, places, (*data.shape[:2], *sizes)
    )
    return result


def _placed(call: Call, data: Array, places: Array, shape: Sequence[int]) -> Array:
    if min(shape) < 0:
        call.fail(f"the output would have the shape {list(shape)}")
    flat = np.zeros(prod(shape), data.dtype)
    if places.size and (places.min() < 0 or places.max() >= flat.size):
        call.fail(f"an index is outside of the {flat.size} elements of the output")
    flat[places.reshape(-1)] = data.reshape(-1)
    return flat.reshape(shape)


def _regions_cost(call: Call, data: Array, regions: Array) -> Cost:
    height, width = (max(0, size) for size in call.attribute("pooled_shape"))
    count, channels = len(regions), data.shape[1]
    bins = count * height * width
    lines = count * channels * data.shape[3] * (data.shape[2] + height)
    work = 2 * lines + bins * channels + count * height * data.shape[3] * channels + pieces(3 * bins)
    scratch = 100 * (height + width) + channels * data.shape[3] * WIDE
    return Cost(work, bins * channels * data.itemsize, scratch)


@row("MaxRoiPool", cost=_regions_cost)
def max_roi_pool(call: Call, data: Array, regions: Array) -> Array:
    """The maxima of the bins of each region (batch, x1, y1, x2, y2), ends included; 0 for an empty bin."""
    height, width = call.attribute("pooled_shape")
    scale = np.float32(call.attribute("spatial_scale", 1.0))
    result = np.zeros((len(regions), data.shape[1], height, width), data.dtype)
    for item, region in enumerate(regions):
        corners = wide(region[1:]) * scale  # halves are rounded away from 0, as by C's round
        left, top, right, bottom = np.trunc(corners + np.copysign(np.float32(0.5), corners)).astype(np.int64)
        image = data[int(region[0])]
        rows = _bins(int(top), int(bottom), height, data.shape[2])
        columns = _bins(int(left), int(right), width, data.shape[3])
        for y, (up, down) in enumerate(rows):
            if down <= up:
                continue
            line = image[:, up:down].max(axis=1)
            for x, (start, stop) in enumerate(columns):
                if stop > start:
                    result[item, :, y, x] = line[:, start:stop].max(axis=1)
    return result


def _bins(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    each = np.float32(max(last - first + 1, 1)) / np.float32(count)
    starts = np.floor(np.arange(count, dtype=np.float32) * each).astype(np.int64) + first
    stops = np.ceil(np.arange(1, count + 1, dtype=np.float32) * each).astype(np.int64) + first
    return list(zip(np.clip(starts, 0, size).tolist(), np.clip(stops, 0, size).tolist(), strict=True))
