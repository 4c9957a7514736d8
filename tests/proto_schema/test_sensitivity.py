"""What each weight costs alone, and plans of that: rows of costs with the plan by hand, and a model that is run."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.sensitivity import QuantizationPlan, Sensitivities, WeightCost, sensitivities
from proto_schema.sensitivity.measuring import outputs_differ
from purexport.cli.main import main


def costs(**weights: list[tuple[str, int, float]]) -> Sensitivities:
    return Sensitivities({name: [WeightCost(name, *row) for row in rows] for name, rows in weights.items()})


TWO = costs(
    a=[("int4", 10, 0.04), ("int8", 20, 0.01), ("", 80, 0.0)],
    b=[("int4", 10, 0.5), ("int8", 20, 0.09), ("", 80, 0.0)],
)
# size, error -> the types, the bytes, and the error
PLANS = [
    (20, None, "int4 int4", 20, math.sqrt(0.54)),
    (35, None, "int4 int8", 30, math.sqrt(0.13)),
    (40, None, "int8 int8", 40, math.sqrt(0.10)),
    (100, None, "int8 -", 100, 0.1),
    (1000, None, "- -", 160, 0.0),
    (None, 0.4, "int4 int8", 30, math.sqrt(0.13)),
    (None, 0.0, "- -", 160, 0.0),
    (None, 1.0, "int4 int4", 20, math.sqrt(0.54)),
    (None, 0.205, "int4 -", 90, 0.2),  # the step to int8 of the first is taken back
]


@pytest.mark.parametrize(("size", "error", "types", "used", "expected"), PLANS)
def test_plan(size: int | None, error: float | None, types: str, used: int, expected: float) -> None:
    plan = TWO.plan(size, error)
    assert [kind or "-" for kind in plan.weights.values()] == types.split()
    assert plan.bytes == used and plan.error == pytest.approx(expected)


def test_plans_are_the_best_but_for_a_step() -> None:
    """Beside all plans of random costs: no plan of the size without the largest step has less error."""
    random = np.random.default_rng(0)
    for _ in range(20):
        rows = {
            f"w{at}": [("int4", 10, float(random.random())), ("int8", 20, float(random.random()) / 8), ("", 80, 0.0)]
            for at in range(5)
        }
        found = costs(**rows)
        size = int(random.integers(120, 400))
        best = min(
            sum(one[2] for one in choice)
            for choice in itertools.product(*rows.values())
            if sum(one[1] for one in choice) <= size - 70
        )
        plan = found.plan(size)
        assert plan.bytes <= size and plan.error**2 <= best + 1e-9


def network(folder: Path) -> tuple[ps.ModelProto, Path]:
    """Two products with an activation between; the first weight is hundred times as large in the result."""
    random = np.random.default_rng(0)
    weights = {
        "layer.0[w]": (random.normal(size=(64, 64)) ** 5).astype(np.float32),  # few large ones: 4 bits lose the others
        "layer.1[w]": random.uniform(-1, 1, size=(64, 64)).astype(np.float32),
    }
    make = ps.helper
    nodes = [
        make.make_node("MatMul", ["x", "layer.0[w]"], ["a"]),
        make.make_node("Tanh", ["a"], ["b"]),
        make.make_node("MatMul", ["b", "layer.1[w]"], ["y"]),
    ]
    x, y = (make.make_tensor_value_info(name, ps.TensorProto.FLOAT, ["batch", 64]) for name in "xy")
    tensors = [ps.numpy_helper.from_array(item, name) for name, item in weights.items()]
    graph = make.make_graph(nodes, "network", [x], [y], tensors)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 21)], ir_version=10)
    ps.save(model, folder / "m.onnx")
    (folder / "samples").mkdir()
    for at in range(2):
        np.save(folder / "samples" / f"{at}.npy", random.normal(size=(3, 64)).astype(np.float32))
    return model, folder / "samples"


def test_measured_alone(tmp_path: Path) -> None:
    """A cost is what the outputs show with one weight rounded; names are no patterns; what is applied has it."""
    model, samples = network(tmp_path)
    found = sensitivities(model, samples)
    assert {name: [one.type for one in rows] for name, rows in found.weights.items()} == {
        name: ["int4", "int8", ""] for name in ("layer.0[w]", "layer.1[w]")
    }
    for name, rows in found.weights.items():
        for one in rows[:2]:
            plan = QuantizationPlan({name: one.type}, 0, 0.0)
            assert outputs_differ(model, plan.rounded(model), samples) == pytest.approx(math.sqrt(one.cost))
            assert outputs_differ(model, plan.apply(model), samples) == pytest.approx(math.sqrt(one.cost), rel=1e-3)
        assert rows[0].cost > rows[1].cost > 0 == rows[2].cost
    plan = found.plan(size=sum(rows[0].bytes for rows in found.weights.values()) + 3000)
    assert sorted(plan.weights.values()) == ["int4", "int8"]
    other = QuantizationPlan({name: "int4" if kind == "int8" else "int8" for name, kind in plan.weights.items()}, 0, 0)
    assert outputs_differ(model, plan.rounded(model), samples) < outputs_differ(model, other.rounded(model), samples)


def test_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    network(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert (
        main(["quantize", "m.onnx", "--sensitivity", "samples", "--error", "0.05", "--plan", "p.json", "--json"]) == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert said["measured"] <= 0.06 and json.loads(Path("p.json").read_bytes())["weights"] == said["weights"]
    assert main(["quantize", "m.onnx", "--plan", "p.json", "-o", "q.onnx"]) == 0
    assert "1 of 2 weights in fewer bits" in capsys.readouterr().out
    assert any(node.op_type == "DequantizeLinear" for node in ps.load("q.onnx").graph.node)
    Path("odd.json").write_text('{"weights": {"layer.0[w]": "int3"}}')
    Path("no.json").write_text("[")
    for options, words in (
        (["--sensitivity", "samples"], "a plan is made for a size or an error: --size 40MB, or --error 0.01"),
        (["--sensitivity", "samples", "--size", "2kB"], "which is more than 2000; add a type of fewer bits"),
        (["--sensitivity", "samples", "--size", "2kB", "--type", "int4"], "--type does not go with a plan"),
        (["--size", "2kB", "-o", "q.onnx"], "--size and --error are of a plan; say --sensitivity SAMPLES, too"),
        (["--plan", "p.json"], "say where to write the model that follows the plan"),
        (["--plan", "p.json", "--size", "2kB"], "are of a plan that is made"),
        (["--plan", "odd.json", "-o", "q.onnx"], "'layer.0[w]' has the type 'int3', which is not one of"),
        (["--plan", "no.json", "-o", "q.onnx"], "no.json is not JSON"),
    ):
        assert main(["quantize", "m.onnx", *options]) == 2
        assert words in capsys.readouterr().err


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: TWO.plan(), "one of the two"),
    (lambda: TWO.plan(size=10), "the weights take 20 bytes in the smallest of these types, which is more than 10"),
    (lambda: QuantizationPlan.of([]), "a plan has an object `weights`"),
    (lambda: QuantizationPlan.of({"weights": {}, "bytes": "1"}), "bytes and error are numbers"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
