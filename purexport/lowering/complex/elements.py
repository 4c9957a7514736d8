"""Complex tensors: places of elements, writes that add up, distances and covariances."""

from __future__ import annotations

from typing import Any

from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import is_nonzero
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.reduce import covariance, reductions
from purexport.lowering.support import fields
from purexport.lowering.support.common import reshape
from purexport.lowering.support.fields import Operand, giving_parts, magnitude
from purexport.lowering.support.matrices import as_column, as_row, diagonal_of, slice_along
from purexport.lowering.support.pairs import Pair, operand, part_code
from purexport.lowering.tensor import indexing, scatter


@lower_complex("aten::nonzero", "aten::argwhere")
def nonzero(op: Emitter, self: Pair) -> Value:
    """aten::nonzero(Tensor self) -> Tensor

    The position of each element of which either part is not zero.
    """
    return indexing.nonzero(op, is_nonzero(op, self))


@lower_complex("aten::scatter.reduce")
def scatter_reduce(op: Emitter, self: Pair, dim: int, index: Value, src: Pair, reduce: str) -> Pair:
    """aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor"""
    if reduce != "add":
        raise UnsupportedForm("that multiplies complex tensors has no rule; use reduce='add'", code="complex-tensor")
    parts = giving_parts(op)
    return Pair(
        scatter.scatter_add(parts, self.real, dim, index, src.real),
        scatter.scatter_add(parts, self.imag, dim, index, src.imag),
    )


@lower_complex("aten::dist")
def dist(op: Emitter, self: Operand, other: Operand, p: Any = 2) -> Value:
    """aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor

    The p-norm of the magnitudes of the difference.
    """
    dtype = part_code(op.result.dtype)
    difference = fields.sub(op, operand(op, self, dtype), operand(op, other, dtype))
    assert isinstance(difference, Pair), "one of the operands is complex"
    return reductions.norm_rule(op, magnitude(op, difference), p, None, False)


@lower_complex("aten::cov")
def cov(
    op: Emitter, self: Pair, correction: Any = 1, fweights: Value | None = None, aweights: Value | None = None
) -> Pair:
    """aten::cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor

    The product of the rows with their conjugates.
    """
    found = _covariance(op, self, correction, fweights, aweights)
    return found.map(lambda part: covariance.squeezed(op, part))


def _covariance(op: Emitter, self: Pair, correction: Any, fweights: Value | None, aweights: Value | None) -> Pair:
    """[n, n] for n rows, from the covariance of the 2n real rows that the parts are."""
    rows = self if self.rank == 2 else self.map(lambda part: reshape(op, part, [1, -1]))
    parts = giving_parts(op)
    stacked = op.Concat(rows.real, rows.imag, axis=0)
    found = covariance.covariance_of_rows(parts, stacked, correction, fweights, aweights)
    size = op.dim(rows.real, 0)
    upper, below = slice_along(op, found, 0, 0, size), slice_along(op, found, 0, size, None)
    (both_real, real_imag), (imag_real, both_imag) = (
        (slice_along(op, half, 1, 0, size), slice_along(op, half, 1, size, None)) for half in (upper, below)
    )
    return Pair(op.Add(both_real, both_imag), op.Sub(imag_real, real_imag))


@lower_complex("aten::corrcoef")
def corrcoef(op: Emitter, self: Pair) -> Pair:
    """aten::corrcoef(Tensor self) -> Tensor

    Both parts are clipped to [-1, 1]; NaN stays NaN.
    """
    found = _covariance(op, self, 1, None, None)
    if (found.shape or ())[0] == 1:
        quotient = fields.div(op, found, found)
        return quotient.map(lambda part: covariance.squeezed(op, part))
    length = op.Sqrt(diagonal_of(op, found.real))
    return found.map(
        lambda part: covariance.clipped(op, op.Div(op.Div(part, as_column(op, length)), as_row(op, length)))
    )
