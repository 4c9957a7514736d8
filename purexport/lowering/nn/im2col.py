"""unfold and fold (im2col and col2im): the windows of an image as columns, and back by adding them up.

im2col gathers the windows by position, rows first and then columns, so dynamic sizes work. col2im is ONNX Col2Im since
opset 18. Before, it is a transposed convolution whose weights put each element in its place; there an infinite element
makes its neighbours NaN, since 0 times infinity is NaN. To a computed size the elements are added at their positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import times, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.nn.pool import batched, unbatched
from purexport.lowering.support.common import dims_of, full, reshape


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
    begins = list(padding)
    if op.has("Col2Im"):
        image = op.Col2Im(
            value,
            op.ints(output_size),
            list(kernel_size),
            dilations=list(dilation),
            pads=[*begins, *begins],
            strides=list(stride),
        )
        return unbatched(op, image, self, 1)
    if any(isinstance(op.known(size), Value) for size in output_size):
        return unbatched(op, _added_up(op, value, output_size, kernel_size, dilation, padding, stride), self, 1)
    places, missing = [], []
    for size, kernel, step, pad, gap in zip(output_size, kernel_size, stride, padding, dilation, strict=True):
        span = gap * (kernel - 1) + 1
        places.append((size + 2 * pad - span) // step + 1)
        missing.append(size + 2 * pad - span - (places[-1] - 1) * step)
    count = kernel_size[0] * kernel_size[1]
    dtype = dtypes.torch_dtype(value.dtype or dtypes.FLOAT)
    weights = torch.eye(count, dtype=dtype).reshape(count, 1, *kernel_size)
    planes = op.ConvTranspose(
        op.Reshape(value, op.ints([-1, count, *places])),
        op.const(weights),
        kernel_shape=list(kernel_size),
        dilations=list(dilation),
        pads=[*begins, *begins],
        strides=list(stride),
        output_padding=missing,
    )
    batch, rows = dims_of(op, value)[:2]
    channels = rows // count if isinstance(rows, int) else op.Div(rows, op.const(count))
    return unbatched(op, reshape(op, planes, [batch, channels, *output_size]), self, 1)


def _added_up(
    op: Emitter,
    value: Value,
    output_size: Sequence[Any],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """The elements added up at their positions in the padded image, whose padding is then taken away."""
    sizes = [value_of(op, op.known(size)) for size in output_size]
    wide = [op.Add(size, op.const(2 * pad)) for size, pad in zip(sizes, padding, strict=True)]
    down, across = (
        _positions(op, size, kernel, step, pad, gap)
        for size, kernel, step, pad, gap in zip(sizes, kernel_size, stride, padding, dilation, strict=True)
    )
    # [kh, kw, oh, ow]
    rows = op.Mul(op.Unsqueeze(down, [1, 3]), wide[1])
    places = op.Reshape(op.Add(rows, op.Unsqueeze(across, [0, 2])), [1, -1])
    batch, depth = dims_of(op, value)[:2]
    count = kernel_size[0] * kernel_size[1]
    channels = depth // count if isinstance(depth, int) else op.Div(depth, op.const(count))
    planes = value_of(op, times(op, batch, channels))
    parts = op.Reshape(value, op.ints([planes, -1]))
    zeros = full(op, [planes, op.Mul(*wide)], 0, value.dtype or dtypes.FLOAT)
    added = op.ScatterElements(zeros, op.Expand(places, op.Shape(parts)), parts, axis=1, reduction="add")
    image = reshape(op, added, [batch, channels, *wide])
    ends = op.ints([op.Add(size, op.const(pad)) for size, pad in zip(sizes, padding, strict=True)])
    return op.Slice(image, list(padding), ends, axes=[2, 3])
