"""Remove nodes whose results nobody reads:  `y = Shape(x); return x`  ->  `return x`."""

from __future__ import annotations

from purexport.graph.ir import Graph, Value


def remove_dead_nodes(graph: Graph) -> set[Value]:
    """Keep what the outputs depend on, in the same order, in bodies too.  Graph inputs stay, used or not.

    Returns the values that are in use.
    """
    used: set[Value] = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(value in used for value in node.outputs):
            kept.append(node)
            used.update(value for value in node.inputs if value is not None)
            for body in node.subgraphs():
                used |= remove_dead_nodes(body)
    graph.nodes = kept[::-1]
    return used
