"""Whether nodes can be followed by the names of their values: what rewrites nodes relies on it."""

from __future__ import annotations

from proto_schema.errors import CheckError
from proto_schema.graphs.names import free_names
from proto_schema.onnx import GraphProto


def check_order(graph: GraphProto) -> None:
    """Raises CheckError where a value is made twice, or a node takes what a later one makes."""
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    known = {item.name for item in graph.input} | {item.name for item in graph.initializer}
    known.update(item.values.name for item in graph.sparse_initializer if item.values is not None)
    for place, node in enumerate(graph.node):
        for name in free_names(node):
            if name not in known and makers.get(name, -1) >= place:
                raise CheckError(
                    f"graph.node[{place}]: takes {name!r}, which node[{makers[name]}] makes; nodes must be in "
                    "topological order"
                )
        for name in node.output:
            if name and name in known:
                raise CheckError(
                    f"graph.node[{place}].output: {name!r} is defined already; a value is assigned only once"
                )
            known.add(name)
