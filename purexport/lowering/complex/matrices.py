"""Triangular systems, solve, inverse, determinants and the exponential of complex matrices, as for real ones.

The exponential is computed by a real matrix of twice the size: the complex matrix A + Bi corresponds to the real block
matrix [[A, -B], [B, A]], and sums and products correspond likewise.
"""

# ruff: noqa: N803  A, B and LU are ATen's names of arguments

from __future__ import annotations

from typing import Any

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import adjoint, complex_scale, conj, magnitude, sgn
from purexport.lowering.complex.factorizations import (
    chosen,
    divided,
    info_of,
    kept,
    less,
    lu_factors,
    pair_column,
    pair_row,
    times,
)
from purexport.lowering.complex.products import prod_along
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.linalg import powers, solve
from purexport.lowering.linalg.factorizations import permutation_matrix, permutation_of_pivots
from purexport.lowering.support.common import swap_last
from purexport.lowering.support.loops import repeat
from purexport.lowering.support.matrices import (
    as_column,
    as_vector,
    broadcast_batch,
    diagonal_of,
    index_range,
    row_indices,
    slice_along,
)
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.positions import size_product, size_value


def _swapped(op: Emitter, matrix: Pair) -> Pair:
    return matrix.map(lambda part: swap_last(op, part))


# Triangular systems -------------------------------------------------------------------------------------------------


def substitute(op: Emitter, matrix: Pair, right: Pair, upper: bool, unit: bool = False) -> Pair:
    """X of `matrix` X = `right` by substitution. The other triangle of `matrix` is not read."""
    rows, size = row_indices(op, matrix.real), op.dim(matrix.real, -1)

    def step(op: Emitter, at: Value, *parts: Value) -> list[Value]:
        found = Pair(*parts)
        number = op.Sub(op.Sub(size_value(op, size), op.const(1)), at) if upper else at
        here = pair_column(op, matrix, number)
        new = pair_row(op, found, number)
        if not unit:
            new = divided(op, new, pair_row(op, here, number))
        rest = op.Less(rows, number) if upper else op.Greater(rows, number)
        found = less(op, found, times(op, kept(op, rest, here), new))
        found = chosen(op, op.Equal(rows, number), new, found)
        return [found.real, found.imag]

    start = right.map(lambda part: broadcast_batch(op, part, matrix.real))
    return Pair(*repeat(op, size, step, start.real, start.imag))


@lower_complex("aten::linalg_solve_triangular")
def linalg_solve_triangular(
    op: Emitter, self: Pair, B: Pair, upper: bool, left: bool = True, unitriangular: bool = False
) -> Pair:
    """aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)
    -> Tensor
    """
    if left:
        return substitute(op, self, B, upper, unitriangular)
    return _swapped(op, substitute(op, _swapped(op, self), _swapped(op, B), not upper, unitriangular))


@lower_complex("aten::triangular_solve")
def triangular_solve(
    op: Emitter, self: Pair, A: Pair, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Pair, Pair]:
    """aten::triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False)
    -> (Tensor solution, Tensor cloned_coefficient)

    `transpose` does not conjugate.
    """
    matrix = _swapped(op, A) if transpose else A
    cloned = A.map(lambda part: broadcast_batch(op, part, self.real))
    return substitute(op, matrix, self, upper != transpose, unitriangular), cloned


@lower_complex("aten::cholesky_solve")
def cholesky_solve(op: Emitter, self: Pair, input2: Pair, upper: bool = False) -> Pair:
    """aten::cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor"""
    lower_part, upper_part = (adjoint(op, input2), input2) if upper else (input2, adjoint(op, input2))
    return substitute(op, upper_part, substitute(op, lower_part, self, False), True)


@lower_complex("aten::cholesky_inverse")
def cholesky_inverse(op: Emitter, self: Pair, upper: bool = False) -> Pair:
    """aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor"""
    return cholesky_solve(op, _identity(op, self), self, upper)


def _identity(op: Emitter, matrix: Pair) -> Pair:
    unit = solve.identity_like(op, matrix.real)
    return Pair(unit, op.Mul(unit, op.like(0, unit)))


# Solve and inverse --------------------------------------------------------------------------------------------------


def _solved(op: Emitter, packed: Pair, order: Value, right: Pair, transposed: bool = False) -> Pair:
    """X of A X = `right`, or of A^T X = `right`, from the factors and the order of the rows of A."""
    exchange = permutation_matrix(op, order, packed.real)
    if transposed:
        upper = _swapped(op, packed)
        between = substitute(op, upper, substitute(op, upper, right, False), True, unit=True)
        return between.map(lambda part: op.MatMul(swap_last(op, exchange), part))
    right = right.map(lambda part: op.MatMul(exchange, broadcast_batch(op, part, packed.real)))
    return substitute(op, packed, substitute(op, packed, right, False, unit=True), True)


def _solution(op: Emitter, A: Pair, B: Pair, left: bool) -> tuple[Pair, Pair, Value]:
    """The solution, the factors of A and its pivots."""
    if not isinstance(A, Pair) or not isinstance(B, Pair):
        raise UnsupportedForm("of a real and a complex tensor has no rule; make both complex", code="complex-tensor")
    packed, pivots, order = lu_factors(op, A)
    vectors = solve.is_vector(A.real, B.real)
    right = B.map(lambda part: as_column(op, part)) if vectors else B
    if left:
        found = _solved(op, packed, order, right)
    else:
        found = _swapped(op, _solved(op, packed, order, _swapped(op, right), transposed=True))
    return found.map(lambda part: as_vector(op, part)) if vectors else found, packed, pivots


@lower_complex("aten::linalg_solve")
def linalg_solve(op: Emitter, A: Pair, B: Pair, left: bool = True) -> Pair:
    """aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor"""
    return _solution(op, A, B, left)[0]


@lower_complex("aten::linalg_solve_ex")
def linalg_solve_ex(op: Emitter, A: Pair, B: Pair, left: bool = True, check_errors: bool = False) -> tuple[Pair, Value]:
    """aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result,
    Tensor info)
    """
    found, packed, _ = _solution(op, A, B, left)
    return found, info_of(op, packed)


@lower_complex("aten::_linalg_solve_ex")
def solve_ex_with_factors(
    op: Emitter, A: Pair, B: Pair, left: bool = True, check_errors: bool = False
) -> tuple[Pair, Pair, Value, Value]:
    """aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result,
    Tensor LU, Tensor pivots, Tensor info)
    """
    found, packed, pivots = _solution(op, A, B, left)
    return found, packed, pivots, info_of(op, packed)


@lower_complex("aten::linalg_inv_ex")
def linalg_inv_ex(op: Emitter, A: Pair, check_errors: bool = False) -> tuple[Pair, Value]:
    """aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)"""
    packed, _, order = lu_factors(op, A)
    return _solved(op, packed, order, _identity(op, A)), info_of(op, packed)


@lower_complex("aten::inverse")
def inverse(op: Emitter, self: Pair) -> Pair:
    """aten::inverse(Tensor self) -> Tensor"""
    packed, _, order = lu_factors(op, self)
    return _solved(op, packed, order, _identity(op, self))


@lower_complex("aten::linalg_inv")
def linalg_inv(op: Emitter, A: Pair) -> Pair:
    """aten::linalg_inv(Tensor A) -> Tensor"""
    return inverse(op, A)


@lower_complex("aten::linalg_lu_solve")
def linalg_lu_solve(op: Emitter, LU: Pair, pivots: Value, B: Pair, left: bool = True, adjoint: bool = False) -> Pair:
    """aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor

    With `adjoint` of A^H. X A = B is solved as A^T X^T = B^T, and A^H by the conjugates of A^T and B.
    """
    order = permutation_of_pivots(op, pivots, op.dim(LU.real, -2))
    right = B if left else _swapped(op, B)
    right = conj(op, right) if adjoint else right
    found = _solved(op, LU, order, right, transposed=adjoint == left)
    found = conj(op, found) if adjoint else found
    return found if left else _swapped(op, found)


@lower_complex("aten::lu_solve")
def lu_solve(op: Emitter, self: Pair, LU_data: Pair, LU_pivots: Value) -> Pair:
    """aten::lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor"""
    return linalg_lu_solve(op, LU_data, LU_pivots, self)


# Determinants -------------------------------------------------------------------------------------------------------


def _pivots(op: Emitter, matrix: Pair) -> tuple[Pair, Value, Pair, Value]:
    """The values of the pivots, [..., n], the sign of all exchanges, [...], and LU with its pivots."""
    packed, pivots, _ = lu_factors(op, matrix)
    numbers = op.Add(index_range(op, op.dim(matrix.real, -1)), op.const(1))
    stays = op.Equal(op.cast(pivots, dtypes.INT64), numbers)
    signs = op.Where(stays, op.like(1, matrix.real), op.like(-1, matrix.real))
    sign = op.ReduceProd(signs, axes=[matrix.rank - 2], keepdims=0)
    return packed.map(lambda part: diagonal_of(op, part)), sign, packed, pivots


@lower_complex("aten::_linalg_det")
def det_with_factors(op: Emitter, A: Pair) -> tuple[Any, Pair, Value]:
    """aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)

    torch factors the transpose of a contiguous matrix, and so does this rule.
    """
    diagonal, sign, packed, pivots = _pivots(op, _swapped(op, A))
    product = prod_along(op, diagonal, A.rank - 2, keepdim=False)
    return complex_scale(op, product, sign), packed, pivots


@lower_complex("aten::det", "aten::linalg_det")
def linalg_det(op: Emitter, self: Any = None, A: Any = None) -> Any:
    """aten::det(Tensor self) -> Tensor"""
    return det_with_factors(op, self if A is None else A)[0]


@lower_complex("aten::_linalg_slogdet")
def slogdet_with_factors(op: Emitter, A: Pair) -> tuple[Any, Value, Pair, Value]:
    """aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)"""
    diagonal, sign, packed, pivots = _pivots(op, _swapped(op, A))
    signs = prod_along(op, sgn(op, diagonal), A.rank - 2, keepdim=False)
    size = op.ReduceSum(op.Log(magnitude(op, diagonal)), axes=[A.rank - 2], keepdims=0)
    return complex_scale(op, signs, sign), size, packed, pivots


# The exponential ----------------------------------------------------------------------------------------------------


def block_matrix(op: Emitter, matrix: Pair) -> Value:
    """The real block matrix [[real, -imag], [imag, real]]."""
    rank = matrix.rank
    upper = op.Concat(matrix.real, op.Neg(matrix.imag), axis=rank - 1)
    return op.Concat(upper, op.Concat(matrix.imag, matrix.real, axis=rank - 1), axis=rank - 2)


@lower_complex("aten::matrix_exp", "aten::linalg_matrix_exp")
def matrix_exp(op: Emitter, self: Pair) -> Pair:
    """aten::matrix_exp(Tensor self) -> Tensor

    In double, because the block matrix has a larger norm and is squared more often.
    """
    if 0 in (self.shape or ()):
        return self
    size = op.dim(self.real, -1)
    columns = slice_along(op, powers.matrix_exp(op, op.cast(block_matrix(op, self), dtypes.DOUBLE)), -1, 0, size)
    columns = op.cast(columns, self.dtype)
    return Pair(slice_along(op, columns, -2, 0, size), slice_along(op, columns, -2, size, size_product(op, size, 2)))
