"""Random numbers where ONNX Runtime draws none: from opset 22 on it has no kernel of the random operators.

It has one of Dropout, which in training mode leaves each element out with a given chance and says which ones.  63 such
draws are the digits of a key, and element i is number i of the generator SplitMix64 (Steele, Lea and Flood, 2014) with
this key.  The draws themselves would not do: one run of Dropout seeds a linear congruential generator with the number
of the run, so two runs are alike at each place.  A Loop makes the draws, because a Dropout of constants outside of it
may be folded into one for all runs.  Other distributions follow from uniform ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.loops import repeat
from proto_schema.legalization.sizes import times
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.running import form
from purexport.lowering.support.common import dims_of, reshape
from purexport.lowering.tensor.create import iota

_DRAWS = 64
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of SplitMix64
_DIGITS = 24  # of a float32, as fine as the numbers that torch draws


def _uniform(op: Emitter, sizes: Sequence[Any]) -> Value:
    """float32 numbers in [0, 1)."""
    places = op.cast(iota(op, functools.reduce(lambda one, other: times(op, one, other), sizes, 1)), dtypes.UINT64)
    mixed = op.Mul(op.Add(places, _key(op)), _number(op, _STEP))
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        mixed = op.Mul(op.BitwiseXor(mixed, _shifted(op, mixed, shift)), _number(op, factor))
    mixed = op.BitwiseXor(mixed, _shifted(op, mixed, 31))
    drawn = op.Mul(op.cast(_shifted(op, mixed, 64 - _DIGITS), dtypes.FLOAT), op.const(2.0**-_DIGITS, dtypes.FLOAT))
    return reshape(op, drawn, sizes)


def _key(op: Emitter) -> Value:
    """63 random digits as one number, uint64 [1]."""

    def drawn(op: Emitter, at: Value, before: Value) -> list[Value]:
        zeros = op.cast(before, dtypes.FLOAT)
        return [op.multi("Dropout", zeros, op.const(0.5, dtypes.FLOAT), op.const(True, dtypes.BOOL), outputs=2)[1]]

    (kept,) = repeat(op, 1, drawn, op.const(torch.zeros(_DRAWS, dtype=torch.bool)), written_out=0)
    # the first draw is nearly the same for all small seeds
    powers = op.const([0, *(2**place for place in range(_DRAWS - 1))])
    return op.cast(op.ReduceSum(op.Where(kept, powers, op.const(0)), axes=[0], keepdims=1), dtypes.UINT64)


def _number(op: Emitter, number: int) -> Value:
    return op.const(torch.tensor(number, dtype=torch.uint64))


def _shifted(op: Emitter, value: Value, digits: int) -> Value:
    return op.BitShift(value, _number(op, digits), direction="RIGHT")


@form("RandomUniform")
def random_uniform(
    op: Emitter, *, shape: Sequence[Any], dtype: int = dtypes.FLOAT, low: float = 0.0, high: float = 1.0
) -> Value:
    """low + (high - low) * u"""
    drawn = _uniform(op, shape)
    if (low, high) != (0.0, 1.0):
        drawn = op.Add(op.Mul(drawn, op.const(high - low, dtypes.FLOAT)), op.const(low, dtypes.FLOAT))
    return op.cast(drawn, dtype)


@form("RandomUniformLike")
def random_uniform_like(
    op: Emitter, input: Value, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0
) -> Value:
    """In the shape of `input`."""
    return random_uniform(op, shape=dims_of(op, input), dtype=dtype or input.dtype or dtypes.FLOAT, low=low, high=high)


@form("RandomNormal")
def random_normal(
    op: Emitter, *, shape: Sequence[Any], dtype: int = dtypes.FLOAT, mean: float = 0.0, scale: float = 1.0
) -> Value:
    """sqrt(-2 log(1 - u)) cos(2 pi v), by Box and Muller (1958)."""
    radius = op.Sqrt(
        op.Mul(op.Log(op.Sub(op.const(1.0, dtypes.FLOAT), _uniform(op, shape))), op.const(-2.0, dtypes.FLOAT))
    )
    drawn = op.Mul(radius, op.Cos(op.Mul(_uniform(op, shape), op.const(2 * math.pi, dtypes.FLOAT))))
    if (mean, scale) != (0.0, 1.0):
        drawn = op.Add(op.Mul(drawn, op.const(scale, dtypes.FLOAT)), op.const(mean, dtypes.FLOAT))
    return op.cast(drawn, dtype)


@form("RandomNormalLike")
def random_normal_like(
    op: Emitter, input: Value, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0
) -> Value:
    """In the shape of `input`."""
    return random_normal(
        op, shape=dims_of(op, input), dtype=dtype or input.dtype or dtypes.FLOAT, mean=mean, scale=scale
    )


@form("Multinomial")
def multinomial(op: Emitter, input: Value, *, dtype: int = dtypes.INT32, sample_size: int = 1) -> Value:
    """The number of classes whose cumulated probability is not above a uniform number.

    In doubles, in which the product of the last one and of a number below 1 is below it.
    """
    chances = op.cast(op.Softmax(op.cast(input, dtypes.FLOAT), axis=1), dtypes.DOUBLE)
    cumulated = op.CumSum(chances, op.const(1))
    total = op.ReduceSum(chances, axes=[1], keepdims=1)
    drawn = op.Mul(op.cast(_uniform(op, [op.dim(input, 0), sample_size]), dtypes.DOUBLE), total)
    passed = op.Not(op.Greater(op.Unsqueeze(cumulated, [1]), op.Unsqueeze(drawn, [2])))
    return op.ReduceSum(op.cast(passed, dtype), axes=[2], keepdims=0)
