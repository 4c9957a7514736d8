"""Rows of normalization.

float16 and bfloat16 are computed in float32, as the specification asks of LayerNormalization and RMSNormalization by
`stash_type`, and as runtimes do it elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.nn.numbers import narrowed, wide
from proto_schema.compute.rows import row

_DOUBLE = 11


def _channels(values: Array, rank: int) -> Array:
    """One number a channel, so that it broadcasts along axis 1 of that rank."""
    return wide(values).reshape(-1, *(1,) * (rank - 2)) if rank > 1 else wide(values)


@row("BatchNormalization")
def batch_normalization(
    call: Call, data: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> Array | tuple[Array, ...]:
    """(X - mean) / sqrt(variance + epsilon) * scale + bias, by channel.

    In training the mean and the variance are those of the batch, and the running ones move towards them: as outputs 1
    and 2, since opset 14 by the population's variance. Before opset 7 that is the mode unless `is_test`, before 14
    wherever the node names these outputs. `spatial = 0` (before opset 9) normalizes each element of an image by itself.
    """
    data, epsilon, momentum = wide(data), call.attribute("epsilon", 1e-5), call.attribute("momentum", 0.9)
    per_element = call.version < 9 and call.attribute("spatial", 1) == 0
    if call.version >= 14:
        training = bool(call.attribute("training_mode", 0))
    elif call.version < 7:
        training = not call.attribute("is_test", 0) and call.wants(1)
    else:
        training = call.wants(1)
    if not training:
        return _normalized(data, scale, bias, mean, variance, epsilon, per_element)
    axes = (0,) if per_element else (0, *range(2, data.ndim))
    found, spread = data.mean(axis=axes), data.var(axis=axes)
    kind = data.dtype.type
    rest = kind(1) - kind(momentum)
    running = found * rest + wide(mean) * kind(momentum)
    running_variance = spread * rest + wide(variance) * kind(momentum)
    result = _normalized(data, scale, bias, found, spread, epsilon, per_element)
    if call.version >= 14:
        return result, running, running_variance
    return result, running, running_variance, found, spread


def _normalized(
    data: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float, per_element: bool
) -> Array:
    if per_element:
        form = [wide(item).reshape(data.shape[1:]) for item in (scale, bias, mean, variance)]
    else:
        form = [_channels(item, data.ndim) for item in (scale, bias, mean, variance)]
    factor = form[0] / np.sqrt(form[3] + form[3].dtype.type(epsilon))
    factor, shift = factor.astype(data.dtype), form[1] - form[2] * factor
    result: Array = data * factor
    result += shift.astype(data.dtype)
    return result


def _standard(values: Array, axes: Sequence[int] | int, epsilon: float) -> tuple[Array, Array, Array]:
    """Mean, 1 / sqrt(variance + epsilon), and the values less the first times the second."""
    axes = tuple(axes) if isinstance(axes, Sequence) else axes
    mean = values.mean(axis=axes, keepdims=True)
    centred = values - mean
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    inverse = np.reciprocal(np.sqrt(variance + values.dtype.type(epsilon)))
    centred *= inverse
    return mean, inverse, centred


@row("InstanceNormalization")
def instance_normalization(call: Call, data: Array, scale: Array, bias: Array) -> Array:
    """Each channel of each image by its own mean and variance."""
    data = wide(data)
    result = _standard(data, range(2, data.ndim), call.attribute("epsilon", 1e-5))[2]
    return np.asarray(result * _channels(scale, data.ndim) + _channels(bias, data.ndim))


@row("GroupNormalization")
def group_normalization(call: Call, data: Array, scale: Array, bias: Array) -> Array:
    """Each group of channels of each image by its own mean and variance.

    Scale and bias have one number a group in opset 18, and one a channel since 21.
    """
    groups, channels = call.attribute("num_groups"), data.shape[1]
    if groups < 1 or channels % groups:
        call.fail(f"{channels} channels cannot be split into {groups} groups")
    values = _stashed(call, data)
    parts = values.reshape(data.shape[0], groups, -1)
    values = _standard(parts, -1, call.attribute("epsilon", 1e-5))[2]
    if call.version < 21:
        result = values * wide(scale).reshape(groups, 1) + wide(bias).reshape(groups, 1)
        return np.asarray(result.reshape(data.shape))
    values = values.reshape(data.shape)
    return np.asarray(values * _channels(scale, data.ndim) + _channels(bias, data.ndim))


def _stashed(call: Call, data: Array) -> Array:
    """In float32, or in double if it is or `stash_type` asks for it."""
    if data.dtype == np.float64:
        return data
    return data.astype(np.float64 if call.attribute("stash_type", 1) == _DOUBLE else np.float32)


@row("LayerNormalization")
def layer_normalization(call: Call, data: Array, scale: Array, bias: Array | None = None) -> tuple[Array, Typed, Typed]:
    """All axes from `axis` on together; mean and 1 / standard deviation are the other outputs, in `stash_type`."""
    axis = call.axis(call.attribute("axis", -1), data.ndim)
    axes = range(axis, data.ndim)
    mean, inverse, values = _standard(_stashed(call, data), axes, call.attribute("epsilon", 1e-5))
    if values.dtype != data.dtype and data.dtype.kind == "f":
        values = values.astype(wide(data).dtype)
    result = values * wide(scale)
    code = call.attribute("stash_type", 1)
    held = [
        Typed(narrowed(item.astype(np.float64 if code == _DOUBLE else np.float32), code), code)
        for item in (mean, inverse)
    ]
    return (result if bias is None else result + wide(bias)), held[0], held[1]


@row("RMSNormalization")
def rms_normalization(call: Call, data: Array, scale: Array) -> Array:
    """All axes from `axis` on together, divided by the root of the mean of their squares."""
    axis = call.axis(call.attribute("axis", -1), data.ndim)
    values = _stashed(call, data)
    squares = np.square(values).mean(axis=tuple(range(axis, data.ndim)), keepdims=True)
    values = values / np.sqrt(squares + values.dtype.type(call.attribute("epsilon", 1e-5)))
    return np.asarray(values.astype(wide(data).dtype) * wide(scale))


@row("LRN")
def local_response_normalization(call: Call, data: Array) -> Array:
    """X / (bias + alpha / size * sum of squares of neighbouring channels) ** beta."""
    size, values = call.attribute("size"), wide(data)
    kind = values.dtype.type
    alpha, beta = call.attribute("alpha", 1e-4), call.attribute("beta", 0.75)
    before = (size - 1) // 2
    squares = np.zeros((values.shape[0], values.shape[1] + size - 1, *values.shape[2:]), values.dtype)
    np.square(values, out=squares[:, before : before + values.shape[1]])
    sums = np.zeros_like(values)
    for shift in range(size):
        sums += squares[:, shift : shift + values.shape[1]]
    return np.asarray(values / (kind(call.attribute("bias", 1.0)) + kind(alpha / size) * sums) ** kind(beta))


@row("LpNormalization")
def lp_normalization(call: Call, data: Array) -> Array:
    """Divided by the p-norm along an axis; where that is 0, 0."""
    values, axis = wide(data), call.axis(call.attribute("axis", -1), data.ndim)
    if call.attribute("p", 2) == 1:
        norm = np.abs(values).sum(axis=axis, keepdims=True)
    else:
        norm = np.sqrt(np.square(values).sum(axis=axis, keepdims=True))
    given = np.broadcast_to(norm != 0, values.shape)
    return np.asarray(np.divide(values, norm, out=np.zeros_like(values), where=given))


@row("MeanVarianceNormalization")
def mean_variance_normalization(call: Call, data: Array) -> Array:
    """(X - mean) / (standard deviation + 1e-9) along axes."""
    axes = tuple(call.axis(axis, data.ndim) for axis in call.attribute("axes", [0, 2, 3]))
    values = wide(data)
    mean = values.mean(axis=axes, keepdims=True)
    spread = np.sqrt(np.square(values).mean(axis=axes, keepdims=True) - np.square(mean))
    return np.asarray((values - mean) / (spread + values.dtype.type(1e-9)))
