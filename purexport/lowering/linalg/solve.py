"""Triangular systems, solve, inverse and determinants, by the factorizations; a row a step, of any size.

What torch refuses at run time (a singular matrix) the file computes on: infinities or NaN come out.
"""

# ruff: noqa: N803  A, B and LU are ATen's names of arguments

from __future__ import annotations

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.linalg.factorizations import exchange_matrix, factored, order_of, zero_pivot
from purexport.lowering.support.common import swap_last
from purexport.lowering.support.kernels import alike
from purexport.lowering.support.loops import repeat
from purexport.lowering.support.matrices import (
    broadcast_batch,
    column,
    counted,
    diagonal_of,
    flat,
    identity,
    kept,
    row,
    rows_of,
    upright,
)
from purexport.lowering.support.positions import as_value

# Triangular systems -------------------------------------------------------------------------------------------------


def solved(op: Emitter, matrix: Value, right: Value, upper: bool, unit: bool = False) -> Value:
    """X of ``matrix`` X = ``right`` by substitution; what lies in the other triangle does not count."""
    rows, size = rows_of(op, matrix), op.dim(matrix, -1)

    def step(op: Emitter, at: Value, found: Value) -> list[Value]:
        number = op.Sub(op.Sub(as_value(op, size), op.const(1)), at) if upper else at
        here = column(op, matrix, number)
        new = row(op, found, number)
        if not unit:
            new = alike(op.Div(new, row(op, here, number)), new)
        rest = op.Less(rows, number) if upper else op.Greater(rows, number)
        found = alike(op.Sub(found, op.Mul(kept(op, rest, here), new)), found)
        return [alike(op.Where(op.Equal(rows, number), new, found), found)]

    return repeat(op, size, step, broadcast_batch(op, right, matrix))[0]


@lower("aten::linalg_solve_triangular")
def linalg_solve_triangular(
    op: Emitter, self: Value, B: Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    if left:
        return solved(op, self, B, upper, unitriangular)
    return swap_last(op, solved(op, swap_last(op, self), swap_last(op, B), not upper, unitriangular))


@lower("aten::triangular_solve")
def triangular_solve(
    op: Emitter, self: Value, A: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Value, Value]:
    matrix = swap_last(op, A) if transpose else A
    return solved(op, matrix, self, upper != transpose, unitriangular), broadcast_batch(op, A, self)


@lower("aten::cholesky_solve")
def cholesky_solve(op: Emitter, self: Value, input2: Value, upper: bool = False) -> Value:
    lower_part, upper_part = (swap_last(op, input2), input2) if upper else (input2, swap_last(op, input2))
    return solved(op, upper_part, solved(op, lower_part, self, False), True)


@lower("aten::cholesky_inverse")
def cholesky_inverse(op: Emitter, self: Value, upper: bool = False) -> Value:
    return cholesky_solve(op, unit_like(op, self), self, upper)


def unit_like(op: Emitter, matrix: Value) -> Value:
    """The identity in the shape of square matrices."""
    size = op.dim(matrix, -1)
    unit = identity(op, size, size, matrix)
    return unit if matrix.rank == 2 else alike(op.Expand(unit, op.shape(matrix)), matrix)


# Solve and inverse --------------------------------------------------------------------------------------------------


def lu_solved(op: Emitter, packed: Value, order: Value, right: Value, adjoint: bool = False) -> Value:
    """X of A X = ``right`` (of its transpose with ``adjoint``) for the factors and the order of A's rows."""
    exchange = exchange_matrix(op, order, packed)
    if adjoint:
        upper = swap_last(op, packed)
        between = solved(op, upper, solved(op, upper, right, False), True, unit=True)
        return alike(op.MatMul(swap_last(op, exchange), between), between)
    right = broadcast_batch(op, right, packed)
    moved = alike(op.MatMul(exchange, right), right)
    return solved(op, packed, solved(op, packed, moved, False, unit=True), True)


def is_vector(A: Value, B: Value) -> bool:
    """Whether B holds vectors, one for each matrix, as torch decides."""
    return B.rank == 1 or (B.rank == A.rank - 1 and B.shape == (A.shape or ())[:-1])


def _solution(op: Emitter, A: Value, B: Value, left: bool) -> tuple[Value, Value, Value]:
    """The solution, the factors of A and its pivots."""
    packed, pivots, order = factored(op, A)
    right = upright(op, B) if is_vector(A, B) else B
    if left:
        found = lu_solved(op, packed, order, right)
    else:
        found = swap_last(op, lu_solved(op, packed, order, swap_last(op, right), adjoint=True))
    return flat(op, found) if right is not B else found, packed, pivots


@lower("aten::linalg_solve")
def linalg_solve(op: Emitter, A: Value, B: Value, left: bool = True) -> Value:
    return _solution(op, A, B, left)[0]


@lower("aten::linalg_solve_ex")
def linalg_solve_ex(
    op: Emitter, A: Value, B: Value, left: bool = True, check_errors: bool = False
) -> tuple[Value, Value]:
    found, packed, _ = _solution(op, A, B, left)
    return found, zero_pivot(op, packed)


@lower("aten::_linalg_solve_ex")
def _linalg_solve_ex(
    op: Emitter, A: Value, B: Value, left: bool = True, check_errors: bool = False
) -> tuple[Value, Value, Value, Value]:
    found, packed, pivots = _solution(op, A, B, left)
    return found, packed, pivots, zero_pivot(op, packed)


@lower("aten::inverse")
def inverse(op: Emitter, self: Value) -> Value:
    packed, _, order = factored(op, self)
    return lu_solved(op, packed, order, unit_like(op, self))


@lower("aten::linalg_inv")
def linalg_inv(op: Emitter, A: Value) -> Value:
    return inverse(op, A)


@lower("aten::linalg_inv_ex")
def linalg_inv_ex(op: Emitter, A: Value, check_errors: bool = False) -> tuple[Value, Value]:
    packed, _, order = factored(op, A)
    return lu_solved(op, packed, order, unit_like(op, A)), zero_pivot(op, packed)


@lower("aten::linalg_lu_solve")
def linalg_lu_solve(op: Emitter, LU: Value, pivots: Value, B: Value, left: bool = True, adjoint: bool = False) -> Value:
    order = order_of(op, pivots, op.dim(LU, -2))
    if left:
        return lu_solved(op, LU, order, B, adjoint)
    return swap_last(op, lu_solved(op, LU, order, swap_last(op, B), not adjoint))


@lower("aten::lu_solve")
def lu_solve(op: Emitter, self: Value, LU_data: Value, LU_pivots: Value) -> Value:
    return linalg_lu_solve(op, LU_data, LU_pivots, self)


# Determinants -------------------------------------------------------------------------------------------------------


def _pivots(op: Emitter, matrix: Value) -> tuple[Value, Value, Value, Value]:
    """The pivots' values, [..., n], the sign of all exchanges, [...], and LU with its pivots."""
    packed, pivots, _ = factored(op, matrix)
    numbers = op.Add(counted(op, op.dim(matrix, -1)), op.const(1))
    stays = op.Equal(op.cast(pivots, dtypes.INT64), numbers)
    signs = op.Where(stays, op.like(1, matrix), op.like(-1, matrix))
    return diagonal_of(op, packed), op.ReduceProd(signs, axes=[matrix.rank - 2], keepdims=0), packed, pivots


@lower("aten::det")
def det(op: Emitter, self: Value) -> Value:
    if op.has("Det") and self.dtype == dtypes.FLOAT:
        return op.Det(self)
    return _det(op, self)[0]


def _det(op: Emitter, matrix: Value) -> tuple[Value, Value, Value]:
    diagonal, sign, packed, pivots = _pivots(op, matrix)
    product = op.ReduceProd(diagonal, axes=[matrix.rank - 2], keepdims=0)
    return op.Mul(product, sign), packed, pivots


@lower("aten::linalg_det")
def linalg_det(op: Emitter, A: Value) -> Value:
    return det(op, A)


@lower("aten::_linalg_det")
def _linalg_det(op: Emitter, A: Value) -> tuple[Value, Value, Value]:
    # torch factors the transpose of a contiguous matrix
    return _det(op, alike(swap_last(op, A), A))


@lower("aten::slogdet")
def slogdet(op: Emitter, self: Value) -> tuple[Value, Value]:
    return _slogdet(op, self)[:2]


def _slogdet(op: Emitter, matrix: Value) -> tuple[Value, Value, Value, Value]:
    diagonal, sign, packed, pivots = _pivots(op, matrix)
    last = [matrix.rank - 2]
    signs = op.ReduceProd(op.Sign(diagonal), axes=last, keepdims=0)
    return op.Mul(signs, sign), op.ReduceSum(op.Log(op.Abs(diagonal)), axes=last, keepdims=0), packed, pivots


@lower("aten::linalg_slogdet")
def linalg_slogdet(op: Emitter, A: Value) -> tuple[Value, Value]:
    return slogdet(op, A)


@lower("aten::_linalg_slogdet")
def _linalg_slogdet(op: Emitter, A: Value) -> tuple[Value, Value, Value, Value]:
    return _slogdet(op, alike(swap_last(op, A), A))


@lower("aten::logdet")
def logdet(op: Emitter, self: Value) -> Value:
    sign, size = slogdet(op, self)
    # log of a negative number is NaN; of 0 it is -inf
    return op.Where(op.Less(sign, op.like(0, sign)), op.like(float("nan"), size), size)
