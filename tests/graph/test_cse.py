"""Equal nodes become one: before and after, as rows; and what must stay apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import purexport
from purexport.graph.ir import Graph, Node, Value
from purexport.graph.passes.cse import share_equal_nodes
from tests.harness import check_export

Build = Callable[["Builder", Value], list[Value]]


class Builder:
    """Writes nodes; `b.Relu(x, axis=1)` returns the node's one output."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        def emit(*inputs: Value, **attributes: object) -> Value:
            node = Node(op_type, list(inputs), [], attributes)
            node.outputs = [Value(1, (2,), node=node)]
            self.graph.nodes.append(node)
            return node.outputs[0]

        return emit


def constant(*numbers: float, name: str = "") -> Value:
    tensor = torch.tensor(numbers)
    return Value(1, tuple(tensor.shape), const=tensor, name=name)


def of_body(b: Builder, x: Value) -> list[Value]:
    """The body repeats what is outside, and has a result of its own that is equal to it."""
    body = Graph()
    inner = Builder(body)
    body.outputs = [inner.Relu(inner.Exp(x)), inner.Exp(x)]
    return [b.Neg(b.Exp(x)), b.If(x, then_branch=body)]


ROWS: dict[str, tuple[Build, list[str]]] = {
    "equal": (lambda b, x: [b.Add(b.Exp(x), b.Exp(x))], ["Exp", "Add"]),
    "chains": (lambda b, x: [b.Add(b.Relu(b.Exp(x)), b.Relu(b.Exp(x)))], ["Exp", "Relu", "Add"]),
    "other input": (lambda b, x: [b.Add(b.Exp(x), b.Exp(b.Neg(x)))], ["Exp", "Neg", "Exp", "Add"]),
    "order of inputs": (
        lambda b, x: [b.Add(b.Sub(x, b.Exp(x)), b.Sub(b.Exp(x), x))],
        ["Exp", "Sub", "Sub", "Add"],
    ),
    "other attribute": (
        lambda b, x: [b.Add(b.Cast(x, to=1), b.Cast(x, to=7))],
        ["Cast", "Cast", "Add"],
    ),
    "number and flag": (lambda b, x: [b.Add(b.Op(x, k=1), b.Op(x, k=1.0))], ["Op", "Op", "Add"]),
    "constants": (
        lambda b, x: [b.Add(b.Mul(x, constant(2.0)), b.Mul(x, constant(2.0)))],
        ["Mul", "Add"],
    ),
    "zeros of two signs": (
        lambda b, x: [b.Add(b.Mul(x, constant(0.0)), b.Mul(x, constant(-0.0)))],
        ["Mul", "Mul", "Add"],
    ),
    "weights": (
        lambda b, x: [b.Add(b.Mul(x, constant(2.0, name="a")), b.Mul(x, constant(2.0, name="b")))],
        ["Mul", "Mul", "Add"],
    ),
    "random": (lambda b, x: [b.Add(b.Bernoulli(x), b.Bernoulli(x))], ["Bernoulli", "Bernoulli", "Add"]),
    "results": (lambda b, x: [b.Exp(x), b.Exp(x)], ["Exp", "Exp"]),
    "body": (of_body, ["Exp", "Neg", "If", "Relu", "Exp"]),
}


@pytest.mark.parametrize("name", ROWS)
def test_before_and_after(name: str) -> None:
    build, after = ROWS[name]
    x = Value(1, (2,), name="x")
    graph = Graph(inputs=[x])
    graph.outputs = build(Builder(graph), x)
    share_equal_nodes(graph)
    bodies = [node for outer in graph.nodes for body in outer.subgraphs() for node in body.nodes]
    assert [node.op_type for node in (*graph.nodes, *bodies)] == after


def test_equal_constants_are_written_once() -> None:
    x = Value(1, (2,), name="x")
    graph = Graph(inputs=[x])
    b = Builder(graph)
    graph.outputs = [b.Add(b.Mul(x, constant(2.0)), b.Sub(x, constant(2.0)))]
    share_equal_nodes(graph)
    assert len(graph.initializers()) == 1


def test_sizes_are_computed_once() -> None:
    """A dynamic model reads each size once, however often it reshapes."""

    def heads(x: Tensor) -> Tensor:
        batch, length, width = x.shape
        one, other = (y.repeat(1, 1, 2).view(length, batch, 2, width) for y in (x.exp(), x.sin()))
        return one + other

    x = torch.randn(2, 3, 4)
    axes = {"x0": {0: "batch", 1: "length"}}
    program = check_export(heads, (x,), opset=17, dynamic_axes=axes, other_args=[(torch.randn(1, 5, 4),)])
    found = Counter(node.op_type for node in program.model_proto.graph.node)
    assert found["Concat"] == 1


def test_random_numbers_are_drawn_twice() -> None:
    program = purexport.export(lambda x: torch.rand_like(x) - torch.rand_like(x), (torch.zeros(50),))
    found = Counter(node.op_type for node in program.model_proto.graph.node)
    assert sum(count for name, count in found.items() if name.startswith("Random")) == 2
