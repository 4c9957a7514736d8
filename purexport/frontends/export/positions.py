"""Indices that are tensors without axes: `x[:, i]` selects by a number, which torch.export would have to know.

Such an index becomes a number that the program computes, counted from the front, by which the tensor is selected before
the rest of the index.  A number cannot be taken from a tensor inside of vmap; what is read there is taken by an index
with one element, whose axis goes afterwards.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor
_MASKS = (torch.bool, torch.uint8)
_FUNCTIONS = (Tensor.__getitem__, Tensor.__setitem__)


def by_numbers(function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call, without such indices."""
    if function not in _FUNCTIONS or len(args) < 2 or not isinstance(args[0], Tensor):
        return args
    index = list(args[1]) if isinstance(args[1], tuple) else [args[1]]
    if not any(map(_is_position, index)):
        return args
    batched = any(isinstance(item, Tensor) and torch._C._functorch.is_batchedtensor(item) for item in (args[0], *index))
    if batched and function is Tensor.__setitem__:
        return args
    data: Tensor = args[0]
    for place, axis in reversed(list(enumerate(_axes(data, index)))):
        if _is_position(index[place]):
            item = index.pop(place)
            data = _taken(data, axis, item) if batched else data.select(axis, _number(item, data.shape[axis]))
    return (data, tuple(index) or (Ellipsis,), *args[2:])


def _taken(data: Tensor, axis: int, position: Tensor) -> Tensor:
    counted = torch.where(position < 0, position + data.shape[axis], position)
    return data.index_select(axis, counted.reshape(1)).squeeze(axis)


def _is_position(item: Any) -> bool:
    if not isinstance(item, Tensor) or item.dim():
        return False
    return not (item.is_floating_point() or item.is_complex() or item.dtype in _MASKS)


def _axes(data: Tensor, index: list[Any]) -> list[int]:
    """The axis of `data` that each part of an index begins at."""
    widths = [_width(item) for item in index]
    rest = data.dim() - sum(widths)
    found, axis = [], 0
    for item, width in zip(index, widths, strict=True):
        found.append(axis)
        axis += rest if item is Ellipsis else width
    return found


def _width(item: Any) -> int:
    """How many axes a part of an index takes; truth values and None take none."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.dim() if isinstance(item, Tensor) and item.dtype in _MASKS else 1


def _number(position: Tensor, size: Any) -> Any:
    """A number that is known to lie between the first and the last position."""
    number = torch.where(position < 0, position + size, position).item()
    torch._check(number >= 0)  # type: ignore[no-untyped-call]
    torch._check(number < size)  # type: ignore[no-untyped-call]
    return number
