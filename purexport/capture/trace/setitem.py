"""`x[index] = value` under the tracer, where torch would write the example's sizes into the trace.

Before it copies, torch views `value` without the axes of size 1 that it begins with and expands it to the part that
is written, both by numbers.  The operators behind it, `copy_` and `index_put_`, broadcast by themselves: here they
are given the value as it is.  What an index means is said in `torch.Tensor.__getitem__` and in
https://numpy.org/doc/stable/user/basics.indexing.html; of one that is not read here torch keeps its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from purexport.aten.memory import share_memory
from purexport.torch_patches.tracer import untraced

_MASKS = (torch.bool, torch.uint8)


@dataclass
class _Index:
    """An index in two steps: what a view says, and the tensors that choose within the view, None for a whole axis."""

    view: list[Any] = field(default_factory=list)
    chosen: list[torch.Tensor | None] = field(default_factory=list)


def written(self: torch.Tensor, index: Any, value: Any) -> bool:
    """Whether the write was done here."""
    if not isinstance(value, torch.Tensor) or not value.dim():
        return False
    read = _read(self, index if isinstance(index, tuple) else (index,))
    if read is None or share_memory(self, value):
        return False
    part = self[tuple(read.view)] if read.view else self
    positions = [item for item in read.chosen if item is not None]
    if not positions:
        if _sizes(value) != _sizes(part):
            part.copy_(_without(value, part.dim()))
            return True
        return False
    if _sizes(value)[0] != 1:
        return False
    taken = sum(item.dim() if item.dtype in _MASKS else 1 for item in positions)
    wide = max(1 if item.dtype in _MASKS else item.dim() for item in positions)
    torch.ops.aten.index_put_(part, read.chosen, _without(value, part.dim() - taken + wide))
    return True


def _read(tensor: torch.Tensor, items: Sequence[Any]) -> _Index | None:
    """None of what has other parts than numbers, slices, None, an ellipsis and tensors."""
    found = _Index()
    taken = 0
    for item in items:
        if isinstance(item, torch.Tensor) and item.dim():
            taken += item.dim() if item.dtype in _MASKS else 1
        elif _is_number(item) or isinstance(item, slice):
            taken += 1
        elif item is not None and item is not Ellipsis:
            return None
    for item in items:
        if item is Ellipsis:
            rest = tensor.dim() - taken
            found.view += [slice(None)] * rest
            found.chosen += [None] * rest
        elif isinstance(item, torch.Tensor) and item.dim():
            found.view += [slice(None)] * (item.dim() if item.dtype in _MASKS else 1)
            found.chosen.append(item)
        else:
            found.view.append(item)
            found.chosen += [] if _is_number(item) else [None]
    if all(isinstance(item, slice) and item == slice(None) for item in found.view):
        found.view = []
    return found


def _is_number(item: Any) -> bool:
    """Whether a part of an index takes one place, and its axis away."""
    return type(item) is int or (isinstance(item, torch.Tensor) and not item.dim() and item.dtype not in _MASKS)


def _without(value: torch.Tensor, rank: int) -> torch.Tensor:
    """`value` without the first axes, of size 1, that the part has not."""
    while value.dim() > rank and _sizes(value)[0] == 1:
        value = value.select(0, 0)
    return value


def _sizes(tensor: torch.Tensor) -> tuple[int, ...]:
    """The sizes as numbers, without a word to the tracer, which would take each for a value of the model."""
    with untraced():
        return tuple(tensor.shape)
