"""The form of Col2Im: windows of an image that are columns are added up."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from proto_schema.legalization.operators import Operators, RefusedError, Value, dtype_of
from proto_schema.legalization.sizes import full, item, minus, plus, quotient, times, value_of
from proto_schema.legalization.table import older


@older("Col2Im", before=18)
def col2im(
    op: Operators,
    input: Value,
    image_shape: Value,
    block_shape: Value,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """A ConvTranspose whose weights put each element in its place; for computed sizes ScatterElements adds them up."""
    kernel = block_shape.ints()
    if kernel is None:
        raise RefusedError("the shape of its blocks is computed when the model runs")
    rank, elements = len(kernel), prod(kernel)
    axes = list(
        zip(
            [item(op, image_shape, axis) for axis in range(rank)],
            kernel,
            dilations or [1] * rank,
            strides or [1] * rank,
            *np.reshape(pads or [0] * 2 * rank, (2, rank)).tolist(),
            strict=True,
        )
    )
    batch, channels = op.dim(input, 0), quotient(op, op.dim(input, 1), elements)
    if not all(isinstance(size, int) for size, *_ in axes):
        return _added_up(op, input, axes, batch, channels)
    places, missing = [], []
    for size, length, gap, step, before, after in axes:
        rest = size + before + after - gap * (length - 1) - 1
        places.append(rest // step + 1)
        missing.append(rest % step)
    weights = np.eye(elements).reshape(elements, 1, *kernel)
    planes = op.ConvTranspose(
        op.Reshape(input, op.ints([-1, elements, *places])),
        op.const(weights, dtype_of(input)),
        kernel_shape=list(kernel),
        dilations=[gap for _, _, gap, *_ in axes],
        pads=[before for *_, before, _ in axes] + [after for *_, after in axes],
        strides=[step for _, _, _, step, *_ in axes],
        output_padding=missing,
    )
    lead = [-1, channels] if isinstance(channels, int) else [batch, channels]
    return op.Reshape(planes, op.ints([*lead, *(size for size, *_ in axes)]))


def _added_up(op: Operators, x: Value, axes: Sequence[Any], batch: Any, channels: Any) -> Value:
    """The elements added up at their positions in the padded image, whose padding is then taken away."""
    rank = len(axes)
    whole = [plus(op, size, before + after) for size, _, _, _, before, after in axes]
    places: Value = None
    for axis, (wide, (_, length, gap, step, *_)) in enumerate(zip(whole, axes, strict=True)):
        starts = op.Range(op.const(0), value_of(op, minus(op, wide, gap * (length - 1))), op.const(step))
        inside = op.const(np.arange(length)[:, None] * gap)
        # [kernel of each axis, windows of each axis]
        own = op.Unsqueeze(
            op.Add(inside, op.Unsqueeze(starts, [0])),
            [other for other in range(2 * rank) if other not in (axis, rank + axis)],
        )
        places = own if places is None else op.Add(op.Mul(places, value_of(op, wide)), own)
    planes = times(op, batch, channels)
    parts = op.Reshape(x, op.ints([planes, -1]))
    at = op.Expand(op.Reshape(places, [1, -1]), op.shape(parts))
    zeros = full(op, [planes, times(op, *whole)], op.like(0, x))
    image = op.ScatterElements(zeros, at, parts, axis=1, reduction="add")
    image = op.Reshape(image, op.ints([batch, channels, *whole]))
    begins = [before for *_, before, _ in axes]
    ends = [plus(op, size, before) for (size, *_), before in zip(axes, begins, strict=True)]
    return op.Slice(image, begins, op.ints(ends), list(range(2, 2 + rank)))
