"""Complex tensors at the border of a graph: the file takes and gives real ones."""

from __future__ import annotations

from purexport.aten.graph import AtenGraph, TensorType, values_in


def interface_remarks(graph: AtenGraph) -> list[str]:
    """Which inputs and outputs of the model are complex, and how to convert them for the file: a remark for each."""
    named = [("input", item.name, item.value.type) for item in graph.inputs if item.kind == "user"]
    for name, output in zip(graph.output_names, graph.outputs, strict=True):
        named += [("output", name, value.type) for value in values_in([output])]
    return [
        f"{what} {name!r} is complex; in the file it is a real tensor with a last axis of size 2 (torch.view_as_real)"
        for what, name, type_ in named
        if isinstance(type_, TensorType) and type_.dtype.is_complex
    ]
