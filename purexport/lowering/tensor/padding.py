"""Padding, rolling, and the exchange of pixels with channels.

Negative padding removes elements, before anything is added. Where this opset's Pad does not take the dtype or the mode,
the padding is concatenated to the tensor, or its positions are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.sizes import minus
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import INT64_MAX, axis_of, dims_of, full, permute, reshape, reshape_to_result
from purexport.lowering.support.kernels import largest
from purexport.lowering.tensor.slices import slice_axis

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
# the dtypes that ONNX Runtime's Pad has kernels for; the schema allows more
_PADDED = (dtypes.FLOAT, dtypes.DOUBLE, dtypes.INT32, dtypes.INT64)


@lower("aten::pad", "aten::_pad_enum")
def pad(op: Emitter, self: Value, pad: Sequence[Any], mode: Any = "constant", value: Any = None) -> Value:
    """aten::pad(Tensor self, SymInt[] pad, str mode="constant", float? value=None) -> Tensor

    `_pad_enum` numbers the modes.
    """
    name = _MODES[mode] if isinstance(mode, str) else ("reflect", "edge", "wrap", "constant")[mode]
    return _pad(op, self, pad, name, 0 if value is None else value)


@lower("aten::pad_sequence")
def pad_sequence(
    op: Emitter,
    sequences: Sequence[Value],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Value:
    """aten::pad_sequence(Tensor[] sequences, bool batch_first=False, float padding_value=0., str padding_side="right")
    -> Tensor

    Tensors with first axes of any lengths become one tensor, as long as the longest of them.
    """
    lengths = [op.dim(item, 0) for item in sequences]
    known = [length for length in lengths if isinstance(length, int)]
    computed = [length for length in lengths if not isinstance(length, int)]
    longest = op.Max(*computed, *([max(known)] if known else [])) if computed else max(known)
    rows = []
    for item, length in zip(sequences, lengths, strict=True):
        missing = minus(op, longest, length)
        ends = [0, missing] if padding_side == "right" else [missing, 0]
        padded = _pad(op, item, [*[0, 0] * (item.rank - 1), *ends], "constant", padding_value)
        rows.append(op.Unsqueeze(padded, [0 if batch_first else 1]))
    return op.Concat(*rows, axis=0 if batch_first else 1)


@lower("aten::constant_pad_nd")
def constant_pad_nd(op: Emitter, self: Value, pad: Sequence[Any], value: Any = 0) -> Value:
    """aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor

    `pad` lists pairs from the last axis on. Negative numbers remove elements.
    """
    return _pad(op, self, pad, "constant", value)


@lower("aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d")
def reflection_pad(op: Emitter, self: Value, padding: Sequence[Any]) -> Value:
    """aten::reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor"""
    return _pad(op, self, padding, "reflect", 0)


@lower("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d")
def replication_pad(op: Emitter, self: Value, padding: Sequence[Any]) -> Value:
    """aten::replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor"""
    return _pad(op, self, padding, "edge", 0)


@lower("aten::_pad_circular")
def circular_pad(op: Emitter, self: Value, pad: Sequence[Any]) -> Value:
    """aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor

    ONNX Pad has the mode "wrap" since opset 19.
    """
    return _pad(op, self, pad, "wrap", 0)


def _pad(op: Emitter, value: Value, pad: Sequence[Any], mode: str, filler: Any) -> Value:
    """torch lists pairs of begin and end from the last axis on; ONNX lists all begins, then all ends."""
    begins: list[Any] = [0] * value.rank
    ends: list[Any] = [0] * value.rank
    for index in range(len(pad) // 2):
        begins[-1 - index], ends[-1 - index] = op.known(pad[2 * index]), op.known(pad[2 * index + 1])
    # where one end is cut and the other is padded, the padding is read from the elements before the cut
    mixed = [axis for axis in range(value.rank) if mode == "edge" and _has_both_signs(begins[axis], ends[axis])]
    value = _gathered(op, value, mixed, begins, ends, mode)
    for axis in mixed:
        begins[axis] = ends[axis] = 0
    for axis in range(value.rank):
        value = _cut(op, value, axis, begins, ends)
    padded = [axis for axis in range(value.rank) if begins[axis] != 0 or ends[axis] != 0]
    if not padded:
        return value
    if mode == "wrap":
        return _concat_padding(op, value, padded, begins, ends, None)
    narrowed = value.dtype == dtypes.DOUBLE and not op.has("Pad", "constant_value")  # the attribute is a float32
    if not op.takes("Pad", value.dtype) or value.dtype not in _PADDED or narrowed:
        if mode == "constant":
            return _concat_padding(op, value, padded, begins, ends, filler)
        return _gathered(op, value, padded, begins, ends, mode)
    constant = op.like(filler, value) if mode == "constant" and (isinstance(filler, Value) or filler) else None
    return op.Pad(value, op.ints([*begins, *ends]), constant_value=constant, mode=mode)


def _has_both_signs(begin: Any, end: Any) -> bool:
    return isinstance(begin, int) and isinstance(end, int) and min(begin, end) < 0 < max(begin, end)


def _cut(op: Emitter, value: Value, axis: int, begins: list[Any], ends: list[Any]) -> Value:
    """Remove the negative padding of one axis, and set it to zero in `begins` and `ends`."""
    begin, end = begins[axis], ends[axis]
    start = -begin if isinstance(begin, int) and begin < 0 else 0
    stop = end if isinstance(end, int) and end < 0 else INT64_MAX
    if start == 0 and stop == INT64_MAX:
        return value
    begins[axis], ends[axis] = 0 if start else begin, 0 if stop < 0 else end
    return slice_axis(op, value, axis, start, stop)


def _concat_padding(
    op: Emitter, value: Value, axes: Sequence[int], begins: Sequence[Any], ends: Sequence[Any], filler: Any
) -> Value:
    """`value` concatenated with its padding on each axis: numbers `filler`, or slices of the other end where that is
    None.
    """
    for axis in axes:
        inputs = [value]
        if begins[axis] != 0:
            inputs.insert(0, _padding_of(op, value, axis, begins[axis], filler, front=True))
        if ends[axis] != 0:
            inputs.append(_padding_of(op, value, axis, ends[axis], filler, front=False))
        value = op.Concat(*inputs, axis=axis)
    return value


def _padding_of(op: Emitter, value: Value, axis: int, width: Any, filler: Any, *, front: bool) -> Value:
    if filler is not None:
        dims = dims_of(op, value)
        dims[axis] = width
        return full(op, dims, filler, value.dtype or dtypes.FLOAT)
    if not front:
        return slice_axis(op, value, axis, 0, width)
    return slice_axis(op, value, axis, minus(op, op.dim(value, axis), width), INT64_MAX)


def _gathered(
    op: Emitter, value: Value, axes: Sequence[int], begins: Sequence[Any], ends: Sequence[Any], mode: str
) -> Value:
    for axis in axes:
        size, begin, end = op.dim(value, axis), begins[axis], ends[axis]
        if not (isinstance(size, int) and isinstance(begin, int) and isinstance(end, int)):
            raise UnsupportedForm(
                f"in mode {mode!r} on a dynamic axis has no rule for this dtype; pad in float32", code="size-not-known"
            )
        positions = range(-begin, size + end)
        if mode == "edge":
            found = [min(max(position, 0), size - 1) for position in positions]
        else:
            found = [size - 1 - abs(size - 1 - abs(position)) for position in positions]
        value = op.Gather(value, op.const(found), axis=axis)
    return value


# Rolling ------------------------------------------------------------------------------------------------------------


@lower("aten::roll")
def roll(op: Emitter, self: Value, shifts: Any, dims: Any = ()) -> Value:
    """aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor

    Without `dims` the flattened tensor is rolled.
    """
    if not self.rank:
        return self
    if not dims:
        flat = _roll_axis(op, reshape(op, self, [-1]), shifts[0], 0)
        return reshape_to_result(op, flat, dims_of(op, self))
    result = self
    for shift, dim in zip(shifts, dims, strict=True):
        result = _roll_axis(op, result, shift, axis_of(dim, self.rank))
    return result


def _roll_axis(op: Emitter, value: Value, shift: Any, axis: int) -> Value:
    """The last `shift` elements move to the front; a shift larger than the size is taken modulo the size."""
    size, shift = op.dim(value, axis), op.known(shift)
    if shift == 0 or size == 0:
        return value
    if isinstance(size, int) and isinstance(shift, int):
        cut: Any = -shift % size
    else:
        count = size if isinstance(size, Value) else op.const(size)
        back = op.const(-shift) if isinstance(shift, int) else op.Neg(shift)
        cut = op.Mod(back, largest(op, count, op.const(1)))
    front = slice_axis(op, value, axis, cut, INT64_MAX)
    result = op.Concat(front, slice_axis(op, value, axis, 0, cut), axis=axis)
    # the two parts are the whole, wherever a computed cut is
    result.shape = value.shape
    return result


# Pixels and channels ------------------------------------------------------------------------------------------------


@lower("aten::pixel_shuffle")
def pixel_shuffle(op: Emitter, self: Value, upscale_factor: int) -> Value:
    """aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor

    ONNX DepthToSpace of images where the runtime has a kernel, or reshapes and a transpose.
    """
    if self.rank == 4 and self.dtype in (dtypes.FLOAT, dtypes.DOUBLE):
        return op.DepthToSpace(self, blocksize=upscale_factor, mode="CRD")
    *batch, channels, height, width = dims_of(op, self)
    if not isinstance(channels, int):
        raise UnsupportedForm("shuffles a dynamic number of channels; declare that axis static", code="size-not-known")
    depth, up = channels // upscale_factor**2, upscale_factor
    parts = reshape(op, self, [-1, depth, up, up, height, width])
    mixed = permute(op, parts, [0, 1, 4, 2, 5, 3])
    return reshape_to_result(op, mixed, [*batch, depth, _times(op, height, up), _times(op, width, up)])


@lower("aten::pixel_unshuffle")
def pixel_unshuffle(op: Emitter, self: Value, downscale_factor: int) -> Value:
    """aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor

    The channel of the input varies slowest, then the row in the block, then the column. ONNX SpaceToDepth has another
    order.
    """
    *batch, channels, height, width = dims_of(op, self)
    if not isinstance(channels, int):
        raise UnsupportedForm("shuffles a dynamic number of channels; declare that axis static", code="size-not-known")
    down = downscale_factor
    rows, columns = _part(op, height, down), _part(op, width, down)
    parts = reshape(op, self, [-1, channels, rows, down, columns, down])
    mixed = permute(op, parts, [0, 1, 3, 5, 2, 4])
    return reshape_to_result(op, mixed, [*batch, channels * down**2, rows, columns])


@lower("aten::channel_shuffle", "aten::native_channel_shuffle")
def channel_shuffle(op: Emitter, self: Value, groups: int) -> Value:
    """aten::channel_shuffle(Tensor self, SymInt groups) -> Tensor

    The channels of the groups are interleaved.
    """
    batch, channels, *rest = dims_of(op, self)
    if not isinstance(channels, int):
        raise UnsupportedForm("shuffles a dynamic number of channels; declare that axis static", code="size-not-known")
    parts = reshape(op, self, [batch, groups, channels // groups, *rest])
    order = [0, 2, 1, *range(3, 3 + len(rest))]
    return reshape_to_result(op, permute(op, parts, order), [batch, channels, *rest])


def _times(op: Emitter, size: Any, factor: int) -> Any:
    return size * factor if isinstance(size, int) else op.Mul(size, op.const(factor))


def _part(op: Emitter, size: Any, parts: int) -> Any:
    return size // parts if isinstance(size, int) else op.Div(size, op.const(parts))
