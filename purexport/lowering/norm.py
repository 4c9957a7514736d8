"""Normalizations: native operators where the opset has them, otherwise their arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.common import dims_of, reshape
from purexport.lowering.emitter import Emitter
from purexport.lowering.registry import lower


def _filled(op: Emitter, number: float, size: int, like: Value) -> Value:
    return op.const(torch.full((size,), number, dtype=dtypes.torch_dtype(like.dtype or dtypes.FLOAT)))


@lower("aten::batch_norm")
def batch_norm(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Value:
    if training or running_mean is None or running_var is None:
        raise UnsupportedForm("with batch statistics (training mode) has no rule yet; export the model in eval mode")
    channels = op.dim(input, 1)
    if not isinstance(channels, int):
        raise UnsupportedForm("with a dynamic number of channels has no rule yet")
    scale = weight if weight is not None else _filled(op, 1, channels, input)
    shift = bias if bias is not None else _filled(op, 0, channels, input)
    return op.BatchNormalization(input, scale, shift, running_mean, running_var, epsilon=eps)


@lower("aten::layer_norm")
def layer_norm(
    op: Emitter,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    count = len(normalized_shape)
    if op.has("LayerNormalization"):
        scale = weight
        if scale is None:
            dtype = dtypes.torch_dtype(input.dtype or dtypes.FLOAT)
            scale = op.const(torch.ones(tuple(normalized_shape), dtype=dtype))
        return op.LayerNormalization(input, scale, bias, axis=-count, epsilon=eps)
    axes = list(range(input.rank - count, input.rank))
    result = _standardized(op, input, axes, eps)
    result = result if weight is None else op.Mul(result, weight)
    return result if bias is None else op.Add(result, bias)


def _standardized(op: Emitter, value: Value, axes: Sequence[int], eps: float) -> Value:
    """(x - mean) / sqrt(var + eps) over ``axes``, biased variance."""
    centered = op.Sub(value, op.ReduceMean(value, axes=list(axes), keepdims=1))
    variance = op.ReduceMean(op.Mul(centered, centered), axes=list(axes), keepdims=1)
    return op.Div(centered, op.Sqrt(op.Add(variance, op.like(eps, value))))


@lower("aten::group_norm")
def group_norm(
    op: Emitter,
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    # a group is an instance of its own: normalize [N, G, rest], then scale by channel
    batch, channels, *rest = dims_of(op, input)
    ones, zeros = _filled(op, 1, num_groups, input), _filled(op, 0, num_groups, input)
    groups = op.Reshape(input, [0, num_groups, -1])
    result = op.InstanceNormalization(groups, ones, zeros, epsilon=eps)
    result = reshape(op, result, [batch, channels, *rest])
    result = result if weight is None else op.Mul(result, _by_channel(op, weight, len(rest)))
    return result if bias is None else op.Add(result, _by_channel(op, bias, len(rest)))


@lower("aten::instance_norm")
def instance_norm(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Value:
    if not use_input_stats:
        return batch_norm(op, input, weight, bias, running_mean, running_var, False, momentum, eps)
    channels = op.dim(input, 1)
    if not isinstance(channels, int):
        raise UnsupportedForm("with a dynamic number of channels has no rule yet")
    scale = weight if weight is not None else _filled(op, 1, channels, input)
    shift = bias if bias is not None else _filled(op, 0, channels, input)
    return op.InstanceNormalization(input, scale, shift, epsilon=eps)


def _by_channel(op: Emitter, value: Value, spatial: int) -> Any:
    return op.Unsqueeze(value, list(range(1, spatial + 1))) if spatial else value
