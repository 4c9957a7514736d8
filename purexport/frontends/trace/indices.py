"""Numbers in an index: `x[n]` and `x[:, n] = y` where the graph computes `n`.

torch makes the example's number of a symbolic one in an index, and of a tensor of one number.  So such a number is
selected before, along its axis, and torch gets the rest of the index.  torch itself does no other for plain numbers.

`x[index]` becomes the calls that torch makes for it, without torch, which would ask for the sizes and for that load its
distributed tensors.

Tensors of the run have these methods themselves; for weights and constants a mode of functions sees the index.  The
methods of `torch.Tensor` cannot be replaced for a while: once a class had an `__getitem__` of its own, Python takes its
objects for sequences for ever, and `torch.tensor([number])` asks a tensor for its length.
"""

from __future__ import annotations

from types import NoneType
from typing import Any

import torch

from purexport.frontends.trace.ranges import CountedNumbers
from purexport.frontends.trace.tensors import Recorded

_MASKS = (torch.bool, torch.uint8)
_END = 2**63 - 1  # of a slice to the end
_aten = torch.ops.aten
GET: Any = torch.Tensor.__getitem__
PUT: Any = torch.Tensor.__setitem__


def part(tensor: torch.Tensor, index: Any) -> Any:
    """`tensor[index]`"""
    tensor, index = numbers_selected(tensor, index)
    found = _by_calls(tensor, index)
    return GET(tensor, index) if found is NotImplemented else found


def put(tensor: torch.Tensor, index: Any, value: Any) -> None:
    """`tensor[index] = value`"""
    tensor, index = numbers_selected(tensor, index)
    if not _put_by_calls(tensor, index, value):
        PUT(tensor, index, value)


def numbers_selected(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """A part of the tensor, and the index into it that is left."""
    items = index if type(index) is tuple else (index,)
    if not any(type(item) in (Recorded, CountedNumbers, torch.SymInt, slice) for item in items):
        return tensor, index
    found = [_number(item) for item in items]
    places = [place for place, item in enumerate(found) if isinstance(item, torch.SymInt)]
    for place in reversed(places):
        before = found[:place]
        from_the_end = any(item is Ellipsis for item in before)
        axis = -sum(map(_axes, found[place:])) if from_the_end else sum(map(_axes, before))
        tensor = tensor.select(axis, found[place])
        del found[place]
    if not found:
        return tensor, Ellipsis
    return tensor, tuple(found) if type(index) is tuple else found[0]


def _by_calls(tensor: torch.Tensor, index: Any) -> Any:
    """`tensor[index]`; NotImplemented where torch must find out what it is."""
    read = _view_and_places(tensor, index)
    if read is None:
        return NotImplemented
    found, places = read
    if places:
        return _aten.index.Tensor(found, places)
    return _aten.alias.default(found) if found is tensor else found


def _put_by_calls(tensor: torch.Tensor, index: Any, value: Any) -> bool:
    """Whether `tensor[index] = value` was done, for a value of sizes that can change.

    torch would ask which of them are 1, and give the value the shape of the example.
    """
    if type(value) is not Recorded or value.layout_.static:
        return False
    read = _view_and_places(tensor, index)
    if read is None:
        return False
    found, places = read
    rank = found.dim()
    positions = [item for item in places if item is not None]
    if positions:
        rank += max(item.dim() for item in positions) - len(positions)
    rest: torch.Tensor = value
    while rest.dim() > rank and value.layout_.sizes[value.dim() - rest.dim()] == 1:
        rest = _aten.select.int(rest, 0, 0)
    if rest.dim() > rank:
        return False
    if positions:
        _aten.index_put_.default(found, places, rest)
    else:
        _aten.copy_.default(found, rest)
    return True


def _view_and_places(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, list[torch.Tensor | None]] | None:
    """An index in two steps: a view, and tensors that index it, by axis; None where torch must find out what it is."""
    items = index if type(index) is tuple else (index,)
    if type(tensor) is not Recorded or not all(map(_is_plain, items)):
        return None
    axes = sum(map(_axes, items))
    if axes > tensor.dim() or sum(item is Ellipsis for item in items) > 1:
        return None  # torch says what is wrong
    places: list[torch.Tensor | None] = []  # of tensors in the index, by axis
    found: torch.Tensor = tensor
    axis = 0
    for item in items:
        kind = type(item)
        if kind is int:
            found = _aten.select.int(found, axis, item)
        elif item is None:
            found = _aten.unsqueeze.default(found, axis)
            axis += 1
        elif item is Ellipsis:
            axis += tensor.dim() - axes
        elif kind is slice:
            if index is item or (item.start, item.stop, item.step) != (None, None, None):
                step = () if item.step is None else (item.step,)
                end = _END if item.stop is None else item.stop
                found = _aten.slice.Tensor(found, axis, item.start or 0, end, *step)
            axis += 1
        else:
            places += [None] * (axis - len(places))
            places.append(item)
            axis += 1
    return found, places


def _is_plain(item: Any) -> bool:
    """Whether a part of an index is one that needs no more than a call."""
    kind = type(item)
    if kind is slice:
        step = item.step
        return all(type(one) in (int, torch.SymInt, NoneType) for one in (item.start, item.stop, step)) and (
            step is None or (type(step) is int and step > 0)
        )
    if isinstance(item, torch.Tensor):
        return item.dim() > 0 and item.dtype in (torch.int64, torch.int32)
    return kind is int or item is None or item is Ellipsis


def _number(item: Any) -> Any:
    kind = type(item)
    if kind is Recorded:
        layout = item.layout_
        return item.item() if item.free and not layout.sizes and _is_whole(layout.dtype) else item
    if kind is CountedNumbers:
        return item.as_tensor()
    if kind is slice:
        return slice(*map(_number, (item.start, item.stop, item.step)))
    return item


def _axes(item: Any) -> int:
    """How many axes a part of an index is for."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.dim() if isinstance(item, torch.Tensor) and item.dtype in _MASKS else 1


def _is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype in _MASKS)
