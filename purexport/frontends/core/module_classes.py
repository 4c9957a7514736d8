"""The classes of a model's modules, by module path: a graph of calls does not contain them."""

from __future__ import annotations

from typing import Any

import torch

from purexport.fx.reader import module_path
from purexport.torch_patches.torch_jit import ScriptModule


def module_classes(model: Any) -> dict[str, str]:
    """`{"": "my.Net", "layer": "torch.nn.modules.linear.Linear"}`.

    For a script the names have no module; for a function there are none.
    """
    if isinstance(model, torch.export.ExportedProgram):
        stacks = [node.meta.get("nn_module_stack") or {} for node in model.graph.nodes]
        found = {module_path(path): owner for stack in stacks for path, owner in stack.values()}
        return {path: owner if isinstance(owner, str) else _full_name(owner) for path, owner in found.items()}
    if isinstance(model, torch.nn.Module):
        return {path: _class(module) for path, module in model.named_modules(remove_duplicate=False)}
    return {}


def _class(module: torch.nn.Module) -> str:
    script = getattr(module, "original_name", None)
    return str(script) if isinstance(module, ScriptModule) and script else _full_name(type(module))


def _full_name(owner: type) -> str:
    return f"{owner.__module__}.{owner.__qualname__}"
