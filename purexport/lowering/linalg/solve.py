"""Triangular systems, solve, inverse and determinants, by the factorizations; one row in each step, for any size.

Where torch raises because a matrix is singular, the file computes on, and the result holds infinities or NaN.
"""

# ruff: noqa: N803  A, B and LU are ATen's names of arguments

from __future__ import annotations

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.linalg.factorizations import lu_factors, lu_info, permutation_matrix, permutation_of_pivots
from purexport.lowering.support.common import swap_last
from purexport.lowering.support.loops import repeat
from purexport.lowering.support.matrices import (
    as_column,
    as_vector,
    broadcast_batch,
    column_at,
    diagonal_of,
    identity_matrix,
    index_range,
    masked,
    row_at,
    row_indices,
)
from purexport.lowering.support.positions import size_value

# Triangular systems -------------------------------------------------------------------------------------------------


def substitute(op: Emitter, matrix: Value, right: Value, upper: bool, unit: bool = False) -> Value:
    """X of `matrix` X = `right` by substitution. The other triangle of `matrix` is not read."""
    rows, size = row_indices(op, matrix), op.dim(matrix, -1)

    def step(op: Emitter, at: Value, found: Value) -> list[Value]:
        number = op.Sub(op.Sub(size_value(op, size), op.const(1)), at) if upper else at
        here = column_at(op, matrix, number)
        new = row_at(op, found, number)
        if not unit:
            new = op.Div(new, row_at(op, here, number))
        rest = op.Less(rows, number) if upper else op.Greater(rows, number)
        found = op.Sub(found, op.Mul(masked(op, rest, here), new))
        return [op.Where(op.Equal(rows, number), new, found)]

    return repeat(op, size, step, broadcast_batch(op, right, matrix))[0]


@lower("aten::linalg_solve_triangular")
def linalg_solve_triangular(
    op: Emitter, self: Value, B: Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    """aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)
    -> Tensor

    The other triangle of `self` is not read; with `left=False` it solves X A = B.
    """
    if left:
        return substitute(op, self, B, upper, unitriangular)
    return swap_last(op, substitute(op, swap_last(op, self), swap_last(op, B), not upper, unitriangular))


@lower("aten::triangular_solve")
def triangular_solve(
    op: Emitter, self: Value, A: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Value, Value]:
    """aten::triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False)
    -> (Tensor solution, Tensor cloned_coefficient)
    """
    matrix = swap_last(op, A) if transpose else A
    return substitute(op, matrix, self, upper != transpose, unitriangular), broadcast_batch(op, A, self)


@lower("aten::cholesky_solve")
def cholesky_solve(op: Emitter, self: Value, input2: Value, upper: bool = False) -> Value:
    """aten::cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor"""
    lower_part, upper_part = (swap_last(op, input2), input2) if upper else (input2, swap_last(op, input2))
    return substitute(op, upper_part, substitute(op, lower_part, self, False), True)


@lower("aten::cholesky_inverse")
def cholesky_inverse(op: Emitter, self: Value, upper: bool = False) -> Value:
    """aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor"""
    return cholesky_solve(op, identity_like(op, self), self, upper)


def identity_like(op: Emitter, matrix: Value) -> Value:
    """The identity in the shape of the square matrices."""
    size = op.dim(matrix, -1)
    unit = identity_matrix(op, size, size, matrix)
    return unit if matrix.rank == 2 else op.Expand(unit, op.shape(matrix))


# Solve and inverse --------------------------------------------------------------------------------------------------


def solve_by_lu(op: Emitter, packed: Value, order: Value, right: Value, adjoint: bool = False) -> Value:
    """X of A X = `right`, or of A^T X = `right` with `adjoint`, from the factors and the order of the rows of A."""
    exchange = permutation_matrix(op, order, packed)
    if adjoint:
        upper = swap_last(op, packed)
        between = substitute(op, upper, substitute(op, upper, right, False), True, unit=True)
        return op.MatMul(swap_last(op, exchange), between)
    right = broadcast_batch(op, right, packed)
    moved = op.MatMul(exchange, right)
    return substitute(op, packed, substitute(op, packed, moved, False, unit=True), True)


def is_vector(A: Value, B: Value) -> bool:
    """Whether B holds one vector for each matrix, as torch's linalg_solve_is_vector_rhs decides."""
    return B.rank == 1 or (B.rank == A.rank - 1 and B.shape == (A.shape or ())[:-1])


def _solution(op: Emitter, A: Value, B: Value, left: bool) -> tuple[Value, Value, Value]:
    """The solution, the factors of A and its pivots."""
    packed, pivots, order = lu_factors(op, A)
    right = as_column(op, B) if is_vector(A, B) else B
    if left:
        found = solve_by_lu(op, packed, order, right)
    else:
        found = swap_last(op, solve_by_lu(op, packed, order, swap_last(op, right), adjoint=True))
    return as_vector(op, found) if right is not B else found, packed, pivots


@lower("aten::linalg_solve")
def linalg_solve(op: Emitter, A: Value, B: Value, left: bool = True) -> Value:
    """aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor

    `B` holds vectors if its rank is 1, or if its shape is that of `A` without the last size.
    """
    return _solution(op, A, B, left)[0]


@lower("aten::linalg_solve_ex")
def linalg_solve_ex(
    op: Emitter, A: Value, B: Value, left: bool = True, check_errors: bool = False
) -> tuple[Value, Value]:
    """aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result,
    Tensor info)
    """
    found, packed, _ = _solution(op, A, B, left)
    return found, lu_info(op, packed)


@lower("aten::_linalg_solve_ex")
def _linalg_solve_ex(
    op: Emitter, A: Value, B: Value, left: bool = True, check_errors: bool = False
) -> tuple[Value, Value, Value, Value]:
    """aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result,
    Tensor LU, Tensor pivots, Tensor info)
    """
    found, packed, pivots = _solution(op, A, B, left)
    return found, packed, pivots, lu_info(op, packed)


@lower("aten::inverse")
def inverse(op: Emitter, self: Value) -> Value:
    """aten::inverse(Tensor self) -> Tensor"""
    packed, _, order = lu_factors(op, self)
    return solve_by_lu(op, packed, order, identity_like(op, self))


@lower("aten::linalg_inv")
def linalg_inv(op: Emitter, A: Value) -> Value:
    """aten::linalg_inv(Tensor A) -> Tensor"""
    return inverse(op, A)


@lower("aten::linalg_inv_ex")
def linalg_inv_ex(op: Emitter, A: Value, check_errors: bool = False) -> tuple[Value, Value]:
    """aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)"""
    packed, _, order = lu_factors(op, A)
    return solve_by_lu(op, packed, order, identity_like(op, A)), lu_info(op, packed)


@lower("aten::linalg_lu_solve")
def linalg_lu_solve(op: Emitter, LU: Value, pivots: Value, B: Value, left: bool = True, adjoint: bool = False) -> Value:
    """aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor"""
    order = permutation_of_pivots(op, pivots, op.dim(LU, -2))
    if left:
        return solve_by_lu(op, LU, order, B, adjoint)
    return swap_last(op, solve_by_lu(op, LU, order, swap_last(op, B), not adjoint))


@lower("aten::lu_solve")
def lu_solve(op: Emitter, self: Value, LU_data: Value, LU_pivots: Value) -> Value:
    """aten::lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor"""
    return linalg_lu_solve(op, LU_data, LU_pivots, self)


# Determinants -------------------------------------------------------------------------------------------------------


def _pivots(op: Emitter, matrix: Value) -> tuple[Value, Value, Value, Value]:
    """The values of the pivots, [..., n], the sign of all exchanges, [...], and LU with its pivots."""
    packed, pivots, _ = lu_factors(op, matrix)
    numbers = op.Add(index_range(op, op.dim(matrix, -1)), op.const(1))
    stays = op.Equal(op.cast(pivots, dtypes.INT64), numbers)
    signs = op.Where(stays, op.like(1, matrix), op.like(-1, matrix))
    return diagonal_of(op, packed), op.ReduceProd(signs, axes=[matrix.rank - 2], keepdims=0), packed, pivots


@lower("aten::det")
def det(op: Emitter, self: Value) -> Value:
    """aten::det(Tensor self) -> Tensor"""
    if op.has("Det") and self.dtype == dtypes.FLOAT:
        return op.Det(self)
    return _det(op, self)[0]


def _det(op: Emitter, matrix: Value) -> tuple[Value, Value, Value]:
    diagonal, sign, packed, pivots = _pivots(op, matrix)
    product = op.ReduceProd(diagonal, axes=[matrix.rank - 2], keepdims=0)
    return op.Mul(product, sign), packed, pivots


@lower("aten::linalg_det")
def linalg_det(op: Emitter, A: Value) -> Value:
    """aten::linalg_det(Tensor A) -> Tensor"""
    return det(op, A)


@lower("aten::_linalg_det")
def _linalg_det(op: Emitter, A: Value) -> tuple[Value, Value, Value]:
    """aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)

    torch factors the transpose of a contiguous matrix, and so does this rule.
    """
    return _det(op, swap_last(op, A))


@lower("aten::slogdet")
def slogdet(op: Emitter, self: Value) -> tuple[Value, Value]:
    """aten::slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)"""
    return _slogdet(op, self)[:2]


def _slogdet(op: Emitter, matrix: Value) -> tuple[Value, Value, Value, Value]:
    diagonal, sign, packed, pivots = _pivots(op, matrix)
    last = [matrix.rank - 2]
    signs = op.ReduceProd(op.Sign(diagonal), axes=last, keepdims=0)
    return op.Mul(signs, sign), op.ReduceSum(op.Log(op.Abs(diagonal)), axes=last, keepdims=0), packed, pivots


@lower("aten::linalg_slogdet")
def linalg_slogdet(op: Emitter, A: Value) -> tuple[Value, Value]:
    """aten::linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)"""
    return slogdet(op, A)


@lower("aten::_linalg_slogdet")
def _linalg_slogdet(op: Emitter, A: Value) -> tuple[Value, Value, Value, Value]:
    """aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)"""
    return _slogdet(op, swap_last(op, A))


@lower("aten::logdet")
def logdet(op: Emitter, self: Value) -> Value:
    """aten::logdet(Tensor self) -> Tensor

    NaN for a negative determinant, -inf for 0.
    """
    sign, size = slogdet(op, self)
    return op.Where(op.Less(sign, op.like(0, sign)), op.like(float("nan"), size), size)
