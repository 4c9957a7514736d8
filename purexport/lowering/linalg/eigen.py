"""Singular value decompositions, and eigenvalues of symmetric matrices.

Singular vectors are unique up to their sign, and those of equal singular values up to a rotation. torch specifies
neither, and the result here need not be that of LAPACK. `report.warnings` says so.
"""

# ruff: noqa: N803  A is ATen's name of an argument; N802: UPLO too

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.linalg import jacobi
from purexport.lowering.linalg.factorizations import apply_reflections, geqrf
from purexport.lowering.support.common import dims_of, full, swap_last
from purexport.lowering.support.matrices import (
    as_row,
    batch_dims,
    broadcast_to,
    diagonal_of,
    identity_matrix,
    min_size,
    safe_divisor,
    slice_along,
    triangle,
)

# Symmetric matrices -------------------------------------------------------------------------------------------------


@lower("aten::linalg_eigh")
def linalg_eigh(op: Emitter, self: Value, UPLO: str = "L") -> tuple[Value, Value]:
    """aten::linalg_eigh(Tensor self, str UPLO="L") -> (Tensor eigenvalues, Tensor eigenvectors)

    Only the triangle that `UPLO` names is read.
    """
    _remark(op)
    return _symmetric(op, self, UPLO)


def _symmetric(op: Emitter, self: Value, UPLO: str) -> tuple[Value, Value]:
    if 0 in (self.shape or ()):
        return full(op, dims_of(op, self)[:-1], 0, self.dtype or dtypes.FLOAT), self
    return jacobi.jacobi_eigh(op, mirror_triangle(op, self, UPLO.upper() == "U"))


def _remark(op: Emitter) -> None:
    op.remark("the signs of the vectors may differ from torch's; each sign is right")


def mirror_triangle(op: Emitter, matrix: Value, upper: bool = False) -> Value:
    """The symmetric matrix of which only one triangle is read, the lower or the `upper` one."""
    half = triangle(op, matrix, upper, 1 if upper else -1)
    return op.Add(triangle(op, matrix, upper), swap_last(op, half))


@lower("aten::linalg_eigvalsh")
def linalg_eigvalsh(op: Emitter, self: Value, UPLO: str = "L") -> Value:
    """aten::linalg_eigvalsh(Tensor self, str UPLO="L") -> Tensor"""
    return _symmetric(op, self, UPLO)[0]


@lower("aten::_linalg_eigh")
def _linalg_eigh(op: Emitter, A: Value, UPLO: str = "L", compute_v: bool = True) -> tuple[Value, Value]:
    """aten::_linalg_eigh(Tensor A, str UPLO="L", bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors)"""
    if compute_v:
        return linalg_eigh(op, A, UPLO)
    return _symmetric(op, A, UPLO)[0], empty_result(op, A)


def empty_result(op: Emitter, like: Value) -> Value:
    """The empty tensor that stands for a result that was not asked for."""
    return op.const(torch.empty(0, dtype=dtypes.torch_dtype(like.dtype or dtypes.FLOAT)))


# Singular values ----------------------------------------------------------------------------------------------------


def singular_values(op: Emitter, matrix: Value) -> Value:
    """The singular values, [..., k], in descending order, for k = min(m, n)."""
    count = min_size(op, op.dim(matrix, -2), op.dim(matrix, -1))
    if 0 in (matrix.shape or ()):
        return full(op, [*batch_dims(op, matrix), count], 0, matrix.dtype or dtypes.FLOAT)
    # the transpose, if it has fewer columns
    high = swap_last(op, matrix) if _is_wide(matrix) else matrix
    return slice_along(op, jacobi.jacobi_svd(op, high)[1], -1, 0, count)


def _is_wide(matrix: Value) -> bool:
    rows, columns = (matrix.shape or ())[-2:]
    return isinstance(rows, int) and isinstance(columns, int) and rows < columns


def thin_svd(op: Emitter, matrix: Value) -> tuple[Value, Value, Value]:
    """U, the singular values and V, of k = min(m, n) columns. A column of U or V whose singular value is 0 may be 0.

    The matrices must not be empty.
    """
    if _is_wide(matrix):
        v, values, u = thin_svd(op, swap_last(op, matrix))
        return u, values, v
    count = min_size(op, op.dim(matrix, -2), op.dim(matrix, -1))
    scaled, values, turned = jacobi.jacobi_svd(op, matrix)
    scaled, values, turned = (slice_along(op, item, -1, 0, count) for item in (scaled, values, turned))
    return op.Div(scaled, safe_divisor(op, as_row(op, values))), values, turned


def svd_factors(op: Emitter, matrix: Value, complete: bool) -> tuple[Value, Value, Value]:
    """U, the singular values and V; with `complete` all columns of U and V."""
    _remark(op)
    return _decomposed(op, matrix, complete)


def _decomposed(op: Emitter, matrix: Value, complete: bool) -> tuple[Value, Value, Value]:
    rows, columns = op.dim(matrix, -2), op.dim(matrix, -1)
    count = min_size(op, rows, columns)
    if 0 in (matrix.shape or ()):
        sides = [_units(op, matrix, size, size if complete else count) for size in (rows, columns)]
        return sides[0], singular_values(op, matrix), sides[1]
    if _is_wide(matrix):
        v, values, u = _decomposed(op, swap_last(op, matrix), complete)
        return u, values, v
    scaled, values, turned = jacobi.jacobi_svd(op, matrix)
    scaled, values = slice_along(op, scaled, -1, 0, count), slice_along(op, values, -1, 0, count)
    units = op.Div(scaled, safe_divisor(op, as_row(op, values)))
    u = _completed(op, units, rows if complete else count)
    return u, values, turned if complete else slice_along(op, turned, -1, 0, count)


def _units(op: Emitter, matrix: Value, rows: Any, columns: Any) -> Value:
    unit = identity_matrix(op, rows, columns, matrix)
    return broadcast_to(op, unit, [*batch_dims(op, matrix), rows, columns]) if matrix.rank > 2 else unit


def _completed(op: Emitter, vectors: Value, columns: Any) -> Value:
    """Orthogonal columns of length 1: those of `vectors`, with new ones for the columns of length 0 and for the missing
    ones.

    QR keeps the columns of length 1 except for their sign.
    """
    packed, sizes = geqrf(op, vectors)
    unit = identity_matrix(op, op.dim(vectors, -2), columns, vectors)
    found = apply_reflections(op, packed, sizes, unit, False)
    count = op.dim(vectors, -1)
    diagonal = as_row(op, diagonal_of(op, slice_along(op, packed, -2, 0, count)))
    sign = op.Where(op.Less(diagonal, op.like(0, vectors)), op.like(-1, vectors), op.like(1, vectors))
    first = op.Mul(slice_along(op, found, -1, 0, count), sign)
    return op.Concat(first, slice_along(op, found, -1, count, None), axis=vectors.rank - 1)


@lower("aten::linalg_svd")
def linalg_svd(op: Emitter, A: Value, full_matrices: bool = True) -> tuple[Value, Value, Value]:
    """aten::linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)"""
    u, values, v = svd_factors(op, A, full_matrices)
    return u, values, swap_last(op, v)


@lower("aten::_linalg_svd")
def _linalg_svd(
    op: Emitter, A: Value, full_matrices: bool = False, compute_uv: bool = True
) -> tuple[Value, Value, Value]:
    """aten::_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) -> (Tensor U,
    Tensor S, Tensor Vh)
    """
    if compute_uv:
        return linalg_svd(op, A, full_matrices)
    return empty_result(op, A), singular_values(op, A), empty_result(op, A)


@lower("aten::svd")
def svd(op: Emitter, self: Value, some: bool = True, compute_uv: bool = True) -> tuple[Value, Value, Value]:
    """aten::svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)"""
    if compute_uv:
        return svd_factors(op, self, not some)
    sides = [
        full(op, [*batch_dims(op, self), size, size], 0, self.dtype or dtypes.FLOAT) for size in dims_of(op, self)[-2:]
    ]
    return sides[0], singular_values(op, self), sides[1]


@lower("aten::linalg_svdvals")
def linalg_svdvals(op: Emitter, A: Value) -> Value:
    """aten::linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor"""
    return singular_values(op, A)
