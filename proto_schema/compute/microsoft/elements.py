"""Rows of elements, norms and integers with scales of com.microsoft."""

from __future__ import annotations

from math import sqrt

import numpy as np

from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.microsoft import costs
from proto_schema.compute.microsoft.numbers import DOMAIN, coded, like, real, sigmoid
from proto_schema.compute.nn.numbers import wide
from proto_schema.compute.nn.pooling import average_pool
from proto_schema.compute.nn.quantization import dequantize, quantize
from proto_schema.compute.rows import row
from proto_schema.compute.special import erf

row("QuantizeLinear", domain=DOMAIN, cost=costs.of_elements)(quantize)
row("DequantizeLinear", domain=DOMAIN, cost=costs.of_elements)(dequantize)


@row("Gelu", "BiasGelu", domain=DOMAIN, cost=costs.of_elements)
def gelu(call: Call, data: Array, bias: Array | None = None) -> Typed:
    """x by the distribution function of the normal distribution, after the bias."""
    values = wide(data) if bias is None else wide(data) + wide(bias)
    return like(call, values * (0.5 * (1 + erf(values / sqrt(2)))))


@row("FastGelu", domain=DOMAIN, cost=costs.of_elements)
def fast_gelu(call: Call, data: Array, bias: Array | None = None) -> Typed:
    """The same by tanh."""
    values = wide(data) if bias is None else wide(data) + wide(bias)
    return like(call, fast_gelu_of(values))


def fast_gelu_of(values: Array) -> Array:
    """x by the distribution function of the normal distribution, by tanh."""
    return np.asarray(0.5 * values * (1 + np.tanh(sqrt(2 / np.pi) * (values + 0.044715 * values**3))))


@row("QuickGelu", domain=DOMAIN, cost=costs.of_elements)
def quick_gelu(call: Call, data: Array) -> Typed:
    """x sigmoid(alpha x)."""
    values = wide(data)
    return like(call, values * sigmoid(values.dtype.type(call.attribute("alpha", 1.702)) * values))


@row("SkipLayerNormalization", domain=DOMAIN, cost=costs.of_elements)
def skip_norm(
    call: Call, data: Array, skip: Array, scale: Array, shift: Array | None = None, bias: Array | None = None
) -> tuple[Typed, Array, Array, Typed]:
    """The normalized sum; its mean and the inverse of its deviation; the sum."""
    total = wide(data) + wide(skip) + (0 if bias is None else wide(bias))
    mean = total.mean(axis=-1, keepdims=True)
    inverse = 1 / np.sqrt(np.square(total - mean).mean(axis=-1, keepdims=True) + call.attribute("epsilon", 1e-12))
    found = (total - mean) * inverse * wide(scale) + (0 if shift is None else wide(shift))
    return like(call, found), mean.astype(np.float32), inverse.astype(np.float32), like(call, total)


@row("SkipSimplifiedLayerNormalization", domain=DOMAIN, cost=costs.of_elements)
def skip_root_norm(
    call: Call, data: Array, skip: Array, scale: Array, bias: Array | None = None
) -> tuple[Typed, Array, Array, Typed]:
    """The sum over its root mean square; a mean that nobody asks for; the inverse; the sum."""
    total = wide(data) + wide(skip) + (0 if bias is None else wide(bias))
    inverse = 1 / np.sqrt(np.square(total).mean(axis=-1, keepdims=True) + call.attribute("epsilon", 1e-12))
    return (
        like(call, total * inverse * wide(scale)),
        np.zeros_like(inverse, np.float32),
        inverse.astype(np.float32),
        like(call, total),
    )


# Integers with a scale ------------------------------------------------------------------------------------------------


@row("QLinearAdd", "QLinearMul", domain=DOMAIN, cost=costs.of_elements)
def binary_of_codes(
    call: Call,
    one: Array,
    scale: Array,
    zero: Array | None,
    other: Array,
    other_scale: Array,
    other_zero: Array | None,
    result_scale: Array,
    result_zero: Array | None = None,
) -> Array:
    """The sum or product of the numbers, as codes."""
    left, right = real(call, one, scale, zero), real(call, other, other_scale, other_zero)
    values = left + right if call.schema.name == "QLinearAdd" else left * right
    return coded(call, values, result_scale, result_zero, one.dtype)


@row("QLinearSigmoid", "QLinearLeakyRelu", domain=DOMAIN, cost=costs.of_elements)
def unary_of_codes(
    call: Call, data: Array, scale: Array, zero: Array | None, result_scale: Array, result_zero: Array | None = None
) -> Array:
    """A function of the numbers, as codes."""
    values = real(call, data, scale, zero)
    if call.schema.name == "QLinearSigmoid":
        found = sigmoid(values)
    else:
        found = np.where(values >= 0, values, values * np.float32(call.attribute("alpha", 0.01)))
    return coded(call, found, result_scale, result_zero, data.dtype)


@row("QLinearSoftmax", domain=DOMAIN, cost=costs.of_elements)
def softmax_of_codes(
    call: Call, data: Array, scale: Array, zero: Array | None, result_scale: Array, result_zero: Array | None = None
) -> Array:
    """Softmax of the numbers, as codes: of one axis since opset 13, of all from the axis on before."""
    axis = call.axis(call.attribute("axis", -1), data.ndim)
    axes = (axis,) if call.attribute("opset", 13) >= 13 else tuple(range(axis, data.ndim))
    values = real(call, data, scale, zero).astype(np.float64)
    found = np.exp(values - values.max(axis=axes, keepdims=True, initial=-np.inf))
    return coded(call, found / found.sum(axis=axes, keepdims=True), result_scale, result_zero, data.dtype)


@row("QLinearConcat", domain=DOMAIN, cost=costs.of_elements)
def concat_of_codes(call: Call, scale: Array, zero: Array, *given: Array) -> Array:
    """Codes, each with its scale and zero point, as codes of one scale behind each other."""
    if not given or len(given) % 3:
        call.fail(f"{len(given)} inputs are not codes, scale and zero point of each tensor")
    kind = given[0].dtype
    parts = [real(call, *given[place : place + 3]) for place in range(0, len(given), 3)]
    return coded(call, np.concatenate(parts, axis=call.attribute("axis", 0)), scale, zero, kind)


@row("QLinearWhere", domain=DOMAIN, cost=costs.of_elements)
def where_of_codes(
    call: Call,
    chosen: Array,
    one: Array,
    scale: Array,
    zero: Array,
    other: Array,
    other_scale: Array,
    other_zero: Array,
    result_scale: Array,
    result_zero: Array,
) -> Array:
    """Numbers of one or the other, as codes."""
    left, right = real(call, one, scale, zero), real(call, other, other_scale, other_zero)
    return coded(call, np.where(chosen, left, right), result_scale, result_zero, one.dtype)


@row("QLinearGlobalAveragePool", domain=DOMAIN, cost=costs.of_elements)
def global_average_of_codes(
    call: Call, data: Array, scale: Array, zero: Array | None, result_scale: Array, result_zero: Array | None = None
) -> Array:
    """The mean over all places, as codes; with `channels_last` the channels are behind the places."""
    axes = tuple(range(1, data.ndim - 1)) if call.attribute("channels_last", 0) else tuple(range(2, data.ndim))
    values = real(call, data, scale, zero).mean(axis=axes, keepdims=True, dtype=np.float64)
    return coded(call, values, result_scale, result_zero, data.dtype)


@row("QLinearAveragePool", domain=DOMAIN, cost=costs.of_windows)
def average_of_codes(
    call: Call, data: Array, scale: Array, zero: Array | None, result_scale: Array, result_zero: Array | None = None
) -> Array:
    """The mean over windows, as codes."""
    last = bool(call.attribute("channels_last", 0))
    values = real(call, data, scale, zero)
    found = average_pool(call, np.moveaxis(values, -1, 1) if last else values)
    return coded(call, np.moveaxis(found, 1, -1) if last else found, result_scale, result_zero, data.dtype)
