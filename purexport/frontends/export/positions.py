"""Indices that are tensors without axes: `x[:, i]` selects by a number, which torch.export would have to know.

Such an index becomes a number that the program computes, counted from the front.  A number cannot be taken from a
tensor inside of vmap; there the element is taken by an index with one element, whose axis goes afterwards.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor
_FUNCTIONS = (Tensor.__getitem__, Tensor.__setitem__)


def with_numbers(function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call, with numbers for such indices."""
    if function not in _FUNCTIONS or len(args) < 2 or not isinstance(args[0], Tensor):
        return args
    given = args[1] if isinstance(args[1], tuple) else (args[1],)
    if not any(map(_is_position, given)):
        return args
    if any(map(_is_batched, (args[0], *given))):
        return args
    places = _axes(args[0], given)
    found = tuple(
        _number(item, args[0].shape[axis]) if _is_position(item) else item
        for item, axis in zip(given, places, strict=True)
    )
    return (args[0], found, *args[2:])


def _is_position(item: Any) -> bool:
    integers = (torch.int64, torch.int32, torch.int16, torch.int8)
    return isinstance(item, Tensor) and not item.dim() and item.dtype in integers


def _is_batched(item: Any) -> bool:
    return isinstance(item, Tensor) and torch._C._functorch.is_batchedtensor(item)


def _axes(data: Tensor, index: tuple[Any, ...]) -> list[int]:
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
    return item.dim() if isinstance(item, Tensor) and item.dtype in (torch.bool, torch.uint8) else 1


def _number(position: Tensor, size: Any) -> Any:
    """A number that is known to lie between the first and the last position."""
    number = torch.where(position < 0, position + size, position).item()
    torch._check(number >= 0)  # type: ignore[no-untyped-call]
    torch._check(number < size)  # type: ignore[no-untyped-call]
    return number
