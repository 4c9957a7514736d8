"""Quantize, dequantize and fake-quantize: ATen's operators, and the helpers for those of PT2E graphs.

ATen's operators make and take quantized tensors, those of PT2E (`quantized_decomposed`) plain integers beside their
parameters. Both become QuantizeLinear and DequantizeLinear. A range narrower than the integer dtype is a Clip before
the rounding.
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
    dequantize,
    dequantized,
    integer_dtype_for,
    integer_limits,
    qparam,
    quantize,
    quantized_steps,
)

_SMALLEST_SCALE = 6.1e-5  # torch takes this scale instead of a smaller one

# torch's own quantized dtypes --------------------------------------------------------------------------------------


@lower("aten::quantize_per_tensor", "aten::quantize_per_tensor.tensor_qparams")
def quantize_per_tensor(op: Emitter, self: Value, scale: Any, zero_point: Any, dtype: torch.dtype) -> Quantized:
    """aten::quantize_per_tensor(Tensor self, float scale, int zero_point, ScalarType dtype) -> Tensor

    Rounds ties to even. torch adds the zero point before it rounds, ONNX QuantizeLinear after.
    """
    return as_quantized(op, self, scale, zero_point, _stored_code(dtype))


@lower("aten::quantize_per_tensor.tensors")
def quantize_tensors(
    op: Emitter, tensors: Sequence[Value], scales: Value, zero_points: Value, dtype: torch.dtype
) -> list[Quantized]:
    """aten::quantize_per_tensor.tensors(Tensor[] tensors, Tensor scales, Tensor zero_points, ScalarType dtype)
    -> Tensor[]
    """
    code = _stored_code(dtype)
    return [
        as_quantized(op, value, op.Gather(scales, op.const(index)), op.Gather(zero_points, op.const(index)), code)
        for index, value in enumerate(tensors)
    ]


@lower("aten::quantize_per_channel")
def quantize_per_channel(
    op: Emitter, self: Value, scales: Value, zero_points: Value, axis: int, dtype: torch.dtype
) -> Quantized:
    """aten::quantize_per_channel(Tensor self, Tensor scales, Tensor zero_points, int axis, ScalarType dtype)
    -> Tensor
    """
    if zero_points.dtype is not None and dtypes.is_floating(zero_points.dtype):
        raise UnsupportedForm(
            "with float zero points has no ONNX form; use an affine scheme",
            code="zero-point-not-integer",
        )
    axis %= self.rank
    scale, zero = qparam(op, scales, FLOAT, axis), qparam(op, zero_points, _stored_code(dtype), axis)
    return Quantized(quantize(op, self, scale, zero, axis), scale, zero, axis)


@lower("aten::quantize_per_tensor_dynamic")
def quantize_dynamic(op: Emitter, self: Value, dtype: torch.dtype, reduce_range: bool) -> Quantized:
    """aten::quantize_per_tensor_dynamic(Tensor self, ScalarType dtype, bool reduce_range) -> Tensor

    The scale spreads the range of the tensor, zero included, over the integers (one bit less with `reduce_range`).
    """
    code = _stored_code(dtype)
    limits = dynamic_limits(code, reduce_range)
    scale, zero = dynamic_parameters(op, self, limits, code)
    return Quantized(quantize(op, self, scale, zero, limits=None), scale, zero)


@lower_quantized("aten::dequantize.self")
def dequantize_tensor(op: Emitter, self: Quantized) -> Value:
    """aten::dequantize.self(Tensor self) -> Tensor"""
    return dequantized(op, self)


@lower("aten::dequantize.self")
def dequantize_plain(op: Emitter, self: Value) -> Value:
    """aten::dequantize.self(Tensor self) -> Tensor

    A tensor that is not quantized is converted to float32.
    """
    return op.cast(self, FLOAT)


@lower_quantized("aten::dequantize.tensors")
def dequantize_tensors(op: Emitter, tensors: Sequence[Quantized]) -> list[Value]:
    """aten::dequantize.tensors(Tensor[] tensors) -> Tensor[]"""
    return [dequantized(op, tensor) for tensor in tensors]


@lower_quantized("aten::int_repr")
def int_repr(op: Emitter, self: Quantized) -> Value:
    """aten::int_repr(Tensor self) -> Tensor"""
    return self.integers


@lower("aten::_make_per_tensor_quantized_tensor")
def make_quantized(op: Emitter, self: Value, scale: float, zero_point: int) -> Quantized:
    """aten::_make_per_tensor_quantized_tensor(Tensor self, float scale, int zero_point) -> Tensor

    The integers of `self` as a quantized tensor.
    """
    return Quantized(self, qparam(op, scale, FLOAT), qparam(op, zero_point, _code(self)))


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
    """The range of integers that a dynamic quantization uses."""
    low, high = integer_limits(dtype)
    return (-(-low // 2), high // 2) if reduce_range else (low, high)


def dynamic_parameters(op: Emitter, value: Value, limits: Limits, dtype: int) -> tuple[Value, Value]:
    """The scale and zero point that spread the range of the tensor, zero included, over `limits`."""
    low, high = limits
    least = op.cast(op.Min(op.ReduceMin(value, keepdims=0), 0.0), DOUBLE)
    most = op.cast(op.Max(op.ReduceMax(value, keepdims=0), 0.0), DOUBLE)
    scale = op.Div(op.Sub(most, least), float(high - low))
    # any scale is right for a tensor of zeros
    scale = op.Where(op.Equal(op.cast(scale, FLOAT), 0.0), op.const(0.1, DOUBLE), scale)
    least, most = op.Div(least, scale), op.Div(most, scale)
    # as in torch's ChooseQuantizationParams: the end of the range with the smaller rounding error decides
    least_error, most_error = op.Sub(float(abs(low)), op.Abs(least)), op.Sub(float(abs(high)), op.Abs(most))
    zero = op.Where(op.Less(least_error, most_error), op.Sub(float(low), least), op.Sub(float(high), most))
    zero = op.Clip(op.Round(op.cast(zero, FLOAT)), min=float(low), max=float(high))
    return op.Max(op.cast(scale, FLOAT), _SMALLEST_SCALE), op.cast(zero, dtype)


# Fake quantization -------------------------------------------------------------------------------------------------


@lower("aten::fake_quantize_per_tensor_affine", "aten::fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize(op: Emitter, self: Value, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Value:
    """aten::fake_quantize_per_tensor_affine(Tensor self, float scale, int zero_point, int quant_min, int quant_max)
    -> Tensor
    """
    return _fake(op, self, scale, zero_point, None, (quant_min, quant_max))


@lower("aten::fake_quantize_per_channel_affine")
def fake_quantize_channels(
    op: Emitter, self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    """aten::fake_quantize_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min,
    int quant_max) -> Tensor
    """
    return _fake(op, self, scale, zero_point, axis % self.rank, (quant_min, quant_max))


@lower("aten::fake_quantize_per_tensor_affine_cachemask")
def fake_quantize_mask(
    op: Emitter, self: Value, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Value, Value]:
    """aten::fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, int zero_point, int quant_min,
    int quant_max) -> (Tensor output, Tensor mask)

    The mask is true where the number was not clipped.
    """
    limits = (quant_min, quant_max)
    mask = _inside(op, self, scale, zero_point, None, limits)
    return _fake(op, self, scale, zero_point, None, limits), mask


@lower("aten::fake_quantize_per_channel_affine_cachemask")
def fake_quantize_channels_mask(
    op: Emitter, self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> tuple[Value, Value]:
    """aten::fake_quantize_per_channel_affine_cachemask(Tensor self, Tensor scale, Tensor zero_point, int axis,
    int quant_min, int quant_max) -> (Tensor output, Tensor mask)
    """
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
    """aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(Tensor self, Tensor scale, Tensor zero_point,
    Tensor fake_quant_enabled, int quant_min, int quant_max) -> (Tensor output, Tensor mask)

    `fake_quant_enabled` is a number. Where it is 0, the tensor passes unchanged, and the mask is true everywhere.
    """
    limits = (quant_min, quant_max)
    enabled = op.cast(_scalar(op, fake_quant_enabled), BOOL)
    result = op.Where(enabled, _fake(op, self, scale, zero_point, None, limits), self)
    return result, op.Or(_inside(op, self, scale, zero_point, None, limits), op.Not(enabled))


def _scalar(op: Emitter, value: Value) -> Value:
    return qparam(op, value, value.dtype or INT64)


def _fake(op: Emitter, value: Value, scale: Any, zero_point: Any, axis: int | None, limits: Limits) -> Value:
    if value.dtype == DOUBLE:
        raise UnsupportedForm(
            "of float64 has no ONNX form, whose QuantizeLinear is float32; cast to float32 before",
            code="float64-unsupported",
        )
    _refuse_float_zero_points(zero_point)
    factor, zero = qparam(op, scale, FLOAT, axis), qparam(op, zero_point, integer_dtype_for(limits), axis)
    integers = quantize(op, value, factor, zero, axis, limits)
    return op.cast(dequantize(op, integers, factor, zero, axis), value.dtype)


def _inside(op: Emitter, value: Value, scale: Any, zero_point: Any, axis: int | None, limits: Limits) -> Value:
    factor, zero = qparam(op, scale, FLOAT, axis), qparam(op, zero_point, integer_dtype_for(limits), axis)
    count = quantized_steps(op, op.cast(value, FLOAT), factor, zero, axis)
    below, above = op.Less(count, float(limits[0])), op.Greater(count, float(limits[1]))
    return op.Not(op.Or(below, above))


def _refuse_float_zero_points(zero_point: Any) -> None:
    """Raises UnsupportedForm when the zero points are floats."""
    if isinstance(zero_point, Value) and dtypes.is_floating(zero_point.dtype):
        raise UnsupportedForm(
            "with float zero points has no ONNX form; round them before", code="zero-point-not-integer"
        )
