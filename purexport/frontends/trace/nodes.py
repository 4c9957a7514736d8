"""Walks over the nodes and values of a TorchScript graph.

Inputs and outputs are fetched by their positions.  At the end of an iteration torch throws a C++ exception, which takes
longer than all the rest of reading a node.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.torch_patches.torch_jit import is_tracing, value_of

_OF_SIZES = frozenset(["aten::size", "aten::numel", "aten::dim", "prim::Constant"])


def inputs_of(node: Any) -> list[Any]:
    """The values that a node takes."""
    return [node.inputsAt(position) for position in range(node.inputsSize())]


def outputs_of(node: Any) -> list[Any]:
    """The values that a node gives."""
    return [node.outputsAt(position) for position in range(node.outputsSize())]


def is_size(tensor: torch.Tensor) -> bool:
    """Whether a number follows from sizes and constants only."""
    value = value_of(tensor) if is_tracing() else None
    values, seen = [] if value is None else [value], set()
    while values:
        value = values.pop()
        node = value.node()
        if node.kind() == "prim::Param":
            return False
        if node.kind() not in _OF_SIZES and value.unique() not in seen:
            seen.add(value.unique())
            values += inputs_of(node)
    return True


def inputs_behind(value: Any) -> set[int]:
    """The inputs of the graph that a number follows from, sizes left out."""
    values, seen, found = [value], set(), set()
    while values:
        value = values.pop()
        node = value.node()
        if node.kind() == "prim::Param":
            found.add(value.unique())
        elif node.kind() not in _OF_SIZES and value.unique() not in seen:
            seen.add(value.unique())
            values += inputs_of(node)
    return found
