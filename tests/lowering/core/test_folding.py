"""Constants that are folded while the graph is built are what the operators compute: our evaluator says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import proto_schema as ps
from proto_schema.reference.evaluator import ReferenceEvaluator
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core import folding
from tests.tolerances import assert_near

NEWEST = 21
INTEGERS = torch.tensor([-7, -2, -1, 1, 3, 2**40]), torch.tensor([2, 3, -2, -3, 2, 7])
NUMBERS = (
    torch.tensor([-2.5, torch.nan, 1.5, torch.inf, -0.0, 3.5]),
    torch.tensor([torch.nan, 1.0, -torch.inf, 2.0, 0.0, 3.5]),
)
FLAGS = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
BLOCK = torch.arange(24).reshape(2, 3, 4) - 11


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


# (operator, its inputs, its attributes)
ROWS: list[tuple[str, tuple[torch.Tensor, ...], dict[str, Any]]] = [
    *((name, INTEGERS, {}) for name in ("Add", "Sub", "Mul", "Div", "Mod", "Equal", "Less", "Greater", "Min", "Max")),
    *((name, NUMBERS, {}) for name in ("Add", "Sub", "Mul", "Div", "Equal", "Less", "Greater", "Min", "Max")),
    ("Mod", INTEGERS, {"fmod": 1}),
    ("Mod", (torch.tensor([-7.5, 7.5]), torch.tensor([2.0, -2.0])), {"fmod": 1}),
    *((name, INTEGERS[:1], {}) for name in ("Neg", "Abs")),
    *((name, NUMBERS[:1], {}) for name in ("Neg", "Abs", "Floor", "Ceil")),
    *((name, FLAGS, {}) for name in ("And", "Or", "Equal")),
    ("Not", FLAGS[:1], {}),
    ("Where", (FLAGS[0], BLOCK[0, 0], BLOCK[1, 0]), {}),
    ("Cast", (torch.tensor([-2.5, 2.5, 0.0]),), {"to": dtypes.INT64}),
    ("Cast", (torch.tensor([-2.5, 2.5, 0.0]),), {"to": dtypes.BOOL}),
    ("Concat", (BLOCK, BLOCK[:, :1]), {"axis": 1}),
    ("Gather", (BLOCK, torch.tensor([[0, -1], [2, -3]])), {"axis": 1}),
    ("Range", (torch.tensor(9), torch.tensor(-2), torch.tensor(-3)), {}),
    *((name, (BLOCK, numbers(-1, 0)), {"keepdims": kept}) for name in ("ReduceProd", "ReduceSum") for kept in (0, 1)),
    ("ReduceSum", (BLOCK,), {}),
    ("Reshape", (BLOCK, numbers(0, -1)), {}),
    ("Reshape", (torch.zeros(0, 3), numbers(3, 0)), {"allowzero": 1}),
    ("Shape", (BLOCK,), {}),
    ("Shape", (BLOCK,), {"start": -2, "end": -1}),
    ("Slice", (BLOCK, numbers(-1, 1), numbers(-(2**40), 2**40), numbers(1, -1), numbers(-2, 1)), {}),
    ("Slice", (BLOCK, numbers(1), numbers(2)), {}),
    ("Squeeze", (BLOCK[:1, :, :1],), {}),
    ("Squeeze", (BLOCK[:1, :, :1], numbers(-1)), {}),
    ("Unsqueeze", (BLOCK, numbers(-1, 0)), {}),
]
NAMES = [f"{name}-{inputs[0].dtype}-{''.join(attributes)}".replace("torch.", "") for name, inputs, attributes in ROWS]


@pytest.mark.parametrize(("name", "inputs", "attributes"), ROWS, ids=NAMES)
def test_a_folded_node_is_what_it_computes(
    name: str, inputs: tuple[torch.Tensor, ...], attributes: dict[str, Any]
) -> None:
    values = [Value(dtypes.onnx_code(item.dtype), tuple(item.shape), const=item) for item in inputs]
    found = folding.fold(name, values, dict(attributes))
    places = [f"input_{index}" for index in range(len(inputs))]
    node = ps.helper.make_node(name, places, ["result"], **attributes)
    feed = {place: item.numpy() for place, item in zip(places, inputs, strict=True)}
    (wanted,) = ReferenceEvaluator(node, {"": NEWEST}).run(["result"], feed)
    assert found is not None
    assert_near(found.numpy(), wanted)


def test_every_operator_that_is_folded_has_a_row() -> None:
    assert set(folding._FOLDERS) == {name for name, _, _ in ROWS}
