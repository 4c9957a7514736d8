"""Recurrent layers: torch runs these step by step on fake tensors, which would fix the number of steps."""

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


FACTS = alike("lstm gru rnn_tanh rnn_relu", Fact("aten::", aliases=Aliases.NEVER, shapes=_results))
