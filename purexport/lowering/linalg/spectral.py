"""What singular values decide: matrix norms, condition, rank, pseudo-inverse and least squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.linalg.eigen import mirrored, nothing, singular_values, thin
from purexport.lowering.linalg.solve import is_vector, linalg_inv_ex
from purexport.lowering.reduce.reductions import linalg_vector_norm
from purexport.lowering.support.common import axis_of, full, permute, swap_last
from purexport.lowering.support.kernels import alike, largest
from purexport.lowering.support.matrices import batch_of, broadcast_batch, flat, kept, lying, upright
from purexport.lowering.support.positions import as_value

# Norms --------------------------------------------------------------------------------------------------------------


def _matrix_norm(op: Emitter, value: Value, order: Any, dim: Sequence[int], keepdim: bool) -> Value:
    """A norm of the matrices that two axes make: 1, -1, 2, -2, inf, -inf, "fro" or "nuc"."""
    rows, columns = (axis_of(axis, value.rank) for axis in dim)
    if order == "fro":
        return linalg_vector_norm(op, value, 2, [rows, columns], keepdim)
    if order == "nuc" or abs(order) == 2:
        others = [axis for axis in range(value.rank) if axis not in (rows, columns)]
        values = singular_values(op, permute(op, value, [*others, rows, columns]))
        found = _extreme(op, values, values.rank - 1, order)
        found = op.Squeeze(found, [values.rank - 1])
        return op.Unsqueeze(found, sorted((rows, columns))) if keepdim else found
    # sums along one axis, then their extreme along the other
    summed, other = (rows, columns) if abs(order) == 1 else (columns, rows)
    sums = op.ReduceSum(op.Abs(value), axes=[summed], keepdims=1)
    sums.shape = tuple(1 if axis == summed else size for axis, size in enumerate(value.shape or ()))
    found = _extreme(op, sums, other, order)
    return found if keepdim else op.Squeeze(found, sorted((rows, columns)))


def _extreme(op: Emitter, value: Value, axis: int, order: Any) -> Value:
    """The largest or smallest along an axis, or all together for "nuc"; nothing has the largest 0, as in torch."""
    if order == "nuc" or op.dim(value, axis) == 0:
        return op.ReduceSum(value, axes=[axis], keepdims=1)
    return op.emit("ReduceMax" if order > 0 else "ReduceMin", value, axes=[axis], keepdims=1)


@lower("aten::linalg_matrix_norm")
def linalg_matrix_norm(
    op: Emitter, self: Value, ord: Any, dim: Sequence[int] = (-2, -1), keepdim: bool = False, dtype: Any = None
) -> Value:
    return _matrix_norm(op, op.cast(self, op.result_dtype), ord, dim, keepdim)


@lower("aten::linalg_matrix_norm.str_ord")
def linalg_matrix_norm_named(
    op: Emitter, self: Value, ord: str = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, dtype: Any = None
) -> Value:
    return _matrix_norm(op, op.cast(self, op.result_dtype), ord, dim, keepdim)


@lower("aten::linalg_norm")
def linalg_norm(
    op: Emitter, self: Value, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    axes = list(range(self.rank)) if dim is None else dim
    if ord is None or len(axes) != 2:
        return linalg_vector_norm(op, self, 2 if ord is None else ord, dim, keepdim)
    return _matrix_norm(op, op.cast(self, op.result_dtype), ord, axes, keepdim)


@lower("aten::linalg_norm.ord_str")
def linalg_norm_named(
    op: Emitter, self: Value, ord: str, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    return linalg_matrix_norm_named(op, self, ord, (-2, -1) if dim is None else dim, keepdim)


@lower("aten::nuclear_norm")
def nuclear_norm(op: Emitter, self: Value, keepdim: bool = False) -> Value:
    return _matrix_norm(op, self, "nuc", (-2, -1), keepdim)


@lower("aten::nuclear_norm.dim")
def nuclear_norm_of_axes(op: Emitter, self: Value, dim: Sequence[int], keepdim: bool = False) -> Value:
    return _matrix_norm(op, self, "nuc", dim, keepdim)


# Condition ----------------------------------------------------------------------------------------------------------


@lower("aten::linalg_cond")
def linalg_cond(op: Emitter, self: Value, p: Any = None) -> Value:
    if 0 in (self.shape or ()):
        return full(op, batch_of(op, self), 0, self.dtype or dtypes.FLOAT)
    if p is None or abs(p) == 2:
        values = singular_values(op, self)
        last = [values.rank - 1]
        ends = op.ReduceMax(values, axes=last, keepdims=0), op.ReduceMin(values, axes=last, keepdims=0)
        return op.Div(*ends) if p is None or p > 0 else op.Div(*reversed(ends))
    return _norms_of_inverses(op, self, p)


@lower("aten::linalg_cond.p_str")
def linalg_cond_named(op: Emitter, self: Value, p: str) -> Value:
    if 0 in (self.shape or ()):
        return full(op, batch_of(op, self), 0, self.dtype or dtypes.FLOAT)
    if p != "nuc":
        return _norms_of_inverses(op, self, p)
    values = singular_values(op, self)
    sums = (op.ReduceSum(item, axes=[values.rank - 1], keepdims=0) for item in (values, op.Reciprocal(values)))
    return op.Mul(*sums)


def _norms_of_inverses(op: Emitter, matrix: Value, order: Any) -> Value:
    """The norm of the matrix times that of its inverse, which is infinite where there is none."""
    inverse, info = linalg_inv_ex(op, matrix)
    missing = op.Greater(op.cast(info, dtypes.INT64), op.const(0))
    inverse = kept(op, op.Not(op.Unsqueeze(missing, [matrix.rank - 2, matrix.rank - 1])), inverse, torch.inf)
    return op.Mul(*(_matrix_norm(op, item, order, (-2, -1), False) for item in (matrix, alike(inverse, matrix))))


# Rank and pseudo-inverse --------------------------------------------------------------------------------------------


def _above(op: Emitter, matrix: Value, values: Value, atol: Any, rtol: Any) -> Value:
    """Which singular values, [..., k], count: those above ``atol`` and above ``rtol`` times the largest."""
    if rtol is None:
        rtol = _usual_tolerance(op, matrix)
        if isinstance(atol, Value):
            given = op.Greater(op.cast(atol, values.dtype), op.like(0, values))
            rtol = alike(op.Where(given, op.like(0, values), op.like(rtol, values)), atol)
        elif atol:
            rtol = 0.0
    top = op.ReduceMax(values, axes=[values.rank - 1], keepdims=1)
    limits = [_beside(op, 0.0 if atol is None else atol, values), op.Mul(_beside(op, rtol, values), top)]
    return alike(op.Greater(values, largest(op, *limits)), values)


def _beside(op: Emitter, tolerance: Any, values: Value) -> Value:
    """A tolerance, one for all or one for each matrix, beside the values of each."""
    if isinstance(tolerance, Value) and tolerance.rank:
        batch = (values.shape or ())[:-1]
        wider = zip(reversed(tolerance.shape or ()), reversed(batch), strict=False)
        if tolerance.rank > len(batch) or any(size != 1 == own for size, own in wider):
            raise UnsupportedForm(
                "with more tolerances than matrices has no rule; expand the matrices", code="form-without-rule"
            )
        return upright(op, alike(op.cast(tolerance, values.dtype), tolerance))
    return op.like(tolerance, values)


def _usual_tolerance(op: Emitter, matrix: Value) -> Any:
    """The unit of rounding times the longer side."""
    unit = torch.finfo(dtypes.torch_dtype(matrix.dtype or dtypes.FLOAT)).eps
    rows, columns = op.dim(matrix, -2), op.dim(matrix, -1)
    if isinstance(rows, int) and isinstance(columns, int):
        return max(rows, columns) * unit
    one, other = as_value(op, rows), as_value(op, columns)
    longer = op.cast(op.Where(op.Less(one, other), other, one), matrix.dtype)
    longer.shape = ()
    found = op.Mul(longer, op.like(unit, matrix))
    found.shape = ()
    return found


def _rank(op: Emitter, matrix: Value, atol: Any, rtol: Any, hermitian: bool) -> Value:
    if 0 in (matrix.shape or ()):
        return full(op, batch_of(op, matrix), 0, dtypes.INT64)
    matrix = mirrored(op, matrix) if hermitian else matrix
    values = singular_values(op, matrix)
    counts = op.cast(_above(op, matrix, values, atol, rtol), dtypes.INT64)
    return op.ReduceSum(counts, axes=[values.rank - 1], keepdims=0)


@lower("aten::linalg_matrix_rank")
def linalg_matrix_rank(op: Emitter, self: Value, tol: Any, hermitian: bool = False) -> Value:
    return _rank(op, self, tol, 0.0, hermitian)


@lower("aten::linalg_matrix_rank.tol_tensor")
def linalg_matrix_rank_tensor(op: Emitter, input: Value, tol: Value, hermitian: bool = False) -> Value:
    return _rank(op, input, tol, 0.0, hermitian)


@lower("aten::linalg_matrix_rank.atol_rtol_float")
def linalg_matrix_rank_bounds(
    op: Emitter, self: Value, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Value:
    return _rank(op, self, atol, rtol, hermitian)


@lower("aten::linalg_matrix_rank.atol_rtol_tensor")
def linalg_matrix_rank_bound_tensors(
    op: Emitter, input: Value, atol: Value | None = None, rtol: Value | None = None, hermitian: bool = False
) -> Value:
    return _rank(op, input, atol, rtol, hermitian)


@lower("aten::linalg_pinv.atol_rtol_float", "aten::linalg_pinv.atol_rtol_tensor")
def linalg_pinv(op: Emitter, self: Value, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Value:
    if 0 in (self.shape or ()):
        return full(op, [*batch_of(op, self), op.dim(self, -1), op.dim(self, -2)], 0, self.dtype or dtypes.FLOAT)
    matrix = mirrored(op, self) if hermitian else self
    u, scaled = _inverted(op, matrix, atol, rtol)[:2]
    return op.MatMul(scaled, swap_last(op, u))


def _inverted(op: Emitter, matrix: Value, atol: Any, rtol: Any) -> tuple[Value, Value, Value, Value]:
    """U; V over the singular values that count, and 0 for others; which count; and the values."""
    u, values, v = thin(op, matrix)
    counts = _above(op, matrix, values, atol, rtol)
    inverted = kept(op, counts, alike(op.Reciprocal(kept(op, counts, values, 1)), values))
    return u, alike(op.Mul(v, lying(op, inverted)), v), counts, values


@lower("aten::linalg_pinv", "aten::linalg_pinv.rcond_tensor")
def linalg_pinv_rcond(op: Emitter, self: Value, rcond: Any, hermitian: bool = False) -> Value:
    return linalg_pinv(op, self, 0.0, rcond, hermitian)


@lower("aten::pinverse")
def pinverse(op: Emitter, self: Value, rcond: Any = 1e-15) -> Value:
    return linalg_pinv(op, self, 0.0, rcond)


# gelsy judges by its own factors, not by singular values, and both agree on what is rounding
_ROUNDING_ONLY = 1e-5

# Least squares ------------------------------------------------------------------------------------------------------


@lower("aten::linalg_lstsq")
def linalg_lstsq(
    op: Emitter, self: Value, b: Value, rcond: Any = None, driver: str | None = None
) -> tuple[Value, Value, Value, Value]:
    """The smallest of the best solutions, as LAPACK's gelsy (torch's default), gelsd and gelss find it.

    gels takes all matrices to have full rank, and so finds the same.
    """
    if 0 in (self.shape or ()) or 0 in (b.shape or ()):
        raise UnsupportedForm("of nothing has no rule; leave it out", code="form-without-rule")
    driver = "gelsy" if driver is None else driver
    if driver == "gelsy" and rcond is not None and rcond > _ROUNDING_ONLY:
        raise UnsupportedForm(
            f"with rcond={rcond!r} leaves out parts that depend on LAPACK's gelsy; use driver='gelsd'",
            code="form-without-rule",
        )
    right = upright(op, b) if is_vector(self, b) else b
    u, scaled, counts, values = _inverted(op, self, None, 0.0 if driver == "gels" else rcond)
    products = op.MatMul(swap_last(op, u), broadcast_batch(op, right, self))
    found = alike(op.MatMul(scaled, products), Value(shape=(None,) * max(self.rank, right.rank)))
    rank = op.ReduceSum(op.cast(counts, dtypes.INT64), axes=[values.rank - 1], keepdims=0)
    return (
        flat(op, found) if right is not b else found,
        _residuals(op, self, right, found),
        rank if driver != "gels" else op.const(torch.empty(0, dtype=torch.int64)),
        values if driver in ("gelsd", "gelss") else nothing(op, self),
    )


def _residuals(op: Emitter, matrix: Value, right: Value, found: Value) -> Value:
    """The squared sums of what remains, [..., k], if torch tells them for the example, else nothing.

    torch does for high matrices, but not with gelsy, nor with gelsd and gelss where a matrix has not full rank.
    """
    recorded = op.results[1]
    if recorded is None or recorded.shape == (0,):
        return nothing(op, matrix)
    rest = op.Sub(op.MatMul(matrix, found), right)
    return op.ReduceSum(op.Mul(rest, rest), axes=[found.rank - 2], keepdims=0)
