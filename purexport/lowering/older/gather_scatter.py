"""Older forms of operators that make, move and take elements: their positions are computed, and gathered.

Positions are counted by NonZero of ones, which every opset has.  Arithmetic on known sizes is done at once, so a static
call leaves one Gather from a constant.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.inferring import content_of
from purexport.lowering.support.common import dims_of, full, reshape
from purexport.lowering.support.positions import nonnegative, size_product, size_value


def at_least_zero(op: Emitter, size: Value) -> Value:
    """A size, or 0 where it is negative."""
    return size if op.is_at_least(size, 0) else op.Max(size, op.const(0))


def count(op: Emitter, size: Any) -> Value:
    """0, 1, ... below a size that is not negative, int64."""
    number = op.known(size)
    if isinstance(number, int):
        return op.const(torch.arange(number))
    ones = op.ConstantOfShape(reshape(op, number, [1]), value=torch.ones(1, dtype=torch.int64))
    result: Value = op.Reshape(op.NonZero(ones), [-1])
    # NonZero of ones finds them all, which inference does not follow
    result.shape = ones.shape
    return result


def count_up(op: Emitter, start: Value, limit: Value, delta: Value) -> Value:
    """Range (opset 11): the number of steps before the limit is computed first."""
    dtype = start.dtype
    if dtypes.is_floating(dtype):
        first, last, step = (op.cast(item, dtypes.DOUBLE) for item in (start, limit, delta))
        size = op.cast(op.Ceil(op.Div(op.Sub(last, first), step)), dtypes.INT64)
    else:
        first, last, step = (op.cast(item, dtypes.INT64) for item in (start, limit, delta))
        size = _steps(op, first, last, step)
    numbers = op.cast(count(op, at_least_zero(op, size)), first.dtype)
    return op.cast(_moved(op, numbers, first, step), dtype)


def _steps(op: Emitter, first: Value, last: Value, step: Value) -> Value:
    """How many steps there are from `first` before `last`; none or less where it lies behind."""
    found: Value
    if step.const is not None and step.const.item() == 1:
        found = op.Sub(last, first)
        return found
    sign = op.Sub(op.const(1), op.Mul(op.cast(op.Less(step, op.const(0)), dtypes.INT64), op.const(2)))
    width = op.Abs(step)
    found = op.Div(op.Sub(op.Add(op.Mul(op.Sub(last, first), sign), width), op.const(1)), width)
    return found


def _moved(op: Emitter, numbers: Value, first: Value, step: Value) -> Value:
    """`first + numbers * step`, without what changes nothing."""
    if step.const is None or step.const.item() != 1:
        numbers = op.Mul(numbers, step)
    return numbers if first.const is not None and first.const.item() == 0 else op.Add(first, numbers)


# Slices ---------------------------------------------------------------------------------------------------------------


def slices(
    op: Emitter, data: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value | None:
    """Slice by computed bounds or by steps (opset 10), one axis after the other."""
    if starts.shape is None or (axes is not None and axes.const is None) or data.shape is None:
        return None
    places = starts.shape[0]
    if not isinstance(places, int):
        return None
    chosen = range(places) if axes is None else axes.const.tolist()  # type: ignore[union-attr]
    for place, axis in enumerate(chosen):
        start, end = _item(op, starts, place), _item(op, ends, place)
        step = op.const(1) if steps is None else _item(op, steps, place)
        data = _sliced(op, data, axis % data.rank, start, end, step)
    return data


def _item(op: Emitter, values: Value, place: int) -> Value:
    content = content_of(values)
    if content is not None and isinstance(content[place], int):
        return op.const(content[place])
    return op.Gather(values, op.const(place), axis=0) if values.shape != (1,) else op.Reshape(values, op.const([]))


def _sliced(op: Emitter, data: Value, axis: int, start: Value, end: Value, step: Value) -> Value:
    if all(item.const is not None for item in (start, end)) and step.const is not None and step.const.item() == 1:
        return op.Slice(data, [op.known(start)], [op.known(end)], axes=[axis])
    size = size_value(op, op.dim(data, axis))
    # towards the front a slice begins at the last element, and ends one before the first
    back = op.cast(op.Less(step, op.const(0)), dtypes.INT64)
    last = op.Sub(size, back)
    first = _bound(op, start, size, op.const(0), last)
    stop = _bound(op, end, size, op.Neg(back), last)
    numbers = count(op, at_least_zero(op, _steps(op, first, stop, step)))
    return op.Gather(data, _moved(op, numbers, first, step), axis=axis)


def _bound(op: Emitter, at: Value, size: Value, low: Value, high: Value) -> Value:
    """A bound counted from the front, and none outside of `low` and `high`."""
    if not op.is_at_least(at, 0):
        at = op.Where(op.Less(at, op.const(0)), op.Add(at, size), at)
        at = op.Max(at, low)
    return at if at.const is not None and at.const.item() == 0 else op.Min(at, high)


def split(
    op: Emitter, input: Value, split: Value | None = None, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...] | None:
    """Split into computed sizes (opset 13), and into a number of parts (opset 18) of which the last may be smaller."""
    if input.shape is None:
        return None
    axis %= input.rank
    if num_outputs is not None:
        size = op.dim(input, axis)
        part = op.Div(op.Add(size_value(op, size), op.const(num_outputs - 1)), op.const(num_outputs))
        ends = [op.Mul(part, op.const(place + 1)) for place in range(num_outputs)]
    else:
        if split is None or split.shape is None or not isinstance(split.shape[0], int):
            return None
        ends = [_item(op, split, 0)]
        for place in range(1, split.shape[0]):
            ends.append(op.Add(ends[-1], _item(op, split, place)))
        input = _of_sizes(op, input, axis, split)
    starts = [op.const(0), *ends[:-1]]
    return tuple(
        op.Slice(input, op.ints([start]), op.ints([end]), axes=[axis]) for start, end in zip(starts, ends, strict=True)
    )


def _of_sizes(op: Emitter, data: Value, axis: int, sizes: Value) -> Value:
    """`data`, by a Reshape that fails where Split does: a size is negative, or they are not the whole axis together.

    Where a single size is computed and stands in a Concat, ONNX Runtime leaves it to the Reshape (-1), and nothing
    fails.  So the size is added to a zero.
    """
    dims: list[Any] = dims_of(op, data)
    dims[axis] = 0
    here = op.const([int(place == axis) for place in range(len(dims))])
    total = op.Mul(op.ReduceSum(op.Abs(sizes), keepdims=0), here)
    return op.Reshape(data, op.Add(op.ints(dims), total))


# Padding --------------------------------------------------------------------------------------------------------------


def pad(
    op: Emitter,
    data: Value,
    pads: Value,
    constant_value: Value | None = None,
    axes: Value | None = None,
    mode: str = "constant",
) -> Value | None:
    """Pad by computed amounts (opset 11): a negative one takes elements away."""
    if data.shape is None or (axes is not None and axes.const is None):
        return None
    chosen = range(data.rank) if axes is None else axes.const.tolist()  # type: ignore[union-attr]
    number: Value | float = 0 if constant_value is None else constant_value
    for place, axis in enumerate(chosen):
        before, after = _item(op, pads, place), _item(op, pads, place + len(chosen))
        if all(item.const is not None and item.const.item() == 0 for item in (before, after)):
            continue
        data = _padded(op, data, axis % data.rank, before, after, number, mode)
    return data


def _padded(op: Emitter, data: Value, axis: int, before: Value, after: Value, number: Any, mode: str) -> Value:
    size = size_value(op, op.dim(data, axis))
    total = op.Add(op.Add(size, before), after)
    at = op.Sub(count(op, at_least_zero(op, total)), before)
    last = op.Sub(size, op.const(1))
    if mode == "edge":
        at = op.Min(op.Max(at, op.const(0)), last)
    elif mode == "reflect":
        # back and forth: the distance from the last element, of a walk over twice the way
        way = op.Max(op.Mul(last, op.const(2)), op.const(1))
        at = op.Sub(last, op.Abs(op.Sub(last, op.Mod(at, way))))
    elif mode == "wrap":
        at = op.Mod(at, size)
    else:
        # one slice of the constant behind the others, which stands for all that are outside
        outside = op.Or(op.Less(at, op.const(0)), op.Less(last, at))
        at = op.Where(outside, size, at)
        sizes = dims_of(op, data)
        sizes[axis] = 1
        data = op.Concat(data, full(op, sizes, number, data.dtype or dtypes.FLOAT), axis=axis)
    return op.Gather(data, at, axis=axis)


# Elements by their positions ------------------------------------------------------------------------------------------


def gather_elements(op: Emitter, data: Value, indices: Value, axis: int = 0) -> Value | None:
    """GatherElements (opset 11), from the flattened tensor."""
    if data.shape is None or indices.shape is None:
        return None
    axis %= data.rank
    places = nonnegative(op, indices, op.dim(data, axis))
    if data.rank == 1:
        return op.Gather(data, places, axis=0)
    flat = flat_positions(op, data, places, axis)
    return op.Gather(reshape(op, data, [-1]), flat, axis=0)


def flat_positions(op: Emitter, data: Value, places: Value, axis: int) -> Value:
    """Where in the flattened `data` the elements are that `places`, positions along one axis, point to."""
    sizes, wanted = dims_of(op, data), dims_of(op, places)
    total = op.Mul(places, size_value(op, size_product(op, *sizes[axis + 1 :])))
    if data.is_static and places.is_static:
        # one constant, however large
        strides = torch.empty(data.sizes, device="meta").stride()
        grids = [torch.arange(size) * stride for size, stride in zip(places.sizes, strides, strict=True)]
        grids[axis] = torch.zeros(1, dtype=torch.int64)
        return op.Add(total, op.const(sum(torch.meshgrid(*grids, indexing="ij"))))
    base: Value | None = None
    for other in range(data.rank):
        if other == axis or wanted[other] == 1:
            continue
        steps = op.Mul(count(op, wanted[other]), size_value(op, size_product(op, *sizes[other + 1 :])))
        shaped = op.Reshape(steps, [-1 if place == other else 1 for place in range(data.rank)])
        base = shaped if base is None else op.Add(base, shaped)
    return total if base is None else op.Add(total, base)
