"""Names for values that have none, or whose name means another value where it is read.

A name clashes where two values of one graph have it, where a body reads a value and has another one of that name, and
where a body came to hide a value by one of its own. Names that the file had stay unless they clash; those of inputs and
outputs go before others.
"""

from __future__ import annotations

from collections.abc import Iterator

from proto_schema.graphs.names import Unique
from proto_schema.ir.graph import Graph, User, Value


def assign_names(graph: Graph) -> None:
    """Give each value of a graph and of its bodies a name that means it wherever it is read."""
    unique: Unique | None = None
    while True:
        clashes = _Clashes(graph)
        found = clashes.unnamed or clashes.hiding  # which may hide nothing once the former have names
        if not found:
            return
        unique = unique or Unique(names_in(graph))
        for value in found:
            value.name = unique(value.name or _wanted(value))


def names_in(graph: Graph) -> Iterator[str]:
    """All names of values and nodes of a graph, and of the bodies in it."""
    yield from (value.name for value in (*graph.inputs, *graph.initializers))
    yield from (item.name or "" for item in graph._declared)
    for node in graph.nodes:
        yield node.name
        yield from (value.name for value in (*node.inputs, *node.outputs) if value is not None)
        for body in node.bodies:
            yield from names_in(body)


def _wanted(value: Value) -> str:
    if value.producer is not None:
        return value.producer.op_type
    return "input" if value.is_input else "constant"


class _Clashes:
    """One walk over a graph and its bodies in their order, with the values that names mean there."""

    def __init__(self, graph: Graph) -> None:
        self.unnamed: dict[Value, None] = {}
        """Values without a name, and those of one graph that have the name of another one."""
        self.hiding: dict[Value, None] = {}
        """Values that stand before others of their name where these are read."""
        self.visible: dict[str, Value] = {}
        self._walk(graph)

    def _walk(self, graph: Graph) -> None:
        visible = self.visible
        own: dict[str, Value] = {}
        hidden: dict[str, Value | None] = {}

        def define(value: Value) -> None:
            name = value.name
            if not name:
                if value.producer is not None or value._uses:
                    self.unnamed[value] = None
                return
            other = own.get(name)
            if other is not None and other is not value:
                fixed = (value.is_input or value._outputs) and not (other.is_input or other._outputs)
                self.unnamed[other if fixed else value] = None
                return
            around = visible.get(name)
            if around is not None and other is None and value not in graph._hiding:
                self.hiding[value] = None
            own[name] = value
            hidden.setdefault(name, around)
            visible[name] = value

        def read(value: Value, user: User) -> None:
            other = visible.get(value.name)
            if value.graph is None and (value.producer is not None or not value.name):
                raise ValueError(
                    f"{user!r} reads a value of which the graph has no node; insert the node that makes it"
                )
            if other is not None and value.name:
                self.hiding[other if value.graph is not graph else value] = None

        for value in (*graph.inputs, *graph.initializers):
            define(value)
        for node in graph.nodes:
            for item in node._reads:
                if item is not None and visible.get(item.name) is not item:
                    read(item, node)
            if node._attributes is not None:
                for body in node._attributes.bodies():
                    self._walk(body)
            for item in node.outputs:
                if item is not None:
                    define(item)
        for item in graph._reads:
            if item is not None and visible.get(item.name) is not item:
                read(item, graph)
        for name, before in hidden.items():
            if before is None:
                del visible[name]
            else:
                visible[name] = before
