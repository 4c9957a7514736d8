"""Older forms of operators that add up: CumSum, and ScatterElements with a reduction.

Both double: after each round an element holds what the 1, 2, 4, ... elements up to it give together.  That takes
log2(n) rounds and no memory of the square of n, it is right for infinities, and integers wrap as they should.

A reduction at equal positions sorts the positions.  Then those that are equal lie side by side, and the rounds take
together what belongs to one position.  The last element of each group has its result, which is written where no other
one is: ONNX leaves open what happens to equal positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proto_schema.legalization.sizes import count, flat_positions, nonnegative
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import reshape
from purexport.lowering.support.kernels import largest, smallest, widened, widened_where
from purexport.lowering.support.loops import repeat, repeat_while
from purexport.lowering.support.positions import size_value

_MOST = 63  # rounds: a size is less than 2 ** 63

_JOINED: dict[str, Callable[[Emitter, Value, Value], Value]] = {
    "add": lambda op, one, other: widened(op, "Add", one, other),
    "mul": lambda op, one, other: widened(op, "Mul", one, other),
    "max": largest,
    "min": smallest,
}


def cumulative_sum(op: Emitter, x: Value, axis: Value, exclusive: int = 0, reverse: int = 0) -> Value | None:
    """CumSum (opset 11)."""
    if axis.const is None or x.shape is None:
        return None
    along = int(axis.const.item()) % x.rank
    size = op.dim(x, along)
    numbers = count(op, size)
    if exclusive:
        x = _shifted(op, x, along, numbers, size, bool(reverse))
    return _doubled(op, "add", x, along, numbers, size, None, bool(reverse))


def _shifted(op: Emitter, x: Value, axis: int, numbers: Value, size: Any, reverse: bool) -> Value:
    """Each element one place on, and 0 where none was."""
    at, there = _before(op, numbers, op.const(1), size, reverse)
    found = op.Gather(x, at, axis=axis)
    return widened_where(op, _across(op, there, axis, x.rank), found, op.like(0, x))


def _before(op: Emitter, numbers: Value, distance: Value, size: Any, reverse: bool) -> tuple[Value, Value]:
    """The positions that lie so far before each (behind it in reverse), and whether there are such."""
    if reverse:
        last = op.Sub(size_value(op, size), op.const(1))
        at = op.Add(numbers, distance)
        return op.Min(at, last), op.Not(op.Less(last, at))
    at = op.Sub(numbers, distance)
    return op.Max(at, op.const(0)), op.Not(op.Less(at, op.const(0)))


def _across(op: Emitter, mask: Value, axis: int, rank: int) -> Value:
    """A mask over one axis, in a shape that broadcasts along it."""
    behind = rank - axis - 1
    return op.Unsqueeze(mask, list(range(1, behind + 1))) if behind else mask


def _doubled(
    op: Emitter, reduction: str, x: Value, axis: int, numbers: Value, size: Any, groups: Value | None, reverse: bool
) -> Value:
    """Each element joined with all before it, of the same group where there are groups (neighbours of one number)."""

    def joined(op: Emitter, distance: Value, value: Value) -> Value:
        at, there = _before(op, numbers, distance, size, reverse)
        if groups is not None:
            there = op.And(there, op.Equal(op.Gather(groups, at, axis=0), groups))
        found = _JOINED[reduction](op, value, op.Gather(value, at, axis=axis))
        return widened_where(op, _across(op, there, axis, x.rank), found, value)

    if isinstance(size, int):

        def step(op: Emitter, at: Value, distance: Value, value: Value) -> list[Value]:
            return [op.Add(distance, distance), joined(op, distance, value)]

        return repeat(op, max(size - 1, 0).bit_length(), step, op.const(1), x)[1]

    def step_while(op: Emitter, at: Value, distance: Value, value: Value) -> list[Value]:
        further = op.Add(distance, distance)
        return [op.Less(further, size), further, joined(op, distance, value)]

    return repeat_while(op, _MOST, op.Less(op.const(1), size), step_while, op.const(1), x)[1]


def scatter_elements(
    op: Emitter, data: Value, indices: Value, updates: Value, axis: int = 0, reduction: str = "none"
) -> Value | None:
    """ScatterElements (opset 11), and with a reduction (16 and 18)."""
    if data.shape is None or indices.shape is None:
        return None
    axis %= data.rank
    places = nonnegative(op, indices, op.dim(data, axis))
    if reduction == "none":
        if not op.has("Scatter"):
            return None
        written: Value = op.Scatter(data, places, updates, axis=axis)
        return written
    if data.rank == 1:
        return _reduced(op, data, places, updates, reduction)
    flat, shape = reshape(op, data, [-1]), op.shape(data)
    places = reshape(op, flat_positions(op, data, places, axis), [-1])
    result: Value = op.Reshape(_reduced(op, flat, places, reshape(op, updates, [-1]), reduction), shape)
    return result


def _reduced(op: Emitter, data: Value, places: Value, updates: Value, reduction: str) -> Value:
    """All of rank 1, no place negative."""
    if places.const is not None and len(set(places.const.tolist())) == places.const.numel():
        return _written(op, data, places, updates, reduction)
    size = op.dim(places, 0)
    if size == 0:
        return data
    # a double holds every position
    keys = places if op.takes("TopK", dtypes.INT64) else op.cast(places, dtypes.DOUBLE)
    keys, order = op.multi("TopK", keys, op.ints([size]), outputs=2, axis=0)
    keys = op.cast(keys, dtypes.INT64)
    numbers = count(op, size)
    joined = _doubled(op, reduction, op.Gather(updates, order, axis=0), 0, numbers, size, keys, False)
    last = op.Sub(size_value(op, size), op.const(1))
    following = op.Gather(keys, op.Min(op.Add(numbers, op.const(1)), last), axis=0)
    ends = op.Or(op.Not(op.Equal(keys, following)), op.Equal(numbers, last))
    keys, joined = (op.Compress(item, ends, axis=0) for item in (keys, joined))
    return _written(op, data, keys, joined, reduction)


def _written(op: Emitter, data: Value, places: Value, updates: Value, reduction: str) -> Value:
    """The reduction at places of which no two are equal."""
    found = _JOINED[reduction](op, op.Gather(data, places, axis=0), updates)
    result: Value = op.ScatterElements(data, places, found, axis=0)
    return result
