"""Quantized operators.

torch has no fake tensors of a quantized dtype, and no shape functions for most of these operators.  So a float32 fake
tensor stands for each quantized tensor, and the plain operator gives the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from purexport.aten.graph import Call
from purexport.facts.fact import Aliases, Fact, alike

Tensor = torch.Tensor

_BINARY = "add add_relu mul mul_relu"
_ELEMENTWISE = (
    "batch_norm batch_norm_relu batch_norm1d batch_norm2d batch_norm3d batch_norm1d_relu batch_norm2d_relu "
    "batch_norm3d_relu leaky_relu hardswish layer_norm group_norm instance_norm elu celu sigmoid softmax prelu relu6 "
    "clamp threshold add_scalar add_scalar_relu mul_scalar mul_scalar_relu"
)
_CONVOLUTIONS = (
    "conv1d conv2d conv3d conv1d_relu conv2d_relu conv3d_relu conv1d_dynamic conv2d_dynamic conv3d_dynamic "
    "conv_transpose1d conv_transpose2d conv_transpose3d"
)
_LINEARS = "linear linear_relu linear_dynamic linear_relu_dynamic linear_dynamic_fp16 linear_relu_dynamic_fp16"


def _same(**arguments: Any) -> Tensor:
    """The first tensor, broadcast with a second operand."""
    first, *others = (item for item in arguments.values() if isinstance(item, Tensor))
    other = arguments.get("qb", arguments.get("b"))
    result: Tensor = first + other if isinstance(other, Tensor) and others else first
    return torch.empty_like(result, dtype=torch.float32)


def _linear(*, X: Tensor, W_prepack: Sequence[Any], **options: Any) -> Tensor:  # noqa: N803  torch's names
    return X.new_empty((*X.shape[:-1], W_prepack[0].shape[0]), dtype=torch.float32)


def _convolution(*, qx: Tensor, **options: Any) -> Tensor:
    packed = options["packed_weight"] if "packed_weight" in options else options["weight"]  # as overloads name it
    weight, _, stride, padding, output_padding, dilation, groups, transposed = packed
    value, kernel = qx.float(), weight.float()
    flat = value.dim() < kernel.dim()  # a kernel of one spatial axis is packed with two
    if flat:
        value = value.unsqueeze(2)
    if transposed:
        function: Callable[..., Tensor] = (
            functional.conv_transpose2d if kernel.dim() == 4 else functional.conv_transpose3d
        )
        result = function(value, kernel, None, stride, padding, output_padding, groups, dilation)
    else:
        plain: Callable[..., Tensor] = functional.conv2d if kernel.dim() == 4 else functional.conv3d
        result = plain(value, kernel, None, stride, padding, dilation, groups)
    return result.squeeze(2) if flat else result


def _matmul(*, qa: Tensor, qb: Tensor, **options: Any) -> Tensor:
    return torch.matmul(qa, qb)


def _cat(*, qx: Sequence[Tensor], dim: int, **options: Any) -> Tensor:
    return torch.cat(list(qx), dim)


def _embedding(*, weight: Sequence[Tensor], indices: Tensor, **options: Any) -> Tensor:
    return indices.new_empty((*indices.shape, weight[0].shape[1]), dtype=torch.float32)


def _of_self(**arguments: Any) -> Tensor:
    return torch.empty_like(arguments["self"], dtype=torch.float32)


def _dequantize(**arguments: Any) -> Any:
    several = arguments.get("tensors")
    return _same(**arguments) if several is None else [torch.empty_like(item) for item in several]


def _lstm(*, input: Tensor, hx: Sequence[Tensor], bidirectional: bool, **options: Any) -> tuple[Tensor, ...]:
    width = hx[0].shape[-1] * (2 if bidirectional else 1)
    return input.new_empty((*input.shape[:-1], width)), *(torch.empty_like(state) for state in hx)


def _gru(*, hx: Tensor, **options: Any) -> tuple[Tensor, ...]:
    return _lstm(hx=[hx], **options)


def _int_repr(call: Call) -> Callable[..., Any]:
    dtype = call.outputs[0].tensor.dtype
    return lambda self: torch.empty_like(self, dtype=dtype)


FACTS = (
    *alike(_BINARY, Fact("quantized::", shapes=dict.fromkeys(("", "out", "Scalar", "Scalar2", "Scalar_out"), _same))),
    *alike(_ELEMENTWISE, Fact("quantized::", shapes=_same)),
    Fact("quantized::dropout", aliases=Aliases.MAYBE, returns_itself=True, shapes=_same),
    *alike(_CONVOLUTIONS, Fact("quantized::", shapes=_convolution)),
    *alike(_LINEARS, Fact("quantized::", shapes=_linear)),
    Fact("quantized::matmul", shapes=_matmul),
    *alike("cat cat_relu", Fact("quantized::", shapes=_cat)),
    Fact("quantized::embedding_byte", shapes=_embedding),
    Fact("aten::int_repr", shape_of_call=_int_repr),
    Fact("aten::dequantize", shapes=_dequantize),
    *alike("quantize_per_channel quantize_per_tensor_dynamic", Fact("aten::", shapes=_of_self)),
    Fact("aten::quantize_per_tensor", shapes={"": _of_self, "tensor_qparams": _of_self}),
    Fact("aten::quantized_lstm", shapes=_lstm),
    Fact("aten::quantized_gru", shapes=_gru),
)
