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
