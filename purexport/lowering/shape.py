"""Operators that move elements or sizes and compute nothing.

The result's shape is known from torch (as ints, or as expressions of the dynamic axes), so a reshape needs at most the
computed sizes that cannot be left to -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.common import INT64_MAX, axis_of, dims_of, permute, reshape, reshape_to_result
from purexport.lowering.emitter import Emitter
from purexport.lowering.registry import lower


@lower("aten::view", "aten::_unsafe_view", "aten::_reshape_copy")
def view(op: Emitter, self: Value, size: Sequence[Any]) -> Value:
    return reshape_to_result(op, self, size)


@lower("aten::reshape")
def reshape_rule(op: Emitter, self: Value, shape: Sequence[Any]) -> Value:
    return reshape_to_result(op, self, shape)


@lower("aten::flatten.using_ints")
def flatten(op: Emitter, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    return reshape_to_result(op, self)


@lower("aten::unflatten.int")
def unflatten(op: Emitter, self: Value, dim: int, sizes: Sequence[Any]) -> Value:
    axis = axis_of(dim, self.rank)
    given = [*[None] * axis, *sizes, *[None] * (self.rank - axis - 1)]
    return reshape_to_result(op, self, given)


@lower("aten::reshape_as", "aten::view_as")
def reshape_as(op: Emitter, self: Value, other: Value) -> Value:
    return reshape_to_result(op, self, dims_of(op, other))


@lower("aten::squeeze", "aten::squeeze.dim", "aten::squeeze.dims")
def squeeze(op: Emitter, self: Value, dim: Any = None) -> Value:
    """squeeze.dim leaves an axis whose size is not 1; the result's rank says what happened."""
    dims = range(self.rank) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
    axes = sorted({axis_of(item, self.rank) for item in dims})
    assert self.shape is not None
    axes = [axis for axis in axes if self.rank and self.shape[axis] == 1]
    return op.Squeeze(self, axes) if axes else self


@lower("aten::unsqueeze")
def unsqueeze(op: Emitter, self: Value, dim: int) -> Value:
    return op.Unsqueeze(self, [dim % (self.rank + 1)])


@lower("aten::transpose.int", "aten::swapaxes", "aten::swapdims")
def transpose(op: Emitter, self: Value, dim0: int, dim1: int) -> Value:
    order = list(range(self.rank))
    if order:
        one, other = axis_of(dim0, self.rank), axis_of(dim1, self.rank)
        order[one], order[other] = order[other], order[one]
    return permute(op, self, order)


@lower("aten::t", "aten::numpy_T")
def t(op: Emitter, self: Value) -> Value:
    return permute(op, self, list(range(self.rank))[::-1])


@lower("aten::permute")
def permute_rule(op: Emitter, self: Value, dims: Sequence[int]) -> Value:
    return permute(op, self, [axis_of(dim, self.rank) for dim in dims])


@lower("aten::movedim.int", "aten::movedim.intlist")
def movedim(op: Emitter, self: Value, source: Any, destination: Any) -> Value:
    sources = [axis_of(item, self.rank) for item in (source if isinstance(source, list) else [source])]
    places = [axis_of(item, self.rank) for item in (destination if isinstance(destination, list) else [destination])]
    rest = iter([axis for axis in range(self.rank) if axis not in sources])
    moved = dict(zip(places, sources, strict=True))
    return permute(op, self, [moved[axis] if axis in moved else next(rest) for axis in range(self.rank)])


@lower("aten::cat", "aten::concat", "aten::concatenate")
def cat(op: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    # an empty 1-d tensor is skipped, whatever the rank of the others
    pieces = [item for item in tensors if item.shape != (0,) or all(other.shape == (0,) for other in tensors)]
    axis = axis_of(dim, pieces[0].rank)
    same = [op.cast(item, op.result_dtype) for item in pieces]
    return same[0] if len(same) == 1 else op.Concat(*same, axis=axis)


@lower("aten::stack")
def stack(op: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % (tensors[0].rank + 1)
    pieces = [op.Unsqueeze(op.cast(item, op.result_dtype), [axis]) for item in tensors]
    return op.Concat(*pieces, axis=axis)


@lower("aten::expand")
def expand(op: Emitter, self: Value, size: Sequence[Any]) -> Value:
    shape = op.result.shape
    if shape == self.shape and shape is not None and None not in shape:
        return self
    # -1 keeps a size, as 1 does in ONNX Expand
    return op.Expand(self, op.ints([1 if item == -1 else item for item in map(op.known, size)]))


@lower("aten::expand_as")
def expand_as(op: Emitter, self: Value, other: Value) -> Value:
    return op.Expand(self, op.shape(other))


@lower("aten::repeat")
def repeat(op: Emitter, self: Value, repeats: Sequence[Any]) -> Value:
    missing = len(repeats) - self.rank
    wide = reshape(op, self, [1] * missing + dims_of(op, self)) if missing else self
    return op.Tile(wide, op.ints(list(repeats)))


# Parts --------------------------------------------------------------------------------------------------------------


@lower("aten::slice.Tensor")
def slice_rule(op: Emitter, self: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    begin, stop = op.known(0 if start is None else start), op.known(INT64_MAX if end is None else end)
    size = op.dim(self, dim)
    whole = stop == INT64_MAX or (isinstance(stop, int) and isinstance(size, int) and stop >= size)
    if begin == 0 and whole and op.known(step) == 1:
        return self
    return slice_axis(op, self, axis_of(dim, self.rank), begin, stop, step)


def slice_axis(op: Emitter, value: Value, axis: int, start: Any, end: Any, step: Any = 1) -> Value:
    """``value[start:end:step]`` along one axis; bounds may be computed."""
    steps = None if op.known(step) == 1 else op.ints([step])
    return op.Slice(value, op.ints([start]), op.ints([end]), axes=[axis], steps=steps)


@lower("aten::narrow")
def narrow(op: Emitter, self: Value, dim: int, start: Any, length: Any) -> Value:
    end = op.known(length) if op.known(start) == 0 else _plus(op, start, length)
    return slice_axis(op, self, axis_of(dim, self.rank), start, end)


def _plus(op: Emitter, one: Any, other: Any) -> Any:
    one, other = op.known(one), op.known(other)
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    left = one if isinstance(one, Value) else op.const(one)
    return op.Add(left, other if isinstance(other, Value) else op.const(other))


@lower("aten::select.int")
def select(op: Emitter, self: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, self.rank)
    position = op.known(index)
    if isinstance(position, int) and position < 0:
        position = _plus(op, op.dim(self, axis), position)
    return op.Gather(self, position if isinstance(position, Value) else op.const(position), axis=axis)


@lower("aten::split.Tensor", "aten::unsafe_split.Tensor")
def split(op: Emitter, self: Value, split_size: Any, dim: int = 0) -> list[Value]:
    size = op.dim(self, dim)
    step = op.known(split_size)
    if not isinstance(size, int) or not isinstance(step, int):
        raise UnsupportedForm("splits a dynamic axis into an unknown number of pieces")
    sizes = [min(step, size - start) for start in range(0, size, step)] or [0]
    return split_with_sizes(op, self, sizes, dim)


@lower("aten::split_with_sizes", "aten::split.sizes", "aten::unsafe_split_with_sizes")
def split_with_sizes(op: Emitter, self: Value, split_sizes: Sequence[Any], dim: int = 0) -> list[Value]:
    if len(split_sizes) == 1:
        return [self]
    axis = axis_of(dim, self.rank)
    pieces = op.multi("Split", self, split=op.ints(list(split_sizes)), axis=axis, outputs=len(split_sizes))
    for piece, given in zip(pieces, split_sizes, strict=True):
        size = op.known(given)
        if self.shape is not None and isinstance(size, int):
            piece.shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
    return list(pieces)


@lower("aten::chunk", "aten::unsafe_chunk")
def chunk(op: Emitter, self: Value, chunks: int, dim: int = 0) -> list[Value]:
    size = op.dim(self, dim)
    if not isinstance(size, int):
        raise UnsupportedForm("splits a dynamic axis into an unknown number of pieces")
    return split(op, self, max(-(-size // chunks), 1), dim)


@lower("aten::unbind.int")
def unbind(op: Emitter, self: Value, dim: int = 0) -> list[Value]:
    size = op.dim(self, dim)
    if not isinstance(size, int):
        raise UnsupportedForm("unbinds a dynamic axis into an unknown number of pieces")
    axis = axis_of(dim, self.rank)
    assert self.shape is not None
    pieces = []
    for index in range(size):
        piece = op.Gather(self, op.const(index), axis=axis)
        piece.shape = (*self.shape[:axis], *self.shape[axis + 1 :])
        pieces.append(piece)
    return pieces


@lower("aten::size.int", "aten::sym_size.int")
def size_int(op: Emitter, self: Value, dim: int) -> Any:
    return op.dim(self, dim)


@lower("aten::numel", "aten::sym_numel")
def numel(op: Emitter, self: Value) -> Any:
    return op.known(op.ReduceProd(op.shape(self), keepdims=0))


# Borders, rolls, pixels ---------------------------------------------------------------------------------------------

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@lower("aten::pad")
def pad(op: Emitter, self: Value, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Value:
    return _pad(op, self, pad, _MODES[mode], 0 if value is None else value)


@lower("aten::constant_pad_nd")
def constant_pad_nd(op: Emitter, self: Value, pad: Sequence[Any], value: Any = 0) -> Value:
    return _pad(op, self, pad, "constant", value)


@lower("aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d")
def reflection_pad(op: Emitter, self: Value, padding: Sequence[Any]) -> Value:
    return _pad(op, self, padding, "reflect", 0)


@lower("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d")
def replication_pad(op: Emitter, self: Value, padding: Sequence[Any]) -> Value:
    return _pad(op, self, padding, "edge", 0)


def _pad(op: Emitter, value: Value, pad: Sequence[Any], mode: str, filler: Any) -> Value:
    """torch lists pairs from the last axis on; ONNX all begins, then all ends."""
    begins, ends = [0] * value.rank, [0] * value.rank
    for index in range(len(pad) // 2):
        begins[-1 - index], ends[-1 - index] = pad[2 * index], pad[2 * index + 1]
    if not any(isinstance(item, Value) or item for item in (*begins, *ends)):
        return value
    constant = op.like(filler, value) if mode == "constant" and (isinstance(filler, Value) or filler) else None
    return op.Pad(value, op.ints([*begins, *ends]), constant_value=constant, mode=mode)


@lower("aten::roll")
def roll(op: Emitter, self: Value, shifts: Any, dims: Any = ()) -> Value:
    if not dims:
        flat = _roll_axis(op, reshape(op, self, [-1]), shifts[0], 0)
        return reshape(op, flat, dims_of(op, self))
    result = self
    for shift, dim in zip(shifts, dims, strict=True):
        result = _roll_axis(op, result, shift, axis_of(dim, self.rank))
    return result


def _roll_axis(op: Emitter, value: Value, shift: Any, axis: int) -> Value:
    shift = op.known(shift)
    if isinstance(shift, Value):
        raise UnsupportedForm("rolls by a computed number of places")
    size = value.shape[axis] if value.shape is not None else None
    if isinstance(size, int):
        shift %= max(size, 1)
    if shift == 0:
        return value
    front = slice_axis(op, value, axis, -shift, INT64_MAX)
    result = op.Concat(front, slice_axis(op, value, axis, 0, -shift), axis=axis)
    result.shape = value.shape
    return result


@lower("aten::pixel_shuffle")
def pixel_shuffle(op: Emitter, self: Value, upscale_factor: int) -> Value:
    """Depth to space, channels first: DepthToSpace's mode CRD, or its parts where there is no such mode."""
    if self.rank == 4 and op.has("DepthToSpace", "mode"):
        return op.DepthToSpace(self, blocksize=upscale_factor, mode="CRD")
    *batch, channels, height, width = dims_of(op, self)
    if not isinstance(channels, int):
        raise UnsupportedForm("shuffles a dynamic number of channels")
    depth, up = channels // upscale_factor**2, upscale_factor
    parts = reshape(op, self, [-1, depth, up, up, height, width])
    mixed = permute(op, parts, [0, 1, 4, 2, 5, 3])
    return reshape_to_result(op, mixed, [*batch, depth, _times(op, height, up), _times(op, width, up)])


def _times(op: Emitter, size: Any, factor: int) -> Any:
    return size * factor if isinstance(size, int) else op.Mul(size, op.const(factor))


@lower("aten::channel_shuffle")
def channel_shuffle(op: Emitter, self: Value, groups: int) -> Value:
    batch, channels, *rest = dims_of(op, self)
    if not isinstance(channels, int):
        raise UnsupportedForm("shuffles a dynamic number of channels")
    parts = reshape(op, self, [batch, groups, channels // groups, *rest])
    order = [0, 2, 1, *range(3, 3 + len(rest))]
    return reshape_to_result(op, permute(op, parts, order), [batch, channels, *rest])
