"""Rows that resize: Resize and Upsample.

Interpolation is separable, so that each axis is resized by itself. Along an axis every output is a sum of a few
neighbours, whose places (clamped to the axis) and weights are computed once: one whole-array operation a neighbour, or
one product of matrices where antialiasing makes the neighbours many.

Coordinates are float32, scales too, as in ONNX Runtime: at ties the rounding decides which neighbour is nearest.
Resize of opset 10 and Upsample say no coordinates; they divide by the scale, and take the next element below where they
enlarge and above where they shrink, as ONNX Runtime does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE
from proto_schema.compute.nn.numbers import rounded_to, wide
from proto_schema.compute.rows import row

_FEW = 4
"""With more neighbours than that an axis is resized by a product of matrices."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is resized."""

    axis: int
    size: int
    made: int
    scale: np.float32
    start: float = 0.0
    end: float = 1.0


def _resized_cost(data: Array, plans: Sequence[_Axis]) -> Cost:
    """Axes that shrink come first, so that nothing between is larger than the data or the result. Each has places and
    weights for all neighbours: as many as the old axis has where antialiasing looks at all of it."""
    shape = list(data.shape)
    for plan in plans:
        shape[plan.axis] = max(0, plan.made)
    count, width = max(prod(shape), data.size), max(WIDE, data.itemsize)
    near = sum(8 * (max(0, plan.made) + plan.size) for plan in plans)
    dense = sum(max(0, plan.made) * plan.size for plan in plans if 0 < plan.made < plan.size)
    work = 20 * count * (1 + len(plans)) + 40 * near
    work += sum(count * plan.size // 16 for plan in plans if 0 < plan.made < plan.size)
    return Cost(work, prod(shape) * width, (4 * count + 8 * near + dense) * width)


def _resize_cost(
    call: Call, data: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Cost:
    if call.version < 11:
        scales, roi = roi, None
    axes = [call.axis(axis, data.ndim) for axis in call.attribute("axes") or range(data.ndim)]
    return _resized_cost(data, _plans(call, data, axes, roi, _given(scales), _given(sizes)))


def _upsample_cost(call: Call, data: Array, scales: Array | None = None) -> Cost:
    return _resized_cost(data, _plans(call, data, list(range(data.ndim)), None, _scales(call, scales), None))


@row("Resize", cost=_resize_cost)
def resize(
    call: Call, data: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Array:
    """The axes interpolated at other coordinates. Integers are rounded to nearest and saturated."""
    if call.version < 11:
        scales, roi = roi, None
    axes = [call.axis(axis, data.ndim) for axis in call.attribute("axes") or range(data.ndim)]
    plans = _plans(call, data, axes, roi, _given(scales), _given(sizes))
    old = call.version < 11
    return _resized(call, data, plans, "asymmetric" if old else "", old)


@row("Upsample", cost=_upsample_cost)
def upsample(call: Call, data: Array, scales: Array | None = None) -> Array:
    """The axes enlarged by scales: an input since opset 9, an attribute before, height and width in opset 1."""
    plans = _plans(call, data, list(range(data.ndim)), None, _scales(call, scales), None)
    return _resized(call, data, plans, "asymmetric", True)


def _scales(call: Call, scales: Array | None) -> Array | None:
    if call.version == 1:
        return np.array([1, 1, call.attribute("height_scale"), call.attribute("width_scale")], np.float32)
    return np.array(call.attribute("scales"), np.float32) if call.version < 9 else scales


def _given(numbers: Array | None) -> Array | None:
    """None for an empty tensor, too."""
    return None if numbers is None or not numbers.size else numbers


def _plans(
    call: Call, data: Array, axes: Sequence[int], roi: Array | None, scales: Array | None, sizes: Array | None
) -> list[_Axis]:
    if (scales is None) == (sizes is None):
        call.fail("either scales or sizes must be given, and not both")
    numbers = scales if scales is not None else sizes
    assert numbers is not None
    if numbers.shape != (len(axes),):
        call.fail(f"{numbers.size} scales or sizes, and {len(axes)} axes")
    old = [data.shape[axis] for axis in axes]
    if scales is not None:
        factors = [np.float32(scale) for scale in scales]
        made = [int(np.float32(size) * factor) for size, factor in zip(old, factors, strict=True)]
        if not all(factor > 0 for factor in factors):
            call.fail(f"scales are {scales.tolist()}, and must be above 0")
    else:
        made, factors = _sized(call, old, numbers)
    starts, ends = [0.0] * len(axes), [1.0] * len(axes)
    if roi is not None and roi.size and call.text("coordinate_transformation_mode") == "tf_crop_and_resize":
        if roi.shape != (2 * len(axes),):
            call.fail(f"roi has {roi.size} numbers, and {len(axes)} axes need twice as many")
        starts, ends = roi[: len(axes)].tolist(), roi[len(axes) :].tolist()
    return [_Axis(*items) for items in zip(axes, old, made, factors, starts, ends, strict=True)]


def _sized(call: Call, old: Sequence[int], sizes: Array) -> tuple[list[int], list[np.float32]]:
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    made = [int(size) for size in sizes]
    scales = [np.float32(size) / np.float32(max(was, 1)) for size, was in zip(made, old, strict=True)]
    if policy == "stretch":
        return made, scales
    if policy not in ("not_larger", "not_smaller"):
        call.fail(f"keep_aspect_ratio_policy is {policy!r}, and may be stretch, not_larger or not_smaller")
    choose = min if policy == "not_larger" else max
    ratio = choose(size / max(was, 1) for size, was in zip(made, old, strict=True))
    return [math.floor(ratio * was + 0.5) for was in old], [np.float32(ratio)] * len(old)


def _resized(call: Call, data: Array, plans: Sequence[_Axis], coordinates: str, simple: bool) -> Array:
    coordinates = coordinates or call.text("coordinate_transformation_mode", "half_pixel")
    crop, mode = coordinates == "tf_crop_and_resize", call.text("mode", "nearest")
    plans = [plan for plan in plans if crop or plan.made != plan.size or plan.scale != 1]
    if 0 in data.shape or any(plan.made == 0 for plan in plans):
        shape = list(data.shape)
        for plan in plans:
            shape[plan.axis] = plan.made
        return np.zeros(shape, data.dtype)
    smooth = mode != "nearest" and any(plan.size > 1 or crop for plan in plans)
    values = data
    if smooth:
        values = data.astype(np.float64) if data.dtype.kind in "iub" else wide(data)
    outside = []
    for plan in sorted(plans, key=lambda plan: plan.made / plan.size):
        at = _coordinates(call, coordinates, plan)
        if crop:
            outside.append((plan.axis, (at < 0) | (at > plan.size - 1)))
        if mode == "nearest":
            values = values.take(_nearest(call, at, plan, simple), axis=plan.axis)
        else:
            values = _interpolated(call, values, mode, at, plan)
    if any(mask.any() for _, mask in outside):
        values = values.copy()
        for axis, mask in outside:
            values[(slice(None),) * axis + (mask,)] = call.attribute("extrapolation_value", 0.0)
    return rounded_to(values, data.dtype) if smooth and data.dtype.kind in "iu" else values


def _coordinates(call: Call, mode: str, plan: _Axis) -> Array:
    """The place in the input of each output along an axis.

    With `align_corners` the last place is that of the size before it is rounded down, as the official cases have it;
    ONNX Runtime takes the rounded one.
    """
    single = np.float32
    places: Array = np.arange(plan.made, dtype=single)
    half, scale, last = single(0.5), single(plan.scale), plan.size - 1
    found: Array
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and plan.made > 1):
        found = (places + half) / scale - half
    elif mode == "pytorch_half_pixel":
        found = np.zeros(plan.made, single)
    elif mode == "asymmetric":
        found = places / scale
    elif mode == "align_corners":
        whole = scale * single(plan.size)
        found = places * single(last) / (whole - single(1)) if whole > 1 else np.zeros(plan.made, single)
    elif mode == "tf_half_pixel_for_nn":
        found = (places + half) / scale
    elif mode == "half_pixel_symmetric":
        adjustment = single(plan.made) / (scale * single(plan.size))
        found = single(plan.size / 2) * (single(1) - adjustment) + (places + half) / scale - half
    elif mode == "tf_crop_and_resize":
        start, end = single(plan.start), single(plan.end)
        if plan.made == 1:
            found = np.full(1, half * (start + end) * single(last), single)
        else:
            found = start * single(last) + places * (end - start) * single(last) / single(plan.made - 1)
    else:
        call.fail(f"coordinate_transformation_mode {mode!r} is not one of the specification")
    return found


def _nearest(call: Call, at: Array, plan: _Axis, simple: bool) -> Array:
    mode = "simple" if simple else call.text("nearest_mode", "round_prefer_floor")
    if mode == "simple":
        found = np.ceil(at) if plan.scale < 1 else np.floor(at)
    elif mode == "round_prefer_floor":
        found = np.ceil(at - np.float32(0.5))
    elif mode == "round_prefer_ceil":
        found = np.floor(at + np.float32(0.5))
    elif mode in ("floor", "ceil"):
        found = np.floor(at) if mode == "floor" else np.ceil(at)
    else:
        call.fail(f"nearest_mode {mode!r} is not one of the specification")
    return np.clip(found, 0, plan.size - 1).astype(np.intp)


def _interpolated(call: Call, values: Array, mode: str, at: Array, plan: _Axis) -> Array:
    """Sums of neighbours along an axis."""
    if mode not in ("linear", "bilinear", "cubic"):
        call.fail(f"mode {mode!r} is not one of the specification")
    reach = 2 if mode == "cubic" else 1
    narrowing = min(1.0, float(plan.scale)) if call.attribute("antialias", 0) else 1.0
    base = np.floor(at).astype(np.int64)
    first = math.floor(-reach / narrowing) + 1
    places = base[:, None] + np.arange(first, 2 - first)
    distances = np.abs(places - at.astype(np.float64)[:, None]) * narrowing
    weights = _cubic(distances, call.attribute("cubic_coeff_a", -0.75)) if reach == 2 else np.maximum(1 - distances, 0)
    if narrowing < 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    if call.attribute("exclude_outside", 0):
        weights = np.where((places < 0) | (places >= plan.size), 0.0, weights)
        weights = weights / np.where(weights.sum(axis=1, keepdims=True) == 0, 1.0, weights.sum(axis=1, keepdims=True))
    places, weights = np.clip(places, 0, plan.size - 1), weights.astype(values.dtype)
    if places.shape[1] > _FEW:
        matrix = np.zeros((plan.made, plan.size), values.dtype)
        np.add.at(matrix, (np.arange(plan.made)[:, None], places), weights)
        return np.moveaxis(np.matmul(np.moveaxis(values, plan.axis, -1), matrix.T), -1, plan.axis)
    form = (-1, *(1,) * (values.ndim - plan.axis - 1))
    total: Array | None = None
    for place, weight in zip(places.T, weights.T, strict=True):
        term = values.take(place, axis=plan.axis)
        term *= weight.reshape(form)
        total = term if total is None else np.add(total, term, out=total)
    assert total is not None
    return total


def _cubic(distances: Array, a: float) -> Array:
    """Keys' kernel (the specification's equation 4) at distances of 0 or more."""
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a
    return np.where(distances <= 1, near, np.where(distances < 2, far, 0.0))
