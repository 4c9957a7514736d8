"""Forms of operators that order elements."""

from __future__ import annotations

from typing import Any

from proto_schema.legalization.operators import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    UINT32,
    UINT64,
    Operators,
    RefusedError,
    Value,
    dtype_of,
    is_float,
    rank_of,
)
from proto_schema.legalization.sizes import numbers_below
from proto_schema.legalization.table import older

_HALF = 2**32


@older("TopK", before=11)
def top_k_of_integers(
    op: Operators, X: Value, K: Value, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, Value] | None:
    """Integers in floats that hold them, int64 by halves; the smallest floats are the largest of the negatives."""
    dtype = dtype_of(X)
    if dtype == UINT64:
        raise RefusedError("older versions order floats only, which do not hold all uint64 numbers")
    if dtype == INT64:
        return _best_of_halves(op, X, K, axis % rank_of(X), largest)
    if not is_float(dtype):
        wide = op.cast(X, DOUBLE if dtype in (INT32, UINT32) else FLOAT)
        found, at = op.multi("TopK", wide, K, outputs=2, axis=axis, largest=largest)
        return op.cast(found, dtype), at
    if largest:
        return None
    found, at = op.multi("TopK", op.Neg(X), K, outputs=2, axis=axis)
    return op.Neg(found), at


def _best_of_halves(op: Operators, x: Value, number: Value, axis: int, largest: int) -> tuple[Value, Value]:
    """int64 by their lower and then by their upper half, each of which a double holds."""
    lower = op.Mod(x, _HALF)
    upper = op.Div(op.Sub(x, lower), _HALF)
    every = op.ints([op.dim(x, axis)])
    first = op.multi("TopK", op.cast(lower, DOUBLE), every, outputs=2, axis=axis, largest=largest)[1]
    ordered = op.cast(op.GatherElements(upper, first, axis=axis), DOUBLE)
    second = op.multi("TopK", ordered, number, outputs=2, axis=axis, largest=largest)[1]
    at = op.GatherElements(first, second, axis=axis)
    return op.GatherElements(x, at, axis=axis), at


@older("TopK", before=10)
def computed_count(
    op: Operators, X: Value, K: Value, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, Value]:
    """A computed number of elements: the first of all in their order. Of equals the lower position comes first."""
    axis %= rank_of(X)
    size = op.dim(X, axis)
    if isinstance(size, int):
        found, at = op.multi("TopK", X, op.ints([size]), outputs=2, axis=axis)
    else:
        at = _order_by_pairs(op, X, axis, size)
        found = op.GatherElements(X, at, axis=axis)
    return op.Slice(found, [0], K, [axis]), op.Slice(at, [0], K, [axis])


def _order_by_pairs(op: Operators, x: Value, axis: int, size: Any) -> Value:
    """The positions of the elements by falling number: each one's rank is how many go before it."""
    behind = rank_of(x) - axis - 1
    one, other = op.Unsqueeze(x, [axis + 1]), op.Unsqueeze(x, [axis])
    numbers = numbers_below(op, size)
    earlier = op.Less(op.Unsqueeze(numbers, [0]), op.Unsqueeze(numbers, [1]))
    earlier = op.Reshape(earlier, op.ints([size, size, *[1] * behind]))
    before = op.Or(op.Greater(other, one), op.And(op.Equal(other, one), earlier))
    ranks = op.ReduceSum(op.cast(before, INT64), [axis + 1], keepdims=0)
    own = op.Expand(op.Reshape(numbers, [-1, *[1] * behind]), op.shape(x))
    return op.ScatterElements(own, ranks, own, axis=axis)


@older("Unique", before=11)
def unique(op: Operators, X: Value, axis: int | None = None, sorted: int = 1, outputs: int = 4) -> tuple[Value, ...]:
    """The slices along an axis: each pair is compared at its first difference.

    Not for NaN, of which none equals another: a slice that holds one is never the same as another.
    """
    if axis is None or not sorted:
        raise RefusedError("older operators find unique slices along an axis, in their order")
    rank = rank_of(X)
    axis %= rank
    size = op.dim(X, axis)
    order = [axis, *[other for other in range(rank) if other != axis]]
    rows = op.Reshape(X if axis == 0 else op.Transpose(X, perm=order), op.ints([size, -1]))
    one, other = op.Unsqueeze(rows, [1]), op.Unsqueeze(rows, [0])  # [i, 1, d] and [1, j, d]
    differs = op.cast(op.Not(op.Equal(one, other)), INT32)
    first = op.ArgMax(differs, axis=2, keepdims=1)
    is_less = op.GatherElements(op.cast(op.Less(other, one), INT64), first, axis=2)
    is_same = op.Not(op.cast(op.ReduceMax(differs, [2], keepdims=0), BOOL))  # [i, j]
    numbers = numbers_below(op, size)
    earlier = op.Less(op.Unsqueeze(numbers, [0]), op.Unsqueeze(numbers, [1]))
    repeated = op.cast(op.And(is_same, earlier), INT32)
    # a row is the first of its kind where none before it is the same
    is_first = op.Not(op.cast(op.ReduceMax(repeated, [1], keepdims=0), BOOL))
    goes_before = op.Squeeze(is_less, [2])
    # the place of each row's kind: how many kinds are less
    inverse = op.ReduceSum(op.Mul(goes_before, op.cast(is_first, INT64)), [1], keepdims=0)
    firsts = op.Compress(numbers, is_first, axis=0)
    indices = op.ScatterElements(firsts, op.Gather(inverse, firsts, axis=0), firsts, axis=0)
    found = (op.Gather(X, indices, axis=axis), indices, inverse)
    if outputs <= len(found):
        return found
    return *found, op.Gather(op.ReduceSum(op.cast(is_same, INT64), [1], keepdims=0), indices, axis=0)
