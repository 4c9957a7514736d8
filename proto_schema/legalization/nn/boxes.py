"""The form of NonMaxSuppression."""

from __future__ import annotations

import numpy as np

from proto_schema.legalization.loops import repeat
from proto_schema.legalization.operators import Operators, RefusedError, Value
from proto_schema.legalization.sizes import numbers_below
from proto_schema.legalization.table import older


@older("NonMaxSuppression", before=10)
def non_max_suppression(
    op: Operators,
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Value | None = None,
    iou_threshold: Value | None = None,
    score_threshold: Value | None = None,
    center_point_box: int = 0,
) -> Value:
    """One image and class: by falling score, a box removes those that overlap it."""
    single = scores.shape is not None and tuple(scores.shape[:2]) == (1, 1)
    if not single or score_threshold is not None or center_point_box or max_output_boxes_per_class is None:
        raise RefusedError("older operators find the boxes of one image and class, as many as asked, of any score")
    number = op.dim(scores, 2)
    if number == 0:
        return op.const(np.empty((0, 3), np.int64))
    _, order = op.multi("TopK", op.Reshape(scores, [-1]), op.ints([number]), outputs=2, axis=0)
    ordered = op.Gather(op.Reshape(boxes, [-1, 4]), order, axis=0)
    corners = [op.Slice(ordered, [place], [place + 1], axes=[1]) for place in range(4)]
    low = [op.Min(corners[place], corners[place + 2]) for place in (0, 1)]
    high = [op.Max(corners[place], corners[place + 2]) for place in (0, 1)]
    area = op.Mul(op.Sub(high[0], low[0]), op.Sub(high[1], low[1]))
    sides = []
    for start, end in zip(low, high, strict=True):
        inner = op.Sub(op.Min(end, op.Transpose(end, perm=[1, 0])), op.Max(start, op.Transpose(start, perm=[1, 0])))
        sides.append(op.Max(inner, op.like(0, inner)))
    common = op.Mul(*sides)
    union = op.Sub(op.Add(area, op.Transpose(area, perm=[1, 0])), common)
    threshold = op.like(0, common) if iou_threshold is None else op.Reshape(iou_threshold, op.ints([]))
    zero = op.like(0, common)
    safe = op.Where(op.Greater(union, zero), union, op.like(1, union))
    over = op.And(op.Greater(op.Div(common, safe), threshold), op.Greater(common, zero))
    numbers = numbers_below(op, number)
    removes = op.And(over, op.Less(op.Unsqueeze(numbers, [1]), op.Unsqueeze(numbers, [0])))  # [i, j]: i removes j

    def step(op: Operators, at: Value, kept: Value) -> list[Value]:
        # Gather of rank-1 positions: [1, n] and [1]
        gone = op.And(op.Gather(removes, at, axis=0), op.Gather(kept, at, axis=0))
        return [op.And(kept, op.Not(op.Squeeze(gone, [0])))]

    start = op.Equal(numbers, numbers)
    (kept,) = repeat(op, number, step, start, written_out=0)
    found = op.Slice(op.Compress(order, kept, axis=0), [0], op.Reshape(max_output_boxes_per_class, [-1]), [0])
    column = op.Unsqueeze(found, [1])
    nothing = op.Mul(column, op.const(0))
    result: Value = op.Concat(nothing, nothing, column, axis=1)
    return result
