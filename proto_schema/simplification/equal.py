"""Nodes that compute what an earlier node computes."""

from __future__ import annotations

from collections.abc import Hashable

from proto_schema import operators
from proto_schema.graphs.names import as_text
from proto_schema.ir import Node
from proto_schema.simplification.known import Known


class Equal:
    """The nodes of a walk by what they compute."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.readers: dict[Hashable, Node] = {}  # the first of those that read the same, of whatever attributes
        self.seen: dict[Hashable, Node] = {}

    def merged(self, node: Node) -> bool:
        """Whether an earlier node stands for the node now."""
        first = self._first(node)
        if first is None:
            return False
        for mine, other in zip(node.outputs, first.outputs, strict=True):
            if mine is not None and other is not None:
                mine.replace_uses(other)
        self.known.graph.nodes.remove(node)
        return True

    def _first(self, node: Node) -> Node | None:
        """An earlier node that computes the same."""
        if node.domain or node.op_type in operators.RANDOM or node.bodies or not all(node.outputs):
            return None
        if not self.known.outputs.isdisjoint(node.outputs) or operators.schema(node.op_type, self.known.opset) is None:
            return None
        other = self.readers.setdefault((node.op_type, node.inputs, len(node.outputs)), node)
        if other is node or any(row.ref_attr_name for row in node.attributes.messages()):
            return None
        if other.graph is not None:
            self.seen.setdefault(_key(other), other)
        key = _key(node)
        first = self.seen.setdefault(key, node)
        if first is not node and (first.graph is None or _key(first) != key):  # it went, or is another one now
            first = self.seen[key] = node
        return None if first is node else first


def _key(node: Node) -> Hashable:
    """What nodes that compute the same have in common."""
    rows = node.attributes.messages()
    attributes = tuple(sorted((as_text(row.name), row.SerializeToString()) for row in rows))
    return node.op_type, node.inputs, len(node.outputs), attributes
