"""The factorization of symmetric matrices by Bunch and Kaufman (1977), as in LAPACK's sytrf.

D has blocks of one or two rows. Which block comes next depends on the numbers, so each matrix of a batch is at its own
row. A step therefore takes its row from a value, and one Loop of as many steps as rows completes all of them. Pivots
count from 1: a positive one belongs to a block of one row, a negative one, written twice, to a block of two.
"""

# ruff: noqa: N803  LD and B are ATen's names of arguments

from __future__ import annotations

import math

from proto_schema.legalization.loops import repeat
from proto_schema.legalization.sizes import numbers_below, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.linalg.eigen import mirror_triangle
from purexport.lowering.support.common import full, swap_last
from purexport.lowering.support.matrices import (
    as_column,
    as_row,
    as_vector,
    batch_dims,
    broadcast_batch,
    column_at,
    column_indices,
    diagonal_of,
    masked,
    row_at,
    row_indices,
    safe_divisor,
)

# a pivot needs this share of the largest element of its column (Bunch and Kaufman's alpha)
ALPHA = (1 + math.sqrt(17)) / 8


@lower("aten::linalg_ldl_factor")
def linalg_ldl_factor(op: Emitter, self: Value, hermitian: bool = False) -> tuple[Value, Value]:
    """aten::linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)"""
    return linalg_ldl_factor_ex(op, self, hermitian)[:2]


@lower("aten::linalg_ldl_factor_ex")
def linalg_ldl_factor_ex(
    op: Emitter, self: Value, hermitian: bool = False, check_errors: bool = False
) -> tuple[Value, Value, Value]:
    """aten::linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False) -> (Tensor LD,
    Tensor pivots, Tensor info)

    Real matrices are symmetric either way: `hermitian` changes nothing.
    """
    size, batch = op.dim(self, -1), batch_dims(op, self)

    def zeros(*sizes: object, dtype: int = dtypes.INT64) -> Value:
        return full(op, [*batch, *sizes], 0, dtype)

    start = [
        mirror_triangle(op, self),
        zeros(size, size, dtype=self.dtype or dtypes.FLOAT),
        zeros(1, size),
        zeros(1, 1),
    ]
    steps = _Steps(op, self)
    found = repeat(op, size, steps.step, *start, zeros(1, 1), written_out=1)
    pivots, info = as_vector(op, found[2], -2), as_vector(op, as_vector(op, found[4], -2))
    return found[1], op.cast(pivots, dtypes.INT32), op.cast(info, dtypes.INT32)


class _Steps:
    """One step: what is left of the matrices, the factors so far, the pivots, the row of each matrix, and the info."""

    def __init__(self, op: Emitter, matrix: Value) -> None:
        self.rows, self.columns = row_indices(op, matrix), column_indices(op, matrix)
        self.size = value_of(op, op.dim(matrix, -1))
        self.last = matrix.rank - 1

    def step(
        self, op: Emitter, at: Value, rest: Value, done: Value, pivots: Value, here: Value, info: Value
    ) -> list[Value]:
        one = op.const(1)
        other, two, nothing = self._pivot(op, rest, here)
        next_row = op.Add(here, one)
        end = op.Where(two, next_row, here)
        rest = self._exchanged(op, rest, end, other)
        first, second = self._column(op, rest, here), self._column(op, rest, next_row)
        single = self._divided(op, first, here)
        pair = self._divided_pair(op, first, second, here)
        left = op.Where(two, pair[0], single)
        update = op.Add(op.Mul(left, swap_last(op, first)), masked(op, two, op.Mul(pair[1], swap_last(op, second))))
        block = op.And(op.Not(op.Less(self.rows, here)), op.Not(op.Greater(self.rows, end)))
        second_block = op.Equal(self.rows, next_row)
        left = op.Where(block, first, left)
        right = op.Where(second_block, second, pair[1])
        done = op.Where(op.Equal(self.columns, here), left, done)
        is_second = op.And(op.Equal(self.columns, next_row), two)
        done = op.Where(is_second, right, done)
        number = op.Add(other, one)
        signed = op.Where(two, op.Neg(number), number)
        is_block = op.Or(op.Equal(self.columns, here), is_second)
        pivots = op.Where(is_block, signed, pivots)
        failed = op.And(op.And(nothing, op.Less(here, self.size)), op.Equal(info, op.const(0)))
        info = op.Where(failed, next_row, info)
        moved = op.Add(next_row, op.cast(two, dtypes.INT64))
        return [op.Sub(rest, update), done, pivots, moved, info]

    def _pivot(self, op: Emitter, rest: Value, here: Value) -> tuple[Value, Value, Value]:
        """The row to exchange with, whether the block has two rows, and whether the column is all zeros."""
        axes = [self.last - 1]
        mine = op.Abs(self._column(op, rest, here))
        below = masked(op, op.Greater(self.rows, here), mine)
        largest = op.ReduceMax(below, axes=axes, keepdims=1)
        best = op.ArgMax(below, axis=axes[0], keepdims=1)
        its = op.Abs(self._column(op, rest, best))
        others = op.And(op.Not(op.Less(self.rows, here)), op.Not(op.Equal(self.rows, best)))
        row_largest = op.ReduceMax(masked(op, others, its), axes=axes, keepdims=1)
        own, its_own = self._element(op, mine, here), self._element(op, its, best)
        alpha = op.like(ALPHA, rest)
        ratio = op.Div(largest, safe_divisor(op, row_largest))
        stays = op.Or(
            op.Not(op.Less(own, op.Mul(alpha, largest))),
            op.Not(op.Less(own, op.Mul(op.Mul(alpha, largest), ratio))),
        )
        comes = op.Not(op.Less(its_own, op.Mul(alpha, row_largest)))
        nothing = op.Not(op.Greater(op.Add(own, largest), op.like(0, rest)))
        return op.Where(stays, here, best), op.And(op.Not(stays), op.Not(comes)), nothing

    def _column(self, op: Emitter, value: Value, at: Value) -> Value:
        """One column of each matrix, [..., n, 1]."""
        return op.ReduceSum(masked(op, op.Equal(self.columns, at), value), axes=[self.last], keepdims=1)

    def _element(self, op: Emitter, value: Value, at: Value) -> Value:
        return op.ReduceSum(masked(op, op.Equal(self.rows, at), value), axes=[self.last - 1], keepdims=1)

    def _exchanged(self, op: Emitter, value: Value, one: Value, other: Value) -> Value:
        """`value` with its rows and columns `one` and `other` exchanged."""
        for _ in range(2):
            value = swap_last(op, swap_rows(op, value, self.rows, one, other))
        return value

    def _divided(self, op: Emitter, first: Value, here: Value) -> Value:
        found = op.Div(first, safe_divisor(op, self._element(op, first, here)))
        return masked(op, op.Greater(self.rows, here), found)

    def _divided_pair(self, op: Emitter, first: Value, second: Value, here: Value) -> tuple[Value, Value]:
        """The two columns times the inverse of their block, below it."""
        after = op.Add(here, op.const(1))
        between = safe_divisor(op, self._element(op, first, after))
        one = op.Div(self._element(op, second, after), between)
        other = op.Div(self._element(op, first, here), between)
        unit = op.like(1, first)
        share = op.Div(op.Div(unit, safe_divisor(op, op.Sub(op.Mul(one, other), unit))), between)
        below = op.Greater(self.rows, after)
        left = op.Mul(share, op.Sub(op.Mul(one, first), second))
        right = op.Mul(share, op.Sub(op.Mul(other, second), first))
        return masked(op, below, left), masked(op, below, right)


def swap_rows(op: Emitter, value: Value, rows: Value, one: Value, other: Value) -> Value:
    """`value` with its rows `one` and `other`, one for each matrix, [..., 1, 1], exchanged."""
    here, there = op.Equal(rows, one), op.Equal(rows, other)
    axes = [value.rank - 2]
    first, second = (op.ReduceSum(masked(op, item, value), axes=axes, keepdims=1) for item in (here, there))
    return op.Where(here, second, op.Where(there, first, value))


# Solve --------------------------------------------------------------------------------------------------------------


@lower("aten::linalg_ldl_solve")
def linalg_ldl_solve(op: Emitter, LD: Value, pivots: Value, B: Value, hermitian: bool = False) -> Value:
    """aten::linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor"""
    rows, size = row_indices(op, LD), value_of(op, op.dim(LD, -1))
    pivots = op.cast(pivots, dtypes.INT64)
    starts, is_pair = _blocks(op, pivots)
    last = pivots.rank - 1

    def at_row(op: Emitter, at: Value) -> tuple[Value, Value, Value]:
        """The column of L at a row, and the two rows to exchange there; they are equal where there is no exchange."""
        pivot = as_column(op, op.Gather(pivots, at, axis=last))
        is_start = op.Unsqueeze(op.Gather(starts, at, axis=last), [pivots.rank])
        begins_pair = op.And(is_start, op.Less(pivot, op.const(0)))
        here = op.Where(begins_pair, op.Add(at, op.const(1)), at)
        there = op.Where(is_start, op.Sub(op.Abs(pivot), op.const(1)), here)
        return masked(op, op.Greater(rows, here), column_at(op, LD, at)), here, there

    def forward(op: Emitter, at: Value, found: Value) -> list[Value]:
        left, here, there = at_row(op, at)
        found = swap_rows(op, found, rows, here, there)
        return [op.Sub(found, op.Mul(left, row_at(op, found, at)))]

    def backward(op: Emitter, at: Value, found: Value) -> list[Value]:
        at = op.Sub(op.Sub(size, op.const(1)), at)
        left, here, there = at_row(op, at)
        change = op.MatMul(swap_last(op, left), found)
        found = op.Sub(found, op.Mul(op.cast(op.Equal(rows, at), found.dtype), change))
        return [swap_rows(op, found, rows, here, there)]

    (found,) = repeat(op, op.dim(LD, -1), forward, broadcast_batch(op, B, LD), written_out=1)
    found = _divided_by_blocks(op, LD, starts, is_pair, found)
    return repeat(op, op.dim(LD, -1), backward, found, written_out=1)[0]


def _blocks(op: Emitter, pivots: Value) -> tuple[Value, Value]:
    """Where a block starts, and where it has two rows, both [..., n]."""
    is_pair = op.Less(pivots, op.const(0))
    numbers = numbers_below(op, op.dim(pivots, -1))
    earlier = op.cast(op.Less(as_column(op, numbers), as_row(op, numbers)), dtypes.FLOAT)
    before = op.cast(op.MatMul(op.cast(is_pair, dtypes.FLOAT), earlier), dtypes.INT64)
    odd = op.Sub(before, op.Mul(op.Div(before, op.const(2)), op.const(2)))
    starts = op.Or(op.Not(is_pair), op.Equal(odd, op.const(0)))
    return starts, is_pair


def _divided_by_blocks(op: Emitter, LD: Value, starts: Value, is_pair: Value, value: Value) -> Value:
    """`value` divided by D: by the diagonal, or by the inverse of a block of two rows."""
    numbers = numbers_below(op, op.dim(LD, -1))
    next_row = op.Equal(as_column(op, numbers), op.Add(as_row(op, numbers), op.const(1)))
    first_of_pair = op.And(starts, is_pair)
    below = masked(op, op.And(next_row, as_row(op, first_of_pair)), LD)
    beside = op.ReduceSum(op.Add(below, swap_last(op, below)), axes=[LD.rank - 1], keepdims=1)
    partner = op.cast(op.And(next_row, as_row(op, first_of_pair)), LD.dtype)
    partner = op.Add(partner, swap_last(op, partner))
    diagonal, pairs = as_column(op, diagonal_of(op, LD)), as_column(op, is_pair)
    share = op.Div(op.MatMul(partner, diagonal), safe_divisor(op, beside))
    upper = op.Where(pairs, op.Sub(op.Mul(share, value), op.MatMul(partner, value)), value)
    return op.Div(upper, op.Where(pairs, op.Sub(op.Mul(diagonal, share), beside), diagonal))
