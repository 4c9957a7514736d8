"""Forms of operators that add up: CumSum, CumProd, and ScatterElements and ScatterND with a reduction.

They double: after each round an element holds what the 1, 2, 4, ... elements up to it give together. That takes log2(n)
rounds and no memory of the square of n, it is right for infinities, and integers wrap as they should, which they do
not in every runtime's reductions. A product or a sum of floats along a short axis is that of a triangle instead: the
axis is repeated, and the elements behind each one are replaced.

A reduction at equal positions sorts the positions. Then those that are equal lie side by side, and the rounds take
together what belongs to one position. The last element of each group has its result, which is written where no other
one is: ONNX leaves open what happens to equal positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.legalization.loops import repeat, repeat_while
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
from proto_schema.legalization.sizes import flat_positions, nonnegative, numbers_below, value_of
from proto_schema.legalization.table import Form, older

SHORT = 64
"""Elements of an axis that is repeated."""
_MOST = 63  # rounds: a size is less than 2 ** 63
_JOINED = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
_OF_TRUTH = {"max": "Or", "min": "And"}


def _running(reduction: str, neutral: int, reduced: str) -> Form:
    def form(op: Operators, x: Value, axis: Value, exclusive: int = 0, reverse: int = 0) -> Value:
        places = axis.ints()
        if places is None:
            raise RefusedError("its axis is computed when the model runs")
        along = places[0] % rank_of(x)
        size = op.dim(x, along)
        if isinstance(size, int) and size <= SHORT and is_float(dtype_of(x)):
            return _of_triangle(op, x, along, (reduced, neutral), bool(exclusive), bool(reverse))
        numbers = numbers_below(op, size)
        if exclusive:
            at, outside = _before(op, numbers, op.const(1), size, bool(reverse))
            x = op.Where(_across(op, outside, along, x), op.like(neutral, x), op.Gather(x, at, axis=along))
        return _doubled(op, reduction, x, along, numbers, size, None, bool(reverse))

    form.__doc__ = f"{reduced} of a triangle along a short axis, else log2(n) rounds that double."
    return form


older("CumProd", before=26)(_running("mul", 1, "ReduceProd"))
older("CumSum", before=11)(_running("add", 0, "ReduceSum"))


def _of_triangle(op: Operators, x: Value, axis: int, reduced: tuple[str, int], exclusive: bool, reverse: bool) -> Value:
    """The reduction of a second axis, on which the elements that do not count are neutral."""
    size = x.shape[axis]
    counts = np.tri(size, size, -int(exclusive), np.bool_)
    counts = (counts.T if reverse else counts).reshape(size, size, *[1] * (rank_of(x) - axis - 1))
    masked = op.Where(op.const(counts), op.Unsqueeze(x, [axis]), op.like(reduced[1], x))
    found: Value = getattr(op, reduced[0])(masked, [axis + 1], keepdims=0)
    return found


def _before(op: Operators, numbers: Value, distance: Value, size: Any, reverse: bool) -> tuple[Value, Value]:
    """The positions that lie so far before each (behind it in reverse), and whether none does."""
    if reverse:
        last = op.Sub(value_of(op, size), op.const(1))
        at = op.Add(numbers, distance)
        return op.Min(at, last), op.Less(last, at)
    at = op.Sub(numbers, distance)
    return op.Max(at, op.const(0)), op.Less(at, op.const(0))


def _across(op: Operators, mask: Value, axis: int, x: Value) -> Value:
    """A mask over one axis, in a shape that broadcasts along it."""
    behind = rank_of(x) - axis - 1
    return op.Unsqueeze(mask, list(range(1, behind + 1))) if behind else mask


def _doubled(
    op: Operators, reduction: str, x: Value, axis: int, numbers: Value, size: Any, groups: Value | None, reverse: bool
) -> Value:
    """Each element joined with all before it, of the same group where there are groups (neighbors of one number)."""

    def joined(op: Operators, distance: Value, value: Value) -> Value:
        at, outside = _before(op, numbers, distance, size, reverse)
        found = _join(op, reduction, value, op.Gather(value, at, axis=axis))
        if groups is None:
            return op.Where(_across(op, outside, axis, x), value, found)
        there = op.And(op.Not(outside), op.Equal(op.Gather(groups, at, axis=0), groups))
        return op.Where(_across(op, there, axis, x), found, value)

    def step(op: Operators, at: Value, distance: Value, value: Value) -> list[Value]:
        return [op.Add(distance, distance), joined(op, distance, value)]

    def step_while(op: Operators, at: Value, distance: Value, value: Value) -> list[Value]:
        further = op.Add(distance, distance)
        return [op.Less(further, size), further, joined(op, distance, value)]

    if isinstance(size, int):
        return repeat(op, max(size - 1, 0).bit_length(), step, op.const(1), x)[1]
    return repeat_while(op, _MOST, op.const(True, BOOL), step_while, op.const(1), x)[1]


def _join(op: Operators, reduction: str, one: Value, other: Value) -> Value:
    names = _OF_TRUTH if one.dtype == BOOL else _JOINED
    found: Value = getattr(op, names[reduction])(one, other)
    return found


# At positions ---------------------------------------------------------------------------------------------------------


@older("ScatterElements", before=18)
def scatter_extremes(
    op: Operators, data: Value, indices: Value, updates: Value, axis: int = 0, reduction: str = "none"
) -> Value | None:
    """The largest and the smallest at equal positions, which are sorted."""
    return scatter_reduced(op, data, indices, updates, axis, reduction) if reduction in ("max", "min") else None


@older("ScatterElements", before=16)
def scatter_reduced(
    op: Operators, data: Value, indices: Value, updates: Value, axis: int = 0, reduction: str = "none"
) -> Value | None:
    """Sums and products at equal positions, which are sorted."""
    if reduction == "none":
        return None
    axis %= rank_of(data)
    places = nonnegative(op, indices, op.dim(data, axis))
    if rank_of(indices) == 1:
        return _reduced(op, data, places, updates, reduction)
    places = op.Reshape(flat_positions(op, data, places, axis), [-1])
    made = _reduced(op, op.Reshape(data, [-1]), places, op.Reshape(updates, [-1]), reduction)
    return op.Reshape(made, op.shape(data))


@older("ScatterElements", before=11)
def scatter(
    op: Operators, data: Value, indices: Value, updates: Value, axis: int = 0, reduction: str = "none"
) -> Value:
    """The operator had another name, and took indices from the front."""
    axis %= rank_of(data)
    written: Value = op.Scatter(data, nonnegative(op, indices, op.dim(data, axis)), updates, axis=axis)
    return written


@older("ScatterND", before=18)
def scatter_rows_extremes(
    op: Operators, data: Value, indices: Value, updates: Value, reduction: str = "none"
) -> Value | None:
    """The largest and the smallest at equal positions, which are sorted."""
    return scatter_rows_reduced(op, data, indices, updates, reduction) if reduction in ("max", "min") else None


@older("ScatterND", before=16)
def scatter_rows_reduced(
    op: Operators, data: Value, indices: Value, updates: Value, reduction: str = "none"
) -> Value | None:
    """Sums and products at equal positions, which are sorted."""
    return None if reduction == "none" else _on_rows(op, data, indices, updates, reduction)


@older("ScatterND", before=11)
def scatter_rows(op: Operators, data: Value, indices: Value, updates: Value, reduction: str = "none") -> Value:
    """On a tensor whose indexed axes are flattened to one, row by row."""
    return _on_rows(op, data, indices, updates, "none")


def _on_rows(op: Operators, data: Value, indices: Value, updates: Value, reduction: str) -> Value:
    deep, rest = _depth(op, data, indices)
    rows, parts = op.Reshape(data, op.ints([-1, *rest])), op.Reshape(updates, op.ints([-1, *rest]))
    places = op.Reshape(_rows(op, data, indices, deep), [-1])
    done = _written if reduction == "none" else _reduced
    return op.Reshape(done(op, rows, places, parts, reduction), op.shape(data))


def _depth(op: Operators, data: Value, indices: Value) -> tuple[int, list[Any]]:
    """How many axes the tuples index, and the sizes of the others."""
    deep = indices.shape[-1] if rank_of(indices) else None
    if not isinstance(deep, int):
        raise RefusedError("the number of axes that it indexes is not known")
    return deep, [op.dim(data, axis) for axis in range(deep, rank_of(data))]


def _rows(op: Operators, data: Value, indices: Value, deep: int) -> Value:
    """Tuples of indices as positions among the rows of a tensor whose first axes are flattened to one."""
    last = rank_of(indices) - 1
    total: Any = None
    for axis in range(deep):
        size = op.dim(data, axis)
        own = op.Squeeze(op.Slice(indices, [axis], [axis + 1], [last]), [last])
        own = nonnegative(op, own, size)
        total = own if total is None else op.Add(op.Mul(total, value_of(op, size)), own)
    return total


def _reduced(op: Operators, data: Value, places: Value, updates: Value, reduction: str) -> Value:
    """The reduction of slices at positions along the first axis, none negative."""
    known = places.ints()
    if known is not None and len(set(known)) == len(known):
        return _written(op, data, places, updates, reduction)
    size = op.dim(places, 0)
    if size == 0:
        return data
    # a double holds every position
    keys = places if op.takes("TopK", INT64) else op.cast(places, DOUBLE)
    keys, order = op.multi("TopK", keys, op.ints([size]), outputs=2, axis=0)
    keys = op.cast(keys, INT64)
    numbers = numbers_below(op, size)
    joined = _doubled(op, reduction, op.Gather(updates, order, axis=0), 0, numbers, size, keys, False)
    last = op.Sub(value_of(op, size), op.const(1))
    following = op.Gather(keys, op.Min(op.Add(numbers, op.const(1)), last), axis=0)
    ends = op.Or(op.Not(op.Equal(keys, following)), op.Equal(numbers, last))
    keys, joined = (op.Compress(item, ends, axis=0) for item in (keys, joined))
    return _written(op, data, keys, joined, reduction)


def _written(op: Operators, data: Value, places: Value, updates: Value, reduction: str) -> Value:
    """The reduction at positions of which no two are equal."""
    if reduction != "none":
        updates = _join(op, reduction, op.Gather(data, places, axis=0), updates)
    if rank_of(data) > 1:
        places = op.Expand(op.Reshape(places, [-1, *[1] * (rank_of(data) - 1)]), op.shape(updates))
    return op.ScatterElements(data, places, updates, axis=0)


@older("GatherND", before=12)
def gather_of_batches(op: Operators, data: Value, indices: Value, batch_dims: int = 0) -> Value | None:
    """Positions of the batch axes before the indices."""
    if not batch_dims:
        return None
    rank = rank_of(indices)
    sizes = op.ints([*(op.dim(indices, axis) for axis in range(rank - 1)), 1])
    parts = []
    for axis in range(batch_dims):
        steps = op.Reshape(
            numbers_below(op, op.dim(indices, axis)), [-1 if place == axis else 1 for place in range(rank)]
        )
        parts.append(op.Expand(steps, sizes))
    return op.GatherND(data, op.Concat(*parts, op.cast(indices, INT64), axis=rank - 1))


@older("GatherND", before=11)
def gather_rows(op: Operators, data: Value, indices: Value, batch_dims: int = 0) -> Value:
    """From a tensor whose indexed axes are flattened to one."""
    deep, rest = _depth(op, data, indices)
    return op.Gather(op.Reshape(data, op.ints([-1, *rest])), _rows(op, data, indices, deep), axis=0)
