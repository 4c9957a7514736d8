"""Triangular systems, solve, inverse and determinants of real and complex matrices, by the factorizations; one row in
each step, for any size.

Where torch raises because a matrix is singular, the file computes on, and the result holds infinities or NaN.
"""

# ruff: noqa: N803  A, B and LU are ATen's names of arguments

from __future__ import annotations

from typing import cast

from proto_schema.legalization.sizes import numbers_below, value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_over_fields
from purexport.lowering.linalg.factorizations import lu_factors, lu_info, permutation_matrix, permutation_of_pivots
from purexport.lowering.support import fields
from purexport.lowering.support.common import swap_last
from purexport.lowering.support.fields import Operand, T, conj, div, map_parts, mul, real_part, sub, transposed, where
from purexport.lowering.support.loops import repeat_in_field
from purexport.lowering.support.matrices import (
    as_column,
    as_vector,
    broadcast_batch,
    column_at,
    diagonal_of,
    dim_of,
    identity_matrix,
    masked,
    row_at,
    row_indices,
)
from purexport.lowering.support.pairs import Pair

# Triangular systems -------------------------------------------------------------------------------------------------


def substitute(op: Emitter, matrix: T, right: T, upper: bool, unit: bool = False) -> T:
    """X of `matrix` X = `right` by substitution. The other triangle of `matrix` is not read."""
    rows, size = row_indices(op, matrix), dim_of(op, matrix, -1)

    def step(op: Emitter, at: Value, found: T) -> list[T]:
        number = op.Sub(op.Sub(value_of(op, size), op.const(1)), at) if upper else at
        here = column_at(op, matrix, number)
        new = row_at(op, found, number)
        if not unit:
            new = div(op, new, row_at(op, here, number))
        rest = op.Less(rows, number) if upper else op.Greater(rows, number)
        found = sub(op, found, mul(op, masked(op, rest, here), new))
        return [where(op, op.Equal(rows, number), new, found)]

    found: T = repeat_in_field(op, size, step, broadcast_batch(op, right, matrix))[0]
    return found


@lower_over_fields("aten::linalg_solve_triangular")
def linalg_solve_triangular(
    op: Emitter, self: T, B: T, upper: bool, left: bool = True, unitriangular: bool = False
) -> T:
    """aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)
    -> Tensor

    The other triangle of `self` is not read; with `left=False` it solves X A = B.
    """
    if left:
        return substitute(op, self, B, upper, unitriangular)
    return transposed(op, substitute(op, transposed(op, self), transposed(op, B), not upper, unitriangular))


@lower_over_fields("aten::triangular_solve")
def triangular_solve(
    op: Emitter, self: T, A: T, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[T, T]:
    """aten::triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False)
    -> (Tensor solution, Tensor cloned_coefficient)

    `transpose` does not conjugate.
    """
    matrix = transposed(op, A) if transpose else A
    return substitute(op, matrix, self, upper != transpose, unitriangular), broadcast_batch(op, A, self)


@lower_over_fields("aten::cholesky_solve")
def cholesky_solve(op: Emitter, self: T, input2: T, upper: bool = False) -> T:
    """aten::cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor"""
    other = fields.adjoint(op, input2)
    lower_part, upper_part = (other, input2) if upper else (input2, other)
    return substitute(op, upper_part, substitute(op, lower_part, self, False), True)


@lower_over_fields("aten::cholesky_inverse")
def cholesky_inverse(op: Emitter, self: T, upper: bool = False) -> T:
    """aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor"""
    return cholesky_solve(op, identity_like(op, self), self, upper)


def identity_like(op: Emitter, matrix: T) -> T:
    """The identity in the shape of the square matrices."""
    size, like = dim_of(op, matrix, -1), real_part(matrix)
    unit = identity_matrix(op, size, size, like)
    return fields.in_field_of(op, unit if matrix.rank == 2 else op.Expand(unit, op.shape(like)), matrix)


# Solve and inverse --------------------------------------------------------------------------------------------------


def solve_by_lu(op: Emitter, packed: T, order: Value, right: T, transpose: bool = False) -> T:
    """X of A X = `right`, or of A^T X = `right` with `transpose`, from the factors and the order of the rows of A."""
    exchange = permutation_matrix(op, order, packed.dtype)
    if transpose:
        upper = transposed(op, packed)
        between = substitute(op, upper, substitute(op, upper, right, False), True, unit=True)
        back = swap_last(op, exchange)
        return map_parts(between, lambda part: op.MatMul(back, part))
    moved = map_parts(broadcast_batch(op, right, packed), lambda part: op.MatMul(exchange, part))
    return substitute(op, packed, substitute(op, packed, moved, False, unit=True), True)


def is_vector(A: Operand, B: Operand) -> bool:
    """Whether B holds one vector for each matrix, as torch's linalg_solve_is_vector_rhs decides."""
    return B.rank == 1 or (B.rank == A.rank - 1 and B.shape == (A.shape or ())[:-1])


def _solution(op: Emitter, A: T, B: T, left: bool) -> tuple[T, T, Value]:
    """The solution, the factors of A and its pivots."""
    if isinstance(A, Pair) != isinstance(B, Pair):
        raise UnsupportedForm("of a real and a complex tensor has no rule; make both complex", code="complex-tensor")
    packed, pivots, order = lu_factors(op, A)
    right = as_column(op, B) if is_vector(A, B) else B
    if left:
        found = solve_by_lu(op, packed, order, right)
    else:
        found = transposed(op, solve_by_lu(op, packed, order, transposed(op, right), transpose=True))
    return as_vector(op, found) if right is not B else found, packed, pivots


@lower_over_fields("aten::linalg_solve")
def linalg_solve(op: Emitter, A: T, B: T, left: bool = True) -> T:
    """aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor

    `B` holds vectors if its rank is 1, or if its shape is that of `A` without the last size.
    """
    return _solution(op, A, B, left)[0]


@lower_over_fields("aten::linalg_solve_ex")
def linalg_solve_ex(op: Emitter, A: T, B: T, left: bool = True, check_errors: bool = False) -> tuple[T, Value]:
    """aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result,
    Tensor info)
    """
    found, packed, _ = _solution(op, A, B, left)
    return found, lu_info(op, packed)


@lower_over_fields("aten::_linalg_solve_ex")
def _linalg_solve_ex(
    op: Emitter, A: T, B: T, left: bool = True, check_errors: bool = False
) -> tuple[T, T, Value, Value]:
    """aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result,
    Tensor LU, Tensor pivots, Tensor info)
    """
    found, packed, pivots = _solution(op, A, B, left)
    return found, packed, pivots, lu_info(op, packed)


@lower_over_fields("aten::inverse")
def inverse(op: Emitter, self: T) -> T:
    """aten::inverse(Tensor self) -> Tensor"""
    packed, _, order = lu_factors(op, self)
    return solve_by_lu(op, packed, order, identity_like(op, self))


@lower_over_fields("aten::linalg_inv")
def linalg_inv(op: Emitter, A: T) -> T:
    """aten::linalg_inv(Tensor A) -> Tensor"""
    return inverse(op, A)


@lower_over_fields("aten::linalg_inv_ex")
def linalg_inv_ex(op: Emitter, A: T, check_errors: bool = False) -> tuple[T, Value]:
    """aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)"""
    packed, _, order = lu_factors(op, A)
    return solve_by_lu(op, packed, order, identity_like(op, A)), lu_info(op, packed)


@lower_over_fields("aten::linalg_lu_solve")
def linalg_lu_solve(op: Emitter, LU: T, pivots: Value, B: T, left: bool = True, adjoint: bool = False) -> T:
    """aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor

    With `adjoint` of A^H. X A = B is solved as A^T X^T = B^T, and A^H by the conjugates of A^T and B.
    """
    order = permutation_of_pivots(op, pivots, dim_of(op, LU, -2))
    right = B if left else transposed(op, B)
    found = solve_by_lu(op, LU, order, conj(op, right) if adjoint else right, transpose=adjoint == left)
    found = conj(op, found) if adjoint else found
    return found if left else transposed(op, found)


@lower_over_fields("aten::lu_solve")
def lu_solve(op: Emitter, self: T, LU_data: T, LU_pivots: Value) -> T:
    """aten::lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor"""
    return linalg_lu_solve(op, LU_data, LU_pivots, self)


# Determinants -------------------------------------------------------------------------------------------------------


def _pivots(op: Emitter, matrix: T) -> tuple[T, Value, T, Value]:
    """The values of the pivots, [..., n], the sign of all exchanges, [...], and LU with its pivots."""
    packed, pivots, _ = lu_factors(op, matrix)
    numbers = op.Add(numbers_below(op, dim_of(op, matrix, -1)), op.const(1))
    real = real_part(matrix)
    stays = op.Equal(op.cast(pivots, dtypes.INT64), numbers)
    signs = op.Where(stays, op.like(1, real), op.like(-1, real))
    return diagonal_of(op, packed), op.ReduceProd(signs, axes=[matrix.rank - 2], keepdims=0), packed, pivots


@lower_over_fields("aten::det")
def det(op: Emitter, self: T) -> T:
    """aten::det(Tensor self) -> Tensor"""
    if isinstance(self, Value):
        return cast(T, op.Det(self))
    return _det(op, self)[0]


def _det(op: Emitter, matrix: T) -> tuple[T, T, Value]:
    diagonal, sign, packed, pivots = _pivots(op, matrix)
    return mul(op, fields.product_along(op, diagonal, matrix.rank - 2), sign), packed, pivots


@lower_over_fields("aten::linalg_det")
def linalg_det(op: Emitter, A: T) -> T:
    """aten::linalg_det(Tensor A) -> Tensor"""
    return det(op, A)


@lower_over_fields("aten::_linalg_det")
def _linalg_det(op: Emitter, A: T) -> tuple[T, T, Value]:
    """aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)

    torch factors the transpose of a contiguous matrix, and so does this rule.
    """
    return _det(op, transposed(op, A))


@lower("aten::slogdet")
def slogdet(op: Emitter, self: Value) -> tuple[Value, Value]:
    """aten::slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)"""
    return _slogdet(op, self)[:2]


def _slogdet(op: Emitter, matrix: T) -> tuple[T, Value, T, Value]:
    diagonal, sign, packed, pivots = _pivots(op, matrix)
    last = matrix.rank - 2
    signs = mul(op, fields.product_along(op, fields.sign(op, diagonal), last), sign)
    size = op.ReduceSum(op.Log(fields.magnitude(op, diagonal)), axes=[last], keepdims=0)
    return signs, size, packed, pivots


@lower("aten::linalg_slogdet")
def linalg_slogdet(op: Emitter, A: Value) -> tuple[Value, Value]:
    """aten::linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)"""
    return slogdet(op, A)


@lower_over_fields("aten::_linalg_slogdet")
def _linalg_slogdet(op: Emitter, A: T) -> tuple[T, Value, T, Value]:
    """aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)"""
    return _slogdet(op, transposed(op, A))


@lower("aten::logdet")
def logdet(op: Emitter, self: Value) -> Value:
    """aten::logdet(Tensor self) -> Tensor

    NaN for a negative determinant, -inf for 0.
    """
    sign, size = slogdet(op, self)
    return op.Where(op.Less(sign, op.like(0, sign)), op.like(float("nan"), size), size)
