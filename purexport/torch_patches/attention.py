"""Switches off the fused operator by which torch runs attention layers in eval mode: it has no decomposition.

It also lets `is_causal` be a symbolic truth value, which torch refuses; libraries write `n > 1 and mask is None`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional


@contextmanager
def plain_attention() -> Iterator[None]:
    """Inside, attention layers run their plain operators, in the whole process."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def attention_function() -> Any:
    """What `torch.nn.functional.scaled_dot_product_attention` is at the moment."""
    return functional.scaled_dot_product_attention


@contextmanager
def symbols_taken_by_attention() -> Iterator[None]:
    """Inside, `scaled_dot_product_attention` takes a symbolic `is_causal`, in the whole process."""
    original: Any = functional.scaled_dot_product_attention

    def attention(*args: Any, **kwargs: Any) -> Any:
        if isinstance(kwargs.get("is_causal"), torch.SymBool):
            kwargs["is_causal"] = bool(kwargs["is_causal"])
        return original(*args, **kwargs)

    functional.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original
