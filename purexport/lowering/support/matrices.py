"""What rules of linear algebra need: rows, columns and triangles of matrices whose sizes may be computed.

Matrices are the last two axes of a value, [..., n, m]. A position is an int64 value of shape [1], as `loops` gives it.
Masks are comparisons of positions, so they are constants where the positions and the sizes are known.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import INT64_MAX, dims_of
from purexport.lowering.support.kernels import smallest
from purexport.lowering.support.positions import int_range, size_value


def index_range(op: Emitter, size: Any) -> Value:
    """0, 1, ..., size - 1 as int64, [size]."""
    return int_range(op, 0, op.known(size))


def row_indices(op: Emitter, value: Value) -> Value:
    """The row numbers of the matrices, [n, 1]."""
    return as_column(op, index_range(op, op.dim(value, -2)))


def column_indices(op: Emitter, value: Value) -> Value:
    """The column numbers of the matrices, [1, m]."""
    return as_row(op, index_range(op, op.dim(value, -1)))


def as_column(op: Emitter, vector: Value) -> Value:
    """A vector [..., n] as a column, [..., n, 1]."""
    return op.Unsqueeze(vector, [vector.rank])


def as_row(op: Emitter, vector: Value) -> Value:
    """A vector [..., n] as a row, [..., 1, n]."""
    return op.Unsqueeze(vector, [vector.rank - 1])


def as_vector(op: Emitter, value: Value, axis: int = -1) -> Value:
    """A column (a row, with axis -2) as a vector, [..., n]."""
    return op.Squeeze(value, [value.rank + axis])


def column_at(op: Emitter, value: Value, at: Value) -> Value:
    """Column `at` of [..., n, m], as [..., n, 1]."""
    return op.Gather(value, at, axis=value.rank - 1)


def row_at(op: Emitter, value: Value, at: Value) -> Value:
    """Row `at` of [..., n, m], as [..., 1, m]."""
    return op.Gather(value, at, axis=value.rank - 2)


def masked(op: Emitter, condition: Value, value: Value, other: Any = 0) -> Value:
    """`value` where the condition holds and `other` elsewhere."""
    return op.Where(condition, value, op.like(other, value))


def safe_divisor(op: Emitter, value: Value) -> Value:
    """`value` with 1 in the place of 0, so that a division by it is defined."""
    return masked(op, op.Greater(op.Abs(value), op.like(0, value)), value, 1)


def identity_matrix(op: Emitter, rows: Any, columns: Any, like: Value) -> Value:
    """Ones on the diagonal, [rows, columns], in the dtype of `like`."""
    rows, columns = op.known(rows), op.known(columns)
    if isinstance(rows, int) and isinstance(columns, int):
        return op.const(torch.eye(rows, columns, dtype=dtypes.torch_dtype(like.dtype or dtypes.FLOAT)))
    same = op.Equal(as_column(op, index_range(op, rows)), as_row(op, index_range(op, columns)))
    return op.cast(same, like.dtype)


def batch_dims(op: Emitter, value: Value) -> list[Any]:
    """The sizes of the batch axes, which are those before the last two."""
    return dims_of(op, value)[:-2]


def broadcast_to(op: Emitter, value: Value, sizes: list[Any]) -> Value:
    """`value` broadcast to `sizes`."""
    return op.Expand(value, op.ints(sizes))


def broadcast_batch(op: Emitter, value: Value, other: Value) -> Value:
    """`value` with its batch axes broadcast against those of `other`."""
    mine, its = (value.shape or ())[:-2], (other.shape or ())[:-2]
    if mine == its or not its:
        return value
    if value.is_static and other.is_static:
        batch = list(torch.broadcast_shapes(value.sizes[:-2], other.sizes[:-2]))  # type: ignore[no-untyped-call]
        return broadcast_to(op, value, [*batch, *value.sizes[-2:]])
    # ONNX Expand broadcasts in both directions
    return broadcast_to(op, value, [*batch_dims(op, other), 1, 1])


def min_size(op: Emitter, one: Any, other: Any) -> Any:
    """The smaller of two sizes, an int where both are."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return smallest(op, size_value(op, one), size_value(op, other))


def diagonal_of(op: Emitter, value: Value) -> Value:
    """The diagonal of square matrices, [..., n]."""
    here = op.Equal(row_indices(op, value), column_indices(op, value))
    return op.ReduceSum(masked(op, here, value), axes=[value.rank - 1], keepdims=0)


def triangle(op: Emitter, value: Value, upper: bool, offset: int = 0) -> Value:
    """The upper (lower) triangle from the diagonal `offset` on; zero elsewhere."""
    difference = op.Sub(column_indices(op, value), row_indices(op, value))
    if upper:
        return masked(op, op.Greater(difference, op.const(offset - 1)), value)
    return masked(op, op.Less(difference, op.const(offset + 1)), value)


def slice_along(op: Emitter, value: Value, axis: int, start: Any, end: Any) -> Value:
    """`value[start:end]` along `axis`. Both ends are ints or computed values; None is the end of the axis."""
    axis %= value.rank
    return op.Slice(value, op.ints([start]), op.ints([INT64_MAX if end is None else end]), axes=[axis])


def lapack_info(op: Emitter, failed: Value) -> Value:
    """LAPACK's info: the position, counted from 1, of the first true element along the last axis of [..., n]; 0 if
    there is none.
    """
    size = op.dim(failed, -1)
    numbers = index_range(op, size)
    not_later = op.cast(op.Not(op.Less(as_row(op, numbers), as_column(op, numbers))), dtypes.FLOAT)
    before = op.MatMul(op.cast(failed, dtypes.FLOAT), not_later)  # the number of failed ones up to here
    intact = op.cast(op.Less(before, op.const(0.5, dtypes.FLOAT)), dtypes.INT64)
    count = op.ReduceSum(intact, axes=[failed.rank - 1], keepdims=0)
    found = op.Where(op.Equal(count, size_value(op, size)), op.const(0), op.Add(count, op.const(1)))
    return op.cast(found, dtypes.INT32)
