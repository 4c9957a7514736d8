"""Refusals that follow from the memory of the example's arguments.

A file gets the elements of a tensor, and neither the memory around them nor the aliasing between two tensors.
`tensors` are those of the user's own arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from purexport.aten.graph import AtenGraph
from purexport.aten.memory import storage_of
from purexport.errors import ExportError
from purexport.functionalize.graph import Functionalized


def refuse_parts(graph: AtenGraph, tensors: Sequence[torch.Tensor]) -> None:
    """Raise ExportError where `as_strided` may read the memory around a tensor that is a view of a larger one."""
    strided = next((call for call in graph.calls if call.base == "aten::as_strided"), None)
    if strided is not None and any(_is_part(tensor) for tensor in _strided(tensors)):
        raise ExportError(
            f"{strided.target} at {strided.source} may read memory beside one of the args, which is part of a larger "
            "tensor; pass a copy of it (.clone())",
            code="memory-layout",
        )


def _is_part(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size()


def refuse_shared_inputs(pure: Functionalized, tensors: Sequence[torch.Tensor]) -> None:
    """Raise ExportError for a write to one of two inputs that alias each other: in torch it would change both."""
    storages = [storage_of(tensor) for tensor in _strided(tensors)]
    written = [item for item in pure.mutations if item.input.kind == "user"]
    if written and len(set(storages)) < len(storages):
        raise ExportError(
            f"the model writes to its input {written[0].input.name!r} at {written[0].place}, and two of the args share "
            "memory; pass tensors of their own (.clone())",
            code="args-share-memory",
        )


def _strided(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor for tensor in tensors if tensor.layout == torch.strided]
