"""The operators of PT2E graphs, `quantized_decomposed::*`: integers in plain tensors, parameters as arguments.

Per tensor and per channel these are QuantizeLinear and DequantizeLinear. With a scale for each row or block
(`per_token`, `per_channel_group`) torch adds the zero point before it rounds, and so does the graph.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.dtypes import DOUBLE, FLOAT, INT64
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import dims_of, reshape
from purexport.lowering.support.qdq import dequantize, qparam, quantize

_EPSILON = torch.finfo(torch.float32).eps


@lower(
    "quantized_decomposed::quantize_per_tensor",
    "quantized_decomposed::quantize_per_tensor.tensor",
    "quantized_decomposed::quantize_per_tensor.tensor2",
)
def decomposed_quantize_per_tensor(
    op: Emitter, input: Value, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: torch.dtype
) -> Value:
    """quantized_decomposed::quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min,
    int quant_max, ScalarType dtype) -> Tensor
    """
    code = dtypes.onnx_code(dtype)
    low, high = op.known(quant_min), op.known(quant_max)
    if isinstance(low, Value) or isinstance(high, Value):
        raise UnsupportedForm(
            "with computed limits has no ONNX form; give quant_min and quant_max as numbers", code="value-not-known"
        )
    return quantize(op, input, qparam(op, scale, FLOAT), qparam(op, zero_point, code), limits=(low, high))


@lower("quantized_decomposed::quantize_per_channel")
def decomposed_quantize_per_channel(
    op: Emitter,
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Value:
    """quantized_decomposed::quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis,
    int quant_min, int quant_max, ScalarType dtype) -> Tensor
    """
    axis %= input.rank
    zero = qparam(op, zero_points, dtypes.onnx_code(dtype), axis)
    return quantize(op, input, qparam(op, scales, FLOAT, axis), zero, axis, (quant_min, quant_max))


@lower(
    "quantized_decomposed::dequantize_per_tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor2",
)
def dequantize_per_tensor(
    op: Emitter,
    input: Value,
    scale: Any,
    zero_point: Any,
    quant_min: Any,
    quant_max: Any,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None = None,
) -> Value:
    """quantized_decomposed::dequantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min,
    int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor
    """
    zero = qparam(op, zero_point, dtypes.onnx_code(dtype))
    return op.cast(dequantize(op, input, qparam(op, scale, FLOAT), zero), op.result_dtype)


@lower("quantized_decomposed::dequantize_per_channel")
def dequantize_per_channel(
    op: Emitter,
    input: Value,
    scales: Value,
    zero_points: Value | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None = None,
) -> Value:
    """quantized_decomposed::dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis,
    int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor
    """
    axis %= input.rank
    zero = None if zero_points is None else qparam(op, zero_points, dtypes.onnx_code(dtype), axis)
    return op.cast(dequantize(op, input, qparam(op, scales, FLOAT, axis), zero, axis), op.result_dtype)


@lower("quantized_decomposed::fake_quant_per_channel")
def fake_quant_per_channel(
    op: Emitter, input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    """quantized_decomposed::fake_quant_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis,
    int quant_min, int quant_max) -> Tensor
    """
    from purexport.lowering.quantized.conversions import fake_quantize_channels

    return fake_quantize_channels(op, input, scales, zero_points, axis, quant_min, quant_max)


# A scale for each row or block -------------------------------------------------------------------------------------


@lower("quantized_decomposed::quantize_per_token")
def quantize_per_token(
    op: Emitter,
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Value:
    """quantized_decomposed::quantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min,
    int quant_max, ScalarType dtype) -> Tensor

    One scale for each row, that is each slice of the last axis. The zero point is added before the rounding.
    """
    return _rounded(op, input, scales, zero_points, quant_min, quant_max, dtype)


@lower("quantized_decomposed::dequantize_per_token")
def dequantize_per_token(
    op: Emitter,
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype = torch.float32,
) -> Value:
    """quantized_decomposed::dequantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min,
    int quant_max, ScalarType dtype, ScalarType output_dtype) -> Tensor
    """
    return _spread(op, input, scales, zero_points, dtypes.onnx_code(output_dtype))


@lower("quantized_decomposed::quantize_per_channel_group")
def quantize_per_group(
    op: Emitter,
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
) -> Value:
    """quantized_decomposed::quantize_per_channel_group(Tensor input, Tensor scales, Tensor zero_points, int quant_min,
    int quant_max, ScalarType dtype, int group_size) -> Tensor

    One scale for each block of `group_size` elements of a row. The zero point is added before the rounding.
    """
    blocks, scale, zero = _blocks(op, input, scales, zero_points, group_size)
    assert zero is not None
    return _unblocked(op, _rounded(op, blocks, scale, zero, quant_min, quant_max, dtype), input)


@lower("quantized_decomposed::dequantize_per_channel_group")
def dequantize_per_group(
    op: Emitter,
    input: Value,
    scales: Value,
    zero_points: Value | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Value:
    """quantized_decomposed::dequantize_per_channel_group(Tensor input, Tensor scales, Tensor? zero_points,
    int quant_min, int quant_max, ScalarType dtype, int group_size, ScalarType output_dtype) -> Tensor
    """
    blocks, scale, zero = _blocks(op, input, scales, zero_points, group_size)
    return _unblocked(op, _spread(op, blocks, scale, zero, dtypes.onnx_code(output_dtype)), input)


def _blocks(
    op: Emitter, value: Value, scales: Value, zero_points: Value | None, size: int
) -> tuple[Value, Value, Value | None]:
    """`value` [n, k] as [n * blocks, size], with one scale and one zero point for each row."""
    columns = op.dim(value, 1)
    if isinstance(columns, int) and size > columns:
        size = columns
    return (
        reshape(op, value, [-1, size]),
        reshape(op, scales, [-1, 1]),
        None if zero_points is None else reshape(op, zero_points, [-1, 1]),
    )


def _unblocked(op: Emitter, blocks: Value, like: Value) -> Value:
    return reshape(op, blocks, dims_of(op, like))


def _rounded(op: Emitter, value: Value, scales: Value, zero: Value, low: int, high: int, dtype: torch.dtype) -> Value:
    """`round(value / scale + zero)`: the zero point is added before the rounding."""
    wide = DOUBLE if DOUBLE in (scales.dtype, zero.dtype) else FLOAT
    count = op.Mul(op.cast(value, wide), op.Reciprocal(op.cast(scales, wide)))
    # ONNX Runtime has no Clip for double at older opsets
    count = op.cast(op.Round(op.Add(count, op.cast(zero, wide))), FLOAT)
    return op.cast(op.Clip(count, min=float(low), max=float(high)), dtypes.onnx_code(dtype))


def _spread(op: Emitter, value: Value, scales: Value, zero: Value | None, dtype: int) -> Value:
    """`(value - zero) * scale`, computed in the dtype of the scale."""
    number = op.cast(value, scales.dtype)
    if zero is not None:
        number = op.Sub(number, op.cast(zero, scales.dtype))
    return op.cast(op.Mul(number, scales), dtype)


# Parameters from the tensor itself ---------------------------------------------------------------------------------


@lower("quantized_decomposed::choose_qparams.tensor")
def choose_qparams(
    op: Emitter, input: Value, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Value, Value]:
    """quantized_decomposed::choose_qparams.tensor(Tensor input, int quant_min, int quant_max, float eps,
    ScalarType dtype) -> (Tensor, Tensor)

    Scale [1] and zero point [1] that spread the range of the tensor, zero included, over the integers.
    """
    value = op.cast(input, FLOAT)
    least = op.Min(op.ReduceMin(value, keepdims=0), 0.0)
    most = op.Max(op.ReduceMax(value, keepdims=0), 0.0)
    scale = op.Max(op.Div(op.Sub(most, least), float(quant_max - quant_min)), eps)
    zero = op.Sub(float(quant_min), op.Round(op.Div(least, scale)))
    zero = op.Clip(zero, min=float(quant_min), max=float(quant_max))
    return _one(op, scale, op.results[0]), _one(op, zero, op.results[1])


@lower("quantized_decomposed::choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(
    op: Emitter, input: Value, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Value, Value]:
    """quantized_decomposed::choose_qparams_symmetric.tensor(Tensor input, int quant_min, int quant_max, float eps,
    ScalarType dtype) -> (Tensor, Tensor)
    """
    value = op.cast(input, FLOAT)
    most = op.Max(op.Max(op.ReduceMax(value, keepdims=0), 0.0), op.Neg(op.Min(op.ReduceMin(value, keepdims=0), 0.0)))
    scale = op.Max(op.Div(most, (quant_max - quant_min) / 2), eps)
    middle = op.const(128.0 if dtype == torch.uint8 else 0.0, FLOAT)
    return _one(op, scale, op.results[0]), _one(op, middle, op.results[1])


def _one(op: Emitter, value: Value, type_: Any) -> Value:
    return op.cast(reshape(op, value, [1]), dtypes.onnx_code(type_.dtype))


@lower("quantized_decomposed::choose_qparams_per_token")
def choose_qparams_per_token(op: Emitter, input: Value, dtype: torch.dtype) -> tuple[Value, Value]:
    """quantized_decomposed::choose_qparams_per_token(Tensor input, ScalarType dtype) -> (Tensor, Tensor)

    A scale [..., 1] for each row, symmetric: the zero points are 0.
    """
    most = op.ReduceMax(op.Abs(op.cast(input, FLOAT)), axes=[-1], keepdims=1)
    scale = op.Div(op.Max(most, 1e-5), float(torch.iinfo(dtype).max))
    return _row(op, scale, 0), _row(op, op.Mul(scale, 0.0), 1)


@lower("quantized_decomposed::choose_qparams_per_token_asymmetric")
def choose_qparams_per_token_asymmetric(op: Emitter, input: Value, dtype: torch.dtype) -> tuple[Value, Value]:
    """quantized_decomposed::choose_qparams_per_token_asymmetric(Tensor input, ScalarType dtype) -> (Tensor, Tensor)

    A scale [..., 1] and a zero point [..., 1] for each row.
    """
    low, high = -128.0, 127.0
    value = op.cast(input, FLOAT)
    least = op.Min(op.ReduceMin(value, axes=[-1], keepdims=1), 0.0)
    most = op.Max(op.ReduceMax(value, axes=[-1], keepdims=1), 0.0)
    scale = op.Max(op.Div(op.Sub(most, least), high - low), _EPSILON)
    below, above = op.Div(least, scale), op.Div(most, scale)
    nearer = op.Greater(op.Add(op.Add(low, below), op.Add(high, above)), 0.0)
    zero = op.Where(nearer, op.Sub(low, below), op.Sub(high, above))
    return _row(op, scale, 0), _row(op, op.Round(op.Clip(zero, min=low, max=high)), 1)


def _row(op: Emitter, value: Value, index: int) -> Value:
    type_ = op.results[index]
    return op.cast(value, INT64 if type_ is None else dtypes.onnx_code(type_.dtype))
