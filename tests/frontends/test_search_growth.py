"""The search for loops takes steps in proportion to the graph, also where much repeats that is no loop.

Strategy: graphs of which a search that tries each beginning anew is quadratic, and a count of the lines that run.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from proto_schema.sizes import Size
from purexport.aten.graph import AtenGraph, AtenValue, Call, Input, TensorType
from purexport.dtypes import FLOAT, INT64
from purexport.frontends.core import repeats, rolled
from purexport.frontends.trace import loops
from purexport.graph.ir import Graph, Node
from purexport.graph.ir import Value as OnnxValue
from purexport.graph.passes import size_vectors
from purexport.graph.passes.size_vectors import sizes_as_vectors

FILES = {module.__file__ for module in (repeats, rolled, loops, size_vectors)}


def value() -> AtenValue:
    return AtenValue(TensorType(torch.float32, (4, 4)))


def written_outside(size: int) -> AtenGraph:
    """Four long steps, each of which writes to a tensor from outside."""
    outside, state = value(), value()
    inputs = [Input(outside, "outside", "user"), Input(state, "state", "user")]
    calls = []
    for step in range(4):
        calls.append(Call("aten::select.int", {"self": outside, "dim": 0, "index": step}, [value()]))
        for place in range(size):
            calls.append(Call("aten::mul.Scalar", {"self": state, "other": float(place)}, [value()]))
            state = calls[-1].outputs[0]
        calls.append(Call("aten::add_.Tensor", {"self": outside, "other": state, "alpha": 1}, [value()]))
    return AtenGraph(inputs, calls, [state], ["y"])


def many_tensors(size: int) -> AtenGraph:
    """Tensors that are made and read, none of which is written row by row."""
    state = value()
    inputs, calls = [Input(state, "state", "user")], []
    for _ in range(size):
        zeros = value()
        calls.append(Call("aten::zeros", {"size": [4, 4]}, [zeros]))
        calls.append(Call("aten::add.Tensor", {"self": state, "other": zeros, "alpha": 1}, [value()]))
        state = calls[-1].outputs[0]
    return AtenGraph(inputs, calls, [state], ["y"])


def many_sizes(size: int) -> Graph:
    """A vector of sizes, each of which is read from a tensor of its own."""
    nodes, parts = [], []
    for place in range(size):
        tensor = OnnxValue(FLOAT, (Size.symbol(f"n{place}"), 3, 4))
        node = Node("Shape", [tensor], [], {"start": 0, "end": 1})
        parts.append(OnnxValue(INT64, (1,), node=node))
        node.outputs, parts[-1].content = [parts[-1]], (Size.symbol(f"n{place}"),)
        nodes.append(node)
    joined = Node("Concat", [*parts], [], {"axis": 0})
    joined.outputs = [OnnxValue(INT64, (size,), node=joined)]
    return Graph(nodes=[*nodes, joined], inputs=[], outputs=[*joined.outputs])


def lines(function: Callable[[], Any]) -> int:
    """The lines of the search that run."""
    count = 0

    def inside(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return inside

    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: inside if frame.f_code.co_filename in FILES else None)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("search", "make"),
    [
        pytest.param(rolled.rolled, written_outside, id="written-outside"),
        pytest.param(loops._rows_stacked, many_tensors, id="many-tensors"),
        pytest.param(functools.partial(sizes_as_vectors, opset=18), many_sizes, id="many-sizes"),
    ],
)
def test_steps_of_the_search(search: Callable[[Any], Any], make: Callable[[int], Any]) -> None:
    graphs = [make(size) for size in (20, 80)]
    few, many = (lines(lambda graph=graph: search(graph)) for graph in graphs)  # type: ignore[misc]
    assert many < 6 * few, (few, many)  # four times as many calls, and sixteen where each is compared with each


def test_a_size_that_became_another_expression_is_read_from_its_vector() -> None:
    """The vector was made when less was known of the tensor."""
    tensor = OnnxValue(FLOAT, (Size.symbol("n") // 32, 3))
    node = Node("Shape", [tensor], [], {"start": 0, "end": 1})
    part = OnnxValue(INT64, (1,), node=node)
    node.outputs, part.content = [part], (Size.symbol("u"),)
    other = Node("Shape", [tensor], [], {"start": 1, "end": 2})
    known = OnnxValue(INT64, (1,), node=other)
    other.outputs, known.content = [known], (3,)
    joined = Node("Concat", [part, known], [], {"axis": 0})
    joined.outputs = [OnnxValue(INT64, (2,), node=joined)]
    graph = Graph(nodes=[node, other, joined], inputs=[tensor], outputs=[*joined.outputs])
    sizes_as_vectors(graph, 18)
    assert joined.inputs[0] is part
