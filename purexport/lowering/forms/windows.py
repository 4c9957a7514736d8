"""Convolutions and poolings for dtypes without a kernel: float64, and the integers that torch convolves.

A convolution gathers the windows of the padded input (im2col) and is one product of matrices; a transposed one is the
convolution of the input, with zeros between its elements, by the reversed kernel.  Poolings reduce one axis after the
other.  All of the sizes may be dynamic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.nn.windows import max_pool
from proto_schema.legalization.sizes import times
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.running import form
from purexport.lowering.support.common import dims_of, full, permute
from purexport.lowering.support.windows import windows


def _padded(op: Emitter, x: Value, pads: Sequence[int] | None, filler: Any = 0) -> Value:
    """The spatial axes with `pads`: all begins, then all ends.  A negative one takes elements away."""
    spatial = x.rank - 2
    if not pads or not any(pads):
        return x
    amounts = [0, 0, *pads[:spatial], 0, 0, *pads[spatial:]]
    return op.Pad(x, amounts, constant_value=op.like(filler, x) if filler else None, mode="constant")


def _all(numbers: Sequence[int] | None, spatial: int) -> list[int]:
    return list(numbers) if numbers else [1] * spatial


# Convolutions -------------------------------------------------------------------------------------------------------


@form("Conv")
def conv(
    op: Emitter,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
) -> Value:
    """The product of the weights, [group, M / group, C / group * kernel], with the windows of each group."""
    rank, spatial = x.rank, x.rank - 2
    steps, gaps = _all(strides, spatial), _all(dilations, spatial)
    kernel = [op.dim(weight, 2 + axis) for axis in range(spatial)]
    x = _padded(op, x, pads)
    for axis in range(spatial):
        x = windows(op, x, 2 + axis, kernel[axis], steps[axis], gaps[axis])
    lead, places = dims_of(op, x)[:2], dims_of(op, x)[2:rank]
    channels = op.dim(weight, 0)
    x = permute(op, x, [0, 1, *range(rank, rank + spatial), *range(2, rank)])
    depth = times(op, *(op.dim(weight, 1 + axis) for axis in range(1 + spatial)))
    columns = op.Reshape(x, op.ints([lead[0], group, depth, times(op, *places)]))
    rows = op.Reshape(weight, op.ints([group, -1, depth]))
    result = op.Reshape(op.MatMul(rows, columns), op.ints([lead[0], channels, *places]))
    if bias is not None:
        result = op.Add(result, op.Unsqueeze(bias, axes=list(range(1, 1 + spatial))))
    return result


@form("ConvTranspose")
def conv_transpose(
    op: Emitter,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    output_padding: Sequence[int] | None = None,
) -> Value:
    """`conv` of the input with strides - 1 zeros behind each element by the kernel from its end to its beginning."""
    rank, spatial = x.rank, x.rank - 2
    steps, gaps = _all(strides, spatial), _all(dilations, spatial)
    around, extra = list(pads or [0] * 2 * spatial), list(output_padding or [0] * spatial)
    if not weight.is_static:
        raise UnsupportedForm(
            "transposes a convolution with weights of unknown size in a dtype that runtimes do not convolve; "
            "convert to float32 first",
            code="value-not-known",
        )
    sizes = list(weight.sizes)
    for axis, step in enumerate(steps, 2):
        if step == 1:
            continue
        dims = dims_of(op, x)
        wide = op.Pad(
            op.Unsqueeze(x, axes=[axis + 1]), [0] * (rank + 1 + axis + 1) + [step - 1] + [0] * (rank - axis - 1)
        )
        stretched = times(op, dims[axis], step)
        x = op.Reshape(wide, op.ints([*dims[:axis], stretched, *dims[axis + 1 :]]))
    reach = [gap * (size - 1) for gap, size in zip(gaps, sizes[2:], strict=True)]
    begins = [far - pad for far, pad in zip(reach, around[:spatial], strict=True)]
    ends = [
        far - pad + more - (step - 1)
        for far, pad, more, step in zip(reach, around[spatial:], extra, steps, strict=True)
    ]
    for axis in range(2, rank):
        weight = op.Gather(weight, op.const(list(range(sizes[axis]))[::-1]), axis=axis)
    apart = op.Reshape(weight, [group, sizes[0] // group, *sizes[1:]])
    turned = op.Transpose(apart, perm=[0, 2, 1, *range(3, rank + 1)])
    kernels = op.Reshape(turned, [group * sizes[1], sizes[0] // group, *sizes[2:]])
    return conv(op, x, kernels, bias, pads=[*begins, *ends], dilations=gaps, group=group)


# Poolings -----------------------------------------------------------------------------------------------------------


@form("GlobalAveragePool")
def global_average_pool(op: Emitter, x: Value) -> Value:
    """The mean of each plane."""
    return op.ReduceMean(x, axes=list(range(2, x.rank)), keepdims=1)


@form("AveragePool")
def average_pool(
    op: Emitter,
    x: Value,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    count_include_pad: int = 0,
) -> Value:
    """The sum of each window by the number of its elements; the quotient of integers is truncated."""
    total = _sums(op, x, kernel_shape, strides, pads)
    if count_include_pad or not pads or not any(pads):
        return op.Div(total, op.like(math.prod(kernel_shape), total))
    ones = full(op, [1, 1, *dims_of(op, x)[2:]], 1, x.dtype or dtypes.FLOAT)
    return op.Div(total, _sums(op, ones, kernel_shape, strides, pads))


def _sums(
    op: Emitter, x: Value, kernel: Sequence[int], strides: Sequence[int] | None, pads: Sequence[int] | None
) -> Value:
    steps = _all(strides, x.rank - 2)
    x = _padded(op, x, pads)
    for axis, (size, step) in enumerate(zip(kernel, steps, strict=True), 2):
        x = op.ReduceSum(windows(op, x, axis, size, step), axes=[x.rank], keepdims=0)
    return x


form("MaxPool")(max_pool)
