"""Singular values and symmetric eigenvalues by one-sided Jacobi rotations of columns (Hestenes 1958).

Each round rotates disjoint pairs of columns at once, each pair until it is orthogonal, and then moves the columns on,
as in a round-robin tournament. When no pair was rotated for one whole tournament, the columns are A V, and their
lengths are the singular values. This is one Loop of about thirty nodes, for matrices of any size. The lengths are exact
to a few units of rounding, small ones included. Rounding errors add up over hundreds of rounds, so everything is
computed in double.

The eigenvectors of a symmetric A are those of A + shift, which is positive-definite; each eigenvalue is then v^T A v.

A complex column is a real one of twice the height, its real part above its imaginary part. Before a rotation, the
second column of a pair is multiplied by the number of magnitude 1 that makes their product real. Then the rotation is
the same.
`height` says the number of rows of a complex matrix; it is None for real ones.
"""

from __future__ import annotations

from typing import Any

import torch

from proto_schema.legalization.loops import repeat_while
from proto_schema.legalization.sizes import numbers_below, times, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.reduce.sorting import top_k
from purexport.lowering.support.common import full
from purexport.lowering.support.matrices import (
    as_column,
    as_row,
    batch_dims,
    identity_matrix,
    masked,
    safe_divisor,
    slice_along,
)

TOURNAMENTS = 30  # at most; about eight are enough
ROUNDING = 8  # columns are orthogonal up to this many units of rounding times the square root of their length


def jacobi_svd(op: Emitter, matrix: Value, height: Any = None) -> tuple[Value, Value, Value]:
    """A V, [..., m, n], with columns of descending length; the lengths, [..., n]; and V, [..., n, n]."""
    dtype, matrix = matrix.dtype, op.cast(matrix, dtypes.DOUBLE)
    scale = safe_divisor(op, _largest(op, matrix))
    scaled, turned = _orthogonal(op, op.Div(matrix, scale), height)
    length = _lengths(op, scaled)
    columns = op.dim(matrix, -1)
    length, places = top_k(op, masked(op, _is_real(op, turned), length, -1), columns, -1)
    length = op.Mul(length, op.Squeeze(scale, [matrix.rank - 1]))
    scaled, turned = _picked(op, scaled, places), _picked(op, turned, places)
    return op.cast(op.Mul(scaled, scale), dtype), op.cast(length, dtype), op.cast(turned, dtype)


def jacobi_eigh(op: Emitter, matrix: Value, height: Any = None) -> tuple[Value, Value]:
    """The eigenvalues of symmetric matrices, [..., n], ascending, and the eigenvectors as columns, [..., n, n].

    With `height` of Hermitian matrices A + Bi, given as [[A, -B], [B, A]].
    """
    dtype, matrix, size = matrix.dtype, op.cast(matrix, dtypes.DOUBLE), op.dim(matrix, -1)
    scale = safe_divisor(op, _largest(op, matrix))
    scaled = op.Div(matrix, scale)
    # no eigenvalue is larger than the largest row sum (Gershgorin)
    sums = op.ReduceSum(op.Abs(scaled), axes=[matrix.rank - 1], keepdims=1)
    shift = op.ReduceMax(sums, axes=[matrix.rank - 2], keepdims=1)
    shifted = op.Add(scaled, op.Mul(identity_matrix(op, size, size, matrix), shift))
    if height is not None:
        size, shifted = height, slice_along(op, shifted, -1, 0, height)
    _, vectors = _orthogonal(op, shifted, height)
    products = op.Mul(vectors, op.MatMul(scaled, vectors))
    found = op.ReduceSum(products, axes=[matrix.rank - 2], keepdims=0)
    found, places = top_k(op, masked(op, _is_real(op, vectors), found, torch.inf), size, -1, greatest=False)
    found = op.Mul(found, op.Squeeze(scale, [matrix.rank - 1]))
    return op.cast(found, dtype), op.cast(_picked(op, vectors, places), dtype)


def _largest(op: Emitter, matrix: Value) -> Value:
    """The largest absolute value of each matrix, [..., 1, 1]."""
    return op.ReduceMax(op.Abs(matrix), axes=[matrix.rank - 2, matrix.rank - 1], keepdims=1)


def _lengths(op: Emitter, value: Value) -> Value:
    """The length of each column, [..., n]."""
    return op.Sqrt(op.ReduceSum(op.Mul(value, value), axes=[value.rank - 2], keepdims=0))


def _is_real(op: Emitter, turned: Value) -> Value:
    """False for the column that was added to make the number of columns even."""
    return op.Greater(_lengths(op, turned), op.like(0.5, turned))


def _picked(op: Emitter, value: Value, places: Value) -> Value:
    """The columns of `value` at `places`, [..., n], of each matrix."""
    numbers = as_column(op, numbers_below(op, op.dim(value, -1)))
    return op.MatMul(value, op.cast(op.Equal(numbers, as_row(op, places)), value.dtype))


def _orthogonal(op: Emitter, matrix: Value, height: Any) -> tuple[Value, Value]:
    """A V with orthogonal columns, and V. Where the number of columns is odd, a column of zeros is added to both."""
    rows, columns = op.dim(matrix, -2), op.dim(matrix, -1)
    half = _half(op, columns)
    unit = identity_matrix(op, columns, columns, matrix)
    if height is not None:
        unit = op.Concat(unit, op.Mul(unit, op.like(0, unit)), axis=0)
    width = op.dim(unit, 0)
    if matrix.rank > 2:
        unit = op.Expand(unit, op.ints([*batch_dims(op, matrix), 1, 1]))
    stacked = op.Concat(matrix, unit, axis=matrix.rank - 2)
    padding = _padding(op, rows, width, columns, half, batch_dims(op, matrix))
    if padding is not None:
        stacked = op.Concat(stacked, padding, axis=matrix.rank - 1)

    rounds = op.Sub(op.Mul(value_of(op, half), op.const(2)), op.const(1))
    order = _next_round(op, half)
    smallest = op.const(ROUNDING * torch.finfo(torch.float64).eps, dtypes.DOUBLE)
    tolerance = op.Mul(op.Sqrt(op.cast(value_of(op, rows), dtypes.DOUBLE)), smallest)

    def step(op: Emitter, at: Value, quiet: Value, stacked: Value) -> list[Value]:
        left, right = slice_along(op, stacked, -1, 0, half), slice_along(op, stacked, -1, half, None)
        if height is not None:
            right = _in_phase(op, left, right, rows, height)
        stacked, turns = _round(op, left, right, rows, tolerance)
        quiet = op.Where(op.Greater(turns, op.like(0.5, turns)), op.const(0), op.Add(quiet, op.const(1)))
        moved = op.Gather(stacked, order, axis=stacked.rank - 1)
        return [op.Less(quiet, rounds), quiet, moved]

    most = times(op, TOURNAMENTS, op.known(rounds))
    start = op.const(0)
    _, stacked = repeat_while(op, most, op.const(True, dtypes.BOOL), step, start, stacked)
    return slice_along(op, stacked, -2, 0, rows), slice_along(op, stacked, -2, rows, None)


def _half(op: Emitter, columns: Any) -> Any:
    """Half the number of columns, rounded up."""
    if isinstance(columns, int):
        return (columns + 1) // 2
    return op.Div(op.Add(columns, op.const(1)), op.const(2))


def _padding(op: Emitter, rows: Any, width: Any, columns: Any, half: Any, batch: list[Any]) -> Value | None:
    """The column of zeros, as high as A above V (`width` rows), that makes the number of columns even."""
    if isinstance(columns, int) and columns % 2 == 0:
        return None
    missing = 1 if isinstance(columns, int) else op.Sub(op.Mul(half, op.const(2)), columns)
    if isinstance(rows, int) and isinstance(width, int):
        return full(op, [*batch, rows + width, missing], 0, dtypes.DOUBLE)
    total = op.Add(value_of(op, rows), value_of(op, width))
    return full(op, [*batch, total, missing], 0, dtypes.DOUBLE)


def _next_round(op: Emitter, half: Any) -> Value:
    """The place from which each place gets its column for the next round.

    Places i and half + i form a pair. The first column stays, the others move up the second half and down the first.
    """
    if isinstance(half, int):
        order = torch.arange(2 * half)
        if half > 1:
            order = order + torch.where(order < half, -1, 1)
            order[0], order[1], order[-1] = 0, half, half - 1
        return op.const(order)
    last = op.Sub(op.Mul(half, op.const(2)), op.const(1))
    places = numbers_below(op, op.Add(last, op.const(1)))
    others = op.Where(op.Less(places, half), op.Sub(places, op.const(1)), op.Add(places, op.const(1)))
    others = op.Where(op.Equal(places, op.const(1)), half, others)
    others = op.Where(op.Equal(places, last), op.Sub(half, op.const(1)), others)
    # the first column always stays, and where there are two columns both stay
    stays = op.Or(op.Equal(places, op.const(0)), op.Equal(half, op.const(1)))
    return op.Where(stays, places, others)


def _in_phase(op: Emitter, left: Value, right: Value, rows: Any, height: Any) -> Value:
    """The complex columns of `right`, each multiplied by a number of magnitude 1, so that the product of a pair is its
    magnitude.
    """
    upper_left, upper_right = slice_along(op, left, -2, 0, rows), slice_along(op, right, -2, 0, rows)
    # i (a + bi) = -b + ai
    real, imag = slice_along(op, upper_right, -2, 0, height), slice_along(op, upper_right, -2, height, None)
    below = slice_along(op, right, -2, rows, None)
    width = op.dim(below, -2)
    columns = width // 2 if isinstance(width, int) else op.Div(width, op.const(2))
    below_real, below_imag = slice_along(op, below, -2, 0, columns), slice_along(op, below, -2, columns, None)
    turned = op.Concat(op.Neg(imag), real, axis=left.rank - 2)
    along, across = (
        op.ReduceSum(op.Mul(upper_left, item), axes=[left.rank - 2], keepdims=1) for item in (upper_right, turned)
    )
    size = op.Sqrt(op.Add(op.Mul(along, along), op.Mul(across, across)))
    somewhere = op.Greater(size, op.like(0, size))
    size = masked(op, somewhere, size, 1)
    along, across = masked(op, somewhere, op.Div(along, size), 1), op.Div(across, size)
    turned = op.Concat(turned, op.Neg(below_imag), below_real, axis=left.rank - 2)
    return op.Add(op.Mul(along, right), op.Mul(across, turned))


def _round(op: Emitter, left: Value, right: Value, rows: Any, tolerance: Value) -> tuple[Value, Value]:
    """The columns after all pairs were rotated once, and the number of pairs that needed it."""
    upper_left, upper_right = slice_along(op, left, -2, 0, rows), slice_along(op, right, -2, 0, rows)
    one, other, both = (
        op.ReduceSum(op.Mul(first, second), axes=[left.rank - 2], keepdims=1)
        for first, second in ((upper_left, upper_left), (upper_right, upper_right), (upper_left, upper_right))
    )
    size = op.Abs(both)
    limit = op.Mul(tolerance, op.Mul(op.Sqrt(one), op.Sqrt(other)))
    turns = op.ReduceSum(op.cast(op.Greater(size, limit), dtypes.FLOAT), keepdims=0)
    # the tangent of the smaller of the two angles that make the pair orthogonal (Golub and Van Loan, section 8.5)
    ratio = op.Div(op.Sub(other, one), op.Mul(op.like(2, one), safe_divisor(op, both)))
    side = op.Where(op.Less(ratio, op.like(0, one)), op.like(-1, one), op.like(1, one))
    root = op.Sqrt(op.Add(op.like(1, one), op.Mul(ratio, ratio)))
    tangent = op.Div(side, op.Add(op.Abs(ratio), root))
    tangent = op.Where(op.Greater(size, op.like(0, one)), tangent, op.like(0, one))
    cosine = op.Div(op.like(1, one), op.Sqrt(op.Add(op.like(1, one), op.Mul(tangent, tangent))))
    sine = op.Mul(cosine, tangent)
    turned_left = op.Sub(op.Mul(cosine, left), op.Mul(sine, right))
    turned_right = op.Add(op.Mul(sine, left), op.Mul(cosine, right))
    return op.Concat(turned_left, turned_right, axis=left.rank - 1), turns
