"""Runs `associative_scan` over an axis of unknown size in rounds, because torch's own takes the axis apart by its size.

After each round an element is combined with the 1, 2, 4, ... elements up to it, so that as many rounds are enough as
the size has binary digits.  The rounds are a `while_loop`, which the trace records.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

_MODULE, _NAME = "torch._higher_order_ops.associative_scan", "generic_associative_scan"


def scan_of_torch() -> Any:
    """What takes the axis apart at the moment; None where torch has not loaded it."""
    return getattr(sys.modules.get(_MODULE), _NAME, None)


@contextmanager
def scans_in_rounds() -> Iterator[None]:
    """Inside, an axis whose size is a symbol is scanned in rounds.  This is set in the whole process."""
    original = scan_of_torch()
    if original is None:
        yield
        return

    def scan(
        operator: Callable[..., Any],
        leaves: Sequence[torch.Tensor],
        dim: int = 0,
        additional_inputs: Sequence[Any] = (),
    ) -> Any:
        if dim or additional_inputs or isinstance(leaves[0].shape[0], int):
            return original(operator, leaves, dim, additional_inputs)
        return _in_rounds(operator, leaves)

    setattr(sys.modules[_MODULE], _NAME, scan)
    try:
        yield
    finally:
        setattr(sys.modules[_MODULE], _NAME, original)


def _in_rounds(operator: Callable[..., Any], leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    def goes_on(distance: torch.Tensor, *state: Any) -> torch.Tensor:
        more: torch.Tensor = distance < state[-1]
        return more

    def step(distance: torch.Tensor, *state: Any) -> tuple[torch.Tensor, ...]:
        *values, count = state
        place = torch.arange(count)
        before = (place - distance).clamp(min=0)
        joined = operator(*(value.index_select(0, before) for value in values), *values)
        kept = [(place < distance).reshape([-1] + [1] * (value.dim() - 1)) for value in values]
        return distance * 2, *map(torch.where, kept, values, pytree.tree_leaves(joined))

    count = leaves[0].shape[0]
    loop = torch.ops.higher_order.while_loop
    found = loop(goes_on, step, (torch.ones((), dtype=torch.int64), *leaves), (count,))
    return list(found[1:])
