"""Arithmetic on sizes and positions: numbers where they are known, and int64 values without axes where not.

What is known is computed at once, so that a static call leaves constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from proto_schema.legalization.operators import INT64, Operators, Value

MOST_IN_CONSTANT = 256  # elements of a constant of one number; larger ones are a node


def known(size: Any) -> Any:
    """A size as a number where that is known, else the value."""
    numbers = None if isinstance(size, int) else size.ints()
    return numbers[0] if numbers else size


def value_of(op: Operators, size: Any) -> Value:
    """A size as a value without axes."""
    return op.const(size) if isinstance(size, int) else size


def plus(op: Operators, one: Any, other: Any) -> Any:
    """The sum of two sizes."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if one == 0 or other == 0:
        return other if one == 0 else one
    return known(op.Add(value_of(op, one), value_of(op, other)))


def minus(op: Operators, one: Any, other: Any) -> Any:
    """The difference of two sizes."""
    if isinstance(one, int) and isinstance(other, int):
        return one - other
    return one if other == 0 else known(op.Sub(value_of(op, one), value_of(op, other)))


def times(op: Operators, *sizes: Any) -> Any:
    """The product of sizes."""
    product: Any = 1
    for size in map(known, sizes):
        if isinstance(size, int) and isinstance(product, int):
            product *= size
        elif product == 1 or size == 1:
            product = size if product == 1 else product
        else:
            product = known(op.Mul(value_of(op, product), value_of(op, size)))
    return product


def quotient(op: Operators, one: Any, other: Any) -> Any:
    """The quotient of two numbers of which neither is negative, rounded down."""
    if isinstance(one, int) and isinstance(other, int):
        return one // other
    return one if other == 1 else known(op.Div(value_of(op, one), value_of(op, other)))


def larger(op: Operators, one: Any, other: int) -> Any:
    """The size, or the number where it is larger."""
    if isinstance(one, int):
        return max(one, other)
    return one if op.is_at_least(one, other) else known(op.Max(one, other))


def smaller(op: Operators, one: Any, other: Any) -> Any:
    """The smaller of two sizes."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return known(op.Min(value_of(op, one), value_of(op, other)))


def item(op: Operators, values: Value, place: int) -> Any:
    """An element of a list of sizes."""
    numbers = values.ints()
    if numbers is not None:
        return numbers[place]
    whole = op.cast(values, INT64)
    if values.shape == (1,):
        return known(op.Reshape(whole, op.ints([])))
    return known(op.Gather(whole, op.const(place), axis=0))


def numbers_below(op: Operators, size: Any) -> Value:
    """0, 1, ... below a size: a constant, Range, or before it NonZero of ones."""
    size = known(size)
    if isinstance(size, int):
        return op.const(np.arange(size, dtype=np.int64))
    if op.takes("Range", INT64):
        return op.Range(op.const(0), size, op.const(1))
    ones = op.Expand(op.const(1), op.ints([size]))
    return op.of_shape(op.Reshape(op.NonZero(ones), [-1]), ones)  # inference does not know that NonZero finds them all


def full(op: Operators, sizes: Sequence[Any], number: Value) -> Value:
    """A tensor of one number."""
    array = number.array()
    if array is not None and all(isinstance(size, int) for size in sizes) and np.prod(sizes) <= MOST_IN_CONSTANT:
        return op.const(np.full(sizes, array.reshape(-1)[0], array.dtype), number.dtype)
    return op.Expand(number, op.ints(list(sizes)))


def like_shape(op: Operators, value: Value) -> Any:
    """The shape of a value for a Reshape of what has the same first axis."""
    rest = value.shape[1:] if value.shape else [None]
    known = all(isinstance(size, int) and size > 0 for size in rest)
    return op.ints([0, *rest]) if known else op.shape(value)


def nonnegative(op: Operators, positions: Value, size: Any) -> Value:
    """Positions as int64, with negative ones counted from the end."""
    positions = op.cast(positions, INT64)
    array = positions.array()
    if array is not None and not (array < 0).any():
        return positions
    if array is not None and isinstance(size, int):
        return op.const(np.where(array < 0, array + size, array))
    return op.Where(op.Less(positions, 0), op.Add(positions, value_of(op, size)), positions)


def flat_positions(op: Operators, data: Value, places: Value, axis: int) -> Value:
    """Where in the flattened `data` the elements are that `places`, positions along one axis, point to."""
    rank = len(data.shape)
    sizes, wanted = ([op.dim(item, axis) for axis in range(rank)] for item in (data, places))
    strides = [times(op, *sizes[other + 1 :]) for other in range(rank)]
    total = op.Mul(places, value_of(op, strides[axis])) if strides[axis] != 1 else places
    others = [other for other in range(rank) if other != axis and wanted[other] != 1]
    if all(isinstance(size, int) for size in (*strides, *(wanted[other] for other in others))):
        # one constant, however large
        grids = np.ix_(*[np.arange(wanted[at] if at in others else 1) * strides[at] for at in range(rank)])
        return op.Add(total, op.const(np.asarray(sum(grids), np.int64))) if others else total
    for other in others:
        steps = op.Mul(numbers_below(op, wanted[other]), value_of(op, strides[other]))
        total = op.Add(total, op.Reshape(steps, [-1 if place == other else 1 for place in range(rank)]))
    return total
