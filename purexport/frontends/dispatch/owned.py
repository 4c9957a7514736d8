"""What is not recorded: tensors of the model, constants, packed weights; and how arguments lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from purexport.aten.graph import Arg
from purexport.aten.graph import AtenValue as Value
from purexport.frontends.dispatch.tensors import Layout


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
