"""Weights that come from outside: which tensors of a model they replace, for how long, and what the graph holds then.

A model whose tensors have no values (built under `torch.device("meta")` or FakeTensorMode) is called hollow.  During
its capture CPU tensors replace its tensors: views of the mapped checkpoint if possible, else bare addresses.
torch.export looks at no values, so nothing is read; a trace runs on fakes of these tensors.
A model with values runs on the values of the checkpoint, as if they had been loaded into it.
Invariant: a tensor of the graph has either the checkpoint's values or none; a bare address never gets there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree

from proto_schema.payload import FileRange, LazyPayload, Payload
from purexport import dtypes
from purexport.aten.graph import AtenGraph
from purexport.aten.memory import storage_of
from purexport.capture.core.module_tensors import Owned, is_hollow, owned_tensors, placed
from purexport.errors import ExportError, UnsupportedDtypeError, WeightsError
from purexport.graph.ir import Graph
from purexport.weights.checkpoint import Checkpoint
from purexport.weights.convert import cast
from purexport.weights.match import MOST_LISTED, Wanted, match
from purexport.weights.model.mapped import Mapped
from purexport.weights.stored import Stored

SMALL = 1 << 16  # tensors of up to so many bytes are read at once if they cannot be mapped: rules see their values
LARGEST_VERIFIED = 1 << 30


@dataclass(eq=False)
class Slot(Owned):
    """A tensor of the model, and what takes its place."""

    stored: Stored | None = None
    values: torch.Tensor | None = None  # on the CPU, with the checkpoint's values
    address: torch.Tensor | None = None  # on the CPU, without any

    @property
    def replaced(self) -> bool:
        """Whether the model's own tensor is not used."""
        return self.hollow or self.stored is not None

    def wanted(self) -> Wanted:
        """What a checkpoint must hold."""
        # each call may make a plain attribute again: the graph shows whether a tensor is missing, but not a number
        required = self.persistent or (self.hollow and (self.kind == "buffer" or self.own.numel() == 1))
        return Wanted(tuple(self.names), _code(self.own), tuple(self.own.shape), not self.persistent, required)


@contextmanager
def with_values() -> Iterator[None]:
    """Tensors made inside have values, also if those that the caller makes get none."""
    has_none = torch.get_default_device().type == "meta"
    with unset_fake_temporarily(), torch.device("cpu") if has_none else nullcontext():
        yield


class Attached:
    """A model and the weights that it gets.  Without weights and hollow tensors it does nothing."""

    def __init__(self, model: Any, weights: Any) -> None:
        """Raises WeightsError when the weights do not fit, OSError when they cannot be opened."""
        self.model = model
        self.slots: list[Slot] = []
        found = [Slot(item.kind, item.own, item.names, item.places, item.persistent) for item in owned_tensors(model)]
        self.hollow = any(slot.hollow for slot in found)
        self.mapped = Mapped(runs=not self.hollow)
        if weights is None and not self.hollow:
            return
        if weights is not None and not isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
            what = type(model).__name__
            raise WeightsError(
                f"weights fill the tensors of an nn.Module or an ExportedProgram, and this is a {what}",
                code="weights-do-not-fit",
            )
        if isinstance(model, torch.nn.Module) and any(map(_is_script, model.modules())):
            raise WeightsError(
                "weights cannot be put into scripted modules; use load_state_dict before the export",
                code="weights-do-not-fit",
            )
        self.slots = found
        if weights is not None:
            self._open(weights if isinstance(weights, Checkpoint) else Checkpoint(weights))

    def _open(self, checkpoint: Checkpoint) -> None:
        weights = checkpoint.open()
        wanted = [slot.wanted() for slot in self.slots]
        found = match(weights, wanted, strict=checkpoint.strict, cast=checkpoint.cast)
        for slot, item, stored in zip(self.slots, wanted, found, strict=True):
            slot.stored = None if stored is None else cast(stored, item.dtype)
            if slot.stored is not None:
                slot.values = self._values(slot, slot.stored)

    def _values(self, slot: Slot, stored: Stored) -> torch.Tensor | None:
        """The values that rules may look at.  A model with values runs on them, and may write to its buffers."""
        if not self.hollow and (slot.kind == "buffer" or not _is_file(stored.payload)):
            return self.mapped.copy(stored)
        view = self.mapped.view(stored)
        # the capture may look at a plain attribute, never at a parameter or a buffer
        if view is None and (slot.kind == "constant" or stored.nbytes <= SMALL):
            return self.mapped.copy(stored)
        return view

    @property
    def hollow_tensors(self) -> list[Slot]:
        """The tensors whose values a capture must not take; empty for a model that has values."""
        return self._exchanged() if self.hollow else []

    def _exchanged(self) -> list[Slot]:
        """The tensors that are replaced during the capture.

        A plain attribute that was not given stays as it is, because torch.export reads numbers out of attributes.
        """
        found = [slot for slot in self.slots if slot.replaced and slot.places]
        return [slot for slot in found if slot.kind != "constant" or slot.stored is not None]

    # during the capture

    @contextmanager
    def swapped(self, *, valued: bool = False) -> Iterator[None]:
        """Inside, the model runs on the replaced tensors; `valued` says that these must have values."""
        with placed([(slot, self._inside(slot, valued)) for slot in self._exchanged()]):
            yield

    @contextmanager
    def captured(self) -> Iterator[None]:
        """The capture runs inside.  Raises WeightsError if it failed because attributes have no values."""
        try:
            yield
        except ExportError as failure:
            empty = [slot for slot in self.slots if slot.hollow and slot.kind == "constant" and slot.stored is None]
            if not empty:
                raise
            names = ", ".join(repr(slot.names[0]) for slot in empty[:MOST_LISTED])
            raise WeightsError(
                f"{failure}\n(no values were given for attributes that may be needed: {names}; "
                'lay them over the checkpoint: weights=[checkpoint, {"NAME": tensor}])',
                code="tensor-without-values",
            ) from failure

    def _inside(self, slot: Slot, valued: bool) -> torch.Tensor:
        if not self.hollow and slot.values is not None:
            return slot.values.to(slot.own.device)
        if valued and slot.stored is not None:  # a mapping cannot be written to
            found = self.mapped.copy(slot.stored)
            if found is not None:
                return found
        if slot.values is not None:
            return slot.values
        if slot.address is None:
            slot.address = self.mapped.reserve(slot.own.dtype, tuple(slot.own.shape))
        return slot.address

    def arguments(self, tree: Any) -> Any:
        """Example arguments for a hollow model: on the CPU, zeros for those that have no values."""
        return pytree.tree_map_only(torch.Tensor, _on_cpu, tree) if self.hollow else tree

    # after it

    def fill(self, graph: AtenGraph) -> None:
        """Give the captured graph's inputs that stand for the model's tensors the bytes that are written for them."""
        by_name = {name: slot for slot in self.slots for name in slot.names}
        memory = {
            storage_of(tensor) or id(tensor): slot
            for slot in self.slots
            for tensor in (slot.values, slot.address)
            if tensor is not None
        }
        for item in graph.inputs:
            if item.kind == "user":
                continue
            slot = memory.get(storage_of(item.tensor) or id(item.tensor)) if item.tensor is not None else None
            slot = slot or (by_name.get(item.name) if item.kind != "constant" or is_hollow(item.tensor) else None)
            if slot is None or not slot.replaced:
                if is_hollow(item.tensor):
                    raise ExportError(
                        f"the model holds a tensor without values that is no parameter, buffer or attribute (the "
                        f"capture calls it {item.name!r}); register it as a buffer, and give it with weights=",
                        code="tensor-without-values",
                    )
                continue
            item.tensor = slot.values
            if slot.values is None:
                item.stored = slot.stored.payload if slot.stored is not None else Absent(slot)

    def refuse_absent(self, graph: Graph) -> None:
        """Raise WeightsError if the graph still needs tensors that were not given."""
        absent = [value for value in graph.initializers() if isinstance(value.stored, Absent)]
        if not absent:
            return
        lines = [f"  {value.stored!r}" for value in absent[:MOST_LISTED]]
        more = [f"  and {len(absent) - MOST_LISTED} more"] if len(absent) > MOST_LISTED else []
        raise WeightsError(
            "\n".join(
                [
                    f"the model has no values for {len(absent)} of its tensors, which are on the meta device or fake:",
                    *lines,
                    *more,
                    'give them with weights="model.safetensors" or weights={"NAME": tensor}, '
                    "or leave them to whoever runs the file with export_params=False",
                ]
            ),
            code="tensor-without-values",
        )

    def refuse_verification(self, arguments: Any) -> None:
        """Raise ExportError if `verify=True` has nothing to run, or would hold a large model in memory."""
        if not self.hollow:
            return
        if not isinstance(self.model, torch.nn.Module):
            raise ExportError(
                "verify=True runs the model, and this ExportedProgram has no values; leave verify out",
                code="verify-impossible",
            )
        if any(map(is_hollow, pytree.tree_leaves(arguments))):
            raise ExportError(
                "verify=True runs the model, and args have no values; pass real tensors", code="verify-impossible"
            )
        size = sum(slot.stored.nbytes for slot in self.slots if slot.stored is not None)
        if size > LARGEST_VERIFIED:
            raise ExportError(
                f"verify=True would hold the {size / 1e9:.1f} GB of weights in memory, in torch and in onnxruntime; "
                "leave it out, and compare a small model of the same code",
                code="verify-impossible",
            )


class Absent(LazyPayload):
    """Stands for the bytes of a tensor that was not given: reading them fails."""

    def __init__(self, slot: Slot) -> None:
        super().__init__(slot.own.numel() * slot.own.element_size(), self._refuse, description=slot.names[0])
        self.slot = slot

    def _refuse(self) -> Any:
        raise WeightsError(f"the model has no values for {self}", code="tensor-without-values")

    def __repr__(self) -> str:
        return f"{self.slot.names[0]!r} {list(self.slot.own.shape)}"


def _is_file(payload: Payload) -> bool:
    return isinstance(payload, FileRange)


def _is_script(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    if not is_hollow(tensor):
        return tensor.cpu()
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype).zero_()


def _code(tensor: torch.Tensor) -> int:
    try:
        return dtypes.onnx_code(tensor.dtype)
    except UnsupportedDtypeError:
        return 0
