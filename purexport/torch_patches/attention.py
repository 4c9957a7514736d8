"""Switches off the fused operator by which torch runs attention layers in eval mode: it has no decomposition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def plain_attention() -> Iterator[None]:
    """Inside, attention layers run their plain operators, in the whole process."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
