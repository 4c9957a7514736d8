"""Deformable convolution: ONNX DeformConv."""

from __future__ import annotations

from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower


@lower("torchvision::deform_conv2d")
def deform_conv2d(
    op: Emitter,
    input: Value,
    weight: Value,
    offset: Value,
    mask: Value,
    bias: Value,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Value:
    """torchvision::deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h,
    SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups,
    SymInt offset_groups, bool use_mask) -> Tensor

    `input` is [n, c, h, w] and `offset` [n, offset_groups * taps * 2, oh, ow], with y before x.
    """
    return op.DeformConv(
        input,
        weight,
        offset,
        bias,
        mask if use_mask else None,
        kernel_shape=list(weight.sizes[2:]),
        strides=[stride_h, stride_w],
        pads=[pad_h, pad_w, pad_h, pad_w],
        dilations=[dilation_h, dilation_w],
        group=groups,
        offset_group=offset_groups,
    )
