"""Common subexpression elimination:  `a = Shape(x); b = Shape(x)`  ->  `a = Shape(x)`, also for small constants.

Rules emit the arithmetic of dynamic sizes where they need it, and this pass merges it.  Two nodes are equal when their
operators, inputs and attributes are equal.  A node is left alone when it draws random numbers, has a body, or computes
a result of its graph.  A body may use nodes outside of it; the outer graph never uses nodes of a body.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from proto_schema import operators
from proto_schema.sizes import Dim, Size
from purexport.graph.ir import Graph, Node, Value

_LARGEST = 64  # elements of a constant that is compared by its content; a larger one equals only itself


def share_equal_nodes(graph: Graph) -> dict[str, Dim]:
    """Replace each repetition by the first of its kind, in place; linear in the number of nodes.

    Returns what the sizes of repetitions are in the sizes of the first ones, by the names of their symbols.
    """
    sharing = _Sharing()
    sharing.share(graph, ChainMap())
    return sharing.same


class _Sharing:
    def __init__(self) -> None:
        self.first: dict[Value, Value] = {}
        self.constants: dict[Hashable, Value] = {}
        self.same: dict[str, Dim] = {}

    def share(self, graph: Graph, known: ChainMap[Hashable, Node]) -> None:
        """`known` holds the nodes that the graph sees, by what they compute."""
        kept, results = [], set(graph.outputs)
        for node in graph.nodes:
            node.inputs = [None if value is None else self._one(value) for value in node.inputs]
            bodies = list(node.subgraphs())
            for body in bodies:
                self.share(body, known.new_child())
            stays = bodies or not _is_pure(node) or not results.isdisjoint(node.outputs)
            same = node if stays else known.setdefault(_key(node), node)
            if same is node:
                kept.append(node)
                continue
            for value, one in zip(node.outputs, same.outputs, strict=True):
                self.first[value] = one
                self._note_sizes(value.shape or (), one.shape or ())
                one.shape = one.shape or value.shape
        graph.nodes = kept
        graph.outputs = [self.first.get(value, value) for value in graph.outputs]

    def _note_sizes(self, shape: Sequence[Dim | None], first: Sequence[Dim | None]) -> None:
        for size, one in zip(shape, first, strict=False):
            if isinstance(size, Size) and size.name is not None and one is not None and size != one:
                self.same.setdefault(size.name, one)

    def _one(self, value: Value) -> Value:
        if value.const is None:
            return self.first.get(value, value)
        if value.name or value.const.numel() > _LARGEST:
            return value
        return self.constants.setdefault(_numbers(value.const), value)


def _is_pure(node: Node) -> bool:
    """False for an operator that draws random numbers, and for an unknown operator."""
    return not node.domain and node.op_type not in operators.RANDOM and bool(operators.versions(node.op_type))


def _key(node: Node) -> Hashable:
    attributes = sorted((name, attribute_key(value)) for name, value in node.attributes.items())
    return node.op_type, len(node.outputs), tuple(node.inputs), tuple(attributes)


def attribute_key(value: Any) -> str:
    return repr(_numbers(value)) if isinstance(value, torch.Tensor) else f"{type(value).__name__} {value!r}"


def _numbers(tensor: torch.Tensor) -> Hashable:
    # an axis of one element may have any stride, which a view in bytes does not take
    flat = tensor.detach().contiguous().as_strided((tensor.numel(),), (1,))
    return tensor.dtype, tuple(tensor.shape), flat.view(torch.uint8).numpy().tobytes()
