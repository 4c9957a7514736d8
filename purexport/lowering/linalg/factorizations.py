"""Cholesky, LU and QR factorizations, one column in each step and all matrices of a batch at once, as LAPACK does them.

A few steps are written out, more become a Loop (`loops`), so a size may be dynamic. LU takes the largest pivot of its
column (LAPACK getrf); rows are exchanged by masks, which is exact. QR uses Householder's reflections with the signs of
LAPACK's geqrf.
"""

# ruff: noqa: N803  A and LU are ATen's names of arguments

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support import matrices
from purexport.lowering.support.common import dims_of, full, swap_last
from purexport.lowering.support.loops import repeat
from purexport.lowering.support.matrices import (
    as_column,
    as_row,
    batch_dims,
    column_at,
    column_indices,
    diagonal_of,
    identity_matrix,
    index_range,
    lapack_info,
    masked,
    min_size,
    row_at,
    row_indices,
    safe_divisor,
    slice_along,
    triangle,
)
from purexport.lowering.support.positions import size_value

# Cholesky -----------------------------------------------------------------------------------------------------------


@lower("aten::linalg_cholesky", "aten::cholesky")
def linalg_cholesky(op: Emitter, self: Value, upper: bool = False) -> Value:
    """aten::linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor

    Where torch raises because the matrix is not positive-definite, the factor holds NaN from the failing column on.
    """
    # only one triangle is read; the upper one is the lower one of the transpose
    start = swap_last(op, self) if upper else self
    rows, columns = row_indices(op, self), column_indices(op, self)

    def step(op: Emitter, at: Value, matrix: Value) -> list[Value]:
        found = masked(op, op.Not(op.Less(rows, at)), column_at(op, matrix, at))
        found = op.Div(found, op.Sqrt(row_at(op, found, at)))
        rest = op.Sub(matrix, masked(op, op.Greater(columns, at), op.Mul(found, swap_last(op, found))))
        return [masked(op, op.Equal(columns, at), found, rest)]

    (found,) = repeat(op, op.dim(self, -1), step, start)
    return swap_last(op, found) if upper else found


@lower("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(
    op: Emitter, self: Value, upper: bool = False, check_errors: bool = False
) -> tuple[Value, Value]:
    """aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)"""
    found = linalg_cholesky(op, self, upper)
    diagonal = diagonal_of(op, found)
    return found, lapack_info(op, op.Not(op.Greater(diagonal, op.like(0, self))))


# LU -----------------------------------------------------------------------------------------------------------------


def lu_factors(op: Emitter, matrix: Value) -> tuple[Value, Value, Value]:
    """L and U in one matrix, the pivots [..., k] counted from 1, and the row of `matrix` at each place, [..., n, 1].

    Of equally large pivots of a column the first is taken, as in LAPACK's getrf. Where the pivot is 0, the column stays
    as it is.
    """
    rows, columns = row_indices(op, matrix), column_indices(op, matrix)
    count = min_size(op, op.dim(matrix, -2), op.dim(matrix, -1))
    numbers = index_range(op, count)

    def step(op: Emitter, at: Value, matrix: Value, pivots: Value, order: Value) -> list[Value]:
        candidates = masked(op, op.Not(op.Less(rows, at)), op.Abs(column_at(op, matrix, at)), -1)
        best = op.ArgMax(candidates, axis=matrix.rank - 2, keepdims=1)
        matrix, order = (exchanged(op, item, rows, at, best) for item in (matrix, order))
        pivots = masked(
            op, op.Not(op.Equal(numbers, at)), pivots, op.Add(op.Squeeze(best, [matrix.rank - 1]), op.const(1))
        )
        pivot_row = row_at(op, matrix, at)
        factors = op.Div(column_at(op, matrix, at), safe_divisor(op, column_at(op, pivot_row, at)))
        below = op.Greater(rows, at)
        update = op.Mul(masked(op, below, factors), masked(op, op.Greater(columns, at), pivot_row))
        rest = op.Sub(matrix, update)
        return [masked(op, op.And(below, op.Equal(columns, at)), factors, rest), pivots, order]

    batch = batch_dims(op, matrix)
    pivots = full(op, [*batch, count], 0, dtypes.INT64)
    order = unmoved(op, batch, op.dim(matrix, -2))
    found, pivots, order = repeat(op, count, step, matrix, pivots, order)
    return found, op.cast(pivots, dtypes.INT32), order


def exchanged(op: Emitter, value: Value, rows: Value, at: Value, other: Value) -> Value:
    """`value` with its rows `at` and `other` (one for each matrix, [..., 1, 1]) exchanged."""
    there = op.Equal(rows, other)
    moved = op.ReduceSum(masked(op, there, value), axes=[value.rank - 2], keepdims=1)
    return op.Where(op.Equal(rows, at), moved, op.Where(there, row_at(op, value, at), value))


def unmoved(op: Emitter, batch: list[Any], rows: Any) -> Value:
    """The row numbers for each matrix of a batch, [..., rows, 1]."""
    numbers = as_column(op, index_range(op, rows))
    return matrices.broadcast_to(op, numbers, [*batch, rows, 1]) if batch else numbers


def permutation_of_pivots(op: Emitter, pivots: Value, rows: Any) -> Value:
    """The original row at each place, [..., rows, 1], after the exchanges given by LAPACK's `pivots`, [..., k]."""
    numbers = as_column(op, index_range(op, rows))
    pivots = op.cast(pivots, dtypes.INT64)

    def step(op: Emitter, at: Value, order: Value) -> list[Value]:
        other = op.Sub(op.Gather(pivots, at, axis=pivots.rank - 1), op.const(1))
        return [exchanged(op, order, numbers, at, op.Unsqueeze(other, [pivots.rank]))]

    start = unmoved(op, dims_of(op, pivots)[:-1], rows)
    return repeat(op, op.dim(pivots, -1), step, start)[0]


def permutation_matrix(op: Emitter, order: Value, like: Value) -> Value:
    """The permutation matrix E, [..., n, n] in the dtype of `like`, so that E @ x has the rows of x in `order`."""
    return op.cast(op.Equal(order, as_row(op, index_range(op, op.dim(order, -2)))), like.dtype)


def unpack_lu(op: Emitter, packed: Value, unit: bool = True) -> tuple[Value, Value]:
    """L, with ones on its diagonal (zeros without `unit`), and U."""
    count = min_size(op, op.dim(packed, -2), op.dim(packed, -1))
    lower_part = slice_along(op, packed, -1, 0, count)
    below, upper_part = triangle(op, lower_part, False, -1), triangle(op, slice_along(op, packed, -2, 0, count), True)
    if not unit:
        return below, upper_part
    return op.Add(below, identity_matrix(op, op.dim(packed, -2), count, packed)), upper_part


def lu_info(op: Emitter, packed: Value) -> Value:
    """LAPACK's info: the number of the first pivot that is 0, counted from 1, or 0 if there is none."""
    count = min_size(op, op.dim(packed, -2), op.dim(packed, -1))
    diagonal = diagonal_of(op, slice_along(op, packed, -2, 0, count))
    size = op.Abs(diagonal)
    zero = op.Not(op.Or(op.Greater(size, op.like(0, packed)), op.IsNaN(size)))
    return lapack_info(op, zero)


@lower("aten::linalg_lu_factor")
def linalg_lu_factor(op: Emitter, A: Value) -> tuple[Value, Value]:
    """aten::linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)"""
    return lu_factors(op, A)[:2]


@lower("aten::_lu_with_info")
def _lu_with_info(op: Emitter, self: Value, check_errors: bool = True) -> tuple[Value, Value, Value]:
    """aten::_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) -> (Tensor LU, Tensor pivots,
    Tensor info)
    """
    return linalg_lu_factor_ex(op, self)


@lower("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(op: Emitter, A: Value, check_errors: bool = False) -> tuple[Value, Value, Value]:
    """aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots,
    Tensor info)
    """
    found, pivots, _ = lu_factors(op, A)
    return found, pivots, lu_info(op, found)


@lower("aten::linalg_lu")
def linalg_lu(op: Emitter, A: Value) -> tuple[Value, Value, Value]:
    """aten::linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)"""
    found, _, order = lu_factors(op, A)
    return swap_last(op, permutation_matrix(op, order, A)), *unpack_lu(op, found)


@lower("aten::lu_unpack")
def lu_unpack(
    op: Emitter, LU_data: Value, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Value, Value, Value]:
    """aten::lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P,
    Tensor L, Tensor U)
    """
    nothing = op.const(torch.empty(0, dtype=dtypes.torch_dtype(LU_data.dtype or dtypes.FLOAT)))
    permutation = nothing
    if unpack_pivots:
        order = permutation_of_pivots(op, LU_pivots, op.dim(LU_data, -2))
        permutation = swap_last(op, permutation_matrix(op, order, LU_data))
    return permutation, *(unpack_lu(op, LU_data) if unpack_data else (nothing, nothing))


# QR -----------------------------------------------------------------------------------------------------------------


@lower("aten::geqrf")
def geqrf(op: Emitter, self: Value) -> tuple[Value, Value]:
    """aten::geqrf(Tensor self) -> (Tensor a, Tensor tau)

    As in LAPACK: R is in the upper triangle, the vectors of the reflections are below it (each starts with an implicit
    1 on the diagonal), and `tau` holds their factors.

    A diagonal element of R has the sign opposite to that of its column. A column that is 0 below the diagonal is not
    reflected.
    """
    rows, columns = row_indices(op, self), column_indices(op, self)
    count = min_size(op, op.dim(self, -2), op.dim(self, -1))
    numbers = index_range(op, count)
    last = self.rank - 2

    def step(op: Emitter, at: Value, matrix: Value, sizes: Value) -> list[Value]:
        here = column_at(op, matrix, at)
        first = row_at(op, here, at)
        below = masked(op, op.Greater(rows, at), here)
        square = op.ReduceSum(op.Mul(below, below), axes=[last], keepdims=1)
        reflects = op.Greater(square, op.like(0, self))
        norm = op.Sqrt(op.Add(op.Mul(first, first), square))
        new = op.Where(reflects, op.Where(op.Less(first, op.like(0, self)), norm, op.Neg(norm)), first)
        below = op.Div(below, masked(op, reflects, op.Sub(first, new), 1))
        size = op.Where(reflects, op.Div(op.Sub(new, first), masked(op, reflects, new, 1)), op.like(0, self))
        mirror = masked(op, op.Not(op.Equal(rows, at)), below, 1)
        rest = _mirrored(op, matrix, mirror, size)
        made = op.Where(op.Equal(rows, at), new, op.Where(op.Less(rows, at), here, below))
        changed = op.Where(op.Greater(columns, at), rest, matrix)
        sizes = op.Where(op.Equal(numbers, at), op.Squeeze(size, [last]), sizes)
        return [op.Where(op.Equal(columns, at), made, changed), sizes]

    sizes = full(op, [*batch_dims(op, self), count], 0, self.dtype or dtypes.FLOAT)
    packed, sizes = repeat(op, count, step, self, sizes)
    return packed, sizes


def _mirrored(op: Emitter, value: Value, mirror: Value, size: Value) -> Value:
    """`value` less `size` times its projection on the vector `mirror`, [..., n, 1]."""
    along = op.MatMul(swap_last(op, mirror), value)
    return op.Sub(value, op.MatMul(op.Mul(mirror, size), along))


def apply_reflections(op: Emitter, packed: Value, sizes: Value, value: Value, forward: bool) -> Value:
    """Q @ `value` for the reflections of `geqrf`; with `forward` the transpose of Q @ `value`."""
    rows, count = row_indices(op, packed), op.dim(sizes, -1)

    def step(op: Emitter, at: Value, value: Value) -> list[Value]:
        number = at if forward else op.Sub(op.Sub(size_value(op, count), op.const(1)), at)
        below = masked(op, op.Greater(rows, number), column_at(op, packed, number))
        mirror = masked(op, op.Not(op.Equal(rows, number)), below, 1)
        size = op.Unsqueeze(op.Gather(sizes, number, axis=sizes.rank - 1), [sizes.rank])
        return [_mirrored(op, value, mirror, size)]

    return repeat(op, count, step, matrices.broadcast_batch(op, value, packed))[0]


@lower("aten::linalg_householder_product")
def linalg_householder_product(op: Emitter, input: Value, tau: Value) -> Value:
    """aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor"""
    unit = identity_matrix(op, op.dim(input, -2), op.dim(input, -1), input)
    return apply_reflections(op, input, tau, unit, False)


@lower("aten::orgqr")
def orgqr(op: Emitter, self: Value, input2: Value) -> Value:
    """aten::orgqr(Tensor self, Tensor input2) -> Tensor"""
    return linalg_householder_product(op, self, input2)


@lower("aten::ormqr")
def ormqr(op: Emitter, self: Value, input2: Value, input3: Value, left: bool = True, transpose: bool = False) -> Value:
    """aten::ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor"""
    if left:
        return apply_reflections(op, self, input2, input3, transpose)
    # C Q is computed as the transpose of Q^T C^T
    return swap_last(op, apply_reflections(op, self, input2, swap_last(op, input3), not transpose))


@lower("aten::linalg_qr")
def linalg_qr(op: Emitter, A: Value, mode: str = "reduced") -> tuple[Value, Value]:
    """aten::linalg_qr(Tensor A, str mode="reduced") -> (Tensor Q, Tensor R)"""
    packed, sizes = geqrf(op, A)
    count = min_size(op, op.dim(A, -2), op.dim(A, -1))
    r = triangle(op, packed if mode == "complete" else slice_along(op, packed, -2, 0, count), True)
    if mode == "r":
        return op.const(torch.empty(0, dtype=dtypes.torch_dtype(A.dtype or dtypes.FLOAT))), r
    rows = op.dim(A, -2)
    unit = identity_matrix(op, rows, rows if mode == "complete" else count, A)
    return apply_reflections(op, packed, sizes, unit, False), r


@lower("aten::qr")
def qr(op: Emitter, self: Value, some: bool = True) -> tuple[Value, Value]:
    """aten::qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)"""
    return linalg_qr(op, self, "reduced" if some else "complete")
