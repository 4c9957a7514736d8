"""One budget of work and memory: what it charges, and what becomes of a file that asks for more.

The models are those of `fuzz/demands.py`. `python -m fuzz.demands` gives them to all tools, in processes with limits.
"""

from __future__ import annotations

import importlib.util
import io
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from fuzz import demands
from proto_schema.budget import Budget, Cost, ExceededError
from proto_schema.compute.texts import regex
from proto_schema.numpy_helper import from_array
from proto_schema.quantization import quantize
from proto_schema.reference import BudgetError, EvaluationError, ReferenceEvaluator, op_run
from proto_schema.rewrite.proof import ProofError
from proto_schema.tensors import npy

SMALL = Budget(32 << 20, 200_000_000)


def test_what_is_charged() -> None:
    budget = Budget(1000)
    assert budget.work == 64_000
    budget.charge(Cost(4_000, 400, 600))
    assert (budget.left, budget.held) == (60_000, 0)
    budget.hold(500)
    with pytest.raises(ExceededError, match=r"needs 6e\+04 units of work, and 6e\+04 are left"):
        budget.charge(Cost(60_001))
    with pytest.raises(ExceededError, match="needs 1001 bytes of memory, and the budget is 1000 bytes"):
        budget.charge(Cost(0, 500, 1))
    with pytest.raises(ExceededError, match="1001 bytes of results would be held"):
        budget.hold(501)
    budget.release(500)
    budget.charge(Cost(0, 500, 500))
    assert budget.fresh().left == 64_000
    with pytest.raises(ValueError, match="1 byte or more"):
        Budget(0)


# A run --------------------------------------------------------------------------------------------------------------

# a demand, and the node that the error names
PAST: list[tuple[str, str]] = [
    ("functions", "Relu"),
    ("turns", "Identity|Loop"),
    ("a loop that doubles", "Concat|Loop"),
    ("Conv", "Conv"),
    ("MaxPool", "MaxPool"),
    ("AveragePool", "AveragePool"),
    ("LpPool", "LpPool"),
    ("a long MaxPool", "MaxPool"),
    ("LRN", "LRN"),
    ("Attention", "Attention"),
    ("RoiAlign", "RoiAlign"),
    ("TfIdfVectorizer", "TfIdfVectorizer"),
    ("StringConcat", "StringConcat"),
    ("Expand", "Expand"),
    ("Tile", "Tile"),
    ("Resize", "Resize"),
    ("many products", "MatMul"),
    ("ReduceProd of a sparse tensor", "ReduceSum"),
]


@pytest.mark.parametrize(("name", "node"), PAST, ids=[row[0] for row in PAST])
def test_a_run_past_the_budget_names_the_node(name: str, node: str) -> None:
    made = {**demands.RUN, **demands.OPERATORS}[name]()
    evaluator = ReferenceEvaluator(made, budget=SMALL)
    with pytest.raises(BudgetError, match=rf"the ({node}) that makes .* is past the budget: .*--budget"):
        evaluator.run(None, {})
    assert SMALL.left == SMALL.work
    assert SMALL.held == 0


def test_a_pattern_that_goes_back_is_matched() -> None:
    assert ReferenceEvaluator(demands.OPERATORS["RegexFullMatch"](), budget=SMALL).run(None, {}) == [np.array([False])]


def test_long_chains_of_functions() -> None:
    with pytest.raises(EvaluationError, match="more than 100 levels deep; inline the functions"):
        ReferenceEvaluator(demands.RUN["a chain of functions"]())
    assert ReferenceEvaluator(demands.functions(90, 1, demands.RELU)()).run(None, {})[0].tolist() == [1.0]


class Full(op_run.OpRun):
    """An operator for which there is no memory."""

    op_domain = "c"

    def _run(self, *inputs: Any) -> tuple[Any, ...]:
        raise MemoryError


def test_no_memory_is_a_cause() -> None:
    node = ps.NodeProto(op_type="Full", domain="c", input=["x"], output=["y"])
    with pytest.raises(
        EvaluationError, match="Full that makes 'y' cannot be computed: the system has not enough memory"
    ):
        ReferenceEvaluator(node, {"c": 1}, new_ops=[Full]).run(None, {"x": np.ones(1)})


def test_what_is_not_needed_any_more_counts_no_more() -> None:
    """A chain of 200 nodes with 1 MB each, within 32 MB."""
    made = demands.repeated("Add", 200, np.ones(262_144, np.float32))()
    assert np.isinf(ReferenceEvaluator(made, budget=Budget(32 << 20)).run(None, {})[0]).all()


def test_several_runs_share_a_budget() -> None:
    evaluator, shared = ReferenceEvaluator(demands.repeated("Add", 2, np.ones(1))()), Budget(1 << 20, 1_600_000)
    evaluator.run(None, {}, budget=shared)
    evaluator.run(None, {}, budget=shared)
    with pytest.raises(BudgetError):
        evaluator.run(None, {}, budget=shared)


# Tools --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", demands.INFERRED)
def test_inference_ends(name: str) -> None:
    made = ps.shape_inference.infer_shapes(demands.INFERRED[name](), budget=Budget(1 << 20, 10**9))
    for item in (*made.graph.value_info, *made.graph.output):
        kind = item.type.tensor_type if item.type is not None else None
        shape = kind.shape if kind is not None else None
        assert all(len(dim.dim_param or "") < 5_000 for dim in (shape.dim if shape is not None else ()))


@pytest.mark.parametrize("name", sorted(demands.OPERATORS.keys() - {"RegexFullMatch", "StringConcat", "many products"}))
def test_what_is_not_cheap_is_not_folded(name: str) -> None:
    made = demands.OPERATORS[name]()
    assert [node.op_type for node in ps.simplify(made).graph.node] == [node.op_type for node in made.graph.node]


@pytest.mark.parametrize(("name", "left"), [("RegexFullMatch", 1), ("StringConcat", 20)])
def test_what_is_cheap_is_folded(name: str, left: int) -> None:
    found = ps.simplify(demands.OPERATORS[name]())
    assert len(found.graph.node) >= left
    assert found.ByteSize() < 4 << 20


def test_folding_stops_at_its_budget() -> None:
    made = demands.repeated("MatMul", 40, np.ones((64, 64), np.float32))()
    assert len(ps.simplify(made).graph.node) == 1  # the constant that is the output
    assert 20 < len(ps.simplify(made, budget=Budget(128 << 20, 4_000_000)).graph.node) < 40


@pytest.mark.parametrize(
    ("size", "given", "budget", "words"),
    [
        (1 << 17, 1, 1 << 20, "the Relu that makes 'y' is past the budget: it needs 3.5 MiB"),
        (1 << 17, [{"x": np.ones(1 << 17, np.float32)}], 1 << 20, "the Relu that makes 'y' is past the budget"),
        (1 << 17, 1, 1 << 19, "the inputs are past the budget: it needs 1 MiB of memory"),
        (1 << 40, 1, None, "the inputs are past the budget: it needs 8.19e+03 GiB of memory, and the budget is 16 GiB"),
    ],
)
def test_a_proof_past_the_budget_says_so(size: int, given: Any, budget: int | None, words: str) -> None:
    with pytest.raises(ProofError) as caught:
        ps.simplify(
            demands.model([ps.helper.make_node("Relu", ["x"], ["y"])], {}, {"x": [size]}), prove=given, budget=budget
        )
    assert str(caught.value).startswith("the models cannot be run on these inputs, so nothing is proven: ")
    assert words in str(caught.value) and "--budget" in str(caught.value)


def test_a_calibration_past_the_budget_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [ps.helper.make_node("MatMul", ["x", "w"], ["z"]), ps.helper.make_node("Relu", ["z"], ["y"])]
    model = demands.model(nodes, {"w": np.ones((8, 8), np.float32)}, {"x": [4, 8]})
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    samples = [{"x": np.ones((4, 8), np.float32)}]
    made = quantize(model, activations="uint8", calibration=samples, budget=1 << 20)
    assert any(node.op_type == "QuantizeLinear" for node in made.graph.node)
    with pytest.raises(ValueError, match=r"sample 0: .* the MatMul that makes 'z' is past the budget"):
        quantize(model, activations="uint8", calibration=samples, budget=6000)
    with pytest.raises(ValueError, match="budget is of activations"):
        quantize(model, budget=64)


def test_the_words_of_a_folding_are_small() -> None:
    """Nodes of 30 bytes that make 1 MiB each: only so many are folded as the budget holds."""
    shape = {"s": np.array([1 << 18])}
    values = [from_array(np.array([at], np.float32), "") for at in range(12)]
    nodes = [ps.helper.make_node("ConstantOfShape", ["s"], [f"y{at}"], value=values[at]) for at in range(12)]
    nodes.append(ps.helper.make_node("Max", ["x", *[f"y{at}" for at in range(12)]], ["y"]))
    made = demands.model(nodes, shape, {"x": [1 << 18]})
    found = ps.simplify(made, budget=Budget(8 << 20))
    assert found.ByteSize() < 9 << 20
    assert len(found.graph.node) > 2


# Samples ------------------------------------------------------------------------------------------------------------


def _archive(change: Callable[[bytes], bytes], **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.arange(1000.0)) if not options else np.savez_compressed(buffer, x=np.arange(1000.0))
    return change(buffer.getvalue())


def _flag(data: bytes) -> bytes:
    at = data.rindex(b"PK\1\2") + 8
    return data[:at] + struct.pack("<H", 1) + data[at + 2 :]


def _method(data: bytes) -> bytes:
    at = data.rindex(b"PK\1\2") + 10
    return data[:at] + struct.pack("<H", 14) + data[at + 2 :]


def _large(data: bytes) -> bytes:
    at = data.rindex(b"PK\1\2") + 24
    return data[:at] + struct.pack("<L", 0x7FFFFFFF) + data[at + 4 :]


def _header(text: str, more: bytes = b"") -> bytes:
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + more


def as_any(given: Any) -> Any:
    return given


FILES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "does not begin as"),
    "a header for 16 GiB": (
        _header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,), }"),
        "asks for 17179869184 bytes of data, and 0 follow",
    ),
    "a header that is code": (_header("{'descr': __import__('os')}"), "does not describe an array of numbers"),
    "too many axes": (
        _header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1, ' * 40}), }}", b"1234"),
        "has 40 axes",
    ),
    "a pickle": (_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"."), "array of numbers"),
    "bytes of a member changed": (_archive(lambda data: data.replace(b"\0\0\0@", b"\0\0\1@")), "archive is damaged"),
    "a packed member changed": (_archive(lambda data: data[:200] + b"!" * 40 + data[240:], packed=True), "is damaged"),
    "an archive cut off": (_archive(lambda data: data[:-40]), "archive is damaged"),
    "an encrypted member": (_archive(_flag), "is encrypted, or packed as numpy packs none"),
    "another method": (_archive(_method), "is encrypted, or packed as numpy packs none"),
    "a member of 2 GiB": (_archive(_large), "2147483647 bytes, and 67108864 are left"),
}


@pytest.mark.parametrize("name", FILES)
def test_samples_that_are_none(name: str, tmp_path: Path) -> None:
    data, why = FILES[name]
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(npy.NpyError, match=why):
        npy.read(path, 64 << 20)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(npy.NpyError, match="is a pipe, a socket or a device"):
        npy.read(tmp_path / "x.npy", 1 << 20)


@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.eye(3, dtype=">f4")), np.float32(2)]
)
def test_samples_that_numpy_writes(array: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", x=array, y=array)
    np.savez_compressed(tmp_path / "p.npz", x=array)
    alone, several, packed = (as_any(npy.read(tmp_path / name, 1 << 20)) for name in ("x.npy", "x.npz", "p.npz"))
    for found in (alone, several["x"], several["y"], packed["x"]):
        np.testing.assert_array_equal(found, array)
        assert found.dtype == np.asarray(array).dtype


# Patterns -----------------------------------------------------------------------------------------------------------

MATCHES: list[tuple[str, str, bool]] = [
    ("(a+)+$", "a" * 5_000 + "b", False),
    ("(a|a)*", "a" * 5_000, True),
    ("(a*)*b", "a" * 5_000, False),
    ("a?" * 200 + "a" * 200, "a" * 200, True),
    (r"\w+@\w+\.(com|org)", "me@here.org", True),
    (r"(?i)straße", "STRAßE", True),
    (r"[^a-c\d]{2,3}", "xyz", True),
    (r"[^a-c\d]{2,3}", "x1", False),
    (r"^a\b.c$", "a c", True),
    (r"(?s).*", "a\nb", True),
    (".*", "a\nb", False),
    (r"(?m)a$\n^b", "a\nb", True),
    ("a{0}", "", True),
    ("(?P<x>a)(?:b|)", "a", True),
]


@pytest.mark.parametrize(("pattern", "text", "wanted"), MATCHES)
def test_patterns(pattern: str, text: str, wanted: bool) -> None:
    assert regex.Pattern(pattern).matches(text) is wanted


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", "refers to a group"),
        ("(?=a)a", "looks ahead"),
        ("(a{1000}){1000}", "more than 10000 states"),
        ("(", "unterminated"),
        ("(" * 200 + ")" * 200, "more than 100 levels"),
    ],
)
def test_patterns_that_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(regex.PatternError, match=why):
        regex.Pattern(pattern)
