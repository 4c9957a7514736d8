"""Recurrent layers: torch runs these step by step on fake tensors, which would specialize the number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport.facts.fact import Aliases, Fact, alike


def _results(
    *, hx: torch.Tensor | Sequence[torch.Tensor], bidirectional: bool, **arguments: Any
) -> tuple[torch.Tensor, ...]:
    value: torch.Tensor = arguments["input"] if "input" in arguments else arguments["data"]
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return value.new_empty((*value.shape[:-1], width)), *(torch.empty_like(state) for state in states)


def _packed(input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The steps of all sequences, and the batch size of each step.  Both have an unbacked size."""
    return input.new_empty((unknown_size(), *input.shape[2:])), torch.empty(unknown_size(), dtype=torch.int64)


def _padded(
    *, data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, total_length: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """As many steps as there are batch sizes, unless `total_length` is given; the number of sequences is unbacked."""
    steps = batch_sizes.shape[0] if isinstance(total_length, int) and total_length <= 0 else total_length
    count = unknown_size()
    sizes = (count, steps) if batch_first else (steps, count)
    return data.new_empty((*sizes, *data.shape[1:])), batch_sizes.new_empty(count)


def unknown_size() -> Any:
    """A new unbacked size: an element of a fake tensor."""
    size = torch.empty((), dtype=torch.int64).item()
    torch._check(size >= 0)  # type: ignore[no-untyped-call]
    return size


FACTS = (
    *alike("lstm gru rnn_tanh rnn_relu", Fact("aten::", aliases=Aliases.NEVER, shapes=_results)),
    Fact("aten::_pack_padded_sequence", shapes=_packed),
    Fact("aten::_pad_packed_sequence", shapes=_padded),
)
