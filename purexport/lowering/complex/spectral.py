"""Eigenvalues of Hermitian matrices, singular values of complex ones, and what follows from them.

Jacobi's rotations take a complex column as a real one of twice the height (`linalg/jacobi.py`). Vectors are unique up
to a factor of magnitude 1, which torch does not specify, and the result here need not be that of LAPACK.
"""

# ruff: noqa: N803  A is ATen's name of an argument; N802: UPLO too

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import adjoint
from purexport.lowering.complex.factorizations import apply_reflections, empty_pair, geqrf, less, unit_of
from purexport.lowering.complex.matrices import block_matrix
from purexport.lowering.complex.products import mm
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.linalg import jacobi
from purexport.lowering.linalg.eigen import empty_result, mirror_triangle
from purexport.lowering.linalg.solve import is_vector
from purexport.lowering.linalg.spectral import ROUNDING_ONLY, above
from purexport.lowering.support.common import dims_of, full, swap_last
from purexport.lowering.support.matrices import (
    as_column,
    as_row,
    as_vector,
    batch_dims,
    broadcast_batch,
    broadcast_to,
    diagonal_of,
    masked,
    min_size,
    safe_divisor,
    slice_along,
    triangle,
)
from purexport.lowering.support.pairs import Pair


def _remark(op: Emitter) -> None:
    op.remark("the vectors may differ from torch's by factors of magnitude 1; each is right")


def _stacked(op: Emitter, matrix: Pair) -> Value:
    return op.Concat(matrix.real, matrix.imag, axis=matrix.rank - 2)


def _parted(op: Emitter, stacked: Value, rows: Any) -> Pair:
    return Pair(slice_along(op, stacked, -2, 0, rows), slice_along(op, stacked, -2, rows, None))


# Hermitian matrices -------------------------------------------------------------------------------------------------


def _hermitian(op: Emitter, matrix: Pair, upper: bool = False) -> Pair:
    """The Hermitian matrix of which only one triangle is read, the lower or the `upper` one."""
    half = triangle(op, matrix.imag, upper, 1 if upper else -1)
    return Pair(mirror_triangle(op, matrix.real, upper), op.Sub(half, swap_last(op, half)))


def _eigh(op: Emitter, matrix: Pair, UPLO: str) -> tuple[Value, Pair]:
    if 0 in (matrix.shape or ()):
        return full(op, dims_of(op, matrix.real)[:-1], 0, matrix.dtype or dtypes.FLOAT), matrix
    size = op.dim(matrix.real, -1)
    block = block_matrix(op, _hermitian(op, matrix, UPLO.upper() == "U"))
    values, vectors = jacobi.jacobi_eigh(op, block, height=size)
    return values, _parted(op, vectors, size)


@lower_complex("aten::linalg_eigh")
def linalg_eigh(op: Emitter, self: Pair, UPLO: str = "L") -> tuple[Value, Pair]:
    """aten::linalg_eigh(Tensor self, str UPLO="L") -> (Tensor eigenvalues, Tensor eigenvectors)"""
    _remark(op)
    return _eigh(op, self, UPLO)


@lower_complex("aten::linalg_eigvalsh")
def linalg_eigvalsh(op: Emitter, self: Pair, UPLO: str = "L") -> Value:
    """aten::linalg_eigvalsh(Tensor self, str UPLO="L") -> Tensor"""
    return _eigh(op, self, UPLO)[0]


@lower_complex("aten::_linalg_eigh")
def eigh_or_values(op: Emitter, A: Pair, UPLO: str = "L", compute_v: bool = True) -> tuple[Value, Pair]:
    """aten::_linalg_eigh(Tensor A, str UPLO="L", bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors)"""
    if compute_v:
        return linalg_eigh(op, A, UPLO)
    return _eigh(op, A, UPLO)[0], empty_pair(op, A)


# Singular values ----------------------------------------------------------------------------------------------------


def _is_wide(matrix: Pair) -> bool:
    rows, columns = (matrix.shape or ())[-2:]
    return isinstance(rows, int) and isinstance(columns, int) and rows < columns


def _turned(op: Emitter, matrix: Pair) -> tuple[Pair, Value, Pair]:
    """U times the singular values, these, and V; of k = min(m, n) columns but V, which has n."""
    rows, columns = op.dim(matrix.real, -2), op.dim(matrix.real, -1)
    count = min_size(op, rows, columns)
    scaled, values, turned = jacobi.jacobi_svd(op, _stacked(op, matrix), height=rows)
    scaled, values = slice_along(op, scaled, -1, 0, count), slice_along(op, values, -1, 0, count)
    return _parted(op, scaled, rows), values, _parted(op, turned, columns)


def _units(op: Emitter, scaled: Pair, values: Value) -> Pair:
    divisor = safe_divisor(op, as_row(op, values))
    return scaled.map(lambda part: op.Div(part, divisor))


def singular_values(op: Emitter, matrix: Pair) -> Value:
    """The singular values, [..., k], in descending order, for k = min(m, n)."""
    if 0 in (matrix.shape or ()):
        return full(op, [*batch_dims(op, matrix.real), 0], 0, matrix.dtype or dtypes.FLOAT)
    return _turned(op, adjoint(op, matrix) if _is_wide(matrix) else matrix)[1]


def thin_svd(op: Emitter, matrix: Pair) -> tuple[Pair, Value, Pair]:
    """U, the singular values and V, of k = min(m, n) columns. A column of U or V whose singular value is 0 may be 0.

    The matrices must not be empty.
    """
    if _is_wide(matrix):
        v, values, u = thin_svd(op, adjoint(op, matrix))
        return u, values, v
    count = min_size(op, op.dim(matrix.real, -2), op.dim(matrix.real, -1))
    scaled, values, turned = _turned(op, matrix)
    return _units(op, scaled, values), values, turned.map(lambda part: slice_along(op, part, -1, 0, count))


def _decomposed(op: Emitter, matrix: Pair, complete: bool) -> tuple[Pair, Value, Pair]:
    rows, columns = op.dim(matrix.real, -2), op.dim(matrix.real, -1)
    count = min_size(op, rows, columns)
    if 0 in (matrix.shape or ()):
        sides = [_spread_unit(op, matrix, size, size if complete else count) for size in (rows, columns)]
        return sides[0], singular_values(op, matrix), sides[1]
    if _is_wide(matrix):
        v, values, u = _decomposed(op, adjoint(op, matrix), complete)
        return u, values, v
    scaled, values, turned = _turned(op, matrix)
    u = _completed(op, _units(op, scaled, values), rows if complete else count)
    return u, values, turned if complete else turned.map(lambda part: slice_along(op, part, -1, 0, count))


def _spread_unit(op: Emitter, matrix: Pair, rows: Any, columns: Any) -> Pair:
    unit = unit_of(op, rows, columns, matrix)
    if matrix.rank == 2:
        return unit
    return unit.map(lambda part: broadcast_to(op, part, [*batch_dims(op, matrix.real), rows, columns]))


def _completed(op: Emitter, vectors: Pair, columns: Any) -> Pair:
    """Orthogonal columns of length 1: those of `vectors`, with new ones for the columns of length 0 and for the missing
    ones.

    QR keeps the columns of length 1 except for their sign, because the diagonal of R is real.
    """
    packed, sizes = geqrf(op, vectors)
    unit = unit_of(op, op.dim(vectors.real, -2), columns, vectors)
    found = apply_reflections(op, packed, sizes, unit, False)
    count = op.dim(vectors.real, -1)
    diagonal = as_row(op, diagonal_of(op, slice_along(op, packed.real, -2, 0, count)))
    zero, one = op.like(0, diagonal), op.like(1, diagonal)
    sign = op.Where(op.Less(diagonal, zero), op.Neg(one), one)
    return found.map(
        lambda part: op.Concat(
            op.Mul(slice_along(op, part, -1, 0, count), sign),
            slice_along(op, part, -1, count, None),
            axis=vectors.rank - 1,
        )
    )


@lower_complex("aten::linalg_svd")
def linalg_svd(op: Emitter, A: Pair, full_matrices: bool = True) -> tuple[Pair, Value, Pair]:
    """aten::linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)"""
    _remark(op)
    u, values, v = _decomposed(op, A, full_matrices)
    return u, values, adjoint(op, v)


@lower_complex("aten::_linalg_svd")
def svd_or_values(
    op: Emitter, A: Pair, full_matrices: bool = False, compute_uv: bool = True
) -> tuple[Pair, Value, Pair]:
    """aten::_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) -> (Tensor U,
    Tensor S, Tensor Vh)
    """
    if compute_uv:
        return linalg_svd(op, A, full_matrices)
    return empty_pair(op, A), singular_values(op, A), empty_pair(op, A)


@lower_complex("aten::linalg_svdvals")
def linalg_svdvals(op: Emitter, A: Pair) -> Value:
    """aten::linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor"""
    return singular_values(op, A)


# Pseudo-inverse and least squares -----------------------------------------------------------------------------------


def _inverted(op: Emitter, matrix: Pair, atol: Any, rtol: Any) -> tuple[Pair, Pair, Value, Value]:
    """U; V divided by the singular values that count, with 0 for the others; which of them count; and the singular
    values.
    """
    u, values, v = thin_svd(op, matrix)
    counts = above(op, matrix.real, values, atol, rtol)
    inverted = as_row(op, masked(op, counts, op.Reciprocal(masked(op, counts, values, 1))))
    return u, v.map(lambda part: op.Mul(part, inverted)), counts, values


@lower_complex("aten::linalg_pinv.atol_rtol_float", "aten::linalg_pinv.atol_rtol_tensor")
def linalg_pinv(op: Emitter, self: Pair, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Pair:
    """aten::linalg_pinv.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False)
    -> Tensor
    """
    if 0 in (self.shape or ()):
        sizes = [*batch_dims(op, self.real), op.dim(self.real, -1), op.dim(self.real, -2)]
        nothing = full(op, sizes, 0, self.dtype or dtypes.FLOAT)
        return Pair(nothing, nothing)
    u, scaled = _inverted(op, _hermitian(op, self) if hermitian else self, atol, rtol)[:2]
    return mm(op, scaled, adjoint(op, u))


@lower_complex("aten::linalg_pinv", "aten::linalg_pinv.rcond_tensor")
def linalg_pinv_rcond(op: Emitter, self: Pair, rcond: Any, hermitian: bool = False) -> Pair:
    """aten::linalg_pinv(Tensor self, float rcond, bool hermitian=False) -> Tensor"""
    return linalg_pinv(op, self, 0.0, rcond, hermitian)


@lower_complex("aten::linalg_lstsq")
def linalg_lstsq(
    op: Emitter, self: Pair, b: Pair, rcond: Any = None, driver: str | None = None
) -> tuple[Pair, Value, Value, Value]:
    """aten::linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution,
    Tensor residuals, Tensor rank, Tensor singular_values)

    As for real matrices.
    """
    if 0 in (self.shape or ()) or 0 in (b.shape or ()):
        raise UnsupportedForm("of empty matrices has no rule; leave it out", code="form-without-rule")
    driver = "gelsy" if driver is None else driver
    if driver == "gelsy" and rcond is not None and rcond > ROUNDING_ONLY:
        raise UnsupportedForm(
            f"with rcond={rcond!r} depends on the factors of LAPACK's gelsy; use driver='gelsd'",
            code="form-without-rule",
        )
    vectors = is_vector(self.real, b.real)
    right = b.map(lambda part: as_column(op, part)) if vectors else b
    u, scaled, counts, values = _inverted(op, self, None, 0.0 if driver == "gels" else rcond)
    found = mm(op, scaled, mm(op, adjoint(op, u), right.map(lambda part: broadcast_batch(op, part, self.real))))
    rank = op.ReduceSum(op.cast(counts, dtypes.INT64), axes=[values.rank - 1], keepdims=0)
    return (
        found.map(lambda part: as_vector(op, part)) if vectors else found,
        _residuals(op, self, right, found),
        rank if driver != "gels" else op.const(torch.empty(0, dtype=torch.int64)),
        values if driver in ("gelsd", "gelss") else empty_result(op, self.real),
    )


def _residuals(op: Emitter, matrix: Pair, right: Pair, found: Pair) -> Value:
    """The sums of squared magnitudes of the residuals, [..., k], if torch returns them for the example."""
    recorded = op.results[1]
    if recorded is None or recorded.shape == (0,):
        return empty_result(op, matrix.real)
    rest = less(op, mm(op, matrix, found), right)
    squares = op.Add(op.Mul(rest.real, rest.real), op.Mul(rest.imag, rest.imag))
    return op.ReduceSum(squares, axes=[found.rank - 2], keepdims=0)
