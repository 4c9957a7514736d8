"""Activations. Those of float16 are computed in float32 and rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.compute.call import Array, Call
from proto_schema.compute.elementwise import wide
from proto_schema.compute.rows import row
from proto_schema.compute.special import erf

__all__ = ["sigmoid", "softmax"]


def sigmoid(x: Array) -> Any:
    """1 / (1 + exp(-x)) of an array of floats."""
    e = np.asarray(np.exp(-x))  # infinite at worst, which gives 0; of no axes numpy makes no array
    e += 1
    return np.divide(1, e, out=e)


def _number(call: Call, name: str, x: Array) -> Any:
    """A float attribute in the type of the operand."""
    return x.dtype.type(call.attribute(name))


@row("Relu")
def relu(call: Call, x: Array) -> Any:
    """max(x, 0), which keeps NaN."""
    return np.maximum(x, x.dtype.type(0))


@row("Sigmoid")
def _sigmoid(call: Call, x: Array) -> Any:
    return sigmoid(wide(x))


@row("LeakyRelu")
def leaky_relu(call: Call, x: Array) -> Any:
    """alpha * x below 0."""
    return np.where(x < 0, x * _number(call, "alpha", x), x)


@row("PRelu")
def prelu(call: Call, x: Array, slope: Array) -> Any:
    """slope * x below 0. Before opset 7 the slope has one number, or one for each channel, which is axis 1."""
    if call.version < 7 and slope.ndim == 1 and slope.size > 1 and x.ndim > 2:
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return np.where(x < 0, x * slope, x)


@row("Elu")
def elu(call: Call, x: Array) -> Any:
    """alpha * (exp(x) - 1) below 0."""
    x = wide(x)
    return np.where(x < 0, _number(call, "alpha", x) * np.expm1(np.minimum(x, 0)), x)


@row("Selu")
def selu(call: Call, x: Array) -> Any:
    """gamma times x, or times alpha * (exp(x) - 1) up to 0."""
    x = wide(x)
    alpha, gamma = _number(call, "alpha", x), _number(call, "gamma", x)
    return gamma * np.where(x <= 0, alpha * np.expm1(np.minimum(x, 0)), x)


@row("Celu")
def celu(call: Call, x: Array) -> Any:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    x = wide(x)
    alpha = _number(call, "alpha", x)
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)


@row("ThresholdedRelu")
def thresholded_relu(call: Call, x: Array) -> Any:
    """x above alpha, else 0."""
    return np.where(x > _number(call, "alpha", x), x, x.dtype.type(0))


@row("HardSigmoid")
def hard_sigmoid(call: Call, x: Array) -> Any:
    """alpha * x + beta, within 0 and 1."""
    x = wide(x)
    return np.clip(_number(call, "alpha", x) * x + _number(call, "beta", x), 0, 1)


@row("HardSwish")
def hard_swish(call: Call, x: Array) -> Any:
    """x times its hard sigmoid with alpha = 1/6 and beta = 1/2."""
    x = wide(x)
    return x * np.clip(x / x.dtype.type(6) + x.dtype.type(0.5), 0, 1)


@row("Softplus")
def softplus(call: Call, x: Array) -> Any:
    """log(1 + exp(x))."""
    x = wide(x)
    return np.logaddexp(x, x.dtype.type(0))


@row("Softsign")
def softsign(call: Call, x: Array) -> Any:
    """x / (1 + |x|)."""
    x = wide(x)
    return x / (1 + np.abs(x))


@row("Mish")
def mish(call: Call, x: Array) -> Any:
    """x * tanh(softplus(x))."""
    x = wide(x)
    return x * np.tanh(np.logaddexp(x, x.dtype.type(0)))


def _swish(call: Call, x: Array) -> Any:
    return x * sigmoid(_number(call, "alpha", x) * x)


@row("Swish")
def swish(call: Call, x: Array) -> Any:
    """x * sigmoid(alpha * x)."""
    return _swish(call, wide(x))


@row("SwiGLU")
def swiglu(call: Call, a: Array, b: Array) -> Any:
    """The swish of the gate, times the value."""
    if a.shape != b.shape:
        call.fail(f"its inputs must have the same shape, not {list(a.shape)} and {list(b.shape)}")
    return _swish(call, wide(a)) * wide(b)


@row("Gelu")
def gelu(call: Call, x: Array) -> Any:
    """x times the normal distribution's probability of values below it, or an approximation by tanh."""
    x = wide(x)
    kind = x.dtype.type
    if call.text("approximate", "none") == "tanh":
        inner = kind(np.sqrt(2 / np.pi)) * (x + kind(0.044715) * x * x * x)
        return kind(0.5) * x * (1 + np.tanh(inner))
    found = erf(x * kind(np.sqrt(0.5)))
    found += 1
    found *= x
    found *= kind(0.5)
    return found


@row("Shrink")
def shrink(call: Call, x: Array) -> Any:
    """x + bias below -lambd, x - bias above lambd, else 0. Integers are computed as floats and cut."""
    bias, lambd = call.attribute("bias"), call.attribute("lambd")
    values = x.astype(np.float64) if x.dtype.kind in "iu" else x
    return np.where(values < -lambd, values + bias, np.where(values > lambd, values - bias, 0)).astype(x.dtype)


def softmax(x: Array, axis: int) -> Any:
    """exp(x) divided by its sum along an axis."""
    if not x.size:
        return x
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    e /= e.sum(axis=axis, keepdims=True)
    return e


def _matrix(call: Call, x: Array) -> tuple[Array, int]:
    """The operand and the axis that is reduced; before opset 13 all axes from `axis` on are one."""
    if call.version >= 13:
        return x, call.axis(call.attribute("axis", -1), x.ndim)
    axis = call.attribute("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    return x.reshape(rows, -1) if x.size else x.reshape(rows, 0 if rows else 1), 1


@row("Softmax")
def _softmax(call: Call, x: Array) -> Any:
    values, axis = _matrix(call, wide(x))
    return softmax(values, axis).reshape(x.shape)


@row("LogSoftmax")
def log_softmax(call: Call, x: Array) -> Any:
    """x minus the logarithm of the sum of exp(x) along an axis."""
    values, axis = _matrix(call, wide(x))
    if not x.size:
        return x
    values = values - values.max(axis=axis, keepdims=True)
    return (values - np.log(np.exp(values).sum(axis=axis, keepdims=True))).reshape(x.shape)


@row("Hardmax")
def hardmax(call: Call, x: Array) -> Any:
    """1 at the first largest value along an axis, else 0."""
    values, axis = _matrix(call, x)
    found = np.zeros_like(values)
    if x.size:
        np.put_along_axis(found, np.expand_dims(np.argmax(values, axis=axis), axis), 1, axis=axis)
    return found.reshape(x.shape)


@row("Dropout")
def dropout(call: Call, x: Array, ratio: Array | None = None, training: Array | None = None) -> Any:
    """The input, and a mask of what stays; in training elements become 0 with the probability `ratio`.

    Opsets 1 and 6 train unless `is_test` is set, 7 and 10 never do, and from 12 on an input says so.
    """
    rate = call.attribute("ratio", 0.5) if ratio is None else float(ratio)
    old = call.version < 7
    trains = not call.attribute("is_test", 0) if old else training is not None and bool(training)
    mask = np.ones(x.shape, bool)
    # before opset 10 the mask has the type of the data
    kind: Any = x.dtype if call.version < 10 else np.dtype(bool)
    if not trains or rate == 0:
        return x, mask.astype(kind)
    seed = call.attribute("seed")
    random = np.random.RandomState(None if seed is None else int(seed) & 0xFFFFFFFF)
    mask = random.uniform(0, 1, x.shape) >= rate
    scaled = x * mask / x.dtype.type(1 - rate) if rate < 1 else np.zeros_like(x)
    return scaled, mask.astype(kind)
