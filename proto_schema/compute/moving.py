"""Operators that move elements and change none: reshaping, joining, cutting, padding, repeating."""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import copied, free, made, passes, pieces, sizes_in
from proto_schema.compute.rows import row

__all__ = ["ints"]


def ints(call: Call, name: str, value: Array | None) -> list[int] | None:
    """A list of integers that older opsets have as an attribute and newer ones as an input; None where it is absent."""
    if value is not None:
        return [int(item) for item in np.asarray(value).reshape(-1)]
    given = call.attribute(name)
    return None if given is None else [int(item) for item in given]


@row("Identity", cost=copied)
def identity(call: Call, x: Any) -> Any:
    """The input, of whatever type."""
    return x


@row("Transpose", cost=copied)
def transpose(call: Call, x: Array) -> Any:
    """The axes in the order of `perm`, reversed without it."""
    perm = call.attribute("perm")
    if perm and sorted(perm) != list(range(x.ndim)):
        call.fail(f"perm {list(perm)} is not an order of {x.ndim} axes")
    return x.transpose(perm or None)


@row("Reshape", cost=copied)
def reshape(call: Call, x: Array, shape: Array | None = None) -> Any:
    """To the shape, in which 0 keeps a size (not with `allowzero`) and -1 takes what is left."""
    wanted = ints(call, "shape", shape) or []
    if not call.attribute("allowzero", 0):
        if any(size == 0 and place >= x.ndim for place, size in enumerate(wanted)):
            call.fail(f"the shape {wanted} keeps a size that the input of rank {x.ndim} does not have")
        wanted = [x.shape[place] if size == 0 else size for place, size in enumerate(wanted)]
    try:
        return x.reshape(wanted)
    except ValueError:
        call.fail(f"{x.size} elements of shape {list(x.shape)} cannot take the shape {wanted}")


@row("Flatten", cost=copied)
def flatten(call: Call, x: Array) -> Any:
    """To a matrix: the axes before `axis`, and the others."""
    axis = call.attribute("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        call.fail(f"axis {axis} is outside of a tensor of rank {x.ndim}")
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), int(np.prod(x.shape[axis:], dtype=np.int64)))


@row("Squeeze", cost=copied)
def squeeze(call: Call, x: Array, axes: Array | None = None) -> Any:
    """Without the axes, which must have size 1; without all of size 1 where none are given."""
    given = ints(call, "axes", axes)
    if given is None:
        return x.squeeze()
    places = tuple(call.axis(axis, x.ndim) for axis in given)
    for place in places:
        if x.shape[place] != 1:
            call.fail(f"axis {place} of the shape {list(x.shape)} has not the size 1")
    return x.squeeze(places)


@row("Unsqueeze", cost=copied)
def unsqueeze(call: Call, x: Array, axes: Array | None = None) -> Any:
    """With new axes of size 1, which are counted in the result."""
    given = ints(call, "axes", axes) or []
    places = sorted(call.axis(axis, x.ndim + len(given)) for axis in given)
    if len(set(places)) < len(places):
        call.fail(f"the axes {given} name one twice")
    return np.expand_dims(x, tuple(places))


@row("Concat", cost=copied)
def concat(call: Call, *inputs: Array) -> Any:
    """The inputs behind one another along an axis, which is 1 by default in opset 1."""
    axis = call.attribute("axis", 1)
    if not inputs:
        call.fail("it needs an input")
    return np.concatenate(inputs, axis=call.axis(axis, inputs[0].ndim))


def _split_cost(call: Call, x: Array, sizes: Array | None = None) -> Cost:
    count = len(call.outputs) if sizes is None else sizes.size
    asked = call.attribute("num_outputs") or 0
    return Cost(x.nbytes + pieces(max(count, asked)), x.nbytes)


@row("Split", cost=_split_cost)
def split(call: Call, x: Array, sizes: Array | None = None) -> Any:
    """Pieces of the sizes, else of equal ones; from opset 18 on the last may be smaller."""
    axis = call.axis(call.attribute("axis", 0), x.ndim)
    given = ints(call, "split", sizes)
    size = x.shape[axis]
    if given is None:
        count = call.attribute("num_outputs") or len(call.outputs)
        each = -(-size // count)
        given = [max(0, min(each, size - place * each)) for place in range(count)]
    if sum(given) != size or min(given, default=0) < 0:
        call.fail(f"pieces of {given} do not fill an axis of size {size}")
    return tuple(np.split(x, np.cumsum(given)[:-1], axis=axis))


def _expand_cost(call: Call, x: Array, shape: Array) -> Cost:
    wanted = sizes_in(shape)
    rank = max(x.ndim, len(wanted))
    old = (1,) * (rank - x.ndim) + x.shape
    new = [1] * (rank - len(wanted)) + wanted
    return made([max(pair) for pair in zip(old, new, strict=True)], x.itemsize, scratch=0)


@row("Expand", cost=_expand_cost)
def expand(call: Call, x: Array, shape: Array) -> Any:
    """Broadcast with the shape, both ways."""
    wanted = tuple(int(size) for size in shape)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, wanted))


def _tile_cost(call: Call, x: Array, repeats: Array, axis: Array | None = None) -> Cost:
    return made([x.size, *sizes_in(repeats)], x.itemsize)


@row("Tile", cost=_tile_cost)
def tile(call: Call, x: Array, repeats: Array, axis: Array | None = None) -> Any:
    """Repeated along each axis; in opset 1 along one."""
    if axis is not None:
        counts = [1] * x.ndim
        counts[call.axis(int(axis), x.ndim)] = int(repeats)
    else:
        counts = [int(item) for item in repeats.reshape(-1)]
    if len(counts) != x.ndim:
        call.fail(f"{len(counts)} repeats are given for rank {x.ndim}")
    return np.tile(x, counts)


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def _pad_cost(
    call: Call, x: Array, pads: Array | None = None, value: Array | None = None, axes: Array | None = None
) -> Cost:
    given = ints(call, "paddings" if call.version < 2 else "pads", pads) or []
    half = len(given) // 2
    places = list(range(x.ndim)) if axes is None else sizes_in(axes)
    shape, turns = list(x.shape), 0
    for place, low, high in zip(places, given[:half], given[half:], strict=False):
        if -x.ndim <= place < x.ndim:
            turns += (max(low, 0) + max(high, 0)) // max(1, shape[place] - 1)  # of a reflection
            shape[place] += max(low, 0) + max(high, 0)
    found = made(shape, x.itemsize, times=2, scratch=2)
    reflected = call.text("mode", "constant") != "constant"
    return Cost(found.work + (20 * pieces(turns) if reflected else 0), found.results, found.scratch)


@row("Pad", cost=_pad_cost)
def pad(call: Call, x: Array, pads: Array | None = None, value: Array | None = None, axes: Array | None = None) -> Any:
    """Elements more, or fewer where a number is negative, at both ends of the axes."""
    name = "paddings" if call.version < 2 else "pads"
    given = ints(call, name, pads) or []
    places = list(range(x.ndim)) if axes is None else [call.axis(int(axis), x.ndim) for axis in axes.reshape(-1)]
    if len(given) != 2 * len(places):
        call.fail(f"{len(given)} numbers are given for both ends of {len(places)} axes")
    mode = call.text("mode", "constant")
    if mode not in _MODES:
        call.fail(f"the mode {mode!r} is none of {', '.join(_MODES)}")
    ends = [(0, 0)] * x.ndim
    for at, place in enumerate(places):
        ends[place] = (given[at], given[at + len(places)])
    cut = tuple(slice(max(0, -low), size + min(0, high)) for (low, high), size in zip(ends, x.shape, strict=True))
    kept = x[cut]
    added = [(max(0, low), max(0, high)) for low, high in ends]
    if mode != "constant":
        return np.pad(kept, added, mode=mode)  # type: ignore[call-overload]
    fill: Any = call.attribute("value", 0) if value is None else np.asarray(value).reshape(-1)[0]
    if x.dtype.kind == "O" and value is None:
        fill = ""
    shape = [low + size + high for (low, high), size in zip(added, kept.shape, strict=True)]
    whole = np.full(shape, fill, x.dtype)
    whole[tuple(slice(low, low + size) for (low, _), size in zip(added, kept.shape, strict=True))] = kept
    return whole


@row("Trilu", cost=passes(16))
def trilu(call: Call, x: Array, k: Array | None = None) -> Any:
    """The upper or lower triangle of matrices."""
    by = 0 if k is None else int(k)
    mask = np.tri(x.shape[-2], x.shape[-1], by - 1 if call.attribute("upper", 1) else by, dtype=bool)
    keep = ~mask if call.attribute("upper", 1) else mask
    return np.where(keep, x, x.dtype.type(0))


@row("Shape", cost=free)
def shape_of(call: Call, x: Array) -> Any:
    """The sizes of the axes from `start` to `end`."""
    start, end = call.attribute("start", 0), call.attribute("end")
    return np.array(x.shape[slice(start, end)], np.int64)


@row("Size", cost=free)
def size_of(call: Call, x: Array) -> Any:
    """The number of elements."""
    return np.array(x.size, np.int64)


@row("ReverseSequence", cost=passes(16))
def reverse_sequence(call: Call, x: Array, lengths: Array) -> Any:
    """The first elements of each sequence in reverse, as many as its length says."""
    batch, time = call.attribute("batch_axis", 1), call.attribute("time_axis", 0)
    batch, time = call.axis(batch, x.ndim), call.axis(time, x.ndim)
    moved = np.moveaxis(x, (batch, time), (0, 1))
    found = moved.copy()
    for place, length in enumerate(lengths.reshape(-1).tolist()):
        if not 0 <= length <= moved.shape[1]:
            call.fail(f"the length {length} of sequence {place} is outside of 0 to {moved.shape[1]}")
        found[place, :length] = moved[place, :length][::-1]
    return np.moveaxis(found, (0, 1), (batch, time))
