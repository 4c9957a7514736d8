"""Convolutions of one to three spatial axes, plain and transposed, with or without a batch axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.sizes import minus, plus
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import each_axis, permute
from purexport.lowering.tensor.slices import slice_axis


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
    begins = [op.known(item) for item in each_axis(padding, spatial)]
    if not transposed and any(isinstance(item, Value) for item in begins):
        batched, begins = _padded(op, batched, begins, begins), [0] * spatial
    options: dict[str, Any] = {
        "strides": each_axis(stride, spatial),
        "dilations": each_axis(dilation, spatial),
        "group": groups,
        "pads": [*begins, *begins],
    }
    if weight.is_static:
        options["kernel_shape"] = list(weight.sizes[2:])
    if transposed:
        wanted = [op.known(item) for item in each_axis(output_padding, spatial)]
        # a computed one only shortens the result: torch allows less than a stride or a dilation
        largest = [max(pair) - 1 for pair in zip(options["strides"], options["dilations"], strict=True)]
        extra = [most if isinstance(item, Value) else item for item, most in zip(wanted, largest, strict=True)]
        # runtimes refuse an output padding of a stride or more: zeros at the end of the input have the same effect
        zeros = [more // step for more, step in zip(extra, options["strides"], strict=True)]
        if any(zeros):
            batched = op.Pad(batched, [0] * (spatial + 2) + [0, 0, *zeros], mode="constant")
            extra = [more % step for more, step in zip(extra, options["strides"], strict=True)]
        if any(extra):
            options["output_padding"] = extra
        result = op.ConvTranspose(batched, weight, bias, **options)
        for axis, (item, most) in enumerate(zip(wanted, largest, strict=True), 2):
            if isinstance(item, Value):
                end = minus(op, plus(op, op.dim(result, axis), item), most)
                result = slice_axis(op, result, axis, 0, end)
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
    spatial = weight.rank - 2
    sizes = [op.dim(weight, 2 + axis) for axis in range(spatial)]
    total = [_span(op, size, step) for size, step in zip(sizes, each_axis(dilation, spatial), strict=True)]
    begins = [_half(op, item) for item in total]
    ends = [minus(op, whole, begin) for whole, begin in zip(total, begins, strict=True)]
    batched = input if input.rank == weight.rank else op.Unsqueeze(input, [0])
    options: dict[str, Any] = {}
    if any(isinstance(item, Value) for item in total):
        batched = _padded(op, batched, begins, ends)
    else:
        options["pads"] = [*begins, *ends]  # the odd one goes to the end
    if weight.is_static:
        options["kernel_shape"] = list(weight.sizes[2:])
    result = op.Conv(
        batched,
        weight,
        bias,
        strides=each_axis(stride, spatial),
        dilations=each_axis(dilation, spatial),
        group=groups,
        **options,
    )
    return result if input.rank == weight.rank else op.Squeeze(result, [0])


def _span(op: Emitter, size: Any, dilation: int) -> Any:
    """How far a kernel of that size reaches beyond its first element."""
    return op.Mul(op.Sub(size, op.const(1)), op.const(dilation)) if isinstance(size, Value) else dilation * (size - 1)


def _half(op: Emitter, size: Any) -> Any:
    return op.Div(size, op.const(2)) if isinstance(size, Value) else size // 2


def _padded(op: Emitter, value: Value, begins: Sequence[Any], ends: Sequence[Any]) -> Value:
    """The spatial axes padded by zeros, of which some numbers are computed: ONNX Conv takes known numbers only."""
    return op.Pad(value, op.ints([0, 0, *begins, 0, 0, *ends]), mode="constant")


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
