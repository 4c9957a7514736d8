"""Running statistics that change:  `y = BN(x, mean); z = Mul(mean, 2)`  ->  `y = BN(x, mean); z = Mul(mean_1, 2)`.

ONNX Runtime writes the new statistics of a BatchNormalization in training mode over those that it reads.  So whoever
else reads them gets a copy, which keeps the values of the model.  The runtime also merges initializers of up to eight
elements that are equal, as a mean of zeros and a bias are at first; then the bias would change too.  An initializer
that is also the default of an input is merged with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from purexport.graph.ir import Graph, Node, Value
from purexport.graph.passes.outline import Function

_MERGED = 8  # elements of an initializer


def keep_statistics_apart(graph: Graph, functions: Sequence[Function] = ()) -> list[Value]:
    """Give other readers of changing statistics copies, in place.

    Returns the statistics that are to be the defaults of inputs; none for a graph that trains nothing.
    """
    trains: set[tuple[str, str]] = set()
    for function in functions:  # innermost first
        if any(True for _ in _changing(function.graph, trains)):
            trains.add((function.domain, function.name))
    read = [value for _, places in _changing(graph, trains) for value in places]
    changing = {value for value in read if value is not None and value.is_constant}
    if not changing:
        return []
    copies: dict[Value, Value] = {}
    _give_copies(graph, changing, trains, copies)
    small = [value for value in dict.fromkeys(read) if value in changing and _is_small(value)]
    others = list(filter(_is_small, graph.initializers()))
    return [value for value in small if value and any(_same(value, other) for other in others if other is not value)]


def _places(node: Node, trains: set[tuple[str, str]]) -> range:
    """Which inputs of a node a runtime may write over."""
    if node.op_type == "BatchNormalization" and node.attributes.get("training_mode"):
        return range(3, 5)
    return range(len(node.inputs) if (node.domain, node.op_type) in trains else 0)


def _changing(graph: Graph, trains: set[tuple[str, str]]) -> Iterator[tuple[Node, list[Value | None]]]:
    for node in graph.nodes:
        places = _places(node, trains)
        if places:
            yield node, [node.inputs[place] for place in places]
        for body in node.subgraphs():
            yield from _changing(body, trains)


def _give_copies(graph: Graph, changing: set[Value], trains: set[tuple[str, str]], copies: dict[Value, Value]) -> None:
    for node in graph.nodes:
        own = _places(node, trains)
        for place, value in enumerate(node.inputs):
            if value in changing and place not in own:
                node.inputs[place] = _copy(value, copies)
        for body in node.subgraphs():
            _give_copies(body, changing, trains, copies)


def _copy(value: Value, copies: dict[Value, Value]) -> Value:
    if value not in copies:
        name = f"{value.name}_at_first" if value.name else ""
        copies[value] = Value(value.dtype, value.shape, name=name, const=value.const, stored=value.stored)
    return copies[value]


def _is_small(value: Value) -> bool:
    return value.is_static and len(value.sizes) == 1 and value.sizes[0] <= _MERGED


def _same(one: Value, other: Value) -> bool:
    if one.sizes != other.sizes or one.dtype != other.dtype:
        return False
    return one.const is None or other.const is None or torch.equal(one.const.cpu(), other.const.cpu())
