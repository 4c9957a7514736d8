"""`x[index] = value` under the tracer, where torch itself would record the example's sizes as constants.

Before the copy, torch removes the leading axes of size 1 from `value` and expands it to the shape of the part that is
written, both with constant sizes.  The operators behind it, `copy_` and `index_put_`, broadcast by themselves, so here
they get the value as it is.  The meaning of an index is documented in `torch.Tensor.__getitem__` and in
https://numpy.org/doc/stable/user/basics.indexing.html.  An index that this module does not read is left to torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.memory import share_memory
from purexport.torch_patches.tracer import untraced

_MASKS = (torch.bool, torch.uint8)


@dataclass
class _Index:
    """An index in two steps: a view, then index tensors into that view (None for an axis that is taken as a whole)."""

    view: list[Any] = field(default_factory=list)
    chosen: list[torch.Tensor | None] = field(default_factory=list)


def written(self: torch.Tensor, index: Any, value: Any) -> bool:
    """Write the value if the index can be read here; returns whether it was written."""
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
    """The index in two steps; None if it has parts other than numbers, slices, None, an ellipsis and tensors."""
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
    """Whether a part of an index selects one position and removes its axis."""
    return type(item) is int or (isinstance(item, torch.Tensor) and not item.dim() and item.dtype not in _MASKS)


def _without(value: torch.Tensor, rank: int) -> torch.Tensor:
    """`value` without its leading axes of size 1 that the written part does not have."""
    while value.dim() > rank and _sizes(value)[0] == 1:
        value = value.select(0, 0)
    return value


def _sizes(tensor: torch.Tensor) -> tuple[int, ...]:
    """The sizes as numbers, unseen by the tracer, which would record each as a value of the model."""
    with untraced():
        return tuple(tensor.shape)
