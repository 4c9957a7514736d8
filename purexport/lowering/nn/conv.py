"""Convolutions of one to three spatial axes, plain and transposed, with or without a batch axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import each_axis, permute


@lower("aten::_convolution", "aten::_convolution.deprecated", "aten::convolution")
def convolution(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """aten::_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding,
    SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool benchmark, bool deterministic,
    bool cudnn_enabled, bool allow_tf32) -> Tensor

    The general form that all convolutions of torch share. Without a batch axis the input has rank 1 less.
    """
    spatial = weight.rank - 2
    if op.known(op.dim(weight, 1)) == 0:
        raise UnsupportedForm(
            "without input channels has no ONNX form: then torch returns no channels", code="no-onnx-form"
        )
    batched = input if input.rank == weight.rank else op.Unsqueeze(input, [0])
    begins = each_axis(padding, spatial)
    options: dict[str, Any] = {
        "strides": each_axis(stride, spatial),
        "dilations": each_axis(dilation, spatial),
        "group": groups,
        "pads": [*begins, *begins],
    }
    if weight.is_static:
        options["kernel_shape"] = list(weight.sizes[2:])
    if transposed:
        extra = each_axis(output_padding, spatial)
        # runtimes refuse an output padding of a stride or more: zeros at the end of the input have the same effect
        zeros = [more // step for more, step in zip(extra, options["strides"], strict=True)]
        if any(zeros):
            batched = op.Pad(batched, [0] * (spatial + 2) + [0, 0, *zeros], mode="constant")
            extra = [more % step for more, step in zip(extra, options["strides"], strict=True)]
        if any(extra):
            options["output_padding"] = extra
        result = op.ConvTranspose(batched, weight, bias, **options)
    else:
        result = op.Conv(batched, weight, bias, **options)
    return result if input.rank == weight.rank else op.Squeeze(result, [0])


def _plain(
    op: Emitter, input: Value, weight: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Value:
    return convolution(op, input, weight, bias, stride, padding, dilation, False, [0], groups)


@lower("aten::conv1d", "aten::conv2d", "aten::conv3d")
def conv_rule(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Value:
    """aten::conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], SymInt[1] padding=[0],
    SymInt[1] dilation=[1], SymInt groups=1) -> Tensor
    """
    return _plain(op, input, weight, bias, stride, padding, dilation, groups)


@lower("aten::conv1d.padding", "aten::conv2d.padding", "aten::conv3d.padding", "aten::_convolution_mode")
def conv_padding(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: str = "valid",
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Value:
    """aten::conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], str padding="valid",
    SymInt[1] dilation=[1], SymInt groups=1) -> Tensor

    `padding` is "valid" or "same". With "same" and an odd total the extra zero goes to the end, as in ONNX's
    SAME_UPPER.
    """
    if padding == "valid":
        return _plain(op, input, weight, bias, stride, [0], dilation, groups)
    if not weight.is_static:
        raise UnsupportedForm("with padding='same' needs a kernel of known size", code="size-not-known")
    total = [d * (k - 1) for d, k in zip(each_axis(dilation, weight.rank - 2), weight.sizes[2:], strict=True)]
    begins = [t // 2 for t in total]
    batched = input if input.rank == weight.rank else op.Unsqueeze(input, [0])
    result = op.Conv(
        batched,
        weight,
        bias,
        strides=each_axis(stride, len(total)),
        dilations=each_axis(dilation, len(total)),
        group=groups,
        pads=[*begins, *(t - b for t, b in zip(total, begins, strict=True))],  # the odd one goes to the end
        kernel_shape=list(weight.sizes[2:]),
    )
    return result if batched is input else op.Squeeze(result, [0])


@lower("aten::conv_transpose1d", "aten::conv_transpose2d.input", "aten::conv_transpose3d.input")
def conv_transpose(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Value:
    """aten::conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1],
    SymInt[1] padding=[0], SymInt[1] output_padding=[0], SymInt groups=1, SymInt[1] dilation=[1]) -> Tensor
    """
    return convolution(op, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@lower("aten::conv_tbc")
def conv_tbc(op: Emitter, self: Value, weight: Value, bias: Value, pad: int = 0) -> Value:
    """aten::conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor

    `self` is [T, B, C], `weight` [K, C, O] and `bias` [O]; the result is [T', B, O]: time first and channels last.
    """
    value, kernel = permute(op, self, [1, 2, 0]), permute(op, weight, [2, 1, 0])
    return op.Transpose(_plain(op, value, kernel, bias, [1], [pad], [1], 1), perm=[2, 0, 1])
