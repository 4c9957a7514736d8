"""Normalizations: native operators where the opset has them, otherwise their arithmetic.

The arithmetic on half-precision tensors is done in float32, as in torch: an eps of 1e-8 is zero in float16. ONNX
computes the statistics in float32 (`stash_type`), so float64 tensors take the arithmetic too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.nn.normalization import by_channel, deviation, in_groups, scaled, statistics
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_training
from purexport.lowering.support.common import axis_of, dims_of, reshape


def _filled(op: Emitter, number: float, size: int, like: Value) -> Value:
    return op.const(torch.full((size,), number, dtype=dtypes.torch_dtype(like.dtype or dtypes.FLOAT)))


def _wide(op: Emitter, value: Value) -> Value:
    """`value` in the dtype in which torch computes on it."""
    return op.cast(value, dtypes.FLOAT) if value.dtype in (dtypes.FLOAT16, dtypes.BFLOAT16) else value


def _standardized(op: Emitter, value: Value, axes: Sequence[int], eps: float) -> Value:
    """(x - mean) / sqrt(var + eps) over `axes`, in the dtype that `_wide` gives."""
    _, centered, variance = statistics(op, _wide(op, value), axes)
    return op.Div(centered, deviation(op, variance, eps))


def _scaled(op: Emitter, value: Value, weight: Value | None, bias: Value | None, like: Value, rank: int = 0) -> Value:
    """value * weight + bias in the dtype of `like`; where a rank is given, weight and bias are vectors of channels."""
    found: Value = scaled(op, value, by_channel(op, weight, rank), by_channel(op, bias, rank), like.dtype)
    return found


def _stash(value: Value) -> int | None:
    """The dtype of statistics, where it is another than float32."""
    return dtypes.DOUBLE if value.dtype == dtypes.DOUBLE else None


# Batch statistics ---------------------------------------------------------------------------------------------------


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
    """aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,
    bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor

    In evaluation with the running statistics, in training with those of the batch.
    """
    if not training and running_mean is not None and running_var is not None:
        return _with_given_statistics(op, input, weight, bias, running_mean, running_var, eps)
    result = _standardized(op, input, _all_but_channels(input), eps)
    return _scaled(op, result, weight, bias, input, input.rank)


def _all_but_channels(value: Value) -> list[int]:
    return [0, *range(2, value.rank)]


def _with_given_statistics(
    op: Emitter, value: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, eps: float
) -> Value:
    channels = op.dim(value, 1)
    computed = op.cast(value, mean.dtype)  # under autocast the statistics have a wider dtype than the input
    if not isinstance(channels, int) or computed.dtype == dtypes.DOUBLE:  # the attribute epsilon is a float32
        centered = op.Sub(computed, by_channel(op, mean, value.rank))
        result = op.Div(centered, deviation(op, by_channel(op, var, value.rank), eps))
        return _scaled(op, result, weight, bias, value, value.rank)
    scale = _filled(op, 1, channels, mean) if weight is None else op.cast(weight, mean.dtype)
    shift = _filled(op, 0, channels, mean) if bias is None else op.cast(bias, mean.dtype)
    return op.cast(op.BatchNormalization(computed, scale, shift, mean, var, epsilon=eps), value.dtype)


@lower_training("aten::batch_norm")
def batch_norm_operator(
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
    """aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,
    bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor

    The operator in training mode. ONNX blends the biased variance into the running statistics, torch the unbiased one,
    so nothing reads its outputs for these.
    """
    channels = op.dim(input, 1)
    # a runtime may write over what the operator reads, and an input of the model is read again for its new value
    is_read = any(value in op.builder.inputs for value in (running_mean, running_var))
    is_double = input.dtype == dtypes.DOUBLE  # whose eps is a float32
    known = isinstance(momentum, (int, float)) and not is_read and not is_double
    if not training or not known or not isinstance(channels, int):
        return batch_norm(op, input, weight, bias, running_mean, running_var, training, momentum, eps)
    like = running_mean if running_mean is not None else weight if weight is not None else input
    scale = _filled(op, 1, channels, like) if weight is None else op.cast(weight, like.dtype)
    shift = _filled(op, 0, channels, like) if bias is None else op.cast(bias, like.dtype)
    computed = op.cast(input, like.dtype)
    mean, var = running_mean, running_var
    if mean is None or var is None:  # no constants, because ONNX Runtime writes the new ones over them
        axes = _all_but_channels(input)
        observed, _, variance = statistics(op, computed, axes)
        mean, var = op.Squeeze(observed, axes), op.Squeeze(variance, axes)
    options: dict[str, Any] = {"epsilon": eps, "momentum": 1 - momentum, "training_mode": 1}
    found = op.multi("BatchNormalization", computed, scale, shift, mean, var, outputs=3, **options)
    return op.cast(found[0], input.dtype)


@lower("aten::_native_batch_norm_legit_no_training")
def native_batch_norm_no_training(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean,
    Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)

    The saved statistics are for gradients, and empty; torch says of some programs that they have the input's dtype.
    """
    types = [running_mean.dtype if item is None else dtypes.onnx_code(item.dtype) for item in op.results[1:3]]
    one, other = (op.const(torch.empty(0, dtype=dtypes.torch_dtype(dtype or dtypes.FLOAT))) for dtype in types)
    return _with_given_statistics(op, input, weight, bias, running_mean, running_var, eps), one, other


@lower("aten::_native_batch_norm_legit.no_stats")
def native_batch_norm_no_stats(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training,
    float momentum, float eps) -> (Tensor, Tensor, Tensor)
    """
    axes = _all_but_channels(input)
    mean, _, variance = statistics(op, _wide(op, input), axes)
    saved = op.Squeeze(mean, axes), op.Reciprocal(op.Squeeze(deviation(op, variance, eps), axes))
    # torch keeps the statistics in the dtype of the weights
    kept = [op.cast(item, weight.dtype if weight is not None else input.dtype) for item in saved]
    return batch_norm(op, input, weight, bias, None, None, True, momentum, eps), *kept


@lower("aten::_native_batch_norm_legit_functional")
def native_batch_norm_functional(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """aten::_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean,
    Tensor running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor,
    Tensor running_mean_out, Tensor running_var_out)

    The running variance is updated with the unbiased variance, the output is normalized with the biased one.
    """
    if not training:
        found = native_batch_norm_no_training(op, input, weight, bias, running_mean, running_var, momentum, eps)
        return *found, running_mean, running_var
    axes = _all_but_channels(input)
    mean, _, variance = statistics(op, _wide(op, input), axes)
    count = op.Div(op.Size(input), op.Size(running_mean))
    counted = op.cast(count, variance.dtype)
    unbiased = op.Div(op.Mul(variance, counted), op.Sub(counted, op.like(1, counted)))
    running = [
        op.Add(op.Mul(old, op.like(1 - momentum, old)), op.Mul(op.cast(op.Squeeze(new, axes), old.dtype), step))
        for old, new in ((running_mean, mean), (running_var, unbiased))
        for step in [op.like(momentum, old)]
    ]
    return *native_batch_norm_no_stats(op, input, weight, bias, True, momentum, eps), *running


@lower("aten::_batch_norm_with_update_functional")
def batch_norm_with_update(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """aten::_batch_norm_with_update_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean,
    Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor running_mean_out,
    Tensor running_var_out)

    Like `_native_batch_norm_legit_functional` in training. The reserved tensor for a backward pass is empty.
    """
    found = native_batch_norm_functional(op, input, weight, bias, running_mean, running_var, True, momentum, eps)
    return *found[:3], op.const([], dtypes.UINT8), *found[3:]


@lower("aten::native_batch_norm")
def native_batch_norm(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,
    bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)
    """
    if training or running_mean is None or running_var is None:
        return native_batch_norm_no_stats(op, input, weight, bias, True, momentum, eps)
    return native_batch_norm_no_training(op, input, weight, bias, running_mean, running_var, momentum, eps)


# Statistics of each sample ------------------------------------------------------------------------------------------


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
    """aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,
    bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor
    """
    if not use_input_stats:
        return batch_norm(op, input, weight, bias, running_mean, running_var, False, momentum, eps)
    channels = op.dim(input, 1)
    if not _is_stashable(input) or not isinstance(channels, int):
        result = _standardized(op, input, range(2, input.rank), eps)
        return _scaled(op, result, weight, bias, input, input.rank)
    scale = _filled(op, 1, channels, input) if weight is None else op.cast(weight, input.dtype)
    shift = _filled(op, 0, channels, input) if bias is None else op.cast(bias, input.dtype)
    return op.InstanceNormalization(input, scale, shift, epsilon=eps)


def _is_stashable(value: Value) -> bool:
    """True when statistics in float32 lose nothing, and eps keeps its value."""
    return value.dtype == dtypes.FLOAT


@lower("aten::layer_norm")
def layer_norm(
    op: Emitter,
    input: Value,
    normalized_shape: Sequence[Any],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None,
    float eps=1.0000000000000001e-05, bool cudnn_enable=True) -> Tensor

    ONNX LayerNormalization.
    """
    count, sizes = len(normalized_shape), op.ints(normalized_shape)
    if weight is not None or isinstance(sizes, list):
        dtype = input.dtype if weight is None else weight.dtype
        scale = weight
        if scale is None:
            scale = op.const(torch.ones(tuple(normalized_shape), dtype=dtypes.torch_dtype(dtype or dtypes.FLOAT)))
        shift = None if bias is None else op.cast(bias, dtype)
        value = op.cast(input, dtype)
        result = op.LayerNormalization(value, scale, shift, axis=-count, epsilon=eps, stash_type=_stash(value))
        return op.cast(result, input.dtype)
    return _scaled(op, _standardized(op, input, _last(input, count), eps), weight, bias, input)


def _last(value: Value, count: int) -> list[int]:
    return list(range(value.rank - count, value.rank))


@lower("aten::native_layer_norm")
def native_layer_norm(
    op: Emitter, input: Value, normalized_shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, ...]:
    """aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)
    -> (Tensor, Tensor, Tensor)
    """
    mean, _, variance = statistics(op, _wide(op, input), _last(input, len(normalized_shape)))
    saved = [op.cast(item, op.result_dtype) for item in (mean, op.Reciprocal(deviation(op, variance, eps)))]
    return layer_norm(op, input, normalized_shape, weight, bias, eps), *saved


@lower("aten::rms_norm")
def rms_norm(
    op: Emitter, input: Value, normalized_shape: Sequence[Any], weight: Value | None = None, eps: float | None = None
) -> Value:
    """aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor

    Without `eps` torch takes the machine epsilon of the input's dtype.
    """
    axes = _last(input, len(normalized_shape))
    small = torch.finfo(dtypes.torch_dtype(input.dtype or dtypes.FLOAT)).eps if eps is None else eps
    if weight is not None and input.dtype == weight.dtype != dtypes.DOUBLE:
        return op.RMSNormalization(input, weight, axis=-len(axes), epsilon=small)
    value = _wide(op, input)
    power = op.ReduceMean(op.Mul(value, value), axes=axes, keepdims=1)
    return _scaled(op, op.Div(value, deviation(op, power, small)), weight, None, input)


@lower("aten::group_norm")
def group_norm(
    op: Emitter,
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None,
    float eps=1.0000000000000001e-05, bool cudnn_enabled=True) -> Tensor

    ONNX GroupNormalization scales by channel.
    """
    channels = op.dim(input, 1)
    if isinstance(channels, int) and input.rank > 2:
        scale = _filled(op, 1, channels, input) if weight is None else op.cast(weight, input.dtype)
        shift = _filled(op, 0, channels, input) if bias is None else op.cast(bias, input.dtype)
        stash = _stash(input)
        return op.GroupNormalization(input, scale, shift, num_groups=num_groups, epsilon=eps, stash_type=stash)
    result = reshape(op, in_groups(op, _wide(op, input), num_groups, eps), dims_of(op, input))
    return _scaled(op, result, weight, bias, input, input.rank)


@lower("aten::native_group_norm")
def native_group_norm(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    N: Any,  # noqa: N803  the names are ATen's
    C: Any,  # noqa: N803
    HxW: Any,  # noqa: N803
    group: int,
    eps: float,
) -> tuple[Value, ...]:
    """aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group,
    float eps) -> (Tensor, Tensor, Tensor)
    """
    groups = op.Reshape(_wide(op, input), [0, group, -1])
    mean, _, variance = statistics(op, groups, [2])
    saved = [op.Squeeze(item, [2]) for item in (mean, op.Reciprocal(deviation(op, variance, eps)))]
    return group_norm(op, input, group, weight, bias, eps), *(op.cast(item, input.dtype) for item in saved)


# Weights ------------------------------------------------------------------------------------------------------------


@lower("aten::norm_except_dim")
def norm_except_dim(op: Emitter, v: Value, pow: int = 2, dim: int = 0) -> Value:
    """aten::norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor

    The norm of each slice along `dim`; the other axes keep size 1. -1 stands for one norm over all axes.
    """
    if not _axes_but(v, dim):
        return op.Abs(v)
    if pow not in (1, 2):
        exponent = op.like(pow, v)
        power = op.ReduceSum(op.Pow(op.Abs(v), exponent), axes=_axes_but(v, dim), keepdims=int(dim != -1))
        return op.Pow(power, op.Reciprocal(exponent))
    return op.emit(f"ReduceL{pow}", v, axes=_axes_but(v, dim), keepdims=int(dim != -1))


def _axes_but(value: Value, dim: int) -> list[int]:
    kept = dim if dim == -1 else axis_of(dim, value.rank)
    return [axis for axis in range(value.rank) if axis != kept]


@lower("aten::_weight_norm")
def weight_norm(op: Emitter, v: Value, g: Value, dim: int = 0) -> Value:
    """aten::_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor"""
    if dim in (0, v.rank - 1) and v.dtype in (dtypes.FLOAT, dtypes.DOUBLE):
        return weight_norm_interface(op, v, g, dim)[0]
    return op.Mul(v, op.Div(g, norm_except_dim(op, v, 2, dim)))


@lower("aten::_weight_norm_interface")
def weight_norm_interface(op: Emitter, v: Value, g: Value, dim: int = 0) -> tuple[Value, Value]:
    """aten::_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)

    torch's kernel reads as many numbers from the memory of `g` as `v` has slices, whatever the shape of `g` is. So
    another shape is refused.
    """
    if v.shape is None or g.shape != tuple(size if axis == dim else 1 for axis, size in enumerate(v.shape)):
        raise UnsupportedForm(
            "with scales in another shape than the norms has no rule; reshape the scales",
            code="form-without-rule",
        )
    norm = norm_except_dim(op, v, 2, dim)
    return op.Mul(v, op.Div(g, norm)), norm
