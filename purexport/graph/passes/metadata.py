"""`metadata=True`: where each node comes from, as `metadata_props` of the node.

`purexport.file` and `purexport.line` say the line of the model, `purexport.module` the module's path and
`purexport.class` its class; what is not known is left out.  Nodes inside ONNX functions have no path, because several
instances share them.  The field came with IR version 10, so that is the lowest that such a file says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import proto_schema as ps
from purexport.aten.graph import Source
from purexport.graph.ir import Graph, Node
from purexport.graph.passes.outline import Function

PREFIX = "purexport."
IR_VERSION = 10


def add_metadata(proto: ps.ModelProto, graph: Graph, functions: Sequence[Function], classes: Mapping[str, str]) -> None:
    """Write down, in place, what is known of each node's origin; `proto` is the message of `graph`."""
    assert proto.graph is not None
    proto.ir_version = max(proto.ir_version or 0, IR_VERSION)
    for node, message in _pairs(graph.nodes, proto.graph.node):
        message.metadata_props = _entries(node.source, classes)
    for function, made in zip(functions, proto.functions, strict=True):
        # constants come first in the message, and are no nodes of the graph
        constants = len(made.node) - len(function.graph.nodes)
        for node, message in _pairs(function.graph.nodes, made.node[constants:]):
            entries = _entries(node.source, classes, function.path)
            message.metadata_props = [item for item in entries if item.key != f"{PREFIX}module"]


def _pairs(nodes: Sequence[Node], messages: Sequence[ps.NodeProto]) -> Iterator[tuple[Node, ps.NodeProto]]:
    """Each node with its message, bodies included."""
    for node, message in zip(nodes, messages, strict=True):
        yield node, message
        for attribute in message.attribute:
            body = node.attributes[attribute.name or ""]
            if isinstance(body, Graph) and attribute.g is not None:
                yield from _pairs(body.nodes, attribute.g.node)


def _entries(source: Source, classes: Mapping[str, str], path: str = "") -> list[ps.StringStringEntryProto]:
    """What is known of a place; its module is named from `path` on."""
    file, _, line = source.line.rpartition(":")
    module = f"{path}.{source.scope}" if path and source.scope else path or source.scope
    known = {"file": file, "line": line, "module": module, "class": classes.get(module, "")}
    return [ps.StringStringEntryProto(key=PREFIX + key, value=value) for key, value in known.items() if value]
