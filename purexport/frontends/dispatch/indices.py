"""Numbers in an index: `x[n]` and `x[:, n] = y` where the graph computes `n`.

torch makes the example's number of a symbolic one in an index, and of a tensor of one number.  So such a number is
selected before, along its axis, and torch gets the rest of the index.  torch itself does no other for plain numbers.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.frontends.dispatch.tensors import Recorded

_MASKS = (torch.bool, torch.uint8)


def numbers_selected(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """A part of the tensor, and the index into it that is left."""
    items = index if type(index) is tuple else (index,)
    if not any(type(item) in (Recorded, torch.SymInt, slice) for item in items):
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


def _number(item: Any) -> Any:
    kind = type(item)
    if kind is Recorded:
        layout = item.layout_
        return item.item() if item.free and not layout.sizes and _is_whole(layout.dtype) else item
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
