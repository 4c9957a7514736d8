"""The form of Det."""

from __future__ import annotations

import numpy as np

from proto_schema.legalization.loops import WRITTEN_OUT, repeat
from proto_schema.legalization.operators import BOOL, DOUBLE, Operators, Value, dtype_of, rank_of
from proto_schema.legalization.sizes import full, numbers_below
from proto_schema.legalization.table import older


@older("Det", before=11, of_dtypes=[DOUBLE])  # of which runtimes have no kernel
def det(op: Operators, X: Value) -> Value:
    """Elimination with the largest element of each column as the pivot, in double precision."""
    rank = rank_of(X)
    rows, columns = rank - 2, rank - 1
    size = op.dim(X, columns)
    numbers = op.Reshape(numbers_below(op, size), [-1, 1])

    def step(op: Operators, at: Value, left: Value, total: Value) -> list[Value]:
        """The row of the pivot goes; the first row that is left takes its place."""
        column, first = op.Gather(left, at, axis=columns), op.Gather(left, at, axis=rows)
        sizes = op.Where(op.Less(numbers, at), op.like(-1.0, left), op.Abs(column))
        place = op.ArgMax(sizes, axis=rows, keepdims=1)
        chosen = op.Equal(numbers, place)
        pivots = op.ReduceSum(op.Where(chosen, left, op.like(0.0, left)), [rows], keepdims=1)
        pivot = op.Gather(pivots, at, axis=columns)
        # rows that change places turn the sign
        sign = op.Where(op.Equal(place, at), op.like(1.0, left), op.like(-1.0, left))
        # a pivot of 0 is a column of zeros
        divisor = op.Where(op.cast(pivot, BOOL), pivot, op.like(1.0, left))
        moved = op.Where(chosen, first, left)
        factors = op.Div(op.Gather(moved, at, axis=columns), divisor)
        return [op.Sub(moved, op.Mul(factors, pivots)), op.Mul(total, op.Mul(pivot, sign))]

    # the last pivot is what is left
    steps = size - 1 if isinstance(size, int) and size else size
    total = op.const(np.array(1.0), DOUBLE)
    if not isinstance(steps, int) or steps > WRITTEN_OUT:  # a loop carries values of one shape
        total = full(op, [*(op.dim(X, axis) for axis in range(rows)), 1, 1], total)
    left, total = repeat(op, steps, step, op.cast(X, DOUBLE), total)
    if isinstance(size, int) and size:
        last = op.const(np.array([size - 1]))
        total = op.Mul(total, op.Gather(op.Gather(left, last, axis=rows), last, axis=columns))
    return op.cast(op.Squeeze(total, [rows, columns]), dtype_of(X))
