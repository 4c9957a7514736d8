"""What rows of com.microsoft state before they run: bounds of what they take, and of what attributes ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.compute import rows
from proto_schema.compute.costs import elementwise
from proto_schema.reference import ReferenceEvaluator
from proto_schema.reference.failures import BudgetError
from tests.compute.test_costs import measured
from tests.compute.test_microsoft import ROWS, Draw, Make, f32, scales, u8


def evaluator(operator: str, inputs: Sequence[Any], outputs: int, attributes: Any, budget: Any = None) -> Any:
    names = [f"x{at}" if item is not None else "" for at, item in enumerate(inputs)]
    made = [f"y{at}" for at in range(outputs)]
    node = ps.helper.make_node(operator, names, made, domain=rows.MICROSOFT, **attributes)
    return ReferenceEvaluator(node, {"": 21, rows.MICROSOFT: 1}, budget=budget)


def test_every_row_states_its_cost() -> None:
    names = [name for domain, name in rows.table() if domain == rows.MICROSOFT]
    assert [name for name in names if rows.cost_of(rows.MICROSOFT, name) is elementwise] == []


def test_costs_of_ordinary_nodes_fit() -> None:
    """Those that are compared with ONNX Runtime run in 64 MB."""
    for name, make in ROWS:
        made = make(np.random.default_rng(1))
        feed = {f"x{at}": item for at, item in enumerate(made.inputs) if item is not None}
        found = evaluator(made.op_type, made.inputs, made.outputs, made.attributes, 64 << 20).run(None, feed)
        assert found, name


def hostile(draw: Draw) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """Nodes of a few bytes that ask for gigabytes."""
    far = 1 << 40
    cache = [f32(draw, 1, 1, 0, 8)] * 2
    heads = {"num_heads": 1, "kv_num_heads": 1}
    return {
        "MatMulNBits": (
            [f32(draw, 1, 2), u8(draw, 3, 1, 16), scales(draw, 3, 1)],
            {"N": 3, "K": 2, "bits": 4, "block_size": far},
        ),
        "GatherBlockQuantized": (
            [u8(draw, 3, 16), np.array([0]), scales(draw, 3, 1)],
            {"block_size": far, "quantize_axis": 1, "gather_axis": 0},
        ),
        "GroupQueryAttention": (
            [*[f32(draw, 1, 1, 8)] * 3, *cache, np.array([0], np.int32), np.array(1 << 30, np.int32)],
            heads,
        ),
        "QMoE": (
            [
                f32(draw, 1, 4),
                f32(draw, 1, 1),
                u8(draw, 1, 4, 2),
                scales(draw, 1, 4),
                None,
                u8(draw, 1, 4, 2),
                scales(draw, 1, 4),
            ],
            {"k": 1, "expert_weight_bits": 4, "block_size": far},
        ),
        "MultiHeadAttention": ([f32(draw, 1, 1 << 15, 4)] * 3, {"num_heads": 4}),
    }


@pytest.mark.parametrize("operator", hostile(np.random.default_rng(0)))
def test_what_asks_for_much_is_refused(operator: str) -> None:
    inputs, attributes = hostile(np.random.default_rng(0))[operator]
    feed = {f"x{at}": item for at, item in enumerate(inputs) if item is not None}
    with pytest.raises(BudgetError, match="past the budget"):
        evaluator(operator, inputs, 1, attributes, 1 << 30).run(None, feed)


@pytest.mark.sweep
@pytest.mark.parametrize("make", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
def test_costs_are_bounds(make: Make) -> None:
    made = make(np.random.default_rng(1))
    node = evaluator(made.op_type, made.inputs, made.outputs, made.attributes).proto
    graph = ps.GraphProto(name="g", node=[node])
    graph.input = [ps.ValueInfoProto(name=name) for name in node.input if name]
    graph.output = [ps.ValueInfoProto(name=name) for name in node.output]
    model = ps.ModelProto(ir_version=10, graph=graph, opset_import=[ps.helper.make_opsetid(rows.MICROSOFT, 1)])
    given = [item for item in made.inputs if item is not None]
    wrong = [text for text in measured(made.op_type, model, given) if text]
    assert not wrong, "\n".join(wrong)
