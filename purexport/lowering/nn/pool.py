"""Pooling. The differences between torch and ONNX are about padding.

With `ceil_mode` torch allows a last window that reaches beyond the end, if it starts inside the input or its left
padding. ONNX's own ceil_mode came later (opset 10), and runtimes differ about that last window. So the overhang is
written as padding at the end: exact at every opset where the sizes are known, and a Pad by a computed amount where they
are dynamic. An average does not count the overhang.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import times, value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import dims_of, each_axis, full
from purexport.lowering.support.kernels import largest
from purexport.lowering.support.windows import windows


class _Window:
    """Kernel, stride, padding and dilation, one number for each axis; `extra` is the overhang of ceil_mode."""

    def __init__(
        self,
        op: Emitter,
        value: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> None:
        self.rank = rank = spatial_rank(op)
        self.kernel = each_axis(kernel_size, rank)
        self.stride = each_axis(stride, rank) if stride else self.kernel
        self.padding = each_axis(padding, rank)
        self.dilation = each_axis(dilation, rank)
        self.sizes = dims_of(op, value)[-rank:]
        self.extra = [self._overhang(op, axis) if ceil_mode else 0 for axis in range(rank)]

    def _overhang(self, op: Emitter, axis: int) -> Any:
        size, padding, stride = self.sizes[axis], self.padding[axis], self.stride[axis]
        span = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        if isinstance(size, int):
            steps = -(-(size + 2 * padding - span) // stride)
            if steps * stride >= size + padding:
                steps -= 1  # the last window would start in the right padding
            return max(steps * stride + span - (size + 2 * padding), 0)
        reach = op.Div(op.Add(size, op.const(2 * padding - span + stride - 1)), op.const(stride))
        reach = op.Mul(reach, op.const(stride))
        outside = op.Not(op.Less(reach, op.Add(size, op.const(padding))))
        reach = op.Sub(reach, op.Mul(op.cast(outside, dtypes.INT64), op.const(stride)))
        return largest(op, op.Sub(reach, op.Add(size, op.const(2 * padding - span))), op.const(0))

    @property
    def is_computed(self) -> bool:
        """True when the overhang depends on a dynamic size."""
        return any(isinstance(item, Value) for item in self.extra)

    @property
    def is_wide(self) -> bool:
        """True when the padding is not less than the kernel: runtimes refuse such a padding as an attribute."""
        return any(pad >= self.kernel[axis % self.rank] for axis, pad in enumerate(self.pads()))

    def pads(self, padding: Sequence[int] | None = None) -> list[int]:
        """ONNX pads: all begins, then all ends with the overhang, which must be known."""
        begins = self.padding if padding is None else list(padding)
        return [*begins, *(begin + extra for begin, extra in zip(begins, self.extra, strict=True))]

    def pad(self, op: Emitter, value: Value, begins: Sequence[int], ends: Sequence[int], filler: Any = 0) -> Value:
        """`value` with begins, ends and the overhang added to its spatial axes."""
        after = [
            op.Add(extra, op.const(end)) if isinstance(extra, Value) else end + extra
            for end, extra in zip(ends, self.extra, strict=True)
        ]
        constant = op.like(filler, value) if filler else None
        return op.Pad(value, op.ints([0, 0, *begins, 0, 0, *after]), constant_value=constant, mode="constant")


def spatial_rank(op: Emitter) -> int:
    """The number of spatial axes, read from the name of the operator: `max_pool2d_with_indices` has 2."""
    return int(next(char for char in op.target.partition(".")[0].partition("pool")[2] if char.isdigit()))


def batched(op: Emitter, value: Value, rank: int) -> Value:
    """`value` with a batch axis in front of channels and spatial axes."""
    if value.rank == rank + 2:
        return value
    return op.Unsqueeze(value, [0])


def unbatched(op: Emitter, result: Value, value: Value, rank: int) -> Value:
    """`result` without the batch axis that `batched` gave to `value`."""
    return result if value.rank == rank + 2 else op.Squeeze(result, [0])


# Numbers that are computed ------------------------------------------------------------------------------------------


def _is_computed(op: Emitter, *numbers: Sequence[Any]) -> bool:
    return any(isinstance(op.known(item), Value) for items in numbers for item in items)


def _over_windows(
    op: Emitter,
    value: Value,
    reduction: str,
    kernel_size: Sequence[Any],
    stride: Sequence[Any],
    padding: Sequence[Any],
    dilation: Sequence[Any] = (1,),
    ceil_mode: bool = False,
) -> Value:
    """The reduction over windows of which some numbers are computed, one axis after the other."""
    if ceil_mode:
        raise UnsupportedForm(
            "with ceil_mode takes no computed kernel, stride or padding; give them as numbers", code="value-not-known"
        )
    rank = spatial_rank(op)
    kernel, padding, dilation = (each_axis(item, rank) for item in (kernel_size, padding, dilation))
    steps = each_axis(stride, rank) if stride else kernel
    lead = value.rank - rank
    sizes = dims_of(op, value)[lead:]
    if any(op.known(item) != 0 for item in padding):
        filler = op.const(_lowest(value), value.dtype or dtypes.FLOAT) if reduction == "ReduceMax" else None
        around = op.ints([*[0] * lead, *padding] * 2)
        value = op.Pad(value, around, constant_value=filler, mode="constant")
        sizes = []
    for axis in range(rank):
        at = lead + axis
        if sizes and kernel[axis] is sizes[axis]:
            value = op.emit(reduction, value, axes=[at], keepdims=1)
        else:
            value = op.emit(
                reduction,
                windows(op, value, at, *(i[axis] for i in (kernel, steps, dilation))),
                axes=[value.rank],
                keepdims=0,
            )
    return value


def _lowest(value: Value) -> Any:
    dtype = dtypes.torch_dtype(value.dtype or dtypes.FLOAT)
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


# Maximum ------------------------------------------------------------------------------------------------------------


@lower("aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d")
def max_pool(
    op: Emitter,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Value:
    """aten::max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], int[1] dilation=[1],
    bool ceil_mode=False) -> Tensor

    Padding counts as minus infinity.
    """
    if _is_computed(op, kernel_size, stride, padding, dilation):
        return _over_windows(op, self, "ReduceMax", kernel_size, stride, padding, dilation, ceil_mode)
    window = _Window(op, self, kernel_size, stride, padding, dilation, ceil_mode)
    (result,) = _maximum(op, batched(op, self, window.rank), window, outputs=1)
    return unbatched(op, result, self, window.rank)


@lower("aten::max_pool1d_with_indices", "aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices")
def max_pool_with_indices(
    op: Emitter,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, ...]:
    """aten::max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0],
    int[1] dilation=[1], bool ceil_mode=False) -> (Tensor, Tensor)

    The second result is the position of each maximum within its plane, for equal elements that of the first.
    """
    window = _Window(op, self, kernel_size, stride, padding, dilation, ceil_mode)
    found = _maximum(op, batched(op, self, window.rank), window, outputs=2)
    return tuple(unbatched(op, item, self, window.rank) for item in found)


def _with_own_padding(op: Emitter, value: Value) -> Value:
    """`value`; where it was padded with zeros, with -0.0, or the number next to it where the filler is an attribute.

    ONNX Runtime (1.31 and before) makes one node of a Pad with 0.0 and MaxPool, whose own padding is no zero.
    """
    node = value.node
    if node is None or node.op_type != "Pad" or node.attributes.get("mode") not in (None, "constant"):
        return value
    source, pads, filler = (*node.inputs, None, None)[:3]
    number = node.attributes.get("value") if filler is None else filler.const
    if not isinstance(source, Value) or not dtypes.is_floating(value.dtype) or (number is None) is not (filler is None):
        return value
    if number is not None and number != 0:
        return value
    places = op.ints(list(node.attributes["pads"])) if pads is None else pads
    zero = -0.0 if op.has("Pad", "constant_value") else -1e-45
    padded: Value = op.Pad(source, places, constant_value=op.like(zero, value))
    return padded


def _maximum(op: Emitter, value: Value, window: _Window, outputs: int) -> tuple[Value, ...]:
    explicit = window.is_computed or window.is_wide
    padded = value = _with_own_padding(op, value)
    if explicit:
        padded = window.pad(op, value, window.padding, window.padding, _lowest(value))
    found = op.multi(
        "MaxPool",
        padded,
        outputs=outputs,
        kernel_shape=window.kernel,
        strides=window.stride,
        pads=None if explicit else window.pads(),
        dilations=window.dilation if any(item != 1 for item in window.dilation) else None,
    )
    return found if outputs == 1 else (found[0], _positions(op, found[1], padded, window, explicit))


def _positions(op: Emitter, indices: Value, padded: Value, window: _Window, explicit: bool) -> Value:
    """Positions within one plane of the input, as in torch, from ONNX's positions in the whole pooled tensor."""
    if not explicit:
        return _modulo(op, indices, value_of(op, times(op, *window.sizes)))
    position, rest, shape = op.const(0), indices, op.Shape(padded)
    for axis in reversed(range(window.rank)):
        size = op.Gather(shape, op.const(axis + 2), axis=0)
        step = op.Sub(_modulo(op, rest, size), op.const(window.padding[axis]))
        position = op.Add(position, op.Mul(step, value_of(op, times(op, *window.sizes[axis + 1 :]))))
        rest = op.Div(rest, size)
    return position


def _modulo(op: Emitter, value: Value, divisor: Value) -> Value:
    return op.Mod(value, divisor)


@lower("aten::max_unpool2d", "aten::max_unpool3d")
def max_unpool(
    op: Emitter, self: Value, indices: Value, output_size: Sequence[Any], stride: Any = None, padding: Any = None
) -> Value:
    """aten::max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor

    `output_size` gives the size: stride and padding are not needed.
    """
    lead = dims_of(op, self)[: self.rank - spatial_rank(op)]
    flat = [*[0] * len(lead), -1]
    zeros = full(op, [*lead, value_of(op, times(op, *output_size))], 0, op.result_dtype)
    written = op.ScatterElements(zeros, op.Reshape(indices, flat), op.Reshape(self, flat), axis=len(lead))
    return op.Reshape(written, op.ints([*flat[:-1], *output_size]))


# Average ------------------------------------------------------------------------------------------------------------


@lower("aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d")
def avg_pool(
    op: Emitter,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """aten::avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], bool ceil_mode=False,
    bool count_include_pad=True) -> Tensor

    `divisor_override` replaces the number of elements. With `count_include_pad` padding is counted, but never the
    overhang of `ceil_mode`.
    """
    if _is_computed(op, kernel_size, stride, padding):
        if divisor_override is not None or not (count_include_pad or all(op.known(item) == 0 for item in padding)):
            raise UnsupportedForm(
                "of a computed kernel, stride or padding counts all elements of a window; give them as numbers",
                code="value-not-known",
            )
        return _over_windows(op, self, "ReduceMean", kernel_size, stride, padding, ceil_mode=ceil_mode)
    window = _Window(op, self, kernel_size, stride, padding, ceil_mode=ceil_mode)
    value = batched(op, self, window.rank)
    if not dtypes.is_floating(value.dtype) and (divisor_override is not None or window.is_computed):
        if window.is_computed:
            raise UnsupportedForm(
                "of integers takes no ceil_mode with a dynamic size; convert to float first", code="form-without-rule"
            )
        total = _sum_over_kernel(op, value, window)
        result = op.Div(total, op.like(divisor_override, total))
    elif divisor_override is not None:
        # each window is the sum over the whole kernel, divided by the given number
        mean = _mean_over_kernel(op, value, window)
        result = op.Mul(mean, op.like(math.prod(window.kernel) / divisor_override, mean))
    elif window.is_computed:
        counted = _counted(op, value, window, count_include_pad)
        result = op.Div(_mean_over_kernel(op, value, window), counted)
    else:
        result = _average(op, value, window, count_include_pad)
    return unbatched(op, result, self, window.rank)


def _average(op: Emitter, value: Value, window: _Window, count_include_pad: bool) -> Value:
    pads, include = window.pads(), count_include_pad and not any(window.extra)
    if any(window.extra) and count_include_pad and any(window.padding):
        # padding counts and the overhang does not: pad first, then pool without counting the overhang
        value = op.Pad(value, op.ints([0, 0, *window.padding] * 2), mode="constant")
        pads = window.pads([0] * window.rank)
    return _pooled(op, value, window, pads, include)


def _pooled(op: Emitter, value: Value, window: _Window, pads: list[int] | None, include: bool) -> Value:
    return op.AveragePool(
        value, kernel_shape=window.kernel, strides=window.stride, pads=pads, count_include_pad=int(include)
    )


def _mean_over_kernel(op: Emitter, value: Value, window: _Window) -> Value:
    """The mean over the whole kernel, where padding and overhang are zeros."""
    if not window.is_computed:
        return _pooled(op, value, window, window.pads(), True)
    return _pooled(op, window.pad(op, value, window.padding, window.padding), window, None, True)


def _sum_over_kernel(op: Emitter, value: Value, window: _Window) -> Value:
    """The sum over the whole kernel, where padding and overhang are zeros; of integers, whose mean would be rounded."""
    value = window.pad(op, value, window.padding, window.padding)
    for axis, (size, step) in enumerate(zip(window.kernel, window.stride, strict=True), 2):
        value = op.ReduceSum(windows(op, value, axis, size, step), axes=[window.rank + 2], keepdims=0)
    return value


def _counted(op: Emitter, value: Value, window: _Window, count_include_pad: bool) -> Value:
    """The share of each window that an average counts, in [0, 1]; shape [1, 1, *output]."""
    counted_padding = window.padding if count_include_pad else [0] * window.rank
    sizes = [
        op.Add(size, op.const(2 * pad)) if isinstance(size, Value) else size + 2 * pad
        for size, pad in zip(window.sizes, counted_padding, strict=True)
    ]
    rest = [pad - counted for pad, counted in zip(window.padding, counted_padding, strict=True)]
    ones = full(op, [1, 1, *sizes], 1, value.dtype or dtypes.FLOAT)
    return _pooled(op, window.pad(op, ones, rest, rest), window, None, True)
