"""Pooling.  The traps are all at the border.

With ``ceil_mode`` torch lets a last window hang over the end if it starts inside the input or its left padding.
With known sizes that is written as extra padding at the end, which is exact at every opset; an average then leaves the
extra out of its count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.emitter import Emitter
from purexport.lowering.registry import lower


def _each(items: Sequence[int], count: int) -> list[int]:
    return list(items) * count if len(items) == 1 else list(items)


class _Window:
    """Kernel, stride, padding and dilation, one number an axis; ``extra`` is the overhang of ceil_mode."""

    def __init__(
        self,
        value: Value,
        rank: int,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> None:
        self.rank = rank
        self.kernel = _each(kernel_size, rank)
        self.stride = _each(stride, rank) if stride else self.kernel
        self.padding = _each(padding, rank)
        self.dilation = _each(dilation, rank)
        assert value.shape is not None
        self.sizes = value.shape[-rank:]
        self.extra = [self._overhang(axis) for axis in range(rank)] if ceil_mode else [0] * rank

    def _overhang(self, axis: int) -> int:
        size = self.sizes[axis]
        if not isinstance(size, int):
            raise UnsupportedForm("with ceil_mode=True needs spatial axes of known size")
        padding, stride = self.padding[axis], self.stride[axis]
        span = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        steps = -(-(size + 2 * padding - span) // stride)
        if steps * stride >= size + padding:
            steps -= 1  # the last window would start outside
        return max(steps * stride + span - (size + 2 * padding), 0)

    def pads(self, padding: Sequence[int] | None = None) -> list[int]:
        """ONNX pads: begins, then ends with the overhang."""
        begins = self.padding if padding is None else list(padding)
        return [*begins, *(begin + extra for begin, extra in zip(begins, self.extra, strict=True))]


def _batched(op: Emitter, value: Value, rank: int) -> Value:
    if value.rank == rank + 2:
        return value
    wide = op.Unsqueeze(value, [0])
    wide.shape = (1, *(value.shape or ()))
    return wide


def _unbatched(op: Emitter, result: Value, value: Value, rank: int) -> Value:
    if value.rank == rank + 2:
        return result
    return op.Squeeze(result, [0])


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
    rank = _spatial(op)
    window = _Window(self, rank, kernel_size, stride, padding, dilation, ceil_mode)
    result = op.MaxPool(
        _batched(op, self, rank),
        kernel_shape=window.kernel,
        strides=window.stride,
        pads=window.pads(),
        dilations=window.dilation if any(item != 1 for item in window.dilation) else None,
    )
    return _unbatched(op, result, self, rank)


def _spatial(op: Emitter) -> int:
    """The number of spatial axes, from the operator's own name: ``max_pool2d`` has 2."""
    return int(next(char for char in reversed(op.target.partition(".")[0]) if char.isdigit()))


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
    rank = _spatial(op)
    window = _Window(self, rank, kernel_size, stride, padding, (1,), ceil_mode)
    value = _batched(op, self, rank)
    count = torch.Size(window.kernel).numel()
    pads, include = window.pads(), count_include_pad
    if divisor_override is not None:
        include = True  # then every window is a sum over the whole kernel
    elif any(window.extra) and count_include_pad and any(window.padding):
        # padding counts and the overhang does not: pad first, then leave the overhang out
        value = op.Pad(value, op.ints([0, 0, *window.padding] * 2), mode="constant")
        pads, include = window.pads([0] * rank), False
    elif any(window.extra):
        include = False
    result = op.AveragePool(
        value, kernel_shape=window.kernel, strides=window.stride, pads=pads, count_include_pad=int(include)
    )
    if divisor_override is not None:
        result = op.Mul(result, op.like(count / divisor_override, result))
    return _unbatched(op, result, self, rank)


@lower(
    "aten::adaptive_avg_pool1d",
    "aten::adaptive_avg_pool2d",
    "aten::_adaptive_avg_pool2d",
    "aten::adaptive_avg_pool3d",
    "aten::_adaptive_avg_pool3d",
)
def adaptive_avg_pool(op: Emitter, self: Value, output_size: Sequence[int]) -> Value:
    rank = _spatial(op)
    value = _batched(op, self, rank)
    assert value.shape is not None
    sizes, wanted = value.shape[-rank:], list(output_size)
    if all(size == 1 for size in wanted):
        return _unbatched(op, op.GlobalAveragePool(value), self, rank)
    if sizes == tuple(wanted):
        return self
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < rank:
        raise UnsupportedForm(f"to {wanted} needs spatial axes of known size")
    if all(size % want == 0 for size, want in zip(known, wanted, strict=True)):
        kernel = [size // want for size, want in zip(known, wanted, strict=True)]
        return _unbatched(op, op.AveragePool(value, kernel_shape=kernel, strides=kernel), self, rank)
    if rank > 2:
        raise UnsupportedForm(f"from {known} to {wanted} does not divide, which has no rule yet in 3 dimensions")
    # windows of different sizes: a mean is linear, so each axis is a product with a matrix of weights
    result = op.MatMul(value, op.const(_weights(known[-1], wanted[-1], value).t().contiguous()))
    if rank == 2:
        result = op.MatMul(op.const(_weights(known[0], wanted[0], value)), result)
    return _unbatched(op, result, self, rank)


def _weights(size: int, wanted: int, value: Value) -> torch.Tensor:
    """[wanted, size]: row i averages from floor(i * size / wanted) up to ceil((i + 1) * size / wanted)."""
    rows = torch.zeros(wanted, size, dtype=torch.float64)
    for i in range(wanted):
        start, end = i * size // wanted, -(-(i + 1) * size // wanted)
        rows[i, start:end] = 1 / (end - start)
    return rows.to(dtypes.torch_dtype(value.dtype or dtypes.FLOAT))
