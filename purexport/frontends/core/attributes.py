"""Assignments of a model to its attributes while it runs (`self.state = new`), which a trace does not record.

Assigned buffers are noted, because they are the model's state.  Invariant: all attributes are restored afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from purexport.torch_patches.torch_jit import ScriptModule


class Buffers:
    """The buffers of `model` at the start, for a comparison after a run."""

    def __init__(self, model: Any) -> None:
        modules = model.named_modules() if isinstance(model, torch.nn.Module) else ()
        self._before = [
            (f"{path}.{name}" if path else name, module, name, buffer)
            for path, module in modules
            if not isinstance(module, ScriptModule)
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def assigned(self) -> list[tuple[str, torch.Tensor]]:
        """The buffers that are now different tensor objects, by path."""
        found = []
        for path, module, name, buffer in self._before:
            now = module._buffers.get(name)
            if now is not None and now is not buffer:
                found.append((path, now))
        return found


@contextmanager
def watched(module: torch.nn.Module) -> Iterator[set[str]]:
    """Collects the paths of the buffers that are assigned while `module` runs inside."""
    found: set[str] = set()
    before: list[Buffers] = []

    def begin(*_: Any) -> None:
        before.append(Buffers(module))  # now, because torch.export puts fake tensors in place of the buffers

    def end(*_: Any) -> None:
        found.update(path for path, _ in before.pop().assigned())

    handles = [module.register_forward_pre_hook(begin, prepend=True), module.register_forward_hook(end)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def attributes_kept(model: Any) -> Iterator[None]:
    """The model runs inside.  Afterwards all attributes, buffers and parameters that it assigned are restored.

    A parameter is assigned by tables that grow with the input; a trace for shapes alone would leave one without values.
    """
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    plain = [module for module in modules if not isinstance(module, ScriptModule)]
    held = [attributes for module in plain for attributes in (vars(module), module._buffers, module._parameters)]
    before = [dict(attributes) for attributes in held]
    try:
        yield
    finally:
        for attributes, old in zip(held, before, strict=True):
            _restore(attributes, old)


def _restore(attributes: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Restore what was assigned.  What was deleted stays deleted, because a lazy module removes its hooks."""
    for name in list(attributes):
        if name in before:
            attributes[name] = before[name]
        elif isinstance(attributes[name], torch.Tensor):
            del attributes[name]
