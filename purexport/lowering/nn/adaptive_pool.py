"""Adaptive pooling: window i of an axis starts at floor(i * size / wanted) and ends before ceil((i + 1) * size /
wanted).

Where every size is divisible, this is ordinary pooling. Otherwise windows differ in length and overlap. An average is
linear, so each axis becomes a product with a matrix of weights. A maximum gathers each window, where short windows
repeat their last element. Both work for dynamic sizes, with tables that the graph computes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.sizes import times, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.nn.pool import batched, max_pool_with_indices, spatial_rank, unbatched
from purexport.lowering.support.common import dims_of, full, permute, reshape
from purexport.lowering.support.kernels import smallest


@lower(
    "aten::adaptive_avg_pool1d",
    "aten::adaptive_avg_pool2d",
    "aten::_adaptive_avg_pool2d",
    "aten::adaptive_avg_pool3d",
    "aten::_adaptive_avg_pool3d",
)
def adaptive_avg_pool(op: Emitter, self: Value, output_size: Sequence[Any]) -> Value:
    """aten::adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor"""
    rank = spatial_rank(op)
    value = batched(op, self, rank)
    if 0 in output_size:
        nothing = full(op, [*dims_of(op, value)[:-rank], *output_size], 0, value.dtype or dtypes.FLOAT)
        return unbatched(op, nothing, self, rank)
    if all(size == 1 for size in output_size):
        return unbatched(op, op.GlobalAveragePool(value), self, rank)
    sizes = dims_of(op, value)
    kernel = _even_windows(sizes[-rank:], output_size)
    if kernel is not None:
        return unbatched(op, op.AveragePool(value, kernel_shape=kernel, strides=kernel), self, rank)
    for axis, wanted in enumerate(output_size, value.rank - rank):
        if sizes[axis] != wanted:
            value = _mean_along(op, value, axis, sizes[axis], wanted)
    return unbatched(op, value, self, rank)


def _even_windows(sizes: Sequence[Any], wanted: Sequence[Any]) -> list[int] | None:
    """The kernel of the ordinary pooling with the same result, or None."""
    if not all(isinstance(size, int) for size in (*sizes, *wanted)):
        return None
    if any(size % want for size, want in zip(sizes, wanted, strict=True)):
        return None
    return [size // want for size, want in zip(sizes, wanted, strict=True)]


def _mean_along(op: Emitter, value: Value, axis: int, size: Any, wanted: Any) -> Value:
    if wanted == 1:
        return op.ReduceMean(value, axes=[axis], keepdims=1)
    starts, lengths = _windows(op, size, wanted)
    steps, first = _counted_to(op, size), op.Unsqueeze(starts, [1])
    behind = op.Add(first, op.Unsqueeze(lengths, [1]))
    inside = op.And(op.Not(op.Less(steps, first)), op.Less(steps, behind))
    weights = op.Div(op.cast(inside, value.dtype), op.cast(op.Unsqueeze(lengths, [1]), value.dtype))
    order = list(range(value.rank))
    order[axis], order[-2] = order[-2], order[axis]
    if axis == value.rank - 1:
        return op.MatMul(value, op.Transpose(weights, perm=[1, 0]))
    return permute(op, op.MatMul(weights, permute(op, value, order)), order)


def _windows(op: Emitter, size: Any, wanted: Any) -> tuple[Value, Value]:
    """The first position and the length of each window of one axis, both int64 of shape [wanted]."""
    steps, of, into = _counted_to(op, wanted), value_of(op, size), value_of(op, wanted)
    starts = op.Div(op.Mul(steps, of), into)
    reach = op.Add(op.Mul(op.Add(steps, op.const(1)), of), op.Sub(into, op.const(1)))
    return starts, op.Sub(op.Div(reach, into), starts)


def _counted_to(op: Emitter, size: Any) -> Value:
    """0, 1, ... below `size`."""
    return op.Range(op.const(0), value_of(op, size), op.const(1))


@lower("aten::adaptive_max_pool1d", "aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d")
def adaptive_max_pool(op: Emitter, self: Value, output_size: Sequence[Any]) -> tuple[Value, ...]:
    """aten::adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)

    The second result is the position of each maximum in its plane, for equal elements that of the first.
    """
    rank = spatial_rank(op)
    lead = self.rank - rank
    sizes = [*dims_of(op, self)[:lead], *output_size]
    if 0 in sizes:
        return full(op, sizes, 0, self.dtype or dtypes.FLOAT), full(op, sizes, 0, dtypes.INT64)
    if all(size == 1 for size in output_size):
        flat = op.Reshape(self, [*[0] * lead, -1])
        best = op.ReduceMax(self, axes=list(range(lead, self.rank)), keepdims=1)
        return best, op.Unsqueeze(op.ArgMax(flat, axis=lead, keepdims=1), list(range(lead + 1, self.rank)))
    sizes = dims_of(op, self)[-rank:]
    kernel = _even_windows(sizes, output_size)
    if kernel is not None:
        return max_pool_with_indices(op, self, kernel)
    tables = [_windows(op, size, wanted) for size, wanted in zip(sizes, output_size, strict=True)]
    longest = [_longest(op, size, wanted) for size, wanted in zip(sizes, output_size, strict=True)]
    strides = [value_of(op, times(op, *sizes[axis + 1 :])) for axis in range(rank)]
    covered = [op.Mul(_covered(op, *table, long), by) for table, long, by in zip(tables, longest, strides, strict=True)]
    flat = op.Reshape(self, [*[0] * lead, -1])
    # [..., windows, elements], rows before columns, so that the first of equal elements is the one that torch takes
    taken = op.Gather(flat, _outer_sum(op, covered, output_size, longest), axis=lead)
    place, positions = op.ArgMax(taken, axis=lead + 1, keepdims=0), op.const(0)
    for axis in reversed(range(rank)):
        length = value_of(op, longest[axis])
        rest = op.Div(place, length)
        positions = op.Add(positions, op.Mul(op.Sub(place, op.Mul(rest, length)), strides[axis]))
        place = rest
    starts = [op.Mul(table[0], by) for table, by in zip(tables, strides, strict=True)]
    begin = _outer_sum(op, [op.Unsqueeze(item, [1]) for item in starts], output_size, [1] * rank)
    positions = op.Add(positions, op.Squeeze(begin, [1]))
    shape = op.ints([*[0] * lead, *output_size])
    return op.Reshape(op.ReduceMax(taken, axes=[lead + 1], keepdims=0), shape), op.Reshape(positions, shape)


def _longest(op: Emitter, size: Any, wanted: Any) -> Any:
    """An upper bound on the length of a window."""
    if isinstance(size, int) and isinstance(wanted, int):
        return -(-size // wanted) + 1
    return op.Add(op.Div(value_of(op, size), value_of(op, wanted)), op.const(2))


def _covered(op: Emitter, starts: Value, lengths: Value, longest: Any) -> Value:
    """[windows, longest]: the positions of each window along its axis; a shorter window repeats the last one."""
    last = op.Sub(op.Unsqueeze(lengths, [1]), op.const(1))
    return op.Add(op.Unsqueeze(starts, [1]), smallest(op, op.Unsqueeze(_counted_to(op, longest), [0]), last))


def _outer_sum(op: Emitter, tables: Sequence[Value], rows: Sequence[Any], columns: Sequence[Any]) -> Value:
    """One table [product of rows, product of columns] from the tables [rows_i, columns_i] of each axis; the last axis
    is the fastest.
    """
    rank = len(tables)
    if rank == 1:
        return tables[0]
    spread = [
        op.Unsqueeze(table, [axis for axis in range(2 * rank) if axis % rank != place])
        for place, table in enumerate(tables)
    ]
    total = functools.reduce(op.Add, spread)
    return reshape(op, total, [value_of(op, times(op, *rows)), value_of(op, times(op, *columns))])


# Fractional pooling -------------------------------------------------------------------------------------------------


@lower("aten::fractional_max_pool2d", "aten::fractional_max_pool3d")
def fractional_max_pool(
    op: Emitter, self: Value, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Value
) -> tuple[Value, Value]:
    """aten::fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size, Tensor random_samples)
    -> (Tensor, Tensor)

    Fractional max pooling (Graham 2014): maxima and their positions, for windows whose starts depend on one random
    number for each plane and axis.

    Start i is floor((i + r) * alpha) - floor(r * alpha) with alpha = (size - kernel) / (windows - 1); the last window
    ends at the end. In two dimensions torch takes the first number for the width.
    """
    rank = spatial_rank(op)
    value = batched(op, self, rank)
    lead, sizes = dims_of(op, value)[:2], dims_of(op, value)[2:]
    planes = reshape(op, value, [*lead, value_of(op, times(op, *sizes))])
    numbers = list(reversed(range(rank))) if rank == 2 else list(range(rank))
    tables, strides = [], [value_of(op, times(op, *sizes[axis + 1 :])) for axis in range(rank)]
    for axis in range(rank):
        sample = op.Gather(random_samples, op.const([numbers[axis]]), axis=2)  # [N, C, 1]
        starts = _random_starts(op, sample, sizes[axis], kernel_size[axis], output_size[axis])
        inside = op.Add(op.Unsqueeze(starts, [3]), op.const(list(range(kernel_size[axis]))))  # [N, C, windows, kernel]
        spread = [2 + place for place in range(2 * rank) if place % rank != axis]
        tables.append(op.Unsqueeze(op.Mul(inside, strides[axis]), spread))
    windows, elements = math.prod(output_size), math.prod(kernel_size)
    places = reshape(op, functools.reduce(op.Add, tables), [*lead, windows * elements])
    taken = reshape(op, op.GatherElements(planes, places, axis=2), [*lead, windows, elements])
    first = op.ArgMax(taken, axis=3, keepdims=1)
    shape = [*lead, *output_size]
    best = reshape(op, op.ReduceMax(taken, axes=[3], keepdims=0), shape)
    at = op.GatherElements(reshape(op, places, [*lead, windows, elements]), first, axis=3)
    return unbatched(op, best, self, rank), unbatched(op, reshape(op, at, shape), self, rank)


def _random_starts(op: Emitter, sample: Value, size: Any, kernel: int, windows: int) -> Value:
    """[N, C, windows]: the first positions of the windows of one axis."""
    last = op.Sub(value_of(op, size), op.const(kernel))
    every = op.Add(op.Mul(op.cast(sample, dtypes.INT64), op.const(0)), last)
    if windows == 1:
        return every
    alpha = op.Div(op.cast(last, sample.dtype), op.like(windows - 1, sample))
    steps = op.like(list(range(windows - 1)), sample)
    ahead = op.Floor(op.Mul(op.Add(sample, steps), alpha))
    starts = op.cast(op.Sub(ahead, op.Floor(op.Mul(sample, alpha))), dtypes.INT64)
    return op.Concat(starts, every, axis=2)
