"""The uses of values, counted anew: `proto_schema.ir` promises that its own are always these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from proto_schema import ir


def uses_that_are_wrong(model: ir.Model) -> list[str]:
    """What differs between the uses that values have and those that a walk over the model finds."""
    found: Counter[tuple[ir.Value, ir.User, int]] = Counter()
    values: dict[ir.Value, None] = {}
    wrong = []
    for graph in graphs_of(model):
        for place, value in enumerate(graph.outputs):
            found[value, graph, place] += 1
        values.update(dict.fromkeys((*graph.inputs, *graph.outputs, *graph.initializers)))
        for node in graph.nodes:
            for place, item in enumerate(node.inputs):
                if item is not None:
                    found[item, node, place] += 1
                    values[item] = None
            for place, made in enumerate(node.outputs):
                if made is not None:
                    values[made] = None
                    if made.producer is not node or made.place != place:
                        wrong.append(f"{made} is not known to be made by {node}")
        forwards, backwards = list(graph.nodes), list(reversed(graph.nodes))
        if forwards != backwards[::-1] or len(forwards) != len(graph.nodes):
            wrong.append(f"the list of {graph}")
    said = Counter((value, user, place) for value in values for user, place in value.uses)
    return wrong + [f"{value} {user} {place}" for value, user, place in (said - found) + (found - said)]


def graphs_of(model: ir.Model) -> Iterator[ir.Graph]:
    """All graphs of a model, bodies and functions among them."""
    todo: list[ir.Graph] = [model.graph, *model.functions]
    while todo:
        graph = todo.pop()
        yield graph
        todo += [body for node in graph.nodes for body in node.bodies]
