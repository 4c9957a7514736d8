"""Rows of normalization.

float16 and bfloat16 are computed in float32, as the specification asks of LayerNormalization and RMSNormalization by
`stash_type`, and as runtimes do it elsewhere.
"""

from __future__ import annotations

from math import prod

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.costs import pieces
from proto_schema.compute.nn.numbers import narrowed, wide
from proto_schema.compute.rows import row

_DOUBLE = 11
_CACHED = 1 << 15
"""The elements of the rows that are normalized at a time."""


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


def _by_rows(
    values: Array, epsilon: float, scale: Array | None, bias: Array | None, centred: bool = True
) -> tuple[Array, Array, Array]:
    """Each row of (rows, channels, elements) less its mean, by its deviation, times the scale, plus the bias.

    Scale and bias broadcast with the values, by rows of their own or one for all. Some rows are done at a time, whole,
    so that they stay in a cache. Also gives the means, and the inverses of the deviations, of shape (rows, 1, 1).
    """
    rows, kind = len(values), values.dtype
    result = np.empty_like(values)
    means, inverses = np.zeros((rows, 1, 1), kind), np.ones((rows, 1, 1), kind)
    step = max(1, _CACHED // max(1, values.shape[1] * values.shape[2]))

    def of(numbers: Array, some: slice) -> Array:
        return numbers[some] if len(numbers) > 1 else numbers

    for start in range(0, rows, step):
        some = slice(start, start + step)
        part, made = values[some], result[some]
        if centred:
            part.mean(axis=(1, 2), keepdims=True, out=means[some])
            part = np.subtract(part, means[some], out=made)
        squares = np.square(part).mean(axis=(1, 2), keepdims=True)
        np.reciprocal(np.sqrt(squares + kind.type(epsilon)), out=inverses[some])
        np.multiply(part, inverses[some], out=made)
        if scale is not None:
            made *= of(scale, some)
        if bias is not None:
            made += of(bias, some)
    return result, means, inverses


@row("InstanceNormalization")
def instance_normalization(call: Call, data: Array, scale: Array, bias: Array) -> Array:
    """Each channel of each image by its own mean and variance."""
    values = wide(data)
    channels = values.shape[:2]
    factor, shift = [np.broadcast_to(wide(item), channels).reshape(prod(channels), 1, 1) for item in (scale, bias)]
    rows = values.reshape(prod(channels), 1, prod(values.shape[2:]))
    return _by_rows(rows, call.attribute("epsilon", 1e-5), factor, shift)[0].reshape(data.shape)


@row("GroupNormalization")
def group_normalization(call: Call, data: Array, scale: Array, bias: Array) -> Array:
    """Each group of channels of each image by its own mean and variance.

    Scale and bias have one number a group in opset 18, and one a channel since 21.
    """
    groups, channels = call.attribute("num_groups"), data.shape[1]
    if groups < 1 or channels % groups:
        call.fail(f"{channels} channels cannot be split into {groups} groups")
    rows, each = data.shape[0] * groups, channels // groups
    values = _stashed(call, data).reshape(rows, each, prod(data.shape[2:]))
    count = 1 if call.version < 21 else each  # the numbers of a group
    factors = []
    for item in (scale, bias):
        numbers = wide(item).astype(values.dtype, copy=False).reshape(groups, count)
        factors.append(np.broadcast_to(numbers, (data.shape[0], groups, count)).reshape(rows, count, 1))
    return _by_rows(values, call.attribute("epsilon", 1e-5), factors[0], factors[1])[0].reshape(data.shape)


def _stashed(call: Call, data: Array) -> Array:
    """In float32, or in double if it is or `stash_type` asks for it."""
    if data.dtype == np.float64:
        return data
    return data.astype(np.float64 if call.attribute("stash_type", 1) == _DOUBLE else np.float32, copy=False)


def _flat(call: Call, numbers: Array | None, data: Array, axis: int) -> Array | None:
    """A scale or bias over the axes from `axis` on: (1, 1, elements), or (rows, 1, elements) if it has more axes."""
    if numbers is None:
        return None
    held = wide(numbers).astype(_stashed(call, data).dtype, copy=False)
    shape = data.shape if held.ndim > data.ndim - axis else data.shape[axis:]
    try:
        spread = np.broadcast_to(held, shape)
    except ValueError:
        call.fail(f"a scale or bias of shape {numbers.shape} does not fit the axes from {axis} on of {data.shape}")
    rows = prod(data.shape[:axis]) if len(shape) == data.ndim else 1
    return np.asarray(spread.reshape(rows, 1, prod(data.shape[axis:])))


@row("LayerNormalization")
def layer_normalization(call: Call, data: Array, scale: Array, bias: Array | None = None) -> tuple[Array, Typed, Typed]:
    """All axes from `axis` on together; mean and 1 / standard deviation are the other outputs, in `stash_type`."""
    axis = call.axis(call.attribute("axis", -1), data.ndim)
    values = _stashed(call, data).reshape(prod(data.shape[:axis]), 1, prod(data.shape[axis:]))
    factor, shift = _flat(call, scale, data, axis), _flat(call, bias, data, axis)
    result, *found = _by_rows(values, call.attribute("epsilon", 1e-5), factor, shift)
    code, shape = call.attribute("stash_type", 1), (*data.shape[:axis], *(1,) * (data.ndim - axis))
    kind = np.float64 if code == _DOUBLE else np.float32
    mean, inverse = [Typed(narrowed(item.reshape(shape).astype(kind), code), code) for item in found]
    return result.reshape(data.shape), mean, inverse


@row("RMSNormalization")
def rms_normalization(call: Call, data: Array, scale: Array) -> Array:
    """All axes from `axis` on together, divided by the root of the mean of their squares."""
    axis = call.axis(call.attribute("axis", -1), data.ndim)
    values = _stashed(call, data).reshape(prod(data.shape[:axis]), 1, prod(data.shape[axis:]))
    made = _by_rows(values, call.attribute("epsilon", 1e-5), _flat(call, scale, data, axis), None, centred=False)[0]
    return made.reshape(data.shape)


def _neighbours_cost(call: Call, data: Array) -> Cost:
    size, width = max(0, call.attribute("size")), max(4, data.itemsize)
    each = data.size // max(1, data.shape[1]) if data.ndim > 1 else 1
    work = data.size * (size + 30) + each * size + pieces(size)
    return Cost(work, data.size * width, (4 * data.size + each * size) * width)


@row("LRN", cost=_neighbours_cost)
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
