"""The neutral graph is a value: what is written into it after it was made is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
import torch

from purexport.aten.graph import AtenGraph, AtenValue, Block, Call, Input, Recording, TensorType, with_values

FLOATS = TensorType(torch.float32, (2,))


def a_graph() -> AtenGraph:
    """x -> y = relu(x), and an If around it."""
    given, made, chosen = AtenValue(FLOATS), AtenValue(FLOATS), AtenValue(FLOATS)
    relu = Call("aten::relu", {"self": given}, [made])
    branch = Call("prim::If", {"condition": True}, [chosen], blocks=[Block([relu], [made]), Block([], [given])])
    return AtenGraph([Input(given, "x", "user")], [branch], [chosen], ["y"])


def _parts() -> list[Any]:
    graph = a_graph()
    call = graph.calls[0]
    return [graph, graph.inputs[0], call, call.blocks[0], call.outputs[0], FLOATS]


ASSIGNED = [
    (part, name)
    for part in _parts()
    for name in ([item.name for item in fields(part)] if hasattr(part, "__dataclass_fields__") else ["type"])
]


@pytest.mark.parametrize(("part", "name"), ASSIGNED, ids=[f"{type(part).__name__}.{name}" for part, name in ASSIGNED])
def test_no_field_can_be_assigned(part: Any, name: str) -> None:
    with pytest.raises(FrozenInstanceError, match=name):
        setattr(part, name, getattr(part, name))


# each a write as lowering or a front end once did it
WRITES: dict[str, Callable[[AtenGraph], object]] = {
    "an argument": lambda graph: graph.calls[0].args.update(self=1),  # type: ignore[attr-defined]
    "an argument by name": lambda graph: graph.calls[0].args.__setitem__("self", 1),  # type: ignore[attr-defined]
    "a call": lambda graph: graph.calls.append(graph.calls[0]),  # type: ignore[attr-defined]
    "a call of a block": lambda graph: graph.calls[0].blocks[0].calls.clear(),  # type: ignore[attr-defined]
    "an output": lambda graph: graph.outputs.append(1),  # type: ignore[attr-defined]
    "an output of a call": lambda graph: graph.calls[0].outputs.clear(),  # type: ignore[attr-defined]
    "an input": lambda graph: graph.inputs.sort(),  # type: ignore[attr-defined]
    "a name": lambda graph: graph.output_names.__setitem__(0, "z"),  # type: ignore[attr-defined]
    "a buffer": lambda graph: graph.assigned.append(1),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("what", WRITES)
def test_a_write_is_refused(what: str) -> None:
    with pytest.raises((AttributeError, TypeError)):
        WRITES[what](a_graph())


def test_a_graph_keeps_nothing_of_its_recording() -> None:
    """What is recorded later is not in the graph, nor in the call that was made of a list."""
    recording, outputs, args = Recording(), [AtenValue(FLOATS)], {"self": 1}
    recording.calls.append(Call("aten::relu", args, outputs))
    graph = recording.graph(outputs)
    recording.calls.clear()
    outputs.clear()
    args["self"] = 2
    assert len(graph.calls) == len(graph.outputs) == len(graph.calls[0].outputs) == graph.calls[0].args["self"] == 1


def test_a_call_on_other_values() -> None:
    graph = a_graph()
    (given,), (call,) = [item.value for item in graph.inputs], graph.calls
    other, result = AtenValue(FLOATS), AtenValue(FLOATS)
    made = {call.outputs[0]: result}
    found = with_values(call, lambda value: other if value is given else value, lambda value: made.get(value, value))
    assert found.outputs == (result,)
    assert found.blocks[1].outputs == (other,)
    assert found.blocks[0].calls[0].args["self"] is other and call.blocks[0].calls[0].args["self"] is given
