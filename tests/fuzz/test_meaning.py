"""The harness `meaning`: its graphs have what real ones have, and it finds the faults of `fuzz/meaning/planted.py`."""

from __future__ import annotations

import numpy as np
import pytest

import proto_schema as ps
from fuzz.build import Choices
from fuzz.harness import Violation
from fuzz.meaning import harness, planted
from fuzz.meaning.graphs import Made, make
from fuzz.meaning.harness import HARNESS, check, difference
from fuzz.meaning.tools import EXACT, TOOLS, Result

FIRST = planted.FAULTS[0][0]


def test_graphs_have_what_real_ones_have() -> None:
    """Bodies with outer values, functions, several readers, outputs inside, inputs left out, several types."""
    seen: set[str] = set()
    for data in [data for data, _ in zip(planted.inputs("simplify"), range(60), strict=False)]:
        choices = Choices(data)
        choices.bytes(2)
        made = make(choices)
        if made is None:
            continue
        graph = made.model.graph
        seen.update(node.op_type or "" for node in graph.node)
        taken = [name for node in graph.node for name in node.input]
        outputs = {item.name for item in graph.output}
        seen.update(["a reader more"] * (len(taken) > len(set(taken))))
        seen.update(["an output inside"] * any(name in outputs for name in taken))
        seen.update(["an input left out"] * ("" in taken))
        seen.update(["an unused weight"] * any(item.name not in taken for item in graph.initializer))
        seen.update(["a function"] * bool(made.model.functions))
        seen.update(str(array.dtype) for array in made.feeds[0].values())
    assert seen >= {
        "a reader more", "an output inside", "an input left out", "an unused weight", "a function", "float16",
        "float64", "int64", "bool", "If", "Loop", "Conv", "BatchNormalization", "Identity", "SequenceConstruct",
    }  # fmt: skip


@pytest.mark.parametrize("tool", TOOLS)
def test_tool_keeps_the_meaning(tool: str) -> None:
    words = [check(data) for data, _ in zip(planted.inputs(tool), range(6), strict=False)]
    assert len(set(words) - {"nothing", f"{tool} refused", f"{tool} none"}) >= 1


FAST = {
    "an output may go", "joined values in another order",
    "two calls with the same names", "names in bodies keep their prefix off", "two tensors at one offset",
    "codes that are one off", "zeros have no sign as text",
}  # fmt: skip
"""Faults that few graphs show; the others take minutes together."""


@pytest.mark.parametrize(
    ("name", "tool", "fault"),
    [pytest.param(*row, id=row[0], marks=() if row[0] in FAST else pytest.mark.full) for row in planted.FAULTS],
)
def test_planted_fault_is_found(name: str, tool: str, fault: planted.Patch) -> None:
    count, broken = planted.found(tool, fault)
    assert count, f"{name} is not found"
    assert broken


def test_the_table_is_long_enough() -> None:
    assert len(planted.FAULTS) > 20 and planted.FAULTS[0][1] == "simplify"
    assert {tool for _, tool, _ in planted.FAULTS} >= set(TOOLS) - {"convert and back", "inline standard"}
    assert HARNESS.name == "meaning"


DIFFERENT = [
    (np.zeros(2, np.float32), -np.zeros(2, np.float32), True, "other numbers, of exact ones"),
    (np.zeros(2, np.float32), -np.zeros(2, np.float32), False, ""),
    (np.ones(2, np.float32), np.ones(2, np.float32) + np.float32(1e-6), True, "other numbers, of exact ones"),
    (np.ones(2, np.float32), np.ones(2, np.float32) + np.float32(1e-6), False, ""),
    (np.ones(2, np.float32), np.ones(2, np.float32) + np.float32(1e-2), False, "other numbers"),
    (np.full(2, np.nan, np.float32), np.full(2, np.nan, np.float32), True, ""),
    (np.ones(2, np.int64), np.ones(2, np.int32), True, "another type: int64 and int32"),
    (np.ones(2, np.int64), np.ones((1, 2), np.int64), True, "another shape"),
    (np.ones(2, np.int64), np.zeros(2, np.int64), False, "other numbers"),
]


@pytest.mark.parametrize(("mine", "theirs", "exact", "said"), DIFFERENT)
def test_difference(mine: np.ndarray, theirs: np.ndarray, exact: bool, said: str) -> None:
    assert difference(mine, theirs, exact) == said


def test_a_made_model_is_valid() -> None:
    choices = Choices(next(planted.inputs("save")))
    choices.bytes(2)
    made = make(choices)
    assert made is not None
    ps.checker.check_model(made.model, full_check=True)


ENDING = "g (int64[2] x, int64[2] y) => (int64[2] z) { z = Div(x, y) }"
USUAL = "g (int64[2] x, int64[2] y) => (int64[2] z) { z = Add(x, y) }"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (ENDING, ENDING, ""),
        (USUAL, ENDING, "ends by a signal as it is"),
        (USUAL, USUAL.replace("Add", "Sub"), "in ONNX Runtime"),
        (USUAL, USUAL, ""),
    ],
)
def test_a_runtime_that_ends_ends_no_run(before: str, after: str, said: str) -> None:
    """ONNX Runtime 1.31 divides the least integer by -1 as the processor does, which ends the process."""
    first, second = (
        ps.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}') for graph in (before, after)
    )
    made = Made(first, [{"x": np.full(2, -(2**63)), "y": np.full(2, -1)}], {"z": True}, {})
    if said:
        with pytest.raises(Violation, match=said):
            harness._by_runtime("simplify", made, Result(second, EXACT))
    else:
        harness._by_runtime("simplify", made, Result(second, EXACT))
