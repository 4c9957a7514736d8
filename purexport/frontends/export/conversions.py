"""`int`, `float` and `len` of symbolic sizes: Python makes numbers of them, which holds the sizes at the example's.

The modules of the model, and those that they take functions from, get other forms of these names for one export.  What
that gives must then compute the same on the example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from purexport.frontends.core.attributes import attributes_kept
from purexport.torch_patches.conversions import Namespace, conversions_recorded


def _whole(number: Any) -> Any:
    if isinstance(number, torch.SymFloat):
        return torch.sym_int(number)  # type: ignore[no-untyped-call]
    return number if isinstance(number, torch.SymInt) else None


def _fraction(number: Any) -> Any:
    if isinstance(number, (torch.SymInt, torch.SymFloat)):
        return torch.sym_float(number)  # type: ignore[no-untyped-call]
    return None


def _length(item: Any) -> Any:
    return item.shape[0] if isinstance(item, torch.Tensor) and item.dim() else None


def kept(module: torch.nn.Module) -> AbstractContextManager[None]:
    """Inside, these functions keep symbolic sizes in the code of the model."""
    return conversions_recorded(list(_namespaces(module)), {int: _whole, float: _fraction, len: _length})


def _namespaces(module: torch.nn.Module) -> Iterator[Namespace]:
    """Those of the modules of the model's code, torch's left out, each once."""
    forwards = (getattr(part.forward, "__func__", part.forward) for part in module.modules())
    own = {id(found): found for found in map(_globals, forwards)}
    used = (item for found in own.values() for item in list(found.values()) if isinstance(item, FunctionType))
    for found in {**own, **{id(found): found for found in map(_globals, used)}}.values():
        if not str(found.get("__name__", "torch")).startswith(("torch.", "purexport.")):
            yield found


def _globals(function: Any) -> Namespace:
    found: Namespace = getattr(function, "__globals__", {})
    return found


def computes(program: Any, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a program gives what the model gives on the example.  Buffers are afterwards what they were."""
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]

    def results(function: Any) -> list[Any]:
        try:
            return pytree.tree_leaves(function(*_copied(args), **_copied(kwargs)))
        finally:
            for buffer, content in before:
                buffer.copy_(content)

    with torch.no_grad(), torch.random.fork_rng(devices=[]), attributes_kept(module):
        random = torch.get_rng_state()
        wanted = results(module)
        torch.set_rng_state(random)
        try:
            found = results(program.module())
        except (RuntimeError, ValueError, TypeError, AssertionError):  # torch checks what it assumed
            return False
    return len(found) == len(wanted) and all(map(_same, found, wanted))


def _copied(arguments: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, arguments)


def _same(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, torch.Tensor) or not isinstance(found, torch.Tensor):
        return bool(found == wanted)
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return False
    return torch.allclose(found, wanted, rtol=1e-3, atol=1e-5, equal_nan=True)
