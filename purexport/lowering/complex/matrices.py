"""Inverses and solutions of complex matrices, by real matrices of twice the size.

The complex matrix A + Bi corresponds to the real block matrix [[A, -B], [B, A]], and a pair to its stacked parts.
Products, inverses and solutions correspond likewise. The pivots of the block matrix are not those that torch reports,
so operators that return a factorization have no rule here.
"""

from __future__ import annotations

from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.linalg import solve
from purexport.lowering.support.common import swap_last
from purexport.lowering.support.matrices import as_column, as_vector, slice_along
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.positions import size_product


def _block(op: Emitter, matrix: Pair) -> Value:
    """The real block matrix [[real, -imag], [imag, real]]."""
    upper = _concat(op, matrix.real, op.Neg(matrix.imag), -1)
    return _concat(op, upper, _concat(op, matrix.imag, matrix.real, -1), -2)


def _stacked(op: Emitter, matrix: Pair) -> Value:
    """The real matrix [[real], [imag]]."""
    return _concat(op, matrix.real, matrix.imag, -2)


def _concat(op: Emitter, one: Value, other: Value, axis: int) -> Value:
    return op.Concat(one, other, axis=one.rank + axis)


def _parts(op: Emitter, stacked: Value, size: object) -> Pair:
    """The pair whose parts are the first and the second `size` rows."""
    end = size_product(op, size, 2)
    return Pair(
        slice_along(op, stacked, stacked.rank - 2, 0, size), slice_along(op, stacked, stacked.rank - 2, size, end)
    )


@lower_complex("aten::inverse")
def inverse(op: Emitter, self: Pair) -> Pair:
    """aten::inverse(Tensor self) -> Tensor"""
    size = op.dim(self.real, -1)
    found = solve.inverse(op, _block(op, self))
    columns = slice_along(op, found, found.rank - 1, 0, size)
    return _parts(op, columns, size)


@lower_complex("aten::linalg_inv")
def linalg_inv(op: Emitter, A: Pair) -> Pair:  # noqa: N803  ATen's name
    """aten::linalg_inv(Tensor A) -> Tensor"""
    return inverse(op, A)


@lower_complex("aten::linalg_solve")
def linalg_solve(op: Emitter, A: Pair, B: Pair, left: bool = True) -> Pair:  # noqa: N803  ATen's names
    """aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor

    X of A X = B; with `left=False` X of X A = B, which is A^T X^T = B^T.
    """
    if not isinstance(A, Pair) or not isinstance(B, Pair):
        raise UnsupportedForm("of a real and a complex tensor has no rule; make both complex", code="complex-tensor")
    vectors = solve.is_vector(A.real, B.real)
    right = B.map(lambda value: as_column(op, value)) if vectors else B
    matrix = A
    if not left:
        matrix, right = (pair.map(lambda value: swap_last(op, value)) for pair in (A, right))
    found = solve.linalg_solve(op, _block(op, matrix), _stacked(op, right))
    pair = _parts(op, found, op.dim(A.real, -1))
    if not left:
        pair = pair.map(lambda value: swap_last(op, value))
    return pair.map(lambda value: as_vector(op, value)) if vectors else pair
