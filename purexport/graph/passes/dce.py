"""Remove nodes whose results nobody reads:  ``y = Shape(x); return x``  ->  ``return x``."""

from __future__ import annotations

from purexport.graph.ir import Graph, Value


def remove_dead_nodes(graph: Graph) -> None:
    """Keep what the outputs depend on, in the same order.  Graph inputs stay, used or not."""
    used: set[Value] = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(value in used for value in node.outputs):
            kept.append(node)
            used.update(value for value in node.inputs if value is not None)
            for body in node.subgraphs():
                used.update(_outer_values(body))
    graph.nodes = kept[::-1]


def _outer_values(body: Graph) -> set[Value]:
    found = set(body.outputs)
    for node in body.nodes:
        found.update(value for value in node.inputs if value is not None)
        for inner in node.subgraphs():
            found |= _outer_values(inner)
    return found
