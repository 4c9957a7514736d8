"""Cholesky, LU and QR factorizations of real and complex matrices, one column in each step and all matrices of a batch
at once, as LAPACK does them.

A few steps are written out, more become a Loop (`loops`), so a size may be dynamic. LU takes the largest pivot of its
column (LAPACK getrf); rows are exchanged by masks, which is exact. QR uses Householder's reflections I - tau v v^H with
the signs of LAPACK's geqrf, for which the diagonal of R is real.
"""

# ruff: noqa: N803  A and LU are ATen's names of arguments

from __future__ import annotations

from typing import Any, cast

from proto_schema.legalization.loops import repeat
from proto_schema.legalization.sizes import numbers_below, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_over_fields
from purexport.lowering.support import fields
from purexport.lowering.support.common import dims_of, full, swap_last
from purexport.lowering.support.fields import (
    Operand,
    T,
    adjoint,
    conj,
    div,
    in_field_of,
    map_parts,
    mul,
    real_part,
    sub,
    where,
)
from purexport.lowering.support.loops import repeat_in_field
from purexport.lowering.support.matrices import (
    as_column,
    as_row,
    batch_dims,
    broadcast_batch,
    broadcast_to,
    column_at,
    column_indices,
    diagonal_of,
    dim_of,
    identity_matrix,
    lapack_info,
    masked,
    min_size,
    row_at,
    row_indices,
    safe_divisor,
    slice_along,
    triangle,
)
from purexport.lowering.support.pairs import Pair


def _rank(op: Emitter, matrix: T) -> Any:
    """The smaller of the two sizes."""
    return min_size(op, dim_of(op, matrix, -2), dim_of(op, matrix, -1))


# Cholesky -----------------------------------------------------------------------------------------------------------


@lower_over_fields("aten::linalg_cholesky", "aten::cholesky")
def linalg_cholesky(op: Emitter, self: T, upper: bool = False) -> T:
    """aten::linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor

    One triangle and the real parts of the diagonal are read. Where torch raises because the matrix is not
    positive-definite, the factor holds NaN from the failing column on.
    """
    # the upper triangle is the lower one of the adjoint
    start = adjoint(op, self) if upper else self
    rows, columns = row_indices(op, self), column_indices(op, self)

    def step(op: Emitter, at: Value, matrix: T) -> list[T]:
        found = masked(op, op.Not(op.Less(rows, at)), column_at(op, matrix, at))
        found = div(op, found, op.Sqrt(row_at(op, real_part(found), at)))
        if isinstance(found, Pair):
            found = cast(T, Pair(found.real, masked(op, op.Greater(rows, at), found.imag)))
        rest = sub(op, matrix, masked(op, op.Greater(columns, at), mul(op, found, adjoint(op, found))))
        return [where(op, op.Equal(columns, at), found, rest)]

    found: T = repeat_in_field(op, dim_of(op, self, -1), step, start)[0]
    return adjoint(op, found) if upper else found


@lower_over_fields("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(op: Emitter, self: T, upper: bool = False, check_errors: bool = False) -> tuple[T, Value]:
    """aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)"""
    found = linalg_cholesky(op, self, upper)
    diagonal = diagonal_of(op, real_part(found))
    return found, lapack_info(op, op.Not(op.Greater(diagonal, op.like(0, diagonal))))


# LU -----------------------------------------------------------------------------------------------------------------


def lu_factors(op: Emitter, matrix: T) -> tuple[T, Value, Value]:
    """L and U in one matrix, the pivots [..., k] counted from 1, and the row of `matrix` at each place, [..., n, 1].

    Of equally large pivots of a column the first is taken, as in LAPACK's getrf. Where the pivot is 0, the column stays
    as it is.
    """
    rows, columns = row_indices(op, matrix), column_indices(op, matrix)
    count, rank = _rank(op, matrix), matrix.rank
    numbers = numbers_below(op, count)

    def step(op: Emitter, at: Value, matrix: T, pivots: Value, order: Value) -> list[Any]:
        sizes = fields.size_of_pivot(op, column_at(op, matrix, at))
        best = op.ArgMax(masked(op, op.Not(op.Less(rows, at)), sizes, -1), axis=rank - 2, keepdims=1)
        matrix, order = exchanged(op, matrix, rows, at, best), exchanged(op, order, rows, at, best)
        pivots = masked(op, op.Not(op.Equal(numbers, at)), pivots, op.Add(op.Squeeze(best, [rank - 1]), op.const(1)))
        pivot_row = row_at(op, matrix, at)
        factors = div(op, column_at(op, matrix, at), safe_divisor(op, column_at(op, pivot_row, at)))
        below = op.Greater(rows, at)
        update = mul(op, masked(op, below, factors), masked(op, op.Greater(columns, at), pivot_row))
        made = where(op, op.And(below, op.Equal(columns, at)), factors, sub(op, matrix, update))
        return [made, pivots, order]

    batch = batch_dims(op, matrix)
    pivots = full(op, [*batch, count], 0, dtypes.INT64)
    order = unmoved(op, batch, dim_of(op, matrix, -2))
    found, pivots, order = repeat_in_field(op, count, step, matrix, pivots, order)
    return found, op.cast(pivots, dtypes.INT32), order


def exchanged(op: Emitter, value: T, rows: Value, at: Value, other: Value) -> T:
    """`value` with its rows `at` and `other` (one for each matrix, [..., 1, 1]) exchanged."""
    there, axes = op.Equal(rows, other), [value.rank - 2]
    moved = map_parts(masked(op, there, value), lambda part: op.ReduceSum(part, axes=axes, keepdims=1))
    return where(op, op.Equal(rows, at), moved, where(op, there, row_at(op, value, at), value))


def unmoved(op: Emitter, batch: list[Any], rows: Any) -> Value:
    """The row numbers for each matrix of a batch, [..., rows, 1]."""
    numbers: Value = as_column(op, numbers_below(op, rows))
    return broadcast_to(op, numbers, [*batch, rows, 1]) if batch else numbers


def permutation_of_pivots(op: Emitter, pivots: Value, rows: Any) -> Value:
    """The original row at each place, [..., rows, 1], after the exchanges given by LAPACK's `pivots`, [..., k]."""
    numbers = as_column(op, numbers_below(op, rows))
    pivots = op.cast(pivots, dtypes.INT64)

    def step(op: Emitter, at: Value, order: Value) -> list[Value]:
        other = op.Sub(op.Gather(pivots, at, axis=pivots.rank - 1), op.const(1))
        return [exchanged(op, order, numbers, at, op.Unsqueeze(other, [pivots.rank]))]

    start = unmoved(op, dims_of(op, pivots)[:-1], rows)
    return repeat(op, op.dim(pivots, -1), step, start)[0]


def permutation_matrix(op: Emitter, order: Value, dtype: int | None) -> Value:
    """The permutation matrix E, [..., n, n], so that E @ x has the rows of x in `order`."""
    return op.cast(op.Equal(order, as_row(op, numbers_below(op, op.dim(order, -2)))), dtype)


def _permutation(op: Emitter, order: Value, like: T) -> T:
    """P of A = P L U in the field of `like`."""
    return in_field_of(op, swap_last(op, permutation_matrix(op, order, like.dtype)), like)


def unpack_lu(op: Emitter, packed: T) -> tuple[T, T]:
    """L, with ones on its diagonal, and U."""
    count = _rank(op, packed)
    below = triangle(op, slice_along(op, packed, -1, 0, count), False, -1)
    upper = triangle(op, slice_along(op, packed, -2, 0, count), True)
    unit = identity_matrix(op, dim_of(op, packed, -2), count, real_part(packed))
    return fields.with_real_part(below, op.Add(real_part(below), unit)), upper


def lu_info(op: Emitter, packed: T) -> Value:
    """LAPACK's info: the number of the first pivot that is 0, counted from 1, or 0 if there is none."""
    size = diagonal_of(op, slice_along(op, fields.size_of_pivot(op, packed), -2, 0, _rank(op, packed)))
    return lapack_info(op, op.Not(op.Or(op.Greater(size, op.like(0, size)), op.IsNaN(size))))


@lower_over_fields("aten::linalg_lu_factor")
def linalg_lu_factor(op: Emitter, A: T) -> tuple[T, Value]:
    """aten::linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)"""
    return lu_factors(op, A)[:2]


@lower_over_fields("aten::_lu_with_info")
def _lu_with_info(op: Emitter, self: T, check_errors: bool = True) -> tuple[T, Value, Value]:
    """aten::_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) -> (Tensor LU, Tensor pivots,
    Tensor info)
    """
    return linalg_lu_factor_ex(op, self)


@lower_over_fields("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(op: Emitter, A: T, check_errors: bool = False) -> tuple[T, Value, Value]:
    """aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots,
    Tensor info)
    """
    found, pivots, _ = lu_factors(op, A)
    return found, pivots, lu_info(op, found)


@lower_over_fields("aten::linalg_lu")
def linalg_lu(op: Emitter, A: T) -> tuple[T, T, T]:
    """aten::linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)"""
    found, _, order = lu_factors(op, A)
    return _permutation(op, order, A), *unpack_lu(op, found)


@lower_over_fields("aten::lu_unpack")
def lu_unpack(
    op: Emitter, LU_data: T, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[T, T, T]:
    """aten::lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P,
    Tensor L, Tensor U)
    """
    permutation = nothing = fields.empty_result(op, LU_data)
    if unpack_pivots:
        order = permutation_of_pivots(op, LU_pivots, dim_of(op, LU_data, -2))
        permutation = _permutation(op, order, LU_data)
    return permutation, *(unpack_lu(op, LU_data) if unpack_data else (nothing, nothing))


# QR -----------------------------------------------------------------------------------------------------------------


@lower_over_fields("aten::geqrf")
def geqrf(op: Emitter, self: T) -> tuple[T, T]:
    """aten::geqrf(Tensor self) -> (Tensor a, Tensor tau)

    As in LAPACK: R is in the upper triangle, the vectors of the reflections are below it (each starts with an implicit
    1 on the diagonal), and `tau` holds their factors.

    A diagonal element of R is real, with the sign opposite to that of (the real part of) its column. A column that is 0
    below a real diagonal is not reflected.
    """
    rows, columns = row_indices(op, self), column_indices(op, self)
    count, last = _rank(op, self), self.rank - 2
    numbers = numbers_below(op, count)

    def step(op: Emitter, at: Value, matrix: T, sizes: T) -> list[T]:
        here = column_at(op, matrix, at)
        first = row_at(op, here, at)
        real, zero = real_part(first), op.like(0, real_part(first))
        below = masked(op, op.Greater(rows, at), here)
        square = op.ReduceSum(fields.square_of_size(op, below), axes=[last], keepdims=1)
        if isinstance(first, Pair):
            square = op.Add(square, op.Mul(first.imag, first.imag))
        reflects = op.Greater(square, zero)
        norm = op.Sqrt(op.Add(op.Mul(real, real), square))
        new = op.Where(reflects, op.Where(op.Less(real, zero), norm, op.Neg(norm)), real)
        divisor = fields.with_real_part(first, op.Sub(real, new))
        below = div(op, below, masked(op, reflects, divisor, 1))
        size = conj(op, fields.with_real_part(first, op.Sub(new, real)))
        size = masked(op, reflects, div(op, size, masked(op, reflects, new, 1)))
        mirror = masked(op, op.Not(op.Equal(rows, at)), below, 1)
        rest = _mirrored(op, matrix, mirror, conj(op, size))
        diagonal: Operand = Pair(new, masked(op, op.Not(reflects), first.imag)) if isinstance(first, Pair) else new
        made = where(op, op.Equal(rows, at), cast(T, diagonal), where(op, op.Less(rows, at), here, below))
        changed = where(op, op.Greater(columns, at), rest, matrix)
        sizes = where(op, op.Equal(numbers, at), map_parts(size, lambda part: op.Squeeze(part, [last])), sizes)
        return [where(op, op.Equal(columns, at), made, changed), sizes]

    zeros = full(op, [*batch_dims(op, self), count], 0, self.dtype or dtypes.FLOAT)
    packed, sizes = repeat_in_field(op, count, step, self, map_parts(self, lambda part: zeros))
    return packed, sizes


def _mirrored(op: Emitter, value: T, mirror: T, size: T) -> T:
    """`value` less `size` times its projection on the vector `mirror`, [..., n, 1]."""
    along = matmul(op, adjoint(op, mirror), value)
    return sub(op, value, matmul(op, mul(op, mirror, size), along))


def matmul(op: Emitter, one: T, other: T) -> T:
    """The matrix product of two matrices of one field."""
    found: T = fields.by_products(op, lambda op, one, other: op.MatMul(one, other), one, other)
    return found


def apply_reflections(op: Emitter, packed: T, sizes: T, value: T, forward: bool) -> T:
    """Q @ `value` for the reflections of `geqrf`; with `forward` the adjoint of Q @ `value`."""
    rows, count = row_indices(op, packed), dim_of(op, sizes, -1)

    def step(op: Emitter, at: Value, value: T) -> list[T]:
        number = at if forward else op.Sub(op.Sub(value_of(op, count), op.const(1)), at)
        below = masked(op, op.Greater(rows, number), column_at(op, packed, number))
        mirror = masked(op, op.Not(op.Equal(rows, number)), below, 1)
        size = map_parts(sizes, lambda part: op.Unsqueeze(op.Gather(part, number, axis=part.rank - 1), [part.rank]))
        return [_mirrored(op, value, mirror, conj(op, size) if forward else size)]

    found: T = repeat_in_field(op, count, step, broadcast_batch(op, value, packed))[0]
    return found


@lower_over_fields("aten::linalg_householder_product")
def linalg_householder_product(op: Emitter, input: T, tau: T) -> T:
    """aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor"""
    unit = identity_matrix(op, dim_of(op, input, -2), dim_of(op, input, -1), input)
    return apply_reflections(op, input, tau, unit, False)


@lower_over_fields("aten::orgqr")
def orgqr(op: Emitter, self: T, input2: T) -> T:
    """aten::orgqr(Tensor self, Tensor input2) -> Tensor"""
    return linalg_householder_product(op, self, input2)


@lower_over_fields("aten::ormqr")
def ormqr(op: Emitter, self: T, input2: T, input3: T, left: bool = True, transpose: bool = False) -> T:
    """aten::ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor

    With `transpose` by the adjoint of Q.
    """
    if left:
        return apply_reflections(op, self, input2, input3, transpose)
    # C Q is computed as the adjoint of Q^H C^H
    return adjoint(op, apply_reflections(op, self, input2, adjoint(op, input3), not transpose))


@lower_over_fields("aten::linalg_qr")
def linalg_qr(op: Emitter, A: T, mode: str = "reduced") -> tuple[T, T]:
    """aten::linalg_qr(Tensor A, str mode="reduced") -> (Tensor Q, Tensor R)"""
    packed, sizes = geqrf(op, A)
    rows, count = dim_of(op, A, -2), _rank(op, A)
    r = triangle(op, packed if mode == "complete" else slice_along(op, packed, -2, 0, count), True)
    if mode == "r":
        return fields.empty_result(op, A), r
    unit = identity_matrix(op, rows, rows if mode == "complete" else count, A)
    return apply_reflections(op, packed, sizes, unit, False), r


@lower_over_fields("aten::qr")
def qr(op: Emitter, self: T, some: bool = True) -> tuple[T, T]:
    """aten::qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)"""
    return linalg_qr(op, self, "reduced" if some else "complete")
