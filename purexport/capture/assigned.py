"""Buffers that a model gives another tensor while it runs (``self.state = new``), which a trace does not record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Buffers:
    """The buffers of ``model`` as they were, to be compared with what they are after a run."""

    def __init__(self, model: Any) -> None:
        modules = model.named_modules() if isinstance(model, torch.nn.Module) else ()
        self._before = [
            (f"{path}.{name}" if path else name, module, name, buffer)
            for path, module in modules
            if not isinstance(module, torch.jit.ScriptModule)
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def assigned(self) -> list[tuple[str, torch.Tensor]]:
        """The buffers that are other tensors now, by their path."""
        found = []
        for path, module, name, buffer in self._before:
            now = module._buffers.get(name)
            if now is not None and now is not buffer:
                found.append((path, now))
        return found


@contextmanager
def watched(module: torch.nn.Module) -> Iterator[set[str]]:
    """The paths of the buffers that are assigned while ``module`` runs inside."""
    found: set[str] = set()
    buffers = Buffers(module)

    def after(*_: Any) -> None:
        found.update(path for path, _ in buffers.assigned())

    handle = module.register_forward_hook(after)
    try:
        yield found
    finally:
        handle.remove()
