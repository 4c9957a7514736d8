"""Shape functions of recurrent layers.

torch runs these step by step on fake tensors, which would fix the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def shape_function(target: str) -> Callable[..., tuple[torch.Tensor, ...]] | None:
    """The shape function of ``aten::lstm.input`` and its kin by ATen name; None for other operators.

    It takes the call's arguments by name and gives empty tensors of the results' shapes.
    """
    if target in _PACKING:
        return _PACKING[target]
    name, _, overload = target.removeprefix("aten::").partition(".")
    if name not in ("lstm", "gru", "rnn_tanh", "rnn_relu") or overload not in ("input", "data"):
        return None
    return _results


def _results(
    *, hx: torch.Tensor | Sequence[torch.Tensor], bidirectional: bool, **arguments: Any
) -> tuple[torch.Tensor, ...]:
    value: torch.Tensor = arguments["input"] if "input" in arguments else arguments["data"]
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return value.new_empty((*value.shape[:-1], width)), *(torch.empty_like(state) for state in states)


def _packed(input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """All the steps that exist, and how many there are at each step; only the run knows the numbers."""
    return input.new_empty((_unknown(), *input.shape[2:])), torch.empty(_unknown(), dtype=torch.int64)


def _padded(
    *, data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, total_length: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """As many steps as there are unless told, of a number of sequences that only the run knows."""
    steps = batch_sizes.shape[0] if isinstance(total_length, int) and total_length <= 0 else total_length
    count = _unknown()
    sizes = (count, steps) if batch_first else (steps, count)
    return data.new_empty((*sizes, *data.shape[1:])), batch_sizes.new_empty(count)


def _unknown() -> Any:
    """A size that only the run knows: an element of a fake tensor."""
    size = torch.empty((), dtype=torch.int64).item()
    torch._check(size >= 0)  # type: ignore[no-untyped-call]
    return size


_PACKING: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "aten::_pack_padded_sequence": _packed,
    "aten::_pad_packed_sequence": _padded,
}
