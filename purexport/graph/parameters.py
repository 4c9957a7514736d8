"""The parameters and buffers of a model in the ONNX graph, found by name."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from purexport.aten.graph import Input
from purexport.graph.ir import Graph, Value


def owned_values(graph: Graph, inputs: Sequence[Input]) -> list[Value]:
    """The model's parameters and buffers in the graph, in the order of `inputs`, which is that of `state_dict`."""
    order = {item.name: position for position, item in enumerate(inputs) if item.kind in ("parameter", "buffer")}
    owned = [value for value in graph.initializers() if value.name in order]
    return sorted(owned, key=lambda value: order[value.name])


def parameters_as_inputs(graph: Graph, inputs: Sequence[Input]) -> list[tuple[Value, torch.Tensor]]:
    """`export_params=False`: make the model's parameters and buffers inputs; returns these with the model's tensors."""
    found = []
    for value in owned_values(graph, inputs):
        if value.const is not None:
            found.append((value, value.const))
        value.const = value.stored = None
        graph.inputs.append(value)
    return found
