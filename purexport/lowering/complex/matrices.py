"""Inverses and solutions of complex matrices, by real matrices of twice the size.

A + Bi is to pairs what [[A, -B], [B, A]] is to stacked parts: products, inverses and solutions go over to each other.
Which steps such a factorization takes says nothing of those that torch takes, so the forms that report them have no
rule here.
"""

from __future__ import annotations

from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.linalg import solve
from purexport.lowering.support.common import swap_last
from purexport.lowering.support.matrices import flat, part, upright
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.positions import times


def _block(op: Emitter, matrix: Pair) -> Value:
    """[[real, -imag], [imag, real]]"""
    upper = _joined(op, matrix.real, op.Neg(matrix.imag), -1)
    return _joined(op, upper, _joined(op, matrix.imag, matrix.real, -1), -2)


def _stacked(op: Emitter, matrix: Pair) -> Value:
    """[[real], [imag]]"""
    return _joined(op, matrix.real, matrix.imag, -2)


def _joined(op: Emitter, one: Value, other: Value, axis: int) -> Value:
    joined: Value = op.Concat(one, other, axis=one.rank + axis)
    shape = list(one.shape or ())
    size = shape[axis]
    shape[axis] = 2 * size if isinstance(size, int) else None
    joined.shape = tuple(shape)
    return joined


def _parts(op: Emitter, stacked: Value, size: object) -> Pair:
    """The pair whose parts are the first and the second ``size`` rows."""
    end = times(op, size, 2)
    return Pair(part(op, stacked, stacked.rank - 2, 0, size), part(op, stacked, stacked.rank - 2, size, end))


@lower_complex("aten::inverse")
def inverse(op: Emitter, self: Pair) -> Pair:
    size = op.dim(self.real, -1)
    found = solve.inverse(op, _block(op, self))
    columns = part(op, found, found.rank - 1, 0, size)
    return _parts(op, columns, size)


@lower_complex("aten::linalg_inv")
def linalg_inv(op: Emitter, A: Pair) -> Pair:  # noqa: N803  ATen's name
    return inverse(op, A)


@lower_complex("aten::linalg_solve")
def linalg_solve(op: Emitter, A: Pair, B: Pair, left: bool = True) -> Pair:  # noqa: N803  ATen's names
    """X of A X = B, or of X A = B, which is A^T X^T = B^T."""
    if not isinstance(A, Pair) or not isinstance(B, Pair):
        raise UnsupportedForm("of a real and a complex tensor has no rule; make both complex", code="complex-tensor")
    vectors = solve.is_vector(A.real, B.real)
    right = B.map(lambda value: upright(op, value)) if vectors else B
    matrix = A
    if not left:
        matrix, right = (pair.map(lambda value: swap_last(op, value)) for pair in (A, right))
    found = solve.linalg_solve(op, _block(op, matrix), _stacked(op, right))
    pair = _parts(op, found, op.dim(A.real, -1))
    if not left:
        pair = pair.map(lambda value: swap_last(op, value))
    return pair.map(lambda value: flat(op, value)) if vectors else pair
