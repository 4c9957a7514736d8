"""Older forms of operators that order elements."""

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.older.gather_scatter import count
from purexport.lowering.support.common import reshape
from purexport.lowering.support.loops import repeat
from purexport.lowering.support.positions import size_value

_EXACT_IN_DOUBLE = (dtypes.BOOL, dtypes.UINT8, dtypes.INT8, dtypes.UINT16, dtypes.INT16, dtypes.INT32, dtypes.UINT32)
_HALF = 2**32


def top_k(
    op: Emitter,
    X: Value,  # noqa: N803  the names of ONNX
    K: Value,  # noqa: N803
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> tuple[Value, Value] | None:
    """TopK of a computed number of elements (opset 10), of integers and of the smallest (opset 11).

    Of equal elements the one at the lower position comes first.
    """
    if X.shape is None:
        return None
    axis %= X.rank
    if not op.takes("TopK", X.dtype):
        if X.dtype in _EXACT_IN_DOUBLE:
            found, at = _best(op, op.cast(X, dtypes.DOUBLE), K, axis, largest)
            return op.cast(found, X.dtype), at
        return _best_of_halves(op, X, K, axis, largest) if X.dtype == dtypes.INT64 else None
    if not largest:
        # floats only: an opset that takes integers knows the smallest
        found, at = _best(op, op.Neg(X), K, axis, 1)
        return op.Neg(found), at
    size, wanted = op.dim(X, axis), op.ints([reshape(op, K, [])])
    if isinstance(size, int):
        found, at = _best(op, X, size, axis, largest)
    else:
        at = _order_by_pairs(op, X, axis, size)
        found = op.GatherElements(X, at, axis=axis)
    return op.Slice(found, [0], wanted, axes=[axis]), op.Slice(at, [0], wanted, axes=[axis])


def _best(op: Emitter, value: Value, number: Any, axis: int, largest: int) -> tuple[Value, Value]:
    number = op.ints([number]) if isinstance(number, int) else number
    found, at = op.multi("TopK", value, number, outputs=2, axis=axis, largest=largest)
    return found, at


def _best_of_halves(op: Emitter, value: Value, number: Value, axis: int, largest: int) -> tuple[Value, Value]:
    """int64 by their lower and then by their upper half, each of which a double holds."""
    half = op.const(_HALF)
    lower = op.Mod(value, half)
    upper = op.Div(op.Sub(value, lower), half)
    all_of_them = op.ints([op.dim(value, axis)])
    _, first = op.multi("TopK", op.cast(lower, dtypes.DOUBLE), all_of_them, outputs=2, axis=axis, largest=largest)
    ordered = op.GatherElements(upper, first, axis=axis)
    _, second = op.multi("TopK", op.cast(ordered, dtypes.DOUBLE), number, outputs=2, axis=axis, largest=largest)
    at = op.GatherElements(first, second, axis=axis)
    return op.GatherElements(value, at, axis=axis), at


def _order_by_pairs(op: Emitter, value: Value, axis: int, size: Any) -> Value:
    """The positions of the elements by falling number: each one's rank is how many go before it."""
    behind = value.rank - axis - 1
    one, other = op.Unsqueeze(value, [axis + 1]), op.Unsqueeze(value, [axis])
    numbers = count(op, size)
    earlier = op.Less(op.Unsqueeze(numbers, [0]), op.Unsqueeze(numbers, [1]))
    earlier = op.Reshape(earlier, op.ints([size, size, *[1] * behind]))
    before = op.Or(op.Greater(other, one), op.And(op.Equal(other, one), earlier))
    ranks = op.ReduceSum(op.cast(before, dtypes.INT64), axes=[axis + 1], keepdims=0)
    own = op.Expand(op.Reshape(numbers, [-1, *[1] * behind]), op.shape(value))
    return op.ScatterElements(own, ranks, own, axis=axis)


def unique(
    op: Emitter,
    X: Value,  # noqa: N803
    axis: int | None = None,
    sorted: int = 1,
) -> tuple[Value, Value, Value, Value] | None:
    """Unique (opset 11) of the slices along an axis: each pair is compared at its first difference.

    Not for NaN, of which none equals another: a slice that holds one is never the same as another.
    """
    if axis is None or X.shape is None or not sorted:
        return None
    axis %= X.rank
    size = op.dim(X, axis)
    order = [axis, *[other for other in range(X.rank) if other != axis]]
    rows = reshape(op, op.Transpose(X, perm=order), [size, -1])
    one, other = op.Unsqueeze(rows, [1]), op.Unsqueeze(rows, [0])  # [i, 1, d] and [1, j, d]
    differs = op.cast(op.Not(op.Equal(one, other)), dtypes.INT32)
    first = op.ArgMax(differs, axis=2, keepdims=1)
    is_less = op.GatherElements(op.cast(op.Less(other, one), dtypes.INT64), first, axis=2)
    is_same = op.Not(op.cast(op.ReduceMax(differs, axes=[2], keepdims=0), dtypes.BOOL))  # [i, j]
    numbers = count(op, size)
    earlier = op.Less(op.Unsqueeze(numbers, [0]), op.Unsqueeze(numbers, [1]))
    repeated = op.And(is_same, earlier)
    # a row is the first of its kind where none before it is the same
    is_first = op.Not(op.cast(op.ReduceMax(op.cast(repeated, dtypes.INT32), axes=[1], keepdims=0), dtypes.BOOL))
    kinds = op.cast(is_first, dtypes.INT64)
    goes_before = op.cast(op.cast(op.Squeeze(is_less, [2]), dtypes.BOOL), dtypes.INT64)
    # the place of each row's kind: how many kinds are less
    inverse = op.ReduceSum(op.Mul(goes_before, kinds), axes=[1], keepdims=0)
    firsts = op.Compress(numbers, is_first, axis=0)
    ranks = op.Gather(inverse, firsts, axis=0)
    indices = op.ScatterElements(firsts, ranks, firsts, axis=0)
    each = op.ReduceSum(op.cast(is_same, dtypes.INT64), axes=[1], keepdims=0)
    return op.Gather(X, indices, axis=axis), indices, inverse, op.Gather(each, indices, axis=0)


def non_max_suppression(
    op: Emitter,
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Value | None = None,
    iou_threshold: Value | None = None,
    score_threshold: Value | None = None,
    center_point_box: int = 0,
) -> Value | None:
    """NonMaxSuppression (opset 10) of one image and class: by falling score, a box removes those that overlap it."""
    single = scores.shape is not None and scores.shape[:2] == (1, 1)
    if not single or score_threshold is not None or center_point_box or max_output_boxes_per_class is None:
        return None
    number = op.dim(scores, 2)
    if number == 0:
        return op.const(torch.empty((0, 3), dtype=torch.int64))
    _, order = op.multi("TopK", reshape(op, scores, [-1]), op.ints([number]), outputs=2, axis=0)
    ordered = op.Gather(reshape(op, boxes, [-1, 4]), order, axis=0)
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
    threshold = op.like(0, common) if iou_threshold is None else reshape(op, iou_threshold, [])
    zero = op.like(0, common)
    safe = op.Where(op.Greater(union, zero), union, op.like(1, union))
    over = op.And(op.Greater(op.Div(common, safe), threshold), op.Greater(common, zero))
    numbers = count(op, number)
    removes = op.And(over, op.Less(op.Unsqueeze(numbers, [1]), op.Unsqueeze(numbers, [0])))  # [i, j]: i removes j

    def step(op: Emitter, at: Value, kept: Value) -> list[Value]:
        # Gather of rank-1 positions: [1, n] and [1]
        gone = op.And(op.Gather(removes, at, axis=0), op.Gather(kept, at, axis=0))
        return [op.And(kept, op.Not(op.Squeeze(gone, [0])))]

    start = op.Equal(numbers, numbers)
    (kept,) = repeat(op, size_value(op, number), step, start, written_out=0)
    found = op.Slice(op.Compress(order, kept, axis=0), [0], max_output_boxes_per_class, axes=[0])
    column = op.Unsqueeze(found, [1])
    nothing = op.Mul(column, op.const(0))
    result: Value = op.Concat(nothing, nothing, column, axis=1)
    return result
