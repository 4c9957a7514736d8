"""In eval mode torch runs attention layers by a fused operator that has no other form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention layers run by their plain operators, in the whole process."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
