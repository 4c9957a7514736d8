"""Makes modules whose parameters take no memory, while their buffers have the values that the constructor computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def parameters_without_values() -> Iterator[None]:
    """Inside, each parameter goes to the meta device when a module gets it, in the whole process."""
    register = torch.nn.Module.register_parameter

    def without_values(self: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:
            given = param.requires_grad
            param = torch.nn.Parameter(param.detach().to("meta"), requires_grad=given)
        register(self, name, param)

    torch.nn.Module.register_parameter = without_values  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register  # type: ignore[method-assign]
