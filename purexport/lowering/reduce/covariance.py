"""Covariance and correlation of the rows of a matrix; columns are observations."""

from __future__ import annotations

from typing import Any

from proto_schema.legalization.sizes import value_of
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import beside_product, reshape, swap_last
from purexport.lowering.support.matrices import as_column, as_row, diagonal_of, masked


@lower("aten::cov")
def cov(
    op: Emitter, self: Value, correction: Any = 1, fweights: Value | None = None, aweights: Value | None = None
) -> Value:
    """aten::cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor

    The rows are variables, the columns observations. The sum is divided by the number of observations less
    `correction`.
    """
    return squeezed(op, covariance_of_rows(op, self, correction, fweights, aweights))


def covariance_of_rows(
    op: Emitter, self: Value, correction: Any, fweights: Value | None, aweights: Value | None
) -> Value:
    """[n, n] for n rows; a vector counts as one row."""
    rows = op.cast(self, op.result_dtype)
    if self.rank < 2:
        size = op.dim(self, 0) if self.rank else 1
        rows = reshape(op, rows, [1, size])
    weights = [op.cast(item, rows.dtype) for item in (fweights, aweights) if item is not None]
    weight = weights[0] if len(weights) == 1 else op.Mul(*weights) if weights else None
    count = op.cast(value_of(op, op.dim(rows, 1)), rows.dtype)
    total = count if weight is None else op.ReduceSum(weight, keepdims=0)
    weighted = rows if weight is None else op.Mul(rows, weight)
    middle = op.Div(op.ReduceSum(weighted, axes=[1], keepdims=1), total)
    spread = op.Sub(rows, middle)
    product = op.MatMul(spread, swap_last(op, spread if weight is None else op.Mul(spread, weight)))
    taken = op.like(correction, rows)
    if aweights is not None and weight is not None:
        # each observation is weighted by its share of the total weight
        squares = op.ReduceSum(op.Mul(weight, weights[-1]), keepdims=0)
        taken = op.Mul(taken, op.Div(squares, total))
    # with too few observations torch divides by 0, not by a negative number
    freedom = op.Sub(total, taken)
    freedom = op.Where(op.Greater(freedom, op.like(0, rows)), freedom, op.like(0, rows))
    return op.Div(product, beside_product(op, freedom, swap_last(op, spread)))


def squeezed(op: Emitter, value: Value) -> Value:
    """One row has a zero-dim result."""
    return op.Squeeze(value, [0, 1]) if (value.shape or ())[0] == 1 else value


@lower("aten::corrcoef")
def corrcoef(op: Emitter, self: Value) -> Value:
    """aten::corrcoef(Tensor self) -> Tensor

    The result is clipped to [-1, 1]; NaN stays NaN.
    """
    found = covariance_of_rows(op, self, 1, None, None)
    length = op.Sqrt(diagonal_of(op, found))
    if (found.shape or ())[0] == 1:
        return squeezed(op, op.Div(found, found))
    return clipped(op, op.Div(op.Div(found, as_column(op, length)), as_row(op, length)))


def clipped(op: Emitter, found: Value) -> Value:
    """`found` between -1 and 1; NaN stays NaN."""
    found = masked(op, op.Not(op.Greater(found, op.like(1, found))), found, 1)
    return masked(op, op.Not(op.Less(found, op.like(-1, found))), found, -1)
