"""Singular value decompositions, and eigenvalues of symmetric and Hermitian matrices.

Singular vectors are unique up to their sign (a factor of magnitude 1 where they are complex), and those of equal
singular values up to a rotation. torch specifies neither, and the result here need not be that of LAPACK.
`report.warnings` says so.
"""

# ruff: noqa: N803  A is ATen's name of an argument; N802: UPLO too

from __future__ import annotations

from typing import Any, cast

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_over_fields
from purexport.lowering.linalg import jacobi
from purexport.lowering.linalg.factorizations import apply_reflections, geqrf
from purexport.lowering.support.common import dims_of, full, swap_last
from purexport.lowering.support.fields import (
    Operand,
    T,
    add,
    adjoint,
    block_matrix,
    div,
    empty_result,
    map_parts,
    real_part,
    transposed,
)
from purexport.lowering.support.matrices import (
    as_row,
    batch_dims,
    broadcast_to,
    diagonal_of,
    dim_of,
    identity_matrix,
    min_size,
    safe_divisor,
    slice_along,
    triangle,
)
from purexport.lowering.support.pairs import Pair

# Hermitian matrices -------------------------------------------------------------------------------------------------


@lower_over_fields("aten::linalg_eigh")
def linalg_eigh(op: Emitter, self: T, UPLO: str = "L") -> tuple[Value, T]:
    """aten::linalg_eigh(Tensor self, str UPLO="L") -> (Tensor eigenvalues, Tensor eigenvectors)

    Only the triangle that `UPLO` names is read.
    """
    _remark(op, self)
    return _hermitian(op, self, UPLO)


def _hermitian(op: Emitter, self: T, UPLO: str) -> tuple[Value, T]:
    if 0 in (self.shape or ()):
        return full(op, dims_of(op, real_part(self))[:-1], 0, self.dtype or dtypes.FLOAT), self
    matrix = mirror_triangle(op, self, UPLO.upper() == "U")
    if not isinstance(matrix, Pair):
        values, vectors = jacobi.jacobi_eigh(op, matrix)
        return values, cast(T, vectors)
    size = dim_of(op, matrix, -1)
    values, stacked = jacobi.jacobi_eigh(op, block_matrix(op, matrix), height=size)
    return values, _parted(op, stacked, size, self)


def _remark(op: Emitter, matrix: Operand) -> None:
    if isinstance(matrix, Pair):
        op.remark("the vectors may differ from torch's by factors of magnitude 1; each is right")
    else:
        op.remark("the signs of the vectors may differ from torch's; each sign is right")


def _parted(op: Emitter, stacked: Value, rows: Any, like: T) -> T:
    """What Jacobi's rotations have of a matrix: real parts above imaginary ones where it is complex."""
    if not isinstance(like, Pair):
        return cast(T, stacked)
    return cast(T, Pair(slice_along(op, stacked, -2, 0, rows), slice_along(op, stacked, -2, rows, None)))


def mirror_triangle(op: Emitter, matrix: T, upper: bool = False) -> T:
    """The Hermitian matrix of which only one triangle is read, the lower or the `upper` one."""
    half = triangle(op, matrix, upper, 1 if upper else -1)
    if isinstance(half, Pair) and isinstance(matrix, Pair):
        return cast(T, Pair(mirror_triangle(op, matrix.real, upper), op.Sub(half.imag, swap_last(op, half.imag))))
    return add(op, triangle(op, matrix, upper), transposed(op, half))


@lower_over_fields("aten::linalg_eigvalsh")
def linalg_eigvalsh(op: Emitter, self: T, UPLO: str = "L") -> Value:
    """aten::linalg_eigvalsh(Tensor self, str UPLO="L") -> Tensor"""
    return _hermitian(op, self, UPLO)[0]


@lower_over_fields("aten::_linalg_eigh")
def _linalg_eigh(op: Emitter, A: T, UPLO: str = "L", compute_v: bool = True) -> tuple[Value, T]:
    """aten::_linalg_eigh(Tensor A, str UPLO="L", bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors)"""
    if compute_v:
        return linalg_eigh(op, A, UPLO)
    return _hermitian(op, A, UPLO)[0], empty_result(op, A)


# Singular values ----------------------------------------------------------------------------------------------------


def _is_wide(matrix: Operand) -> bool:
    rows, columns = (matrix.shape or ())[-2:]
    return isinstance(rows, int) and isinstance(columns, int) and rows < columns


def _count(op: Emitter, matrix: Operand) -> Any:
    """The number of singular values, the smaller of the two sizes."""
    return min_size(op, dim_of(op, matrix, -2), dim_of(op, matrix, -1))


def _rotated(op: Emitter, matrix: T) -> tuple[T, Value, T]:
    """U times the singular values, these, and V; of k = min(m, n) columns but V, which has n."""
    rows, count = dim_of(op, matrix, -2), _count(op, matrix)
    if isinstance(matrix, Pair):
        stacked = op.Concat(matrix.real, matrix.imag, axis=matrix.rank - 2)
        scaled, values, turned = jacobi.jacobi_svd(op, stacked, height=rows)
    else:
        scaled, values, turned = jacobi.jacobi_svd(op, cast(Value, matrix))
    scaled, values = slice_along(op, scaled, -1, 0, count), slice_along(op, values, -1, 0, count)
    return _parted(op, scaled, rows, matrix), values, _parted(op, turned, dim_of(op, matrix, -1), matrix)


def singular_values(op: Emitter, matrix: T) -> Value:
    """The singular values, [..., k], in descending order, for k = min(m, n)."""
    if 0 in (matrix.shape or ()):
        return full(op, [*batch_dims(op, matrix), _count(op, matrix)], 0, matrix.dtype or dtypes.FLOAT)
    # the adjoint, if it has fewer columns
    return _rotated(op, adjoint(op, matrix) if _is_wide(matrix) else matrix)[1]


def thin_svd(op: Emitter, matrix: T) -> tuple[T, Value, T]:
    """U, the singular values and V, of k = min(m, n) columns. A column of U or V whose singular value is 0 may be 0.

    The matrices must not be empty.
    """
    if _is_wide(matrix):
        v, values, u = thin_svd(op, adjoint(op, matrix))
        return u, values, v
    scaled, values, turned = _rotated(op, matrix)
    return _units(op, scaled, values), values, slice_along(op, turned, -1, 0, _count(op, matrix))


def _units(op: Emitter, scaled: T, values: Value) -> T:
    return div(op, scaled, safe_divisor(op, as_row(op, values)))


def svd_factors(op: Emitter, matrix: T, complete: bool) -> tuple[T, Value, T]:
    """U, the singular values and V; with `complete` all columns of U and V."""
    _remark(op, matrix)
    return _decomposed(op, matrix, complete)


def _decomposed(op: Emitter, matrix: T, complete: bool) -> tuple[T, Value, T]:
    rows, columns = dim_of(op, matrix, -2), dim_of(op, matrix, -1)
    count = _count(op, matrix)
    if 0 in (matrix.shape or ()):
        sides = [_identities(op, matrix, size, size if complete else count) for size in (rows, columns)]
        return sides[0], singular_values(op, matrix), sides[1]
    if _is_wide(matrix):
        v, values, u = _decomposed(op, adjoint(op, matrix), complete)
        return u, values, v
    scaled, values, turned = _rotated(op, matrix)
    u = _completed(op, _units(op, scaled, values), rows if complete else count)
    return u, values, turned if complete else slice_along(op, turned, -1, 0, count)


def _identities(op: Emitter, matrix: T, rows: Any, columns: Any) -> T:
    unit = identity_matrix(op, rows, columns, matrix)
    return broadcast_to(op, unit, [*batch_dims(op, matrix), rows, columns]) if matrix.rank > 2 else unit


def _completed(op: Emitter, vectors: T, columns: Any) -> T:
    """Orthogonal columns of length 1: those of `vectors`, with new ones for the columns of length 0 and for the missing
    ones.

    QR keeps the columns of length 1 except for their sign, because the diagonal of R is real.
    """
    packed, sizes = geqrf(op, vectors)
    unit = identity_matrix(op, dim_of(op, vectors, -2), columns, vectors)
    found = apply_reflections(op, packed, sizes, unit, False)
    count = dim_of(op, vectors, -1)
    diagonal = as_row(op, diagonal_of(op, slice_along(op, real_part(packed), -2, 0, count)))
    sign = op.Where(op.Less(diagonal, op.like(0, diagonal)), op.like(-1, diagonal), op.like(1, diagonal))
    return map_parts(
        found,
        lambda part: op.Concat(
            op.Mul(slice_along(op, part, -1, 0, count), sign),
            slice_along(op, part, -1, count, None),
            axis=vectors.rank - 1,
        ),
    )


@lower_over_fields("aten::linalg_svd")
def linalg_svd(op: Emitter, A: T, full_matrices: bool = True) -> tuple[T, Value, T]:
    """aten::linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)"""
    u, values, v = svd_factors(op, A, full_matrices)
    return u, values, adjoint(op, v)


@lower_over_fields("aten::_linalg_svd")
def _linalg_svd(op: Emitter, A: T, full_matrices: bool = False, compute_uv: bool = True) -> tuple[T, Value, T]:
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


@lower_over_fields("aten::linalg_svdvals")
def linalg_svdvals(op: Emitter, A: T) -> Value:
    """aten::linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor"""
    return singular_values(op, A)
