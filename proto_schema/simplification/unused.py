"""Nodes and constants that nobody reads."""

from __future__ import annotations

from proto_schema.ir import Graph, Model


def remove_unused(graph: Graph) -> int:
    """Remove what nobody reads from a graph, not from bodies; how many nodes there were."""
    count = 0
    for node in reversed(graph.nodes):
        if not any(value is not None and value.uses for value in node.outputs):
            count += 1
            graph.nodes.remove(node)
    kept = {value for annotation in graph.annotations for value in annotation.parameters.values()}
    for value in list(graph.initializers):
        if not value.uses and not value.is_input and value not in kept:
            graph.remove_initializer(value)
    return count


def remove_uncalled(model: Model) -> int:
    """Remove functions that neither the graph nor a function that is called calls; how many there were."""
    known = {(item.domain, item.name, item.overload): item for item in model.functions}
    todo, called = [model.graph], set()
    while todo and known:
        for graph in todo.pop().nested():
            for node in graph.nodes:
                name = node.domain, node.op_type, node.overload
                if name in known and name not in called:
                    called.add(name)
                    todo.append(known[name])
    before = len(model.functions)
    model.functions = [item for name, item in known.items() if name in called]
    return before - len(model.functions)
