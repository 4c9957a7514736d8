"""Layers on quantized tensors: DequantizeLinear of the integer weights, the float operator, QuantizeLinear.

Runtimes recognize this pattern and run integer kernels. Weights are stored as their integers. Source: the kernels in
torch's `aten/src/ATen/native/quantized/cpu`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from purexport.dtypes import FLOAT, FLOAT16, UINT8
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_quantized
from purexport.lowering.nn.conv import convolution
from purexport.lowering.quantized.conversions import dynamic_limits, dynamic_parameters
from purexport.lowering.support.common import swap_last
from purexport.lowering.support.qdq import (
    Quantized,
    as_quantized,
    dequantize,
    dequantized,
    qparam,
    quantize,
    requantized,
)

Packed = Sequence[Any]  # as purexport.frontends.core.prepacked lists them


def like(op: Emitter, value: Value, tensor: Quantized, scale: Any, zero_point: Any) -> Quantized:
    """`value` with a scale and zero point of its own, in the integer dtype of `tensor`."""
    assert tensor.integers.dtype is not None
    return as_quantized(op, value, scale, zero_point, tensor.integers.dtype)


# Linear -------------------------------------------------------------------------------------------------------------


@lower_quantized("quantized::linear")
def linear(op: Emitter, X: Quantized, W_prepack: Packed, Y_scale_i: float, Y_zero_point_i: int) -> Quantized:  # noqa: N803
    """quantized::linear(Tensor X, __torch__.torch.classes.quantized.LinearPackedParamsBase W_prepack, float Y_scale_i,
    int Y_zero_point_i) -> Tensor Y
    """
    return like(op, _product(op, dequantized(op, X), W_prepack), X, Y_scale_i, Y_zero_point_i)


@lower_quantized("quantized::linear_relu")
def linear_relu(op: Emitter, X: Quantized, W_prepack: Packed, Y_scale_i: float, Y_zero_point_i: int) -> Quantized:  # noqa: N803
    """quantized::linear_relu(Tensor X, __torch__.torch.classes.quantized.LinearPackedParamsBase W_prepack,
    float Y_scale_i, int Y_zero_point_i) -> Tensor Y
    """
    return like(op, op.Relu(_product(op, dequantized(op, X), W_prepack)), X, Y_scale_i, Y_zero_point_i)


@lower_quantized("quantized::linear_dynamic")
def linear_dynamic(op: Emitter, X: Value, W_prepack: Packed, reduce_range: bool = False) -> Value:  # noqa: N803
    """quantized::linear_dynamic(Tensor X, __torch__.torch.classes.quantized.LinearPackedParamsBase W_prepack,
    bool reduce_range=False) -> Tensor Y

    The input is quantized with the range that it has at run time.
    """
    return _product(op, dequantized(op, dynamically(op, X, reduce_range)), W_prepack)


@lower_quantized("quantized::linear_relu_dynamic")
def linear_relu_dynamic(op: Emitter, X: Value, W_prepack: Packed, reduce_range: bool = False) -> Value:  # noqa: N803
    """quantized::linear_relu_dynamic(Tensor X, __torch__.torch.classes.quantized.LinearPackedParamsBase W_prepack,
    bool reduce_range=False) -> Tensor Y
    """
    return op.Relu(_product(op, dequantized(op, dynamically(op, X, reduce_range)), W_prepack))


@lower("quantized::linear_dynamic_fp16")
def linear_half(op: Emitter, X: Value, W_prepack: Packed) -> Value:  # noqa: N803
    """quantized::linear_dynamic_fp16(Tensor X, __torch__.torch.classes.quantized.LinearPackedParamsBase W_prepack)
    -> Tensor Y

    The weight is float16, the computation float32.
    """
    return _product(op, X, W_prepack)


def dynamically(op: Emitter, value: Value, reduce_range: bool) -> Quantized:
    """`value` quantized to 8 bits (7 with `reduce_range`) of its range at run time."""
    scale, zero = dynamic_parameters(op, value, dynamic_limits(UINT8, reduce_range), UINT8)
    return Quantized(quantize(op, value, scale, zero), scale, zero)


def _product(op: Emitter, value: Value, packed: Packed) -> Value:
    """`value` [..., n] @ weight [m, n] transposed, plus bias [m]."""
    weight, bias = packed
    result = op.MatMul(value, swap_last(op, _weight(op, weight)))
    return result if bias is None else op.Add(result, bias)


def _weight(op: Emitter, weight: Any) -> Value:
    if isinstance(weight, Quantized):
        return dequantized(op, weight)
    assert weight.const is not None
    return op.cast(op.const(weight.const.half(), FLOAT16, weight.name), FLOAT)


@lower("aten::_weight_int8pack_mm")
def weight_only(op: Emitter, self: Value, mat2: Value, scales: Value) -> Value:
    """aten::_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor

    `self` [m, k] @ `mat2` [n, k] transposed; each row of the integers `mat2` has a scale.
    """
    weight = dequantize(op, mat2, qparam(op, scales, FLOAT, 0), None, 0)
    return op.cast(op.MatMul(op.cast(self, FLOAT), swap_last(op, weight)), self.dtype)


# Convolutions -------------------------------------------------------------------------------------------------------


def _no_change(op: Emitter, value: Value) -> Value:
    return value


def _relu(op: Emitter, value: Value) -> Value:
    result: Value = op.Relu(value)
    return result


def _layer(after: Callable[[Emitter, Value], Value]) -> Callable[..., Quantized]:
    def rule(
        op: Emitter, qx: Quantized, packed_weight: Packed, output_scale: float, output_zero_point: int
    ) -> Quantized:
        value = after(op, _convolved(op, dequantized(op, qx), packed_weight))
        return like(op, value, qx, output_scale, output_zero_point)

    return rule


lower_quantized(
    "quantized::conv1d",
    "quantized::conv2d.new",
    "quantized::conv3d.new",
    "quantized::conv_transpose1d",
    "quantized::conv_transpose2d",
    "quantized::conv_transpose3d",
)(_layer(_no_change))
lower_quantized("quantized::conv1d_relu", "quantized::conv2d_relu.new", "quantized::conv3d_relu.new")(_layer(_relu))


@lower_quantized("quantized::conv1d_dynamic", "quantized::conv2d_dynamic")
def conv_dynamic(op: Emitter, qx: Value, packed_weight: Packed, reduce_range: bool = False) -> Value:
    """quantized::conv1d_dynamic(Tensor qx, __torch__.torch.classes.quantized.Conv2dPackedParamsBase packed_weight,
    bool reduce_range=False) -> Tensor

    torch quantizes the result too, with the scale and zero point that it chose for the input.
    """
    tensor = dynamically(op, qx, reduce_range)
    result = _convolved(op, dequantized(op, tensor), packed_weight)
    return dequantized(op, requantized(op, result, tensor))


def _convolved(op: Emitter, value: Value, packed: Packed) -> Value:
    weight, bias, stride, padding, output_padding, dilation, groups, transposed = packed
    kernel = dequantized(op, weight)
    flat = value.rank < kernel.rank  # a kernel with one spatial axis is packed with two, the first of size 1
    if flat:
        value = op.Unsqueeze(value, [2])
    result = convolution(op, value, kernel, bias, stride, padding, dilation, transposed, output_padding, groups)
    return op.Squeeze(result, [2]) if flat else result


# Embeddings ---------------------------------------------------------------------------------------------------------


@lower_quantized("quantized::embedding_byte")
def quantized_embedding(op: Emitter, weight: Packed, indices: Value, pruned_weights: bool = False) -> Value:
    """quantized::embedding_byte(__torch__.torch.classes.quantized.EmbeddingPackedParamsBase weight, Tensor indices,
    bool pruned_weights=False) -> Tensor

    Each row of integers has its own scale and a float zero point.
    """
    if pruned_weights:
        raise UnsupportedForm(
            "with pruned weights has no ONNX form; quantize the embedding without pruning", code="no-onnx-form"
        )
    (table,) = weight
    last = [-1]
    rows = op.cast(op.Gather(table.integers, indices, axis=0), FLOAT)
    scale, zero = (op.Unsqueeze(op.Gather(item, indices, axis=0), last) for item in (table.scale, table.zero_point))
    return op.Mul(op.Sub(rows, zero), scale)
