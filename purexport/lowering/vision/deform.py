"""Deformable convolution: ONNX DeformConv where the opset has it (19), else a grid of samples and one
matrix product.
"""

from __future__ import annotations

import torch

from proto_schema.legalization.sizes import times
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.nn.grid import grid_sampler
from purexport.lowering.support.common import dims_of, reshape
from purexport.lowering.support.positions import int_range


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
    used = mask if use_mask else None
    if op.has("DeformConv"):
        native: Value = op.DeformConv(
            input,
            weight,
            offset,
            bias,
            used,
            kernel_shape=list(weight.sizes[2:]),
            strides=[stride_h, stride_w],
            pads=[pad_h, pad_w, pad_h, pad_w],
            dilations=[dilation_h, dilation_w],
            group=groups,
            offset_group=offset_groups,
        )
        return native
    steps = ((stride_h, pad_h, dilation_h), (stride_w, pad_w, dilation_w))
    read = _samples(op, input, weight, offset, steps, offset_groups)
    sizes = dims_of(op, offset)[2:]
    plane = times(op, *sizes)
    outputs, taken, taps = weight.sizes[0], weight.sizes[1], weight.sizes[2] * weight.sizes[3]
    if used is not None:
        read = reshape(op, read, [-1, offset_groups, taken * groups // offset_groups, taps, plane])
        read = op.Mul(read, reshape(op, used, [-1, offset_groups, 1, taps, plane]))
    columns = reshape(op, read, [-1, groups, taken * taps, plane])
    kernels = op.Reshape(weight, [1, groups, outputs // groups, taken * taps])
    result = reshape(op, op.MatMul(kernels, columns), [-1, outputs, *sizes])
    return op.Add(result, op.Reshape(bias, [1, -1, 1, 1]))


def _samples(
    op: Emitter,
    input: Value,
    weight: Value,
    offset: Value,
    steps: tuple[tuple[int, int, int], tuple[int, int, int]],
    parts: int,
) -> Value:
    """The input sampled at each tap of each output element: [n * parts, c / parts, taps * oh, ow]."""
    _, channels, *sizes = dims_of(op, input)
    wanted = dims_of(op, offset)[2:]
    taps = weight.sizes[2:]
    moved = reshape(op, offset, [-1, *taps, 2, *wanted])
    axes = []
    for axis, (stride, pad, dilation) in enumerate(steps):
        # the position of each tap on this axis before the offset is added
        at = op.Add(
            op.const((torch.arange(taps[axis]) * dilation - pad).reshape(-1, 1)),
            op.Mul(op.Unsqueeze(int_range(op, 0, wanted[axis]), [0]), op.const(stride)),
        )
        at = op.Unsqueeze(op.cast(at, offset.dtype), [1, 3] if axis == 0 else [0, 2])
        place = op.Add(op.Gather(moved, op.const(axis), axis=3), at)
        # GridSample without aligned corners has pixel p of n at (2p + 1) / n - 1
        one, two = op.like(1, offset), op.like(2, offset)
        grid = op.Sub(op.Div(op.Add(op.Mul(place, two), one), op.like(sizes[axis], offset)), one)
        axes.append(op.Unsqueeze(grid, [5]))
    grid = reshape(op, op.Concat(*axes[::-1], axis=5), [-1, times(op, *taps, wanted[0]), wanted[1], 2])
    images = reshape(op, input, [-1, channels // parts, *sizes])
    return grid_sampler(op, images, grid, 0, 0, False)
