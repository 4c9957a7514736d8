"""Quantize, dequantize and fake-quantize: ATen's operators, and those of PT2E graphs (``quantized_decomposed``).

ATen's make and take quantized tensors, those of PT2E plain integers beside their parameters.  Both become
QuantizeLinear and DequantizeLinear.  A range narrower than its integers is kept by a Clip before the rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport import dtypes
from purexport.dtypes import BOOL, DOUBLE, FLOAT, INT64
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_quantized
from purexport.lowering.support.qdq import (
    Limits,
    Quantized,
    as_quantized,
    carrier_of,
    dequantize,
    limits_of,
    parameter,
    quantize,
    steps,
    values_of,
)

_SMALLEST_SCALE = 6.1e-5  # below it torch takes this one

# torch's own quantized dtypes --------------------------------------------------------------------------------------


@lower("aten::quantize_per_tensor", "aten::quantize_per_tensor.tensor_qparams")
def quantize_per_tensor(op: Emitter, self: Value, scale: Any, zero_point: Any, dtype: torch.dtype) -> Quantized:
    return as_quantized(op, self, scale, zero_point, _stored_code(dtype))


@lower("aten::quantize_per_tensor.tensors")
def quantize_tensors(
    op: Emitter, tensors: Sequence[Value], scales: Value, zero_points: Value, dtype: torch.dtype
) -> list[Quantized]:
    code = _stored_code(dtype)
    return [
        as_quantized(op, value, op.Gather(scales, op.const(index)), op.Gather(zero_points, op.const(index)), code)
        for index, value in enumerate(tensors)
    ]


@lower("aten::quantize_per_channel")
def quantize_per_channel(
    op: Emitter, self: Value, scales: Value, zero_points: Value, axis: int, dtype: torch.dtype
) -> Quantized:
    if zero_points.dtype is not None and dtypes.is_floating(zero_points.dtype):
        raise UnsupportedForm(
            "with zero points that are no integers has no ONNX form; use an affine scheme",
            code="zero-point-not-integer",
        )
    axis %= self.rank
    scale, zero = parameter(op, scales, FLOAT, axis), parameter(op, zero_points, _stored_code(dtype), axis)
    return Quantized(quantize(op, self, scale, zero, axis), scale, zero, axis)


@lower("aten::quantize_per_tensor_dynamic")
def quantize_dynamic(op: Emitter, self: Value, dtype: torch.dtype, reduce_range: bool) -> Quantized:
    """The range of the very tensor, zero included, over the integers (one bit less with ``reduce_range``)."""
    code = _stored_code(dtype)
    limits = dynamic_limits(code, reduce_range)
    scale, zero = dynamic_parameters(op, self, limits, code)
    return Quantized(quantize(op, self, scale, zero, limits=None), scale, zero)


@lower_quantized("aten::dequantize.self")
def dequantize_tensor(op: Emitter, self: Quantized) -> Value:
    return values_of(op, self)


@lower("aten::dequantize.self")
def dequantize_plain(op: Emitter, self: Value) -> Value:
    """A tensor that is not quantized becomes float32."""
    return op.cast(self, FLOAT)


@lower_quantized("aten::dequantize.tensors")
def dequantize_tensors(op: Emitter, tensors: Sequence[Quantized]) -> list[Value]:
    return [values_of(op, tensor) for tensor in tensors]


@lower_quantized("aten::int_repr")
def int_repr(op: Emitter, self: Quantized) -> Value:
    return self.integers


@lower("aten::_make_per_tensor_quantized_tensor")
def make_quantized(op: Emitter, self: Value, scale: float, zero_point: int) -> Quantized:
    """The integers of ``self`` as a quantized tensor."""
    return Quantized(self, parameter(op, scale, FLOAT), parameter(op, zero_point, _code(self)))


def _stored_code(dtype: torch.dtype) -> int:
    if not dtypes.is_quantized(dtype):
        raise UnsupportedForm(
            f"to {dtype} has no ONNX form; use torch.quint8, torch.qint8 or torch.qint32", code="quantized-tensor"
        )
    return dtypes.onnx_code(dtypes.stored_dtype(dtype))


def _code(value: Value) -> int:
    assert value.dtype is not None
    return value.dtype


# Parameters from the tensor itself ---------------------------------------------------------------------------------


def dynamic_limits(dtype: int, reduce_range: bool) -> Limits:
    """The integers that a dynamic quantization uses."""
    low, high = limits_of(dtype)
    return (-(-low // 2), high // 2) if reduce_range else (low, high)


def dynamic_parameters(op: Emitter, value: Value, limits: Limits, dtype: int) -> tuple[Value, Value]:
    """Scale and zero point that spread the tensor's own range, zero included, over ``limits``."""
    low, high = limits
    least = op.cast(op.Min(op.ReduceMin(value, keepdims=0), 0.0), DOUBLE)
    most = op.cast(op.Max(op.ReduceMax(value, keepdims=0), 0.0), DOUBLE)
    scale = op.Div(op.Sub(most, least), float(high - low))
    # a tensor of zeros alone has any scale
    scale = op.Where(op.Equal(op.cast(scale, FLOAT), 0.0), op.const(0.1, DOUBLE), scale)
    least, most = op.Div(least, scale), op.Div(most, scale)
    # the end that lies nearer to its own integer decides, as in torch
    least_error, most_error = op.Sub(float(abs(low)), op.Abs(least)), op.Sub(float(abs(high)), op.Abs(most))
    zero = op.Where(op.Less(least_error, most_error), op.Sub(float(low), least), op.Sub(float(high), most))
    zero = op.Clip(op.Round(op.cast(zero, FLOAT)), min=float(low), max=float(high))
    return op.Max(op.cast(scale, FLOAT), _SMALLEST_SCALE), op.cast(zero, dtype)


# Fake quantization -------------------------------------------------------------------------------------------------


@lower("aten::fake_quantize_per_tensor_affine", "aten::fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize(op: Emitter, self: Value, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Value:
    return _fake(op, self, scale, zero_point, None, (quant_min, quant_max))


@lower("aten::fake_quantize_per_channel_affine")
def fake_quantize_channels(
    op: Emitter, self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    return _fake(op, self, scale, zero_point, axis % self.rank, (quant_min, quant_max))


@lower("aten::fake_quantize_per_tensor_affine_cachemask")
def fake_quantize_mask(
    op: Emitter, self: Value, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Value, Value]:
    limits = (quant_min, quant_max)
    mask = _inside(op, self, scale, zero_point, None, limits)
    return _fake(op, self, scale, zero_point, None, limits), mask


@lower("aten::fake_quantize_per_channel_affine_cachemask")
def fake_quantize_channels_mask(
    op: Emitter, self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> tuple[Value, Value]:
    limits, axis = (quant_min, quant_max), axis % self.rank
    return _fake(op, self, scale, zero_point, axis, limits), _inside(op, self, scale, zero_point, axis, limits)


@lower("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_switched(
    op: Emitter,
    self: Value,
    scale: Value,
    zero_point: Value,
    fake_quant_enabled: Value,
    quant_min: int,
    quant_max: int,
) -> tuple[Value, Value]:
    """``fake_quant_enabled`` is a number that may be 0: the tensor then passes, and nothing is outside."""
    limits = (quant_min, quant_max)
    enabled = op.cast(_scalar(op, fake_quant_enabled), BOOL)
    result = op.Where(enabled, _fake(op, self, scale, zero_point, None, limits), self)
    return result, op.Or(_inside(op, self, scale, zero_point, None, limits), op.Not(enabled))


def _scalar(op: Emitter, value: Value) -> Value:
    return parameter(op, value, value.dtype or INT64)


def _fake(op: Emitter, value: Value, scale: Any, zero_point: Any, axis: int | None, limits: Limits) -> Value:
    if value.dtype == DOUBLE:
        raise UnsupportedForm(
            "of float64 has no ONNX form, whose QuantizeLinear is float32; cast to float32 before",
            code="float64-unsupported",
        )
    _refuse_float_zero_points(zero_point)
    factor, zero = parameter(op, scale, FLOAT, axis), parameter(op, zero_point, carrier_of(limits), axis)
    integers = quantize(op, value, factor, zero, axis, limits)
    return op.cast(dequantize(op, integers, factor, zero, axis), value.dtype)


def _inside(op: Emitter, value: Value, scale: Any, zero_point: Any, axis: int | None, limits: Limits) -> Value:
    factor, zero = parameter(op, scale, FLOAT, axis), parameter(op, zero_point, carrier_of(limits), axis)
    count = steps(op, op.cast(value, FLOAT), factor, zero, axis)
    below, above = op.Less(count, float(limits[0])), op.Greater(count, float(limits[1]))
    return op.Not(op.Or(below, above))


def _refuse_float_zero_points(zero_point: Any) -> None:
    if isinstance(zero_point, Value) and dtypes.is_floating(zero_point.dtype):
        raise UnsupportedForm(
            "with zero points that are no integers has no ONNX form; round them before", code="zero-point-not-integer"
        )
