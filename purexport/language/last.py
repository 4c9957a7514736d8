"""Logits of the last token of each row only: the last one that the mask shows, on whichever side the padding is.

The hidden states of that token go into the head of the model, so that no logits of the others are computed.  Where the
head is no layer of its own, the token is taken from the logits.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


def last_shown(shown: Tensor) -> Tensor:
    """[rows]: the last place of each row of a mask that is not hidden, 0 where all are."""
    places = torch.arange(1, shown.shape[1] + 1, device=shown.device)
    return (places * shown.to(torch.int64)).amax(1).sub(1).clamp(min=0)


def logits_of_last(model: Any, shown: Tensor, **asked: Any) -> Any:
    """What a model gives, with logits [rows, 1, vocabulary]; `shown` is the mask of the tokens that it is asked for."""
    last, length = last_shown(shown), shown.shape[1]

    def taken(states: Tensor) -> Tensor:
        return states.gather(1, last[:, None, None].expand(-1, 1, states.shape[-1]))

    def before_head(head: Any, args: Any) -> Any:
        states = args[0]
        return (taken(states), *args[1:]) if states.dim() == 3 and states.shape[1] == length else args

    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    handle = head.register_forward_pre_hook(before_head) if head is not None else None
    try:
        result = model(**asked)
    finally:
        if handle is not None:
            handle.remove()
    if result.logits.shape[1] != 1:
        result.logits = taken(result.logits)
    return result
