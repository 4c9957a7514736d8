"""Forms of operators that make, move and take elements: their positions are computed, and gathered."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from proto_schema.legalization.operators import (
    BOOL,
    DOUBLE,
    INT64,
    Operators,
    RefusedError,
    Value,
    dtype_of,
    is_float,
    rank_of,
)
from proto_schema.legalization.sizes import (
    MOST_IN_CONSTANT,
    flat_positions,
    full,
    item,
    known,
    larger,
    minus,
    nonnegative,
    numbers_below,
    plus,
    quotient,
    smaller,
    times,
    value_of,
)
from proto_schema.legalization.table import older
from proto_schema.tensors.dtypes import DTYPES

END = 1 << 62


@older("Range", before=11)
def count_up(op: Operators, start: Value, limit: Value, delta: Value) -> Value:
    """The number of steps before the limit is computed first."""
    dtype = dtype_of(start)
    numbers = [value.number() for value in (start, limit, delta)]
    if all(number is not None for number in numbers):
        first, last, step = numbers
        places = np.arange(max(math.ceil((last - first) / step), 0))
        return op.const((np.array(first) + places * np.array(step)).astype(DTYPES[dtype].numpy), dtype)
    if is_float(dtype):
        wide = [op.cast(value, DOUBLE) for value in (start, limit, delta)]
        size = known(op.cast(op.Ceil(op.Div(op.Sub(wide[1], wide[0]), wide[2])), INT64))
        steps = op.cast(numbers_below(op, larger(op, size, 0)), DOUBLE)
        return op.cast(op.Add(wide[0], op.Mul(steps, wide[2])), dtype)
    first, last, step = (known(op.cast(value, INT64)) for value in (start, limit, delta))
    return op.cast(_walk(op, first, last, step), dtype)


def _walk(op: Operators, first: Any, last: Any, step: Any) -> Value:
    """The positions from `first` on before `last`, int64."""
    size = larger(op, _steps(op, first, last, step), 0)
    if all(isinstance(number, int) for number in (first, size, step)):
        return op.const(first + np.arange(size, dtype=np.int64) * step)
    numbers = numbers_below(op, size)
    if step != 1:
        numbers = op.Mul(numbers, value_of(op, step))
    return numbers if first == 0 else op.Add(value_of(op, first), numbers)


def _steps(op: Operators, first: Any, last: Any, step: Any) -> Any:
    """How many steps there are from `first` before `last`; none or less where it lies behind."""
    if isinstance(step, int):
        way = minus(op, last, first) if step > 0 else minus(op, first, last)
        width: Any = abs(step)
    else:
        sign = op.Sub(op.const(1), op.Mul(op.cast(op.Less(step, 0), INT64), 2))
        way, width = times(op, minus(op, last, first), sign), op.Abs(step)
    return way if width == 1 else quotient(op, plus(op, way, minus(op, width, 1)), width)


# Slices ---------------------------------------------------------------------------------------------------------------


@older("Slice", before=10)
def slices(
    op: Operators, data: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    """Computed bounds and steps, one axis after the other."""
    places = starts.shape[0] if starts.shape else None
    chosen = axes.ints() if axes is not None else list(range(places)) if isinstance(places, int) else None
    if chosen is None:
        raise RefusedError("its axes are computed when the model runs")
    for place, axis in enumerate(chosen):
        step = 1 if steps is None else item(op, steps, place)
        along = axis if axis >= 0 else axis + rank_of(data)
        data = _sliced(op, data, along, item(op, starts, place), item(op, ends, place), step)
    return data


def _sliced(op: Operators, data: Value, axis: int, start: Any, end: Any, step: Any) -> Value:
    if step == 1 and isinstance(start, int) and isinstance(end, int):
        return op.Slice(data, [start], [end], [axis])
    size = op.dim(data, axis)
    # towards the front a slice begins at the last element, and ends one before the first
    back = int(step < 0) if isinstance(step, int) else op.cast(op.Less(step, 0), INT64)
    last = minus(op, size, back)
    first = _bound(op, start, size, 0, last)
    stop = _bound(op, end, size, minus(op, 0, back), last)
    return op.Gather(data, _walk(op, first, stop, step), axis=axis)


def _bound(op: Operators, at: Any, size: Any, low: Any, high: Any) -> Any:
    """A bound counted from the front, and none outside of `low` and `high`."""
    if isinstance(at, int):
        if at >= 0:
            return 0 if at == 0 and low == 0 else smaller(op, at, high)
        found = plus(op, size, at)
        found = larger(op, found, low) if isinstance(low, int) else known(op.Max(value_of(op, found), low))
        return found if high is size else smaller(op, found, high)
    if not op.is_at_least(at, 0):
        at = op.Where(op.Less(at, 0), op.Add(at, value_of(op, size)), at)
        at = op.Max(at, value_of(op, low))
    return smaller(op, at, high)


@older("Split", before=18)
def equal_parts(
    op: Operators,
    input: Value,
    split: Value | None = None,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 0,
) -> tuple[Value, ...] | None:
    """A number of parts, of which the last may be smaller."""
    if split is not None or num_outputs is None:
        return None
    axis %= rank_of(input)
    size = op.dim(input, axis)
    part = quotient(op, plus(op, size, num_outputs - 1), num_outputs)
    if isinstance(size, int) and part * (num_outputs - 1) <= size:
        sizes = [part] * (num_outputs - 1) + [size - part * (num_outputs - 1)]
        return tuple(op.multi("Split", input, sizes, outputs=num_outputs, axis=axis))
    return _parts(op, input, axis, [times(op, part, place + 1) for place in range(num_outputs)])


@older("Split", before=13)
def computed_parts(op: Operators, input: Value, split: Value | None = None, axis: int = 0) -> tuple[Value, ...] | None:
    """Parts of computed sizes, by Slice."""
    if split is None:
        return None
    rank = rank_of(input)
    if not split.shape or not isinstance(split.shape[0], int):
        raise RefusedError("the number of its parts is not known")
    ends: list[Any] = []
    for place in range(split.shape[0]):
        ends.append(plus(op, ends[-1] if ends else 0, item(op, split, place)))
    # a Reshape that fails where Split does: a size is negative, or they are not the whole axis together. A single size
    # in a Concat is left to the Reshape (-1) by ONNX Runtime, and nothing fails, so the size is added to a zero
    dims = [0 if place == axis % rank else op.dim(input, place) for place in range(rank)]
    here = op.const(np.array([int(place == axis % rank) for place in range(rank)], np.int64))
    total = op.Mul(op.ReduceSum(op.Abs(op.cast(split, INT64)), keepdims=0), here)
    return _parts(op, op.Reshape(input, op.Add(op.ints(dims), total)), axis, ends)


def _parts(op: Operators, data: Value, axis: int, ends: list[Any]) -> tuple[Value, ...]:
    bounds = [op.ints([end]) for end in (0, *ends)]
    return tuple(op.Slice(data, one, other, [axis]) for one, other in itertools.pairwise(bounds))


# Shapes and blocks ----------------------------------------------------------------------------------------------------


@older("Shape", before=15)
def part_of_shape(op: Operators, data: Value, start: int = 0, end: int | None = None) -> Value | None:
    """Part of the shape, by Slice."""
    return None if not start and end is None else op.Slice(op.shape(data), [start], [END if end is None else end], [0])


@older("DepthToSpace", before=11)
def depth_to_space(op: Operators, input: Value, blocksize: int, mode: str = "DCR") -> Value | None:
    """The other order of blocks, by Reshape and Transpose."""
    if mode != "CRD":
        return None
    channels, height, width = (op.dim(input, axis) for axis in (1, 2, 3))
    depth = quotient(op, channels, blocksize * blocksize)
    parts = op.Reshape(input, op.ints([0, depth, blocksize, blocksize, height, width]))
    mixed = op.Transpose(parts, perm=[0, 1, 4, 2, 5, 3])
    return op.Reshape(mixed, op.ints([0, depth, times(op, height, blocksize), times(op, width, blocksize)]))


@older("Trilu", before=14)
def triangle(op: Operators, input: Value, k: Value | None = None, upper: int = 1) -> Value:
    """A comparison of rows with columns, and Where."""
    rank = rank_of(input)
    rows, columns = (op.dim(input, axis) for axis in (rank - 2, rank - 1))
    offset = 0 if k is None else k.number()
    is_known = isinstance(rows, int) and isinstance(columns, int) and offset is not None
    if is_known and (rows * columns <= MOST_IN_CONSTANT or not op.takes("Less", INT64)):
        ahead = np.arange(columns) - np.arange(rows)[:, None]
        beyond = op.const(ahead < int(offset) if upper else ahead > int(offset))
    else:
        bound, column = op.Unsqueeze(numbers_below(op, rows), [1]), op.Unsqueeze(numbers_below(op, columns), [0])
        if k is not None:
            bound = op.Add(bound, op.Reshape(op.cast(k, INT64), op.ints([])))
        beyond = op.Less(column, bound) if upper else op.Less(bound, column)
    if input.dtype == BOOL:
        return op.And(input, op.Not(beyond))
    return op.Where(beyond, op.like(0, input), input)


# Padding --------------------------------------------------------------------------------------------------------------


@older("Pad", before=11)
def pad(
    op: Operators,
    data: Value,
    pads: Value,
    constant_value: Value | None = None,
    axes: Value | None = None,
    mode: str = "constant",
) -> Value:
    """Computed amounts, and types that only the newer version has; a negative amount takes elements away."""
    rank = rank_of(data)
    chosen = list(range(rank)) if axes is None else axes.ints()
    if chosen is None:
        raise RefusedError("its axes are computed when the model runs")
    fill = op.like(0, data) if constant_value is None else constant_value
    fill = fill if fill.shape == () else op.Reshape(fill, op.ints([]))
    for place, axis in enumerate(chosen):
        before, after = item(op, pads, place), item(op, pads, place + len(chosen))
        if before != 0 or after != 0:
            data = _padded(op, data, axis % rank, before, after, fill, mode)
    return data


def _padded(op: Operators, data: Value, axis: int, before: Any, after: Any, fill: Value, mode: str) -> Value:
    size = op.dim(data, axis)
    total = larger(op, plus(op, plus(op, size, before), after), 0)
    if all(isinstance(number, int) for number in (size, before, after)):
        at = np.arange(total, dtype=np.int64) - before
        places = op.const(_source(at, size, mode))
        outside = mode == "constant" and bool(((at < 0) | (at >= size)).any())
    else:
        places, outside = _computed_source(op, op.Sub(numbers_below(op, total), value_of(op, before)), size, mode), True
    if mode == "constant" and outside:
        # one slice of the constant behind the others, which stands for all that are outside
        sizes = [1 if place == axis else op.dim(data, place) for place in range(len(data.shape))]
        data = op.Concat(data, full(op, sizes, fill), axis=axis)
    return op.Gather(data, places, axis=axis)


def _source(at: Any, size: int, mode: str) -> Any:
    """Which element each position takes; `size` is the constant."""
    if mode == "edge":
        return np.clip(at, 0, size - 1)
    if mode == "reflect":
        return size - 1 - abs(size - 1 - at % max(2 * (size - 1), 1))
    return at % size if mode == "wrap" else np.where((at < 0) | (at >= size), size, at)


def _computed_source(op: Operators, at: Value, size: Any, mode: str) -> Value:
    last = value_of(op, minus(op, size, 1))
    if mode == "edge":
        return op.Min(op.Max(at, 0), last)
    if mode == "reflect":
        # back and forth: the distance from the last element, of a walk over twice the way
        way = op.Max(op.Mul(last, 2), 1)
        return op.Sub(last, op.Abs(op.Sub(last, op.Mod(at, way))))
    if mode == "wrap":
        return op.Mod(at, value_of(op, size))
    return op.Where(op.Or(op.Less(at, 0), op.Less(last, at)), value_of(op, size), at)


# Elements by their positions ------------------------------------------------------------------------------------------


@older("GatherElements", before=11)
def gather_elements(op: Operators, data: Value, indices: Value, axis: int = 0) -> Value:
    """From the flattened tensor."""
    rank = rank_of(data)
    rank_of(indices)
    axis %= rank
    places = nonnegative(op, indices, op.dim(data, axis))
    if rank == 1:
        return op.Gather(data, places, axis=0)
    return op.Gather(op.Reshape(data, [-1]), flat_positions(op, data, places, axis), axis=0)
