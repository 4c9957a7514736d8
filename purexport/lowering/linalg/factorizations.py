"""Cholesky, LU and QR factorizations, a column a step and all matrices of a batch at once, as LAPACK does them.

Few steps are written out, more are a Loop (``loops``), so sizes may be anything, known or not.  LU takes the largest
pivot of its column; rows are exchanged by masks, which is exact.  QR reflects as Householder did, with LAPACK's signs.
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
from purexport.lowering.support.kernels import alike
from purexport.lowering.support.loops import repeat
from purexport.lowering.support.matrices import (
    batch_of,
    column,
    columns_of,
    counted,
    diagonal_of,
    first_failed,
    identity,
    kept,
    lying,
    nonzero,
    part,
    row,
    rows_of,
    smaller,
    triangle,
    upright,
)
from purexport.lowering.support.positions import as_value

# Cholesky -----------------------------------------------------------------------------------------------------------


@lower("aten::linalg_cholesky", "aten::cholesky")
def linalg_cholesky(op: Emitter, self: Value, upper: bool = False) -> Value:
    """The factor; NaN from the column on at which torch says that the matrix is not positive-definite."""
    # only one triangle counts, which is the lower one of the transpose
    start = alike(swap_last(op, self), self) if upper else self
    rows, columns = rows_of(op, self), columns_of(op, self)

    def step(op: Emitter, at: Value, matrix: Value) -> list[Value]:
        found = kept(op, op.Not(op.Less(rows, at)), column(op, matrix, at))
        found = alike(op.Div(found, op.Sqrt(row(op, found, at))), found)
        rest = op.Sub(matrix, kept(op, op.Greater(columns, at), op.Mul(found, swap_last(op, found))))
        return [kept(op, op.Equal(columns, at), found, rest)]

    (found,) = repeat(op, op.dim(self, -1), step, start)
    return alike(swap_last(op, found), self) if upper else found


@lower("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(
    op: Emitter, self: Value, upper: bool = False, check_errors: bool = False
) -> tuple[Value, Value]:
    found = linalg_cholesky(op, self, upper)
    diagonal = diagonal_of(op, found)
    return found, first_failed(op, alike(op.Not(op.Greater(diagonal, op.like(0, self))), diagonal))


# LU -----------------------------------------------------------------------------------------------------------------


def factored(op: Emitter, matrix: Value) -> tuple[Value, Value, Value]:
    """L and U in one matrix, the pivots [..., k] from 1 on, and which row of ``matrix`` is where, [..., n, 1].

    The largest pivot of a column is the first of equal ones, as LAPACK takes it; one of 0 leaves its column as it is.
    """
    rows, columns = rows_of(op, matrix), columns_of(op, matrix)
    count = smaller(op, op.dim(matrix, -2), op.dim(matrix, -1))
    numbers = counted(op, count)

    def step(op: Emitter, at: Value, matrix: Value, pivots: Value, order: Value) -> list[Value]:
        candidates = kept(op, op.Not(op.Less(rows, at)), op.Abs(column(op, matrix, at)), -1)
        best = op.ArgMax(candidates, axis=matrix.rank - 2, keepdims=1)
        matrix, order = (_exchanged(op, item, rows, at, best) for item in (matrix, order))
        pivots = kept(
            op, op.Not(op.Equal(numbers, at)), pivots, op.Add(op.Squeeze(best, [matrix.rank - 1]), op.const(1))
        )
        pivot_row = row(op, matrix, at)
        factors = op.Div(column(op, matrix, at), nonzero(op, column(op, pivot_row, at)))
        below = op.Greater(rows, at)
        update = op.Mul(kept(op, below, factors), kept(op, op.Greater(columns, at), pivot_row))
        rest = op.Sub(matrix, update)
        return [kept(op, op.And(below, op.Equal(columns, at)), factors, rest), pivots, order]

    batch = batch_of(op, matrix)
    pivots = full(op, [*batch, count], 0, dtypes.INT64)
    pivots.shape = (*(matrix.shape or ())[:-2], (numbers.shape or ())[0])
    order = _unmoved(op, batch, op.dim(matrix, -2))
    found, pivots, order = repeat(op, count, step, matrix, pivots, order)
    return found, op.cast(pivots, dtypes.INT32), order


def _exchanged(op: Emitter, value: Value, rows: Value, at: Value, other: Value) -> Value:
    """``value`` with its rows ``at`` and ``other`` (one for each matrix, [..., 1, 1]) exchanged."""
    there = op.Equal(rows, other)
    moved = op.ReduceSum(kept(op, there, value), axes=[value.rank - 2], keepdims=1)
    return alike(op.Where(op.Equal(rows, at), moved, op.Where(there, row(op, value, at), value)), value)


def _unmoved(op: Emitter, batch: list[Any], rows: Any) -> Value:
    """The numbers of the rows, for each matrix of a batch, [..., rows, 1]."""
    numbers = upright(op, counted(op, rows))
    return matrices.expanded(op, numbers, [*batch, rows, 1]) if batch else numbers


def order_of(op: Emitter, pivots: Value, rows: Any) -> Value:
    """Which row is where, [..., rows, 1], after the exchanges that LAPACK's ``pivots``, [..., k], say."""
    numbers = upright(op, counted(op, rows))
    pivots = op.cast(pivots, dtypes.INT64)

    def step(op: Emitter, at: Value, order: Value) -> list[Value]:
        other = op.Sub(op.Gather(pivots, at, axis=pivots.rank - 1), op.const(1))
        return [_exchanged(op, order, numbers, at, op.Unsqueeze(other, [pivots.rank]))]

    start = _unmoved(op, dims_of(op, pivots)[:-1], rows)
    return repeat(op, op.dim(pivots, -1), step, start)[0]


def exchange_matrix(op: Emitter, order: Value, like: Value) -> Value:
    """The matrix E, [..., n, n] in the dtype of ``like``, for which E @ x has the rows of x in ``order``."""
    found = op.cast(op.Equal(order, lying(op, counted(op, op.dim(order, -2)))), like.dtype)
    found.shape = (*(order.shape or ())[:-1], (order.shape or ())[-2])
    return found


def unpacked(op: Emitter, packed: Value) -> tuple[Value, Value]:
    """L, with ones on its diagonal, and U."""
    count = smaller(op, op.dim(packed, -2), op.dim(packed, -1))
    lower_part = part(op, packed, -1, 0, count)
    below = triangle(op, lower_part, False, -1)
    ones = identity(op, op.dim(packed, -2), count, packed)
    return alike(op.Add(below, ones), below), triangle(op, part(op, packed, -2, 0, count), True)


def zero_pivot(op: Emitter, packed: Value) -> Value:
    """LAPACK's info: the number of the first pivot that is 0, or 0."""
    count = smaller(op, op.dim(packed, -2), op.dim(packed, -1))
    diagonal = diagonal_of(op, part(op, packed, -2, 0, count))
    size = op.Abs(diagonal)
    zero = op.Not(op.Or(op.Greater(size, op.like(0, packed)), op.IsNaN(size)))
    return first_failed(op, alike(zero, diagonal))


@lower("aten::linalg_lu_factor")
def linalg_lu_factor(op: Emitter, A: Value) -> tuple[Value, Value]:
    return factored(op, A)[:2]


@lower("aten::_lu_with_info")
def _lu_with_info(op: Emitter, self: Value, check_errors: bool = True) -> tuple[Value, Value, Value]:
    return linalg_lu_factor_ex(op, self)


@lower("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(op: Emitter, A: Value, check_errors: bool = False) -> tuple[Value, Value, Value]:
    found, pivots, _ = factored(op, A)
    return found, pivots, zero_pivot(op, found)


@lower("aten::linalg_lu")
def linalg_lu(op: Emitter, A: Value) -> tuple[Value, Value, Value]:
    found, _, order = factored(op, A)
    return swap_last(op, exchange_matrix(op, order, A)), *unpacked(op, found)


@lower("aten::lu_unpack")
def lu_unpack(
    op: Emitter, LU_data: Value, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Value, Value, Value]:
    nothing = op.const(torch.empty(0, dtype=dtypes.torch_dtype(LU_data.dtype or dtypes.FLOAT)))
    permutation = nothing
    if unpack_pivots:
        order = order_of(op, LU_pivots, op.dim(LU_data, -2))
        permutation = swap_last(op, exchange_matrix(op, order, LU_data))
    return permutation, *(unpacked(op, LU_data) if unpack_data else (nothing, nothing))


# QR -----------------------------------------------------------------------------------------------------------------


@lower("aten::geqrf")
def geqrf(op: Emitter, self: Value) -> tuple[Value, Value]:
    """R in the upper triangle, the reflections' vectors below it, each from its 1 on the diagonal on, and their sizes.

    As in LAPACK, a diagonal element of R has the sign that its column had not, but a column that is 0 below the
    diagonal is left alone.
    """
    rows, columns = rows_of(op, self), columns_of(op, self)
    count = smaller(op, op.dim(self, -2), op.dim(self, -1))
    numbers = counted(op, count)
    last = self.rank - 2

    def step(op: Emitter, at: Value, matrix: Value, sizes: Value) -> list[Value]:
        here = column(op, matrix, at)
        first = row(op, here, at)
        below = kept(op, op.Greater(rows, at), here)
        square = op.ReduceSum(op.Mul(below, below), axes=[last], keepdims=1)
        reflects = op.Greater(square, op.like(0, self))
        norm = op.Sqrt(op.Add(op.Mul(first, first), square))
        new = op.Where(reflects, op.Where(op.Less(first, op.like(0, self)), norm, op.Neg(norm)), first)
        below = alike(op.Div(below, kept(op, reflects, op.Sub(first, new), 1)), below)
        size = op.Where(reflects, op.Div(op.Sub(new, first), kept(op, reflects, new, 1)), op.like(0, self))
        mirror = kept(op, op.Not(op.Equal(rows, at)), below, 1)
        rest = _mirrored(op, matrix, mirror, size)
        made = op.Where(op.Equal(rows, at), new, op.Where(op.Less(rows, at), here, below))
        changed = op.Where(op.Greater(columns, at), rest, matrix)
        sizes = alike(op.Where(op.Equal(numbers, at), op.Squeeze(size, [last]), sizes), sizes)
        return [alike(op.Where(op.Equal(columns, at), made, changed), matrix), sizes]

    sizes = full(op, [*batch_of(op, self), count], 0, self.dtype or dtypes.FLOAT)
    sizes.shape = (*(self.shape or ())[:-2], (numbers.shape or ())[0])
    packed, sizes = repeat(op, count, step, self, sizes)
    return packed, sizes


def _mirrored(op: Emitter, value: Value, mirror: Value, size: Value) -> Value:
    """``value`` without ``size`` times its part along the vector ``mirror``, [..., n, 1]."""
    along = op.MatMul(swap_last(op, mirror), value)
    return alike(op.Sub(value, op.MatMul(op.Mul(mirror, size), along)), value)


def reflected(op: Emitter, packed: Value, sizes: Value, value: Value, forward: bool) -> Value:
    """Q @ ``value`` for the reflections of ``geqrf``; its transpose @ ``value`` with ``forward``."""
    rows, count = rows_of(op, packed), op.dim(sizes, -1)

    def step(op: Emitter, at: Value, value: Value) -> list[Value]:
        number = at if forward else op.Sub(op.Sub(as_value(op, count), op.const(1)), at)
        below = kept(op, op.Greater(rows, number), column(op, packed, number))
        mirror = kept(op, op.Not(op.Equal(rows, number)), below, 1)
        size = op.Unsqueeze(op.Gather(sizes, number, axis=sizes.rank - 1), [sizes.rank])
        return [_mirrored(op, value, mirror, size)]

    return repeat(op, count, step, matrices.broadcast_batch(op, value, packed))[0]


@lower("aten::linalg_householder_product")
def linalg_householder_product(op: Emitter, input: Value, tau: Value) -> Value:
    unit = identity(op, op.dim(input, -2), op.dim(input, -1), input)
    return reflected(op, input, tau, unit, False)


@lower("aten::orgqr")
def orgqr(op: Emitter, self: Value, input2: Value) -> Value:
    return linalg_householder_product(op, self, input2)


@lower("aten::ormqr")
def ormqr(op: Emitter, self: Value, input2: Value, input3: Value, left: bool = True, transpose: bool = False) -> Value:
    if left:
        return reflected(op, self, input2, input3, transpose)
    # C Q is the transpose of Q^T C^T
    return swap_last(op, reflected(op, self, input2, swap_last(op, input3), not transpose))


@lower("aten::linalg_qr")
def linalg_qr(op: Emitter, A: Value, mode: str = "reduced") -> tuple[Value, Value]:
    packed, sizes = geqrf(op, A)
    count = smaller(op, op.dim(A, -2), op.dim(A, -1))
    r = triangle(op, packed if mode == "complete" else part(op, packed, -2, 0, count), True)
    if mode == "r":
        return op.const(torch.empty(0, dtype=dtypes.torch_dtype(A.dtype or dtypes.FLOAT))), r
    rows = op.dim(A, -2)
    unit = identity(op, rows, rows if mode == "complete" else count, A)
    return reflected(op, packed, sizes, unit, False), r


@lower("aten::qr")
def qr(op: Emitter, self: Value, some: bool = True) -> tuple[Value, Value]:
    return linalg_qr(op, self, "reduced" if some else "complete")
