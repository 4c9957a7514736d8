"""Singular values and symmetric eigenvalues by Jacobi's rotations of columns, as Hestenes has them.

Each round rotates all pairs of columns at once, each pair until its columns are orthogonal, then moves the columns on
as in a tournament in which everybody meets everybody.  When nobody had to turn for one whole tournament, the columns
are A V: their lengths are the singular values.  One Loop of some thirty nodes, for matrices of any size; lengths are
exact to a few units of rounding, small ones included.  Rounding adds up over hundreds of rounds, so all is computed
in double.

The eigenvectors of a symmetric A are those of A + shift, which is positive; each eigenvalue is then v^T A v.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.reduce.sorting import top
from purexport.lowering.support.common import full
from purexport.lowering.support.kernels import alike
from purexport.lowering.support.loops import repeat_while
from purexport.lowering.support.matrices import batch_of, counted, identity, kept, lying, nonzero, part, upright
from purexport.lowering.support.positions import as_value, times

TOURNAMENTS = 30  # at most; some eight are enough
ROUNDING = 8  # how many units of rounding, times the root of the length, count as orthogonal


def singular(op: Emitter, matrix: Value) -> tuple[Value, Value, Value]:
    """A V, [..., m, n], by descending lengths; the lengths, [..., n]; and V, [..., n, n]."""
    dtype, matrix = matrix.dtype, op.cast(matrix, dtypes.DOUBLE)
    scale = nonzero(op, _largest(op, matrix))
    scaled, turned = _orthogonal(op, alike(op.Div(matrix, scale), matrix))
    length = _lengths(op, scaled)
    columns = op.dim(matrix, -1)
    length, places = top(op, kept(op, _is_real(op, turned), length, -1), columns, -1)
    length = alike(op.Mul(length, op.Squeeze(scale, [matrix.rank - 1])), length)
    scaled, turned = _picked(op, scaled, places), _picked(op, turned, places)
    return op.cast(alike(op.Mul(scaled, scale), matrix), dtype), op.cast(length, dtype), op.cast(turned, dtype)


def symmetric(op: Emitter, matrix: Value) -> tuple[Value, Value]:
    """The eigenvalues of symmetric matrices, [..., n], ascending, and the vectors, [..., n, n], a column each."""
    dtype, matrix, size = matrix.dtype, op.cast(matrix, dtypes.DOUBLE), op.dim(matrix, -1)
    scale = nonzero(op, _largest(op, matrix))
    scaled = alike(op.Div(matrix, scale), matrix)
    # no eigenvalue is beyond the largest sum of a row
    sums = op.ReduceSum(op.Abs(scaled), axes=[matrix.rank - 1], keepdims=1)
    shift = op.ReduceMax(sums, axes=[matrix.rank - 2], keepdims=1)
    shifted = op.Add(scaled, op.Mul(identity(op, size, size, matrix), shift))
    _, vectors = _orthogonal(op, alike(shifted, matrix))
    products = op.Mul(vectors, op.MatMul(scaled, vectors))
    found = op.ReduceSum(products, axes=[matrix.rank - 2], keepdims=0)
    found.shape = (*(matrix.shape or ())[:-2], (vectors.shape or ())[-1])
    found, places = top(op, kept(op, _is_real(op, vectors), found, torch.inf), size, -1, greatest=False)
    found = alike(op.Mul(found, op.Squeeze(scale, [matrix.rank - 1])), found)
    return op.cast(found, dtype), op.cast(alike(_picked(op, vectors, places), matrix), dtype)


def _largest(op: Emitter, matrix: Value) -> Value:
    """The largest size of an element of each matrix, [..., 1, 1]."""
    found: Value = op.ReduceMax(op.Abs(matrix), axes=[matrix.rank - 2, matrix.rank - 1], keepdims=1)
    found.shape = (*(matrix.shape or ())[:-2], 1, 1)
    return found


def _lengths(op: Emitter, value: Value) -> Value:
    """The length of each column, [..., n]."""
    found: Value = op.Sqrt(op.ReduceSum(op.Mul(value, value), axes=[value.rank - 2], keepdims=0))
    found.shape = (*(value.shape or ())[:-2], (value.shape or ())[-1])
    return found


def _is_real(op: Emitter, turned: Value) -> Value:
    """False for the column that makes their number even."""
    return op.Greater(_lengths(op, turned), op.like(0.5, turned))


def _picked(op: Emitter, value: Value, places: Value) -> Value:
    """The columns of ``value`` at ``places``, [..., n], of each matrix."""
    numbers = upright(op, counted(op, op.dim(value, -1)))
    found = op.MatMul(value, op.cast(op.Equal(numbers, lying(op, places)), value.dtype))
    found.shape = (*(value.shape or ())[:-1], (places.shape or ())[-1])
    return found


def _orthogonal(op: Emitter, matrix: Value) -> tuple[Value, Value]:
    """A V with orthogonal columns, and V; with a column of zeros beside them where their number is odd."""
    rows, columns = op.dim(matrix, -2), op.dim(matrix, -1)
    half = _half(op, columns)
    unit = identity(op, columns, columns, matrix)
    if matrix.rank > 2:
        unit = op.Expand(unit, op.ints([*batch_of(op, matrix), 1, 1]))
    joined = op.Concat(matrix, unit, axis=matrix.rank - 2)
    padding = _padding(op, rows, columns, half, batch_of(op, matrix))
    if padding is not None:
        joined = op.Concat(joined, padding, axis=matrix.rank - 1)
    count = 2 * half if isinstance(half, int) else None
    height = rows + columns if isinstance(rows, int) and isinstance(columns, int) else None
    joined.shape = (*(matrix.shape or ())[:-2], height, count)

    rounds = op.Sub(op.Mul(as_value(op, half), op.const(2)), op.const(1))
    order = _next_round(op, half)
    smallest = op.const(ROUNDING * torch.finfo(torch.float64).eps, dtypes.DOUBLE)
    tolerance = op.Mul(op.Sqrt(op.cast(as_value(op, rows), dtypes.DOUBLE)), smallest)

    def step(op: Emitter, at: Value, quiet: Value, joined: Value) -> list[Value]:
        joined, turns = _round(op, joined, rows, half, tolerance)
        quiet = op.Where(op.Greater(turns, op.like(0.5, turns)), op.const(0), op.Add(quiet, op.const(1)))
        moved = op.Gather(joined, order, axis=joined.rank - 1)
        return [op.Less(quiet, rounds), quiet, moved]

    most = times(op, TOURNAMENTS, op.known(rounds))
    start = op.const(0)
    _, joined = repeat_while(op, most, op.const(True, dtypes.BOOL), step, start, joined)
    return part(op, joined, -2, 0, rows), part(op, joined, -2, rows, None)


def _half(op: Emitter, columns: Any) -> Any:
    """Half the number of columns, rounded up."""
    if isinstance(columns, int):
        return (columns + 1) // 2
    return op.Div(op.Add(columns, op.const(1)), op.const(2))


def _padding(op: Emitter, rows: Any, columns: Any, half: Any, batch: list[Any]) -> Value | None:
    """The column of zeros, in the height of A above V, that makes the number of columns even."""
    if isinstance(columns, int) and columns % 2 == 0:
        return None
    missing = 1 if isinstance(columns, int) else op.Sub(op.Mul(half, op.const(2)), columns)
    if isinstance(rows, int) and isinstance(columns, int):
        return full(op, [*batch, rows + columns, missing], 0, dtypes.DOUBLE)
    height = op.Add(as_value(op, rows), as_value(op, columns))
    return full(op, [*batch, height, missing], 0, dtypes.DOUBLE)


def _next_round(op: Emitter, half: Any) -> Value:
    """From where each place gets its column: places i and half + i meet, the first stays, the others go around,
    up the second half and down the first.
    """
    if isinstance(half, int):
        order = torch.arange(2 * half)
        if half > 1:
            order = order + torch.where(order < half, -1, 1)
            order[0], order[1], order[-1] = 0, half, half - 1
        return op.const(order)
    last = op.Sub(op.Mul(half, op.const(2)), op.const(1))
    places = counted(op, op.Add(last, op.const(1)))
    others = op.Where(op.Less(places, half), op.Sub(places, op.const(1)), op.Add(places, op.const(1)))
    others = op.Where(op.Equal(places, op.const(1)), half, others)
    others = op.Where(op.Equal(places, last), op.Sub(half, op.const(1)), others)
    # the first stays, and two columns stay as they are
    stays = op.Or(op.Equal(places, op.const(0)), op.Equal(half, op.const(1)))
    return op.Where(stays, places, others)


def _round(op: Emitter, joined: Value, rows: Any, half: Any, tolerance: Value) -> tuple[Value, Value]:
    """All pairs turned once, and how many of them needed it."""
    left, right = part(op, joined, -1, 0, half), part(op, joined, -1, half, None)
    upper_left, upper_right = part(op, left, -2, 0, rows), part(op, right, -2, 0, rows)
    one, other, both = (
        op.ReduceSum(op.Mul(first, second), axes=[joined.rank - 2], keepdims=1)
        for first, second in ((upper_left, upper_left), (upper_right, upper_right), (upper_left, upper_right))
    )
    size = op.Abs(both)
    limit = op.Mul(tolerance, op.Mul(op.Sqrt(one), op.Sqrt(other)))
    turns = op.ReduceSum(op.cast(op.Greater(size, limit), dtypes.FLOAT), keepdims=0)
    # the tangent of the smaller of the two angles that make them orthogonal
    ratio = op.Div(op.Sub(other, one), op.Mul(op.like(2, one), nonzero(op, both)))
    side = op.Where(op.Less(ratio, op.like(0, one)), op.like(-1, one), op.like(1, one))
    root = op.Sqrt(op.Add(op.like(1, one), op.Mul(ratio, ratio)))
    tangent = op.Div(side, op.Add(op.Abs(ratio), root))
    tangent = op.Where(op.Greater(size, op.like(0, one)), tangent, op.like(0, one))
    cosine = op.Div(op.like(1, one), op.Sqrt(op.Add(op.like(1, one), op.Mul(tangent, tangent))))
    sine = op.Mul(cosine, tangent)
    turned_left = op.Sub(op.Mul(cosine, left), op.Mul(sine, right))
    turned_right = op.Add(op.Mul(sine, left), op.Mul(cosine, right))
    return alike(op.Concat(turned_left, turned_right, axis=joined.rank - 1), joined), turns
