"""What rules of linear algebra need: rows, columns and triangles of matrices whose sizes may be computed.

Matrices are the last two axes of a tensor, [..., n, m], which is real or complex (`fields`). A position is an int64
value of shape [1], as `loops` gives it. Masks are comparisons of positions, so they are constants where the positions
and the sizes are known.
"""

from __future__ import annotations

from typing import Any, cast

import torch

from proto_schema.legalization.sizes import numbers_below, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import INT64_MAX, dims_of
from purexport.lowering.support.fields import (
    Operand,
    T,
    in_field_of,
    map_parts,
    real_part,
    size_of_pivot,
)
from purexport.lowering.support.kernels import smallest
from purexport.lowering.support.pairs import Pair


def dim_of(op: Emitter, value: Operand, axis: int) -> int | Value:
    """One dimension, as `op.dim` gives it."""
    return op.dim(real_part(value), axis)


def row_indices(op: Emitter, value: Operand) -> Value:
    """The row numbers of the matrices, [n, 1]."""
    numbers: Value = numbers_below(op, dim_of(op, value, -2))
    return as_column(op, numbers)


def column_indices(op: Emitter, value: Operand) -> Value:
    """The column numbers of the matrices, [1, m]."""
    numbers: Value = numbers_below(op, dim_of(op, value, -1))
    return as_row(op, numbers)


def as_column(op: Emitter, vector: T) -> T:
    """A vector [..., n] as a column, [..., n, 1]."""
    return map_parts(vector, lambda part: op.Unsqueeze(part, [part.rank]))


def as_row(op: Emitter, vector: T) -> T:
    """A vector [..., n] as a row, [..., 1, n]."""
    return map_parts(vector, lambda part: op.Unsqueeze(part, [part.rank - 1]))


def as_vector(op: Emitter, value: T, axis: int = -1) -> T:
    """A column (a row, with axis -2) as a vector, [..., n]."""
    return map_parts(value, lambda part: op.Squeeze(part, [part.rank + axis]))


def column_at(op: Emitter, value: T, at: Value) -> T:
    """Column `at` of [..., n, m], as [..., n, 1]."""
    return map_parts(value, lambda part: op.Gather(part, at, axis=part.rank - 1))


def row_at(op: Emitter, value: T, at: Value) -> T:
    """Row `at` of [..., n, m], as [..., 1, m]."""
    return map_parts(value, lambda part: op.Gather(part, at, axis=part.rank - 2))


def masked(op: Emitter, condition: Value, value: T, other: Any = 0) -> T:
    """`value` where the condition holds and the real number `other` elsewhere."""
    real = op.Where(condition, real_part(value), op.like(other, real_part(value)))
    return cast(T, Pair(real, masked(op, condition, value.imag)) if isinstance(value, Pair) else real)


def safe_divisor(op: Emitter, value: T) -> T:
    """`value` with 1 in the place of 0, so that a division by it is defined."""
    return masked(op, op.Greater(size_of_pivot(op, value), op.like(0, real_part(value))), value, 1)


def identity_matrix(op: Emitter, rows: Any, columns: Any, like: T) -> T:
    """Ones on the diagonal, [rows, columns], in the dtype of `like`."""
    rows, columns = op.known(rows), op.known(columns)
    if isinstance(rows, int) and isinstance(columns, int):
        unit = op.const(torch.eye(rows, columns, dtype=dtypes.torch_dtype(like.dtype or dtypes.FLOAT)))
    else:
        same = op.Equal(as_column(op, numbers_below(op, rows)), as_row(op, numbers_below(op, columns)))
        unit = op.cast(same, like.dtype)
    return in_field_of(op, unit, like)


def batch_dims(op: Emitter, value: Operand) -> list[Any]:
    """The sizes of the batch axes, which are those before the last two."""
    return dims_of(op, real_part(value))[:-2]


def broadcast_to(op: Emitter, value: T, sizes: list[Any]) -> T:
    """`value` broadcast to `sizes`."""
    return map_parts(value, lambda part: op.Expand(part, op.ints(sizes)))


def broadcast_batch(op: Emitter, value: T, other: Operand) -> T:
    """`value` with its batch axes broadcast against those of `other`."""
    shape, its = value.shape or (), (other.shape or ())[:-2]
    if shape[:-2] == its or not its:
        return value
    if real_part(value).is_static and real_part(other).is_static:
        batch = list(torch.broadcast_shapes(shape[:-2], its))  # type: ignore[no-untyped-call]
        return broadcast_to(op, value, [*batch, *shape[-2:]])
    # ONNX Expand broadcasts in both directions
    return broadcast_to(op, value, [*batch_dims(op, other), 1, 1])


def min_size(op: Emitter, one: Any, other: Any) -> Any:
    """The smaller of two sizes, an int where both are."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return smallest(op, value_of(op, one), value_of(op, other))


def diagonal_of(op: Emitter, value: T) -> T:
    """The diagonal of square matrices, [..., n]."""
    here = op.Equal(row_indices(op, value), column_indices(op, value))
    return map_parts(masked(op, here, value), lambda part: op.ReduceSum(part, axes=[part.rank - 1], keepdims=0))


def triangle(op: Emitter, value: T, upper: bool, offset: int = 0) -> T:
    """The upper (lower) triangle from the diagonal `offset` on; zero elsewhere."""
    difference = op.Sub(column_indices(op, value), row_indices(op, value))
    if upper:
        return masked(op, op.Greater(difference, op.const(offset - 1)), value)
    return masked(op, op.Less(difference, op.const(offset + 1)), value)


def slice_along(op: Emitter, value: T, axis: int, start: Any, end: Any) -> T:
    """`value[start:end]` along `axis`. Both ends are ints or computed values; None is the end of the axis."""
    axis %= value.rank
    last = INT64_MAX if end is None else end
    return map_parts(value, lambda part: op.Slice(part, op.ints([start]), op.ints([last]), axes=[axis]))


def lapack_info(op: Emitter, failed: Value) -> Value:
    """LAPACK's info: the position, counted from 1, of the first true element along the last axis of [..., n]; 0 if
    there is none.
    """
    size = op.dim(failed, -1)
    numbers = numbers_below(op, size)
    not_later = op.cast(op.Not(op.Less(as_row(op, numbers), as_column(op, numbers))), dtypes.FLOAT)
    before = op.MatMul(op.cast(failed, dtypes.FLOAT), not_later)  # the number of failed ones up to here
    intact = op.cast(op.Less(before, op.const(0.5, dtypes.FLOAT)), dtypes.INT64)
    count = op.ReduceSum(intact, axes=[failed.rank - 1], keepdims=0)
    found = op.Where(op.Equal(count, value_of(op, size)), op.const(0), op.Add(count, op.const(1)))
    return op.cast(found, dtypes.INT32)
