"""The tensors that a module owns, with their names and attributes, and how to replace them for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from proto_schema.wire.records import dataclass


def is_valueless(tensor: Any) -> bool:
    """True for a tensor that has no values: on the meta device, or fake."""
    return isinstance(tensor, torch.Tensor) and (tensor.is_meta or isinstance(tensor, FakeTensor))


@dataclass(eq=False)
class ModuleTensor:
    """One tensor: a parameter, a buffer, or ("constant") a plain attribute.

    Tied tensors have several names, the first of which is that of `named_parameters`.
    """

    kind: str
    own: torch.Tensor
    names: list[str] = field(default_factory=list)
    places: list[tuple[torch.nn.Module, str]] = field(default_factory=list)
    persistent: bool = False  # whether state_dict lists it

    @property
    def valueless(self) -> bool:
        """Whether the model has no values of its own here."""
        return is_valueless(self.own)


def owned_tensors(model: Any) -> list[ModuleTensor]:
    """The tensors of a module or an ExportedProgram, in the order of its names; those of a program have no places."""
    found: dict[int, ModuleTensor] = {}

    def add(kind: str, name: str, tensor: Any, persistent: bool, place: tuple[torch.nn.Module, str] | None) -> None:
        if not isinstance(tensor, torch.Tensor) or torch.nn.parameter.is_lazy(tensor):
            return
        item = found.setdefault(id(tensor), ModuleTensor(kind, tensor))
        item.names.append(name)
        item.persistent |= persistent
        if place is not None and place not in item.places:
            item.places.append(place)

    if isinstance(model, torch.export.ExportedProgram):
        signature = model.graph_signature
        kinds = {**dict.fromkeys(signature.parameters, "parameter"), **dict.fromkeys(signature.buffers, "buffer")}
        for name, tensor in {**model.state_dict, **model.constants}.items():
            if name in kinds:
                add(kinds[name], name, tensor, name in model.state_dict, None)
    elif isinstance(model, torch.nn.Module):
        for path, module in model.named_modules(remove_duplicate=False):
            prefix = f"{path}." if path else ""
            for name, tensor in module._parameters.items():
                add("parameter", prefix + name, tensor, True, (module, name))
            for name, tensor in module._buffers.items():
                add("buffer", prefix + name, tensor, name not in module._non_persistent_buffers_set, (module, name))
            for name, value in vars(module).items():
                if isinstance(value, torch.Tensor):
                    add("constant", prefix + name, value, False, (module, name))
    return list(found.values())


@contextmanager
def placed(pairs: Sequence[tuple[ModuleTensor, torch.Tensor]]) -> Iterator[None]:
    """Inside, each given tensor replaces an owned one in all its places; afterwards the owned ones are restored."""
    before = [(module, name, getattr(module, name)) for item, _ in pairs for module, name in item.places]
    try:
        for item, tensor in pairs:
            made = torch.nn.Parameter(tensor, requires_grad=False) if item.kind == "parameter" else tensor
            for module, name in item.places:
                # by the module's own setattr, because a recurrent layer also keeps a list of its weights
                setattr(module, name, made)
        yield
    finally:
        for module, name, tensor in before:
            setattr(module, name, tensor)
