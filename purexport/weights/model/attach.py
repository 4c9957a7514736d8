"""Weights that come from outside: which tensors of a model they replace, for how long, and what the graph holds then.

A model is valueless when its tensors have no values (built under `torch.device("meta")` or FakeTensorMode).  For the
length of its capture its tensors are replaced by CPU tensors: views of the mapped checkpoint where that is possible,
else bare addresses.  torch.export looks at no values, so nothing is read; a trace runs on fakes of these.
A model with values runs on those of the checkpoint, as if they had been loaded into it.
Invariant: what the graph holds afterwards has either the checkpoint's values or none: a bare address never gets there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from proto_schema.external.payload import FileRange, LazyPayload, Payload
from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.aten.graph import AtenGraph
from purexport.aten.memory import storage_of
from purexport.errors import ExportError, UnsupportedDtypeError, WeightsError
from purexport.frontends.core.module_tensors import ModuleTensor, is_valueless, owned_tensors, placed
from purexport.frontends.core.structures import mapped, tensors_in
from purexport.graph.ir import Graph
from purexport.torch_patches.torch_jit import ScriptModule
from purexport.weights.model.mapped import Mapped

if TYPE_CHECKING:  # what reads checkpoints is loaded for models that get weights from outside
    from purexport.weights.match import Wanted
    from purexport.weights.stored import Stored

SMALL = 1 << 16  # bytes of a tensor that is read at once where it cannot be mapped, so that rules see its values
LARGEST_VERIFIED = 1 << 30


@dataclass(eq=False)
class WeightSlot(ModuleTensor):
    """A tensor of the model, and what takes its place."""

    stored: Stored | None = None
    values: torch.Tensor | None = None  # on the CPU, with the checkpoint's values
    address: torch.Tensor | None = None  # on the CPU, without any

    @property
    def replaced(self) -> bool:
        """Whether the model's own tensor is not used."""
        return self.valueless or self.stored is not None

    def wanted(self) -> Wanted:
        """What a checkpoint must hold."""
        from purexport.weights.match import Wanted

        # a plain attribute may be made anew in each call: the graph shows whether it is missed, but not of a number
        required = self.persistent or (self.valueless and (self.kind == "buffer" or self.own.numel() == 1))
        return Wanted(tuple(self.names), _code(self.own), tuple(self.own.shape), not self.persistent, required)


@contextmanager
def with_values() -> Iterator[None]:
    """What is made inside has values, also where the caller's own tensors get none."""
    has_none = torch.get_default_device().type == "meta"
    with unset_fake_temporarily(), torch.device("cpu") if has_none else nullcontext():
        yield


class Attached:
    """A model and the weights that it gets.  With neither weights nor valueless tensors it does nothing."""

    def __init__(self, model: Any, weights: Any) -> None:
        """Raises WeightsError when the weights do not fit, OSError when they cannot be opened."""
        self.model = model
        self.slots: list[WeightSlot] = []
        found = [
            WeightSlot(item.kind, item.own, item.names, item.places, item.persistent) for item in owned_tensors(model)
        ]
        self.valueless = any(slot.valueless for slot in found)
        self.mapped = Mapped(runs=not self.valueless)
        if weights is None and not self.valueless:
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
            self._open(weights)

    def _open(self, given: Any) -> None:
        from purexport.weights.checkpoint import Checkpoint
        from purexport.weights.convert import cast
        from purexport.weights.match import match

        checkpoint = given if isinstance(given, Checkpoint) else Checkpoint(given)
        weights = checkpoint.open()
        wanted = [slot.wanted() for slot in self.slots]
        found = match(weights, wanted, strict=checkpoint.strict, cast=checkpoint.cast)
        for slot, item, stored in zip(self.slots, wanted, found, strict=True):
            slot.stored = None if stored is None else cast(stored, item.dtype)
            if slot.stored is not None:
                slot.values = self._values(slot, slot.stored)

    def _values(self, slot: WeightSlot, stored: Stored) -> torch.Tensor | None:
        """What rules may look at.  A model with values runs on it, and may write to its buffers."""
        if not self.valueless and (slot.kind == "buffer" or not _is_file(stored.payload)):
            return self.mapped.copy(stored)
        view = self.mapped.view(stored)
        # the capture may look at a plain attribute, never at a parameter or a buffer
        if view is None and (slot.kind == "constant" or stored.nbytes <= SMALL):
            return self.mapped.copy(stored)
        return view

    @property
    def valueless_tensors(self) -> list[WeightSlot]:
        """What of the model a capture must not take values of; none of a model that has values."""
        return self._exchanged() if self.valueless else []

    def _exchanged(self) -> list[WeightSlot]:
        """The tensors that are others for the length of the capture.

        A plain attribute that nobody gave stays what it is, because torch.export reads numbers out of attributes.
        """
        found = [slot for slot in self.slots if slot.replaced and slot.places]
        return [slot for slot in found if slot.kind != "constant" or slot.stored is not None]

    # for the length of the capture

    @contextmanager
    def swapped(self, *, valued: bool = False) -> Iterator[None]:
        """The model runs inside on what replaces its tensors; `valued` says that these must have values."""
        with placed([(slot, self._inside(slot, valued)) for slot in self._exchanged()]):
            yield

    @contextmanager
    def captured(self) -> Iterator[None]:
        """The capture runs inside.  Raises WeightsError where it failed with attributes that have no values."""
        try:
            yield
        except ExportError as failure:
            empty = [slot for slot in self.slots if slot.valueless and slot.kind == "constant" and slot.stored is None]
            if not empty:
                raise
            from purexport.weights.match import MOST_LISTED

            names = ", ".join(repr(slot.names[0]) for slot in empty[:MOST_LISTED])
            raise WeightsError(
                f"{failure}\n(no values were given for attributes that may be needed: {names}; "
                'lay them over the checkpoint: weights=[checkpoint, {"NAME": tensor}])',
                code="tensor-without-values",
            ) from failure

    def _inside(self, slot: WeightSlot, valued: bool) -> torch.Tensor:
        if not self.valueless and slot.values is not None:
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
        """Example arguments for a valueless model: on the CPU, zeros for those that have no values."""
        return mapped(_on_cpu, tree) if self.valueless else tree

    # after it

    def filled(self, graph: AtenGraph) -> AtenGraph:
        """The captured graph in which the inputs for the model's tensors hold what is written for them."""
        if not self.slots:
            return graph
        by_name = {name: slot for slot in self.slots for name in slot.names}
        memory = {
            storage_of(tensor) or id(tensor): slot
            for slot in self.slots
            for tensor in (slot.values, slot.address)
            if tensor is not None
        }
        inputs = list(graph.inputs)
        for place, item in enumerate(inputs):
            if item.kind == "user":
                continue
            slot = memory.get(storage_of(item.tensor) or id(item.tensor)) if item.tensor is not None else None
            slot = slot or (by_name.get(item.name) if item.kind != "constant" or is_valueless(item.tensor) else None)
            if slot is None or not slot.replaced:
                if is_valueless(item.tensor):
                    raise ExportError(
                        f"the model holds a tensor without values that is not a parameter, buffer or attribute (the "
                        f"capture calls it {item.name!r}); register it as a buffer, and give it with weights=",
                        code="tensor-without-values",
                    )
                continue
            stored: Payload | None = None
            if slot.values is None:
                stored = slot.stored.payload if slot.stored is not None else Absent(slot)
            inputs[place] = replace(item, tensor=slot.values, stored=stored)
        return graph.with_inputs(inputs)

    def refuse_absent(self, graph: Graph) -> None:
        """Raise WeightsError when the graph still needs tensors that nobody gave."""
        absent = [value for value in graph.initializers() if isinstance(value.stored, Absent)]
        if not absent:
            return
        from purexport.weights.match import MOST_LISTED

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
        """Raise ExportError where `verify=True` has nothing to run, or would hold a large model in memory."""
        if not self.valueless:
            return
        if not isinstance(self.model, torch.nn.Module):
            raise ExportError(
                "verify=True runs the model, and this ExportedProgram has no values; leave verify out",
                code="verify-impossible",
            )
        if any(map(is_valueless, tensors_in(arguments))):
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
    """The bytes of a tensor that nobody gave, which cannot be had."""

    def __init__(self, slot: WeightSlot) -> None:
        super().__init__(slot.own.numel() * slot.own.element_size(), self._refuse, description=slot.names[0])
        self.slot = slot

    def _refuse(self) -> Any:
        raise WeightsError(f"the model has no values for {self}", code="tensor-without-values")

    def __repr__(self) -> str:
        return f"{self.slot.names[0]!r} {list(self.slot.own.shape)}"


def _is_file(payload: Payload) -> bool:
    return isinstance(payload, FileRange)


def _is_script(module: torch.nn.Module) -> bool:
    return isinstance(module, ScriptModule)


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    if not is_valueless(tensor):
        return tensor.cpu()
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype).zero_()


def _code(tensor: torch.Tensor) -> int:
    try:
        return dtypes.onnx_code(tensor.dtype)
    except UnsupportedDtypeError:
        return 0
