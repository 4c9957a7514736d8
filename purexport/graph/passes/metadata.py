"""`metadata=True`: the origin of each node, in the `metadata_props` of the node.

`purexport.file` and `purexport.line` give the line of the model, `purexport.module` the module's path and
`purexport.class` its class.  Unknown facts are left out.  Nodes inside ONNX functions have no path, because several
instances use the same function.  The field exists since IR version 10, so such a file has at least that version.
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
    """Add to each node, in place, what is known of its origin; `proto` is the message of `graph`."""
    assert proto.graph is not None
    proto.ir_version = max(proto.ir_version or 0, IR_VERSION)
    for node, message in _pairs(graph.nodes, proto.graph.node):
        message.metadata_props = _entries(node.source, classes)
    for function, made in zip(functions, proto.functions, strict=True):
        # the message begins with constants, which are no nodes of the graph
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
    """The entries for a place; the path of its module starts below `path`."""
    file, _, line = source.line.rpartition(":")
    module = f"{path}.{source.scope}" if path and source.scope else path or source.scope
    known = {"file": file, "line": line, "module": module, "class": classes.get(module, "")}
    return [ps.StringStringEntryProto(key=PREFIX + key, value=value) for key, value in known.items() if value]
