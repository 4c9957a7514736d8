"""Give every node and value its name, once, made from the module path:  `layer1.0.conv1/Conv`.

Inputs, outputs and parameters have names already and keep them.  In a clash inputs and outputs take precedence over
parameters, and these over other values.  Invariant: names are unique in the whole model, subgraphs included, and the
same in every run.
"""

from __future__ import annotations

from purexport.aten.unique_names import UniqueNames
from purexport.graph.ir import Graph, Node, Value

_LEFT_OUT = 0  # the dtype UNDEFINED: an optional output that is not asked for, whose name is empty


def assign_names(graph: Graph) -> None:
    """Name everything in `graph` in place."""
    names = UniqueNames()
    for value in (*graph.inputs, *graph.outputs):
        value.name = names.unique(value.name or "value")
    named = set(_interface(graph))
    for value in graph.initializers():
        if value not in named:
            value.name = names.unique(value.name or "constant")
            named.add(value)
    _name_nodes(graph, names, UniqueNames(), named)


def _interface(graph: Graph) -> list[Value]:
    return [*graph.inputs, *graph.outputs]


def _name_nodes(graph: Graph, names: UniqueNames, node_names: UniqueNames, named: set[Value]) -> None:
    for node in graph.nodes:
        node.name = node_names.unique(_wish(node))
        for index, value in enumerate(node.outputs):
            if value not in named and value.dtype != _LEFT_OUT:
                suffix = f"_output_{index}" if len(node.outputs) > 1 else "_output"
                value.name = names.unique(node.name + suffix)
                named.add(value)
        for body in node.subgraphs():
            for value in body.inputs:
                value.name = names.unique(f"{node.name}_{value.name}")
                named.add(value)
            _name_nodes(body, names, node_names, named)


def _wish(node: Node) -> str:
    return f"{node.source.scope}/{node.op_type}" if node.source.scope else node.op_type
