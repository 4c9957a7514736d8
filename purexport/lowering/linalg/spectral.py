"""What follows from singular values: matrix norms, condition numbers, rank, pseudo-inverse and least squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_over_fields
from purexport.lowering.linalg.eigen import mirror_triangle, singular_values, thin_svd
from purexport.lowering.linalg.factorizations import matmul
from purexport.lowering.linalg.solve import is_vector, linalg_inv_ex
from purexport.lowering.reduce.reductions import linalg_vector_norm
from purexport.lowering.support.common import axis_of, full, permute
from purexport.lowering.support.fields import (
    Operand,
    T,
    adjoint,
    empty_result,
    map_parts,
    mul,
    real_part,
    square_of_size,
    sub,
)
from purexport.lowering.support.kernels import largest
from purexport.lowering.support.matrices import (
    as_column,
    as_row,
    as_vector,
    batch_dims,
    broadcast_batch,
    dim_of,
    masked,
)

# Norms --------------------------------------------------------------------------------------------------------------


def _matrix_norm(op: Emitter, value: Value, order: Any, dim: Sequence[int], keepdim: bool) -> Value:
    """A norm of the matrices on two axes: 1, -1, 2, -2, inf, -inf, "fro" or "nuc"."""
    rows, columns = (axis_of(axis, value.rank) for axis in dim)
    if order == "fro":
        return linalg_vector_norm(op, value, 2, [rows, columns], keepdim)
    if order == "nuc" or abs(order) == 2:
        others = [axis for axis in range(value.rank) if axis not in (rows, columns)]
        values = singular_values(op, permute(op, value, [*others, rows, columns]))
        found = _extreme(op, values, values.rank - 1, order)
        found = op.Squeeze(found, [values.rank - 1])
        return op.Unsqueeze(found, sorted((rows, columns))) if keepdim else found
    # the sums along one axis, then the largest or smallest of them along the other
    summed, other = (rows, columns) if abs(order) == 1 else (columns, rows)
    sums = op.ReduceSum(op.Abs(value), axes=[summed], keepdims=1)
    found = _extreme(op, sums, other, order)
    return found if keepdim else op.Squeeze(found, sorted((rows, columns)))


def _extreme(op: Emitter, value: Value, axis: int, order: Any) -> Value:
    """The largest or smallest along an axis, or the sum for "nuc". The largest of an empty axis is 0, as in torch."""
    if order == "nuc" or op.dim(value, axis) == 0:
        return op.ReduceSum(value, axes=[axis], keepdims=1)
    return op.emit("ReduceMax" if order > 0 else "ReduceMin", value, axes=[axis], keepdims=1)


@lower("aten::linalg_matrix_norm")
def linalg_matrix_norm(
    op: Emitter, self: Value, ord: Any, dim: Sequence[int] = (-2, -1), keepdim: bool = False, dtype: Any = None
) -> Value:
    """aten::linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *,
    ScalarType? dtype=None) -> Tensor
    """
    return _matrix_norm(op, op.cast(self, op.result_dtype), ord, dim, keepdim)


@lower("aten::linalg_matrix_norm.str_ord")
def linalg_matrix_norm_named(
    op: Emitter, self: Value, ord: str = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, dtype: Any = None
) -> Value:
    """aten::linalg_matrix_norm.str_ord(Tensor self, str ord="fro", int[] dim=[-2, -1], bool keepdim=False, *,
    ScalarType? dtype=None) -> Tensor
    """
    return _matrix_norm(op, op.cast(self, op.result_dtype), ord, dim, keepdim)


@lower("aten::linalg_norm")
def linalg_norm(
    op: Emitter, self: Value, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    """aten::linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None)
    -> Tensor

    Without `ord` it is the 2-norm of all elements. With `ord` it is a vector norm for one axis and a matrix norm for
    two.
    """
    axes = list(range(self.rank)) if dim is None else dim
    if ord is None or len(axes) != 2:
        return linalg_vector_norm(op, self, 2 if ord is None else ord, dim, keepdim)
    return _matrix_norm(op, op.cast(self, op.result_dtype), ord, axes, keepdim)


@lower("aten::linalg_norm.ord_str")
def linalg_norm_named(
    op: Emitter, self: Value, ord: str, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    """aten::linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None)
    -> Tensor
    """
    return linalg_matrix_norm_named(op, self, ord, (-2, -1) if dim is None else dim, keepdim)


@lower("aten::nuclear_norm")
def nuclear_norm(op: Emitter, self: Value, keepdim: bool = False) -> Value:
    """aten::nuclear_norm(Tensor self, bool keepdim=False) -> Tensor"""
    return _matrix_norm(op, self, "nuc", (-2, -1), keepdim)


@lower("aten::nuclear_norm.dim")
def nuclear_norm_of_axes(op: Emitter, self: Value, dim: Sequence[int], keepdim: bool = False) -> Value:
    """aten::nuclear_norm.dim(Tensor self, int[2] dim, bool keepdim=False) -> Tensor"""
    return _matrix_norm(op, self, "nuc", dim, keepdim)


# Condition ----------------------------------------------------------------------------------------------------------


@lower("aten::linalg_cond")
def linalg_cond(op: Emitter, self: Value, p: Any = None) -> Value:
    """aten::linalg_cond(Tensor self, Scalar? p=None) -> Tensor

    `p` None is the 2-norm: the largest singular value over the smallest.
    """
    if 0 in (self.shape or ()):
        return full(op, batch_dims(op, self), 0, self.dtype or dtypes.FLOAT)
    if p is None or abs(p) == 2:
        values = singular_values(op, self)
        last = [values.rank - 1]
        ends = op.ReduceMax(values, axes=last, keepdims=0), op.ReduceMin(values, axes=last, keepdims=0)
        return op.Div(*ends) if p is None or p > 0 else op.Div(*reversed(ends))
    return _norms_of_inverses(op, self, p)


@lower("aten::linalg_cond.p_str")
def linalg_cond_named(op: Emitter, self: Value, p: str) -> Value:
    """aten::linalg_cond.p_str(Tensor self, str p) -> Tensor"""
    if 0 in (self.shape or ()):
        return full(op, batch_dims(op, self), 0, self.dtype or dtypes.FLOAT)
    if p != "nuc":
        return _norms_of_inverses(op, self, p)
    values = singular_values(op, self)
    sums = (op.ReduceSum(item, axes=[values.rank - 1], keepdims=0) for item in (values, op.Reciprocal(values)))
    return op.Mul(*sums)


def _norms_of_inverses(op: Emitter, matrix: Value, order: Any) -> Value:
    """The norm of the matrix times that of its inverse; infinite where the matrix is singular."""
    inverse, info = linalg_inv_ex(op, matrix)
    missing = op.Greater(op.cast(info, dtypes.INT64), op.const(0))
    inverse = masked(op, op.Not(op.Unsqueeze(missing, [matrix.rank - 2, matrix.rank - 1])), inverse, torch.inf)
    return op.Mul(*(_matrix_norm(op, item, order, (-2, -1), False) for item in (matrix, inverse)))


# Rank and pseudo-inverse --------------------------------------------------------------------------------------------


def above(op: Emitter, matrix: Operand, values: Value, atol: Any, rtol: Any) -> Value:
    """Which singular values, [..., k], are above `atol` and above `rtol` times the largest."""
    if rtol is None:
        rtol = _usual_tolerance(op, matrix)
        if isinstance(atol, Value):
            given = op.Greater(op.cast(atol, values.dtype), op.like(0, values))
            rtol = op.Where(given, op.like(0, values), op.like(rtol, values))
        elif atol:
            rtol = 0.0
    top = op.ReduceMax(values, axes=[values.rank - 1], keepdims=1)
    limits = [_beside(op, 0.0 if atol is None else atol, values), op.Mul(_beside(op, rtol, values), top)]
    return op.Greater(values, largest(op, *limits))


def _beside(op: Emitter, tolerance: Any, values: Value) -> Value:
    """A tolerance, one number or one for each matrix, in a shape that broadcasts against the singular values."""
    if isinstance(tolerance, Value) and tolerance.rank:
        batch = (values.shape or ())[:-1]
        wider = zip(reversed(tolerance.shape or ()), reversed(batch), strict=False)
        if tolerance.rank > len(batch) or any(size != 1 == own for size, own in wider):
            raise UnsupportedForm(
                "with more tolerances than matrices has no rule; expand the matrices", code="form-without-rule"
            )
        return as_column(op, op.cast(tolerance, values.dtype))
    return op.like(tolerance, values)


def _usual_tolerance(op: Emitter, matrix: Operand) -> Any:
    """The machine epsilon of the dtype times the longer side of the matrix."""
    unit = torch.finfo(dtypes.torch_dtype(matrix.dtype or dtypes.FLOAT)).eps
    rows, columns = dim_of(op, matrix, -2), dim_of(op, matrix, -1)
    if isinstance(rows, int) and isinstance(columns, int):
        return max(rows, columns) * unit
    longer = op.cast(largest(op, value_of(op, rows), value_of(op, columns)), matrix.dtype)
    return op.Mul(longer, op.like(unit, longer))


def _rank(op: Emitter, matrix: Value, atol: Any, rtol: Any, hermitian: bool) -> Value:
    if 0 in (matrix.shape or ()):
        return full(op, batch_dims(op, matrix), 0, dtypes.INT64)
    matrix = mirror_triangle(op, matrix) if hermitian else matrix
    values = singular_values(op, matrix)
    counts = op.cast(above(op, matrix, values, atol, rtol), dtypes.INT64)
    return op.ReduceSum(counts, axes=[values.rank - 1], keepdims=0)


@lower("aten::linalg_matrix_rank")
def linalg_matrix_rank(op: Emitter, self: Value, tol: Any, hermitian: bool = False) -> Value:
    """aten::linalg_matrix_rank(Tensor self, float tol, bool hermitian=False) -> Tensor"""
    return _rank(op, self, tol, 0.0, hermitian)


@lower("aten::linalg_matrix_rank.tol_tensor")
def linalg_matrix_rank_tensor(op: Emitter, input: Value, tol: Value, hermitian: bool = False) -> Value:
    """aten::linalg_matrix_rank.tol_tensor(Tensor input, Tensor tol, bool hermitian=False) -> Tensor"""
    return _rank(op, input, tol, 0.0, hermitian)


@lower("aten::linalg_matrix_rank.atol_rtol_float")
def linalg_matrix_rank_bounds(
    op: Emitter, self: Value, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Value:
    """aten::linalg_matrix_rank.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None,
    bool hermitian=False) -> Tensor
    """
    return _rank(op, self, atol, rtol, hermitian)


@lower("aten::linalg_matrix_rank.atol_rtol_tensor")
def linalg_matrix_rank_bound_tensors(
    op: Emitter, input: Value, atol: Value | None = None, rtol: Value | None = None, hermitian: bool = False
) -> Value:
    """aten::linalg_matrix_rank.atol_rtol_tensor(Tensor input, *, Tensor? atol=None, Tensor? rtol=None,
    bool hermitian=False) -> Tensor
    """
    return _rank(op, input, atol, rtol, hermitian)


@lower_over_fields("aten::linalg_pinv.atol_rtol_float", "aten::linalg_pinv.atol_rtol_tensor")
def linalg_pinv(op: Emitter, self: T, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> T:
    """aten::linalg_pinv.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False)
    -> Tensor

    A singular value counts if it is above `atol` and above `rtol` times the largest one.
    """
    if 0 in (self.shape or ()):
        sizes = [*batch_dims(op, self), dim_of(op, self, -1), dim_of(op, self, -2)]
        nothing = full(op, sizes, 0, self.dtype or dtypes.FLOAT)
        return map_parts(self, lambda part: nothing)
    matrix = mirror_triangle(op, self) if hermitian else self
    u, scaled = _inverted(op, matrix, atol, rtol)[:2]
    return matmul(op, scaled, adjoint(op, u))


def _inverted(op: Emitter, matrix: T, atol: Any, rtol: Any) -> tuple[T, T, Value, Value]:
    """U; V divided by the singular values that count, with 0 for the others; which of them count; and the singular
    values.
    """
    u, values, v = thin_svd(op, matrix)
    counts = above(op, matrix, values, atol, rtol)
    inverted = masked(op, counts, op.Reciprocal(masked(op, counts, values, 1)))
    return u, mul(op, v, as_row(op, inverted)), counts, values


@lower_over_fields("aten::linalg_pinv", "aten::linalg_pinv.rcond_tensor")
def linalg_pinv_rcond(op: Emitter, self: T, rcond: Any, hermitian: bool = False) -> T:
    """aten::linalg_pinv(Tensor self, float rcond, bool hermitian=False) -> Tensor"""
    return linalg_pinv(op, self, 0.0, rcond, hermitian)


@lower("aten::pinverse")
def pinverse(op: Emitter, self: Value, rcond: Any = 1e-15) -> Value:
    """aten::pinverse(Tensor self, float rcond=1.0000000000000001e-15) -> Tensor"""
    return linalg_pinv(op, self, 0.0, rcond)


# gelsy judges the rank by its own factors, not by singular values; both agree where the small ones are rounding errors
ROUNDING_ONLY = 1e-5

# Least squares ------------------------------------------------------------------------------------------------------


@lower_over_fields("aten::linalg_lstsq")
def linalg_lstsq(
    op: Emitter, self: T, b: T, rcond: Any = None, driver: str | None = None
) -> tuple[T, Value, Value, Value]:
    """aten::linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution,
    Tensor residuals, Tensor rank, Tensor singular_values)

    Of the best solutions the one with the smallest norm, as LAPACK's gelsy (torch's default), gelsd and gelss find it.

    gels assumes that all matrices have full rank, and then the result is the same.
    """
    if 0 in (self.shape or ()) or 0 in (b.shape or ()):
        raise UnsupportedForm("of empty matrices has no rule; leave it out", code="form-without-rule")
    driver = "gelsy" if driver is None else driver
    if driver == "gelsy" and rcond is not None and rcond > ROUNDING_ONLY:
        raise UnsupportedForm(
            f"with rcond={rcond!r} depends on the factors of LAPACK's gelsy; use driver='gelsd'",
            code="form-without-rule",
        )
    right = as_column(op, b) if is_vector(self, b) else b
    u, scaled, counts, values = _inverted(op, self, None, 0.0 if driver == "gels" else rcond)
    found = matmul(op, scaled, matmul(op, adjoint(op, u), broadcast_batch(op, right, self)))
    rank = op.ReduceSum(op.cast(counts, dtypes.INT64), axes=[values.rank - 1], keepdims=0)
    return (
        as_vector(op, found) if right is not b else found,
        _residuals(op, self, right, found),
        rank if driver != "gels" else op.const(torch.empty(0, dtype=torch.int64)),
        values if driver in ("gelsd", "gelss") else empty_result(op, real_part(self)),
    )


def _residuals(op: Emitter, matrix: T, right: T, found: T) -> Value:
    """The sums of squared residuals, [..., k], if torch returns them for the example, else an empty tensor.

    torch returns them for matrices with more rows than columns, but not with gelsy, nor with gelsd and gelss where a
    matrix of the example lacks full rank.
    """
    recorded = op.results[1]
    if recorded is None or recorded.shape == (0,):
        return empty_result(op, real_part(matrix))
    rest = sub(op, matmul(op, matrix, found), right)
    return op.ReduceSum(square_of_size(op, rest), axes=[found.rank - 2], keepdims=0)
