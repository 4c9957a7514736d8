"""Resize of known sizes, one axis at a time: which elements it takes, or with which weights it adds them.

Resizing is linear in its input and looks at each axis by itself. So an axis of known size is a Gather where the nearest
element is taken, and a product with a matrix of weights elsewhere. The places and weights are those of the
specification of Resize (https://onnx.ai/onnx/operators/onnx__Resize.html).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import FLOAT, Writer
from proto_schema.ir import Value
from proto_schema.onnx import TensorProto

Array = npt.NDArray[Any]


def resized(node: VersionedNode, op: Writer, old: bool) -> Value | None:
    """The result; None where a size is not known. With `old`, the node has the form of opset 10."""
    x, rank = node[0], node[0].rank
    sizes = x.sizes
    if rank is None or sizes is None:
        return None
    axes = [axis % rank for axis in node.attribute("axes") or range(rank)]
    place = 1 if old else 2
    scales = node[place].array() if node.has(place) and node[place].sizes != (0,) else None
    wanted = node[3].array() if not old and node.has(3) and node[3].sizes != (0,) else None
    if scales is None and wanted is None:
        return None
    mode = "asymmetric" if old else node.text("coordinate_transformation_mode")
    if mode == "tf_crop_and_resize":
        raise RefusedError("it resizes a part of its input")
    if scales is None and wanted is not None:
        factors = [float(size) / sizes[axis] for size, axis in zip(wanted, axes, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        ends = [int(size) for size in wanted]
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            factors = [one] * len(factors)
            ends = [int(np.floor(one * sizes[axis] + 0.5)) for axis in axes]
    else:
        factors = [float(item) for item in (scales if scales is not None else [])]
        ends = [int(np.floor(sizes[axis] * factor)) for axis, factor in zip(axes, factors, strict=True)]
    dtype = node.need_dtype(0)
    wide = dtype if dtype in (FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16) else FLOAT
    nearest = node.text("mode") == "nearest"
    made = x if nearest else op.cast(x, wide)
    for axis, factor, end in zip(axes, factors, ends, strict=True):
        size = sizes[axis]
        if size == end and factor == 1.0:
            continue
        places = _places(mode, size, end, factor)
        if nearest:
            made = op.Gather(made, [int(item) for item in _nearest(node, old, places, size)], axis=axis)
            continue
        weights = _weights(node, places, size, end, factor)
        order = [other for other in range(rank) if other != axis] + [axis]
        last = op.MatMul(op.Transpose(made, perm=order), op.const(weights.T, wide))
        made = op.Transpose(last, perm=np.argsort(order).tolist())
    if nearest or wide == dtype:
        return made
    raise RefusedError("it interpolates integers, whose rounding is left open")


def _places(mode: str, size: int, end: int, factor: float) -> Array:
    """For each element of the result, the place in the input that it stands for."""
    steps = np.arange(end, dtype=np.float64)
    if mode == "asymmetric":
        return steps / factor
    if mode == "align_corners":
        return steps * (size - 1) / (size * factor - 1) if size * factor != 1 else np.zeros(end)
    if mode == "pytorch_half_pixel" and end == 1:
        return np.full(end, -0.5)
    if mode == "half_pixel_symmetric":
        whole = size * factor
        middle = size / 2
        shift = middle * (1 - end / whole)
        return shift + (steps + 0.5) / factor - 0.5
    return (steps + 0.5) / factor - 0.5


def _nearest(node: VersionedNode, old: bool, places: Array, size: int) -> Array:
    how = "floor" if old else node.text("nearest_mode")
    shift = {"round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}.get(how, 0.0)
    rounded: Array = (np.ceil if how in ("ceil", "round_prefer_floor") else np.floor)(places + shift)
    found: Array = np.clip(rounded, 0, size - 1).astype(np.int64)
    return found


def _weights(node: VersionedNode, places: Array, size: int, end: int, factor: float) -> Array:
    """Row by row the weights with which an element of the result adds those of the input."""
    cubic = node.text("mode") == "cubic"
    shrink = min(factor, 1.0) if node.attribute("antialias", 0) else 1.0
    reach = (2.0 if cubic else 1.0) / shrink
    a = node.attribute("cubic_coeff_a", -0.75)
    outside = bool(node.attribute("exclude_outside", 0))
    made = np.zeros((end, size))
    for row, place in enumerate(places):
        first, last = int(np.floor(place - reach)) + 1, int(np.ceil(place + reach)) - 1
        if shrink == 1.0:
            first = int(np.floor(place)) - (1 if cubic else 0)
            last = first + (3 if cubic else 1)
        taps = np.arange(first, last + 1)
        distance = np.abs(taps - place) * shrink
        if cubic:
            near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
            far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
            weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
        else:
            weights = np.maximum(1 - distance, 0)
        if outside:
            weights = np.where((taps >= 0) & (taps < size), weights, 0)
        if outside or shrink != 1.0:
            weights = weights / weights.sum()
        np.add.at(made[row], np.clip(taps, 0, size - 1), weights)
    return made
