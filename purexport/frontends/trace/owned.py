"""What is not recorded: tensors of the model, constants, packed weights; and how arguments lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import torch

from purexport.aten.graph import Arg, Input, Recording, Source, same_bytes, tensor_type
from purexport.aten.graph import AtenValue as Value
from purexport.frontends.core import prepacked
from purexport.frontends.trace.layouts import UnfollowedError
from purexport.frontends.trace.tensors import Layout, Recorded
from purexport.torch_patches.before_composites import below


class Owned:
    """A tensor of the model, or a constant of its code, with its value in the graph."""

    __slots__ = ("free", "layout", "memory", "tensor", "value")

    def __init__(self, tensor: torch.Tensor, value: Value, layout: Layout, memory: frozenset[int]) -> None:
        self.tensor = tensor
        self.value = value
        self.layout = layout
        self.memory = memory
        self.free = False


class Packed(NamedTuple):
    """The weights of a quantized layer: torch's object, and what it consists of, as values and as tensors."""

    weights: torch.ScriptObject
    values: list[Arg]
    tensors: list[Any]


class Holdings:
    """The tensors that one capture does not record, of the model and of its code, and which storages there are."""

    def __init__(self, graph: Recording, layouts: Any) -> None:
        self.graph = graph
        self.layouts = layouts
        self._memories = 0
        self._owned: dict[int, Owned] = {}
        self._by_bytes: dict[Any, Owned] = {}
        self._parameters: dict[int, str] = {}  # by memory
        self._packed: dict[int, Packed] = {}

    def source(self) -> Source:
        """The place of the model that is running."""
        raise NotImplementedError

    def refuse(self, what: str) -> NoReturn:
        """Raise ExportError for what cannot be recorded exactly."""
        raise NotImplementedError

    def state(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        """Make a parameter or buffer known."""
        value = Value(tensor_type(tensor))
        self.graph.inputs.append(Input(value, name, kind, tensor))
        found = self._keep(tensor, value)
        if kind == "parameter":
            self._parameters |= dict.fromkeys(found.memory, name)

    def _keep(self, tensor: torch.Tensor, value: Value) -> Owned:
        meta = self.layouts.meta(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        found = Owned(tensor, value, self.layouts.layout(meta, dtype=tensor.dtype), self.memory())
        self._owned[id(tensor)] = found
        self._by_bytes.setdefault(same_bytes(tensor), found)
        return found

    def memory(self) -> frozenset[int]:
        """A storage that nothing else shares."""
        self._memories += 1
        return frozenset([self._memories])

    def owned(self, tensor: torch.Tensor) -> Owned:
        """What is known of a tensor that is not recorded: the model's own, else it becomes a constant."""
        found = self._owned.get(id(tensor))
        if found is not None:
            return found
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise UnfollowedError
        if tensor.layout is not torch.strided:
            self.refuse("computes with a sparse tensor, which a trace does not record")
        if tensor.is_meta:
            self.refuse("computes with a tensor on the meta device that is none of its parameters and buffers")
        same = self._by_bytes.get(same_bytes(tensor))
        if same is not None and tensor.dtype == same.tensor.dtype:
            self._owned[id(tensor)] = Owned(tensor, same.value, same.layout, same.memory)
            return self._owned[id(tensor)]
        return self._keep(tensor, self.graph.constant(tensor))

    def packed(self, weights: torch.ScriptObject) -> Packed:
        """The weights of a quantized layer, which torch keeps in an object: another one in Python for each call."""
        found = self._packed.get(id(weights))
        if found is None:
            with below():
                tensors = prepacked.unpacked(weights, self.source().scope, lambda tensor, name: (name, tensor))
                plain = [item[1] if isinstance(item, tuple) else item for item in tensors]
                same = next((item for item in self._packed.values() if are_equal(item.tensors, plain)), None)
            if same is not None:
                found = Packed(weights, same.values, same.tensors)
            else:
                values = [self._weight(*item) if isinstance(item, tuple) else item for item in tensors]
                found = Packed(weights, values, plain)
            self._packed[id(weights)] = found
        return found

    def _weight(self, name: str, tensor: torch.Tensor) -> Value:
        return self._keep(tensor, self.graph.constant(tensor, name)).value

    def value_of(self, item: Any) -> Value:
        """The value of a tensor, recorded or not."""
        found: Value = item.value if type(item) is Recorded else self.owned(item).value
        return found

    def memory_of(self, item: Any) -> frozenset[int]:
        """The storages that a tensor may share."""
        return item.memory if type(item) is Recorded else self.owned(item).memory


def are_equal(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether packed weights are the same numbers."""
    return len(some) == len(others) and all(
        one.dtype == other.dtype and torch.equal(one, other)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        else type(one) is type(other) and one == other
        for one, other in zip(some, others, strict=True)
    )


def strides_of_copy(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of a copy of an argument."""
    if 0 in tensor.stride():  # elements are repeated
        return tuple(torch.empty(tensor.shape, device="meta").stride())
    return tuple(torch.empty_like(tensor, device="meta").stride())
