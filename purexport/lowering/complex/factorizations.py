"""Cholesky, LU and QR factorizations of complex matrices, one column in each step, as LAPACK does them.

The steps are those of the real factorizations, on the two parts. LU takes the pivot whose parts have the largest sum of
absolute values (LAPACK's icamax), which need not be the one of the largest magnitude. QR uses Householder's reflections
I - tau v v^H with the complex `tau` of LAPACK's geqrf, for which the diagonal of R is real.
"""

# ruff: noqa: N803  A and LU are ATen's names of arguments

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import adjoint, complex_div, complex_mul, conj
from purexport.lowering.complex.products import mm
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.linalg.factorizations import (
    exchanged,
    lu_info,
    permutation_matrix,
    permutation_of_pivots,
    unmoved,
    unpack_lu,
)
from purexport.lowering.support.common import full, swap_last
from purexport.lowering.support.loops import repeat
from purexport.lowering.support.matrices import (
    batch_dims,
    broadcast_batch,
    column_at,
    column_indices,
    diagonal_of,
    identity_matrix,
    index_range,
    lapack_info,
    masked,
    min_size,
    row_at,
    row_indices,
    slice_along,
    triangle,
)
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.positions import size_value


def times(op: Emitter, one: Pair, other: Pair) -> Pair:
    """The product of each element."""
    found = complex_mul(op, one, other)
    assert isinstance(found, Pair), "a product of pairs is one"
    return found


def less(op: Emitter, one: Pair, other: Pair) -> Pair:
    """`one` - `other`."""
    return Pair(op.Sub(one.real, other.real), op.Sub(one.imag, other.imag))


def divided(op: Emitter, one: Pair, other: Pair) -> Pair:
    """`one` / `other`."""
    found = complex_div(op, one, other)
    assert isinstance(found, Pair), "a quotient of pairs is one"
    return found


def chosen(op: Emitter, condition: Value, one: Pair, other: Pair) -> Pair:
    """`one` where the condition holds and `other` elsewhere."""
    return Pair(op.Where(condition, one.real, other.real), op.Where(condition, one.imag, other.imag))


def kept(op: Emitter, condition: Value, value: Pair, other: float = 0) -> Pair:
    """`value` where the condition holds and the real number `other` elsewhere."""
    return Pair(masked(op, condition, value.real, other), masked(op, condition, value.imag))


def pair_column(op: Emitter, value: Pair, at: Value) -> Pair:
    """Column `at`, [..., n, 1]."""
    return value.map(lambda part: column_at(op, part, at))


def pair_row(op: Emitter, value: Pair, at: Value) -> Pair:
    """Row `at`, [..., 1, m]."""
    return value.map(lambda part: row_at(op, part, at))


def unit_of(op: Emitter, rows: Any, columns: Any, like: Pair) -> Pair:
    """Ones on the diagonal, [rows, columns]."""
    unit = identity_matrix(op, rows, columns, like.real)
    return Pair(unit, op.Mul(unit, op.like(0, unit)))


def empty_pair(op: Emitter, like: Pair) -> Pair:
    """The empty tensor that stands for a result that was not asked for."""
    nothing = op.const(torch.empty(0, dtype=dtypes.torch_dtype(like.dtype or dtypes.FLOAT)))
    return Pair(nothing, nothing)


# Cholesky -----------------------------------------------------------------------------------------------------------


@lower_complex("aten::linalg_cholesky", "aten::cholesky")
def linalg_cholesky(op: Emitter, self: Pair, upper: bool = False) -> Pair:
    """aten::linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor

    One triangle and the real parts of the diagonal are read.
    """
    start = adjoint(op, self) if upper else self
    rows, columns = row_indices(op, self.real), column_indices(op, self.real)

    def step(op: Emitter, at: Value, *parts: Value) -> list[Value]:
        matrix = Pair(*parts)
        here = kept(op, op.Not(op.Less(rows, at)), pair_column(op, matrix, at))
        root = op.Sqrt(row_at(op, here.real, at))
        below = op.Greater(rows, at)
        found = Pair(op.Div(here.real, root), masked(op, below, op.Div(here.imag, root)))
        update = times(op, found, adjoint(op, found))
        rest = less(op, matrix, kept(op, op.Greater(columns, at), update))
        made = chosen(op, op.Equal(columns, at), found, rest)
        return [made.real, made.imag]

    found = Pair(*repeat(op, op.dim(self.real, -1), step, start.real, start.imag))
    return adjoint(op, found) if upper else found


@lower_complex("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(op: Emitter, self: Pair, upper: bool = False, check_errors: bool = False) -> tuple[Pair, Value]:
    """aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)"""
    found = linalg_cholesky(op, self, upper)
    diagonal = diagonal_of(op, found.real)
    return found, lapack_info(op, op.Not(op.Greater(diagonal, op.like(0, diagonal))))


# LU -----------------------------------------------------------------------------------------------------------------


def _size(op: Emitter, value: Pair) -> Value:
    return op.Add(op.Abs(value.real), op.Abs(value.imag))


def lu_factors(op: Emitter, matrix: Pair) -> tuple[Pair, Value, Value]:
    """L and U in one matrix, the pivots [..., k] counted from 1, and the row of `matrix` at each place, [..., n, 1]."""
    rows, columns = row_indices(op, matrix.real), column_indices(op, matrix.real)
    count = min_size(op, op.dim(matrix.real, -2), op.dim(matrix.real, -1))
    numbers = index_range(op, count)
    rank = matrix.rank

    def step(op: Emitter, at: Value, real: Value, imag: Value, pivots: Value, order: Value) -> list[Value]:
        sizes = _size(op, pair_column(op, Pair(real, imag), at))
        best = op.ArgMax(masked(op, op.Not(op.Less(rows, at)), sizes, -1), axis=rank - 2, keepdims=1)
        real, imag, order = (exchanged(op, item, rows, at, best) for item in (real, imag, order))
        value = Pair(real, imag)
        pivots = masked(op, op.Not(op.Equal(numbers, at)), pivots, op.Add(op.Squeeze(best, [rank - 1]), op.const(1)))
        pivot_row = pair_row(op, value, at)
        pivot = pair_column(op, pivot_row, at)
        size = _size(op, pivot)
        divisor = kept(op, op.Greater(size, op.like(0, size)), pivot, 1)
        factors = divided(op, pair_column(op, value, at), divisor)
        below = op.Greater(rows, at)
        update = times(op, kept(op, below, factors), kept(op, op.Greater(columns, at), pivot_row))
        made = chosen(op, op.And(below, op.Equal(columns, at)), factors, less(op, value, update))
        return [made.real, made.imag, pivots, order]

    batch = batch_dims(op, matrix.real)
    pivots = full(op, [*batch, count], 0, dtypes.INT64)
    order = unmoved(op, batch, op.dim(matrix.real, -2))
    real, imag, pivots, order = repeat(op, count, step, matrix.real, matrix.imag, pivots, order)
    return Pair(real, imag), op.cast(pivots, dtypes.INT32), order


def info_of(op: Emitter, packed: Pair) -> Value:
    """LAPACK's info: the number of the first pivot that is 0, or 0 if there is none."""
    return lu_info(op, _size(op, packed))


def unpacked(op: Emitter, packed: Pair) -> tuple[Pair, Pair]:
    """L, with ones on its diagonal, and U."""
    (lower, upper), (lower_imag, upper_imag) = unpack_lu(op, packed.real), unpack_lu(op, packed.imag, unit=False)
    return Pair(lower, lower_imag), Pair(upper, upper_imag)


@lower_complex("aten::linalg_lu_factor")
def linalg_lu_factor(op: Emitter, A: Pair) -> tuple[Pair, Value]:
    """aten::linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)"""
    return lu_factors(op, A)[:2]


@lower_complex("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(op: Emitter, A: Pair, check_errors: bool = False) -> tuple[Pair, Value, Value]:
    """aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots,
    Tensor info)
    """
    found, pivots, _ = lu_factors(op, A)
    return found, pivots, info_of(op, found)


@lower_complex("aten::_lu_with_info")
def lu_with_info(op: Emitter, self: Pair, check_errors: bool = True) -> tuple[Pair, Value, Value]:
    """aten::_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) -> (Tensor LU, Tensor pivots,
    Tensor info)
    """
    return linalg_lu_factor_ex(op, self)


def _permutation(op: Emitter, order: Value, like: Pair) -> Pair:
    found = swap_last(op, permutation_matrix(op, order, like.real))
    return Pair(found, op.Mul(found, op.like(0, found)))


@lower_complex("aten::linalg_lu")
def linalg_lu(op: Emitter, A: Pair) -> tuple[Pair, Pair, Pair]:
    """aten::linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)"""
    found, _, order = lu_factors(op, A)
    return _permutation(op, order, A), *unpacked(op, found)


@lower_complex("aten::lu_unpack")
def lu_unpack(
    op: Emitter, LU_data: Pair, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Pair, Pair, Pair]:
    """aten::lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P,
    Tensor L, Tensor U)
    """
    permutation = nothing = empty_pair(op, LU_data)
    if unpack_pivots:
        order = permutation_of_pivots(op, LU_pivots, op.dim(LU_data.real, -2))
        permutation = _permutation(op, order, LU_data)
    return permutation, *(unpacked(op, LU_data) if unpack_data else (nothing, nothing))


# QR -----------------------------------------------------------------------------------------------------------------


@lower_complex("aten::geqrf")
def geqrf(op: Emitter, self: Pair) -> tuple[Pair, Pair]:
    """aten::geqrf(Tensor self) -> (Tensor a, Tensor tau)

    As in LAPACK: R is in the upper triangle, the vectors of the reflections are below it (each starts with an implicit
    1 on the diagonal), and `tau` holds their factors. A diagonal element of R is real; its sign is opposite to that of
    the real part of its column.
    """
    rows, columns = row_indices(op, self.real), column_indices(op, self.real)
    count = min_size(op, op.dim(self.real, -2), op.dim(self.real, -1))
    numbers = index_range(op, count)
    last = self.rank - 2

    def step(op: Emitter, at: Value, *parts: Value) -> list[Value]:
        matrix, sizes = Pair(*parts[:2]), Pair(*parts[2:])
        here = pair_column(op, matrix, at)
        first = pair_row(op, here, at)
        zero = op.like(0, first.real)
        below = kept(op, op.Greater(rows, at), here)
        squares = op.Add(op.Mul(below.real, below.real), op.Mul(below.imag, below.imag))
        rest = op.Add(op.ReduceSum(squares, axes=[last], keepdims=1), op.Mul(first.imag, first.imag))
        reflects = op.Greater(rest, zero)
        norm = op.Sqrt(op.Add(op.Mul(first.real, first.real), rest))
        new = op.Where(reflects, op.Where(op.Less(first.real, zero), norm, op.Neg(norm)), first.real)
        divisor = kept(op, reflects, Pair(op.Sub(first.real, new), first.imag), 1)
        below = divided(op, below, divisor)
        scale = masked(op, reflects, new, 1)
        size = Pair(op.Div(op.Sub(new, first.real), scale), op.Div(op.Neg(first.imag), scale))
        size = kept(op, reflects, size)
        mirror = kept(op, op.Not(op.Equal(rows, at)), below, 1)
        others = _mirrored(op, matrix, mirror, conj(op, size))
        diagonal = Pair(new, masked(op, op.Not(reflects), first.imag))
        made = chosen(op, op.Equal(rows, at), diagonal, chosen(op, op.Less(rows, at), here, below))
        changed = chosen(op, op.Greater(columns, at), others, matrix)
        result = chosen(op, op.Equal(columns, at), made, changed)
        sizes = chosen(op, op.Equal(numbers, at), size.map(lambda part: op.Squeeze(part, [last])), sizes)
        return [result.real, result.imag, sizes.real, sizes.imag]

    zeros = full(op, [*batch_dims(op, self.real), count], 0, self.dtype or dtypes.FLOAT)
    found = repeat(op, count, step, self.real, self.imag, zeros, zeros)
    return Pair(*found[:2]), Pair(*found[2:])


def _mirrored(op: Emitter, value: Pair, mirror: Pair, size: Pair) -> Pair:
    """`value` less `size` times its projection on the vector `mirror`, [..., n, 1]."""
    along = mm(op, adjoint(op, mirror), value)
    return less(op, value, mm(op, times(op, mirror, size), along))


def apply_reflections(op: Emitter, packed: Pair, sizes: Pair, value: Pair, forward: bool) -> Pair:
    """Q @ `value` for the reflections of `geqrf`; with `forward` Q^H @ `value`."""
    rows, count = row_indices(op, packed.real), op.dim(sizes.real, -1)

    def step(op: Emitter, at: Value, *parts: Value) -> list[Value]:
        number = at if forward else op.Sub(op.Sub(size_value(op, count), op.const(1)), at)
        below = kept(op, op.Greater(rows, number), pair_column(op, packed, number))
        mirror = kept(op, op.Not(op.Equal(rows, number)), below, 1)
        size = sizes.map(lambda part: op.Unsqueeze(op.Gather(part, number, axis=part.rank - 1), [part.rank]))
        found = _mirrored(op, Pair(*parts), mirror, conj(op, size) if forward else size)
        return [found.real, found.imag]

    start = value.map(lambda part: broadcast_batch(op, part, packed.real))
    return Pair(*repeat(op, count, step, start.real, start.imag))


@lower_complex("aten::linalg_householder_product")
def linalg_householder_product(op: Emitter, input: Pair, tau: Pair) -> Pair:
    """aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor"""
    unit = unit_of(op, op.dim(input.real, -2), op.dim(input.real, -1), input)
    return apply_reflections(op, input, tau, unit, False)


@lower_complex("aten::orgqr")
def orgqr(op: Emitter, self: Pair, input2: Pair) -> Pair:
    """aten::orgqr(Tensor self, Tensor input2) -> Tensor"""
    return linalg_householder_product(op, self, input2)


@lower_complex("aten::ormqr")
def ormqr(op: Emitter, self: Pair, input2: Pair, input3: Pair, left: bool = True, transpose: bool = False) -> Pair:
    """aten::ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor

    With `transpose` by Q^H.
    """
    if left:
        return apply_reflections(op, self, input2, input3, transpose)
    # C Q is computed as the adjoint of Q^H C^H
    return adjoint(op, apply_reflections(op, self, input2, adjoint(op, input3), not transpose))


@lower_complex("aten::linalg_qr")
def linalg_qr(op: Emitter, A: Pair, mode: str = "reduced") -> tuple[Pair, Pair]:
    """aten::linalg_qr(Tensor A, str mode="reduced") -> (Tensor Q, Tensor R)"""
    packed, sizes = geqrf(op, A)
    rows, count = op.dim(A.real, -2), min_size(op, op.dim(A.real, -2), op.dim(A.real, -1))
    height = None if mode == "complete" else count
    r = packed.map(lambda part: triangle(op, slice_along(op, part, -2, 0, height), True))
    if mode == "r":
        return empty_pair(op, A), r
    unit = unit_of(op, rows, rows if mode == "complete" else count, A)
    return apply_reflections(op, packed, sizes, unit, False), r


@lower_complex("aten::qr")
def qr(op: Emitter, self: Pair, some: bool = True) -> tuple[Pair, Pair]:
    """aten::qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)"""
    return linalg_qr(op, self, "reduced" if some else "complete")
