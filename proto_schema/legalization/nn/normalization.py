"""Forms of normalizations and of Dropout: mean and variance written out, and what training draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from proto_schema.legalization.operators import BOOL, DOUBLE, FLOAT, Operators, Value, dtype_of, rank_of
from proto_schema.legalization.sizes import full, like_shape
from proto_schema.legalization.table import older


def statistics(op: Operators, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Mean, x - mean, and biased variance over the axes, which stay with size 1."""
    mean = op.ReduceMean(x, list(axes), keepdims=1)
    away = op.Sub(x, mean)
    return mean, away, op.ReduceMean(op.Mul(away, away), list(axes), keepdims=1)


def deviation(op: Operators, variance: Value, epsilon: float) -> Value:
    """sqrt(variance + epsilon)"""
    return op.Sqrt(op.Add(variance, op.like(epsilon, variance)))


def scaled(op: Operators, x: Value, scale: Value | None, bias: Value | None, dtype: Any) -> Value:
    """x * scale + bias in the data type of x, as `dtype`.

    Factors that are all 1 and terms that are all 0 go, unless they are weights, which have names.
    """
    if scale is not None and not _is_all(scale, 1):
        x = op.Mul(x, op.cast(scale, x.dtype))
    if bias is not None and not _is_all(bias, 0):
        x = op.Add(x, op.cast(bias, x.dtype))
    return op.cast(x, dtype)


def _is_all(value: Value, number: float) -> bool:
    array = None if value.name else value.array()
    return array is not None and bool((array == number).all())


def by_channel(op: Operators, value: Value | None, rank: int) -> Value | None:
    """A vector of channels, if there is one, in a shape that broadcasts against [N, C, ...] of that rank."""
    return value if value is None or rank < 3 else op.Unsqueeze(value, list(range(1, rank - 1)))


@older("LayerNormalization", before=17, of_dtypes=[DOUBLE])  # whose epsilon is a float32
def layer_normalization(
    op: Operators,
    X: Value,
    Scale: Value,
    B: Value | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = FLOAT,
    outputs: int = 1,
) -> tuple[Value, ...]:
    """(x - mean) / sqrt(variance + epsilon) over the last axes, computed in the stash type; then scale and bias."""
    axes = list(range(axis % rank_of(X), rank_of(X)))
    mean, away, variance = statistics(op, op.cast(X, stash_type), axes)
    spread = deviation(op, variance, epsilon)
    found = scaled(op, op.Div(away, spread), Scale, B, dtype_of(X))
    return (found, mean, op.Reciprocal(spread)) if outputs > 2 else (found, mean)


@older("GroupNormalization", before=21, of_dtypes=[DOUBLE])
def group_normalization(
    op: Operators,
    X: Value,
    scale: Value,
    bias: Value,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = FLOAT,
) -> Value:
    """Each group by itself, as an instance; then scale and bias of each channel."""
    found = op.Reshape(in_groups(op, op.cast(X, stash_type), num_groups, epsilon), like_shape(op, X))
    rank = rank_of(X)
    return scaled(op, found, by_channel(op, scale, rank), by_channel(op, bias, rank), dtype_of(X))


def in_groups(op: Operators, x: Value, groups: int, epsilon: float) -> Value:
    """[N, groups, elements]: (x - mean) / sqrt(variance + epsilon) of each group."""
    parts = op.Reshape(x, [0, groups, -1])
    if dtype_of(x) == FLOAT:
        one, zero = (op.const(np.full(groups, number), FLOAT) for number in (1, 0))
        return op.InstanceNormalization(parts, one, zero, epsilon=epsilon)
    _, away, variance = statistics(op, parts, [2])
    return op.Div(away, deviation(op, variance, epsilon))


@older("RMSNormalization", before=23)
def rms_normalization(
    op: Operators, X: Value, scale: Value, axis: int = -1, epsilon: float = 1e-5, stash_type: int = FLOAT
) -> Value:
    """x / sqrt(mean of squares + epsilon) over the last axes, computed in the stash type; then scale."""
    axes = list(range(axis % rank_of(X), rank_of(X)))
    given, wide = dtype_of(X), op.cast(X, stash_type)
    root = op.Sqrt(op.Add(op.ReduceMean(op.Mul(wide, wide), axes, keepdims=1), epsilon))
    return op.Mul(op.cast(op.Div(wide, root), given), op.cast(scale, given))


@older("BatchNormalization", before=14)
def batch_normalization_in_training(
    op: Operators,
    X: Value,
    scale: Value,
    B: Value,
    input_mean: Value,
    input_var: Value,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    outputs: int = 1,
) -> tuple[Value, ...] | None:
    """In training: mean and variance of the batch, and what they leave of the running ones."""
    if not training_mode:
        return None
    own, kind, rank = dtype_of(X), dtype_of(input_mean), rank_of(X)
    # half precision has too few bits for the sums
    wide = op.cast(X, own if own == DOUBLE else FLOAT)
    mean, away, variance = statistics(op, wide, [axis for axis in range(rank) if axis != 1])
    normal = op.Div(away, deviation(op, variance, epsilon))
    found = [scaled(op, normal, by_channel(op, scale, rank), by_channel(op, B, rank), own)]
    for before, now in ((input_mean, mean), (input_var, variance)) if outputs > 1 else ():
        flat = op.cast(op.Reshape(now, [-1]), kind)
        found.append(op.Add(op.Mul(before, op.like(momentum, before)), op.Mul(flat, op.like(1 - momentum, flat))))
    return tuple(found)


@older("Dropout", before=12)
def dropout_in_training(
    op: Operators,
    data: Value,
    ratio: Value | None = None,
    training_mode: Value | None = None,
    seed: int | None = None,
    outputs: int = 1,
) -> tuple[Value, ...]:
    """In training some elements are 0, and the others are scaled, so that the mean stays."""
    known = False if training_mode is None else training_mode.number()
    part = 0.5 if ratio is None else ratio.number()
    if known is not None and (not known or part == 0):
        if outputs == 1:
            return (data,)
        # where nothing is dropped, older versions do not say what the mask is, and kernels differ
        return data, full(op, [op.dim(data, axis) for axis in range(rank_of(data))], op.const(np.array(True), BOOL))
    # a float without bits for the ratio would round the share
    share = op.const(np.array(0.5), FLOAT) if ratio is None else op.cast(ratio, FLOAT)
    named = {} if seed is None else {"seed": float(seed)}
    mask = op.Not(op.Less(op.RandomUniformLike(data, dtype=FLOAT, **named), share))
    left = op.like(1 - part, data) if part is not None else op.cast(op.Sub(op.like(1.0, share), share), data.dtype)
    if known is None:
        mask = op.Or(mask, op.Not(training_mode))
        left = op.Where(training_mode, left, op.like(1.0, left))
    return op.Where(mask, op.Div(data, left), op.like(0, data)), mask
