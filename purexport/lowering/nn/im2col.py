"""unfold and fold (im2col and col2im): the windows of an image as columns, and back by adding them up.

im2col gathers the windows by position, rows first and then columns, so dynamic sizes work. col2im is ONNX Col2Im. In
its form for known sizes before opset 18 an infinite element makes its neighbours NaN, since 0 times infinity is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import times, value_of
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.nn.pool import batched, unbatched
from purexport.lowering.support.common import dims_of, reshape


@lower("aten::im2col")
def im2col_rule(
    op: Emitter,
    self: Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor

    `self` is [N, C, H, W] or [C, H, W]; the result is [N, C * kh * kw, windows].
    """
    value = batched(op, self, 2)
    batch, channels, *sizes = dims_of(op, value)
    if any(padding):
        value = op.Pad(value, op.ints([0, 0, *padding] * 2), mode="constant")
    # [N, C, kh, oh, kw, ow]
    for axis, (size, kernel, step, pad, gap) in enumerate(
        zip(sizes, kernel_size, stride, padding, dilation, strict=True)
    ):
        value = op.Gather(value, _positions(op, size, kernel, step, pad, gap), axis=2 + 2 * axis)
    columns = op.Transpose(value, perm=[0, 1, 2, 4, 3, 5])
    depth = times(op, channels, *kernel_size)
    result = reshape(op, columns, [batch, depth, times(op, *dims_of(op, columns)[4:])])
    return result if self.rank == 4 else op.Squeeze(result, [0])


def _positions(op: Emitter, size: Any, kernel: int, step: int, pad: int, gap: int) -> Value:
    """[kernel, windows]: the row of the padded image that each row of the kernel reads in each window."""
    inside = op.const(torch.arange(kernel).reshape(kernel, 1) * gap)
    reach = op.Sub(value_of(op, size), op.const(gap * (kernel - 1) - 2 * pad))
    places = op.Range(op.const(0), reach, op.const(step))
    return op.Add(inside, op.Unsqueeze(places, [0]))


@lower("aten::col2im")
def col2im(
    op: Emitter,
    self: Value,
    output_size: Sequence[Any],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """aten::col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding,
    int[2] stride) -> Tensor

    Elements of overlapping windows are added up.
    """
    value = batched(op, self, 1)
    image = op.Col2Im(
        value,
        op.ints(output_size),
        list(kernel_size),
        dilations=list(dilation),
        pads=[*padding, *padding],
        strides=list(stride),
    )
    return unbatched(op, image, self, 1)
