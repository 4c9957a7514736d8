"""Rows that collect or spread the columns of a convolution by themselves: DeformConv and Col2Im."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, pieces, products, sizes_in
from proto_schema.compute.images.sampling import sampled
from proto_schema.compute.nn.convolution import added, biased, checked_kernel
from proto_schema.compute.nn.numbers import wide
from proto_schema.compute.nn.windows import KernelWindows, numbers, windows
from proto_schema.compute.rows import row


def _deformed_cost(
    call: Call, data: Array, weight: Array, moved: Array, bias: Array | None = None, mask: Array | None = None
) -> Cost:
    """Columns of one image, each a sum over the corners around a place, and a product of matrices."""
    kernel = checked_kernel(call, data, weight)
    window = windows(call, data.shape[2:], kernel)
    places, corners = prod(kernel) * prod(window.places), 2 ** len(kernel)
    results, columns = data.shape[0] * weight.shape[0] * prod(window.places), data.shape[1] * places
    work = data.shape[0] * columns * corners * 4 + products(results * weight.shape[1] * prod(kernel), np.float32)
    work += data.shape[0] * places * corners * 20 + results + 2 * moved.size
    scratch = WIDE * (5 * columns + 12 * len(kernel) * places + moved.size + data.size + 2 * results)
    return Cost(work, results * max(4, data.itemsize), scratch)


@row("DeformConv", cost=_deformed_cost)
def deformable_convolution(
    call: Call, data: Array, weight: Array, moved: Array, bias: Array | None = None, mask: Array | None = None
) -> Array:
    """A convolution whose every element of the kernel looks at a place moved by an offset, and is scaled by a mask.

    Offsets are (N, groups of offsets * kernel * axes, places), the axes in order; places between pixels are
    interpolated linearly, and what is outside is 0.
    """
    kernel = checked_kernel(call, data, weight)
    window = windows(call, data.shape[2:], kernel)
    group, parts, axes = call.attribute("group", 1), call.attribute("offset_group", 1), len(kernel)
    batch, channels, filters = *data.shape[:2], weight.shape[0]
    if channels != weight.shape[1] * group or filters % group or channels % parts:
        call.fail(f"{channels} channels and a weight of shape {weight.shape} do not fit group {group}, {parts}")
    elements, places = prod(kernel), prod(window.places)
    if moved.shape != (batch, parts * elements * axes, *window.places):
        call.fail(f"offset has shape {moved.shape}, and {(batch, parts * elements * axes, *window.places)} is needed")
    kind = wide(data).dtype
    shifts = wide(moved).reshape(batch, parts, elements, axes, places)
    shares = None if mask is None else wide(mask).reshape(batch, parts, 1, elements, places)
    starts = _starts(window, kind)
    rows = wide(weight).reshape(group, filters // group, -1)
    result = np.empty((batch, filters, *window.places), kind)
    for item in range(batch):
        columns = np.empty((parts, channels // parts, elements, places), kind)
        for part in range(parts):
            at = [(starts[axis] + shifts[item, part, :, axis]).reshape(-1) for axis in range(axes)]
            some = wide(data[item, part * (channels // parts) : (part + 1) * (channels // parts)])
            columns[part] = sampled(some, at, "linear").reshape(-1, elements, places)
        if shares is not None:
            columns *= shares[item]
        found = np.matmul(rows, columns.reshape(group, rows.shape[2], places))
        result[item] = found.reshape(filters, *window.places)
    return biased(result, bias)


def _starts(window: KernelWindows, kind: np.dtype[Any]) -> list[Array]:
    """Where the elements of the kernel lie without offsets: for each axis (kernel, places)."""
    count = len(window.kernel)
    found = []
    for axis in range(count):
        inner: Array = np.arange(window.kernel[axis]) * window.dilations[axis]
        outer: Array = np.arange(window.places[axis]) * window.strides[axis] - window.before[axis]
        inner = inner.reshape([-1 if place == axis else 1 for place in range(count)])
        outer = outer.reshape([-1 if place == axis else 1 for place in range(count)])
        inside = np.broadcast_to(inner, window.kernel).reshape(-1, 1)
        found.append((inside + np.broadcast_to(outer, window.places).reshape(1, -1)).astype(kind))
    return found


def _image_cost(call: Call, data: Array, image: Array, block: Array) -> Cost:
    whole = prod(max(0, size) for size in sizes_in(image))
    kernel = prod(max(0, size) for size in sizes_in(block))
    if not kernel or data.ndim != 3:
        return Cost()  # the row refuses it
    results = data.shape[0] * (data.shape[1] // kernel) * whole
    return Cost(2 * data.size + results + pieces(10 * kernel), WIDE * results, WIDE * (2 * data.size + results))


@row("Col2Im", cost=_image_cost)
def columns_to_image(call: Call, data: Array, image: Array, block: Array) -> Array:
    """(N, C * block, places) to (N, C, image): the sum of all blocks, each at its place."""
    sizes, kernel = [int(size) for size in image], [int(size) for size in block]
    moving = windows(call, sizes, kernel)
    pads = numbers(call, "pads", 2 * len(sizes), 0)
    if data.ndim != 3 or data.shape[1] % max(1, prod(kernel)) or data.shape[2] != prod(moving.places):
        call.fail(f"data of shape {data.shape} does not hold blocks {kernel} at {prod(moving.places)} places")
    channels = data.shape[1] // prod(kernel)
    values = wide(data).reshape(data.shape[0], channels, *kernel, *moving.places)
    result = np.zeros((data.shape[0], channels, *sizes), values.dtype)
    if values.size:
        added(result, values, moving, pads[: len(sizes)])
    return result
