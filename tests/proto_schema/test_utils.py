"""Parts of models: what they hold, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import proto_schema as ps
from proto_schema.parser import parse_model
from proto_schema.utils import Extractor, extract_model

HEAD = '<ir_version: 10, opset_import: ["": 21, "d": 1], producer_name: "p"> '
CHAIN = HEAD + (
    "chain (float[2] a, float[2] b) => (float[2] f) <float[2] w = {1, 2}, float[2] v = {1, 2}, float[2] d> "
    "{ c = Add(a, b) d = Mul(c, w) e = Sub(d, v) f = Neg(e) }"
)
INNER = HEAD + (
    "inner (bool q, float[2] x) => (float[2] z) <float[2] w = {1, 2}> { s = Neg(x) z = If <then_branch = t () => "
    "(float[2] r) { r = Mul(s, w) }, else_branch = e () => (float[2] r) { r = d.f(x) }> (q) } "
    '<domain: "d", opset_import: ["": 21, "d": 1]> f (x) => (y) { y = d.g(x) } '
    '<domain: "d", opset_import: ["": 21]> g (x) => (y) { y = Neg(x) } '
    '<domain: "d", opset_import: ["": 21]> unused (x) => (y) { y = Neg(x) }'
)


def _graph(model: ps.ModelProto) -> Any:
    onnx.checker.check_model(model.SerializeToString(), full_check=True)
    return model.graph


def test_the_part_between_values() -> None:
    model = ps.shape_inference.infer_shapes(parse_model(CHAIN))
    part = Extractor(model).extract_model(["c"], ["e"])
    graph = _graph(part)
    assert [node.op_type for node in graph.node] == ["Mul", "Sub"]
    assert [tensor.name for tensor in graph.initializer] == ["w", "v"]
    assert graph.initializer[0] is model.graph.initializer[0]
    assert (part.producer_name, part.ir_version) == ("onnx.utils.extract_model", 10)
    theirs = onnx.utils.Extractor(onnx.load_from_string(model.SerializeToString())).extract_model(["c"], ["e"])
    assert [value.name for value in theirs.graph.input] == [value.name for value in graph.input]
    assert theirs.graph.node == onnx.load_from_string(part.SerializeToString()).graph.node


def test_what_only_branches_use_is_kept() -> None:
    """The official Extractor looks at the inputs of nodes alone, and its part lacks what the branches take."""
    part = Extractor(parse_model(INNER)).extract_model(["q", "x"], ["z"])
    graph = _graph(part)
    assert [node.op_type for node in graph.node] == ["Neg", "If"]
    assert [tensor.name for tensor in graph.initializer] == ["w"]
    assert [function.name for function in part.functions] == ["f", "g"]


def test_inputs_that_nothing_needs_stay_inputs() -> None:
    graph = _graph(Extractor(ps.shape_inference.infer_shapes(parse_model(CHAIN))).extract_model(["b", "d"], ["e"]))
    assert [value.name for value in graph.input] == ["b", "d"]


@pytest.mark.parametrize("external", [False, True])
def test_files(tmp_path: Path, external: bool) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "part.onnx"
    ps.save(parse_model(CHAIN), source, external_data=external, size_threshold=0)
    extract_model(source, target, ["d"], ["f"])
    part = ps.load(target)
    assert [node.op_type for node in part.graph.node] == ["Sub", "Neg"]
    assert ps.numpy_helper.to_array(part.graph.initializer[0]).tolist() == [1, 2]
    onnx.checker.check_model(str(target), full_check=True)


REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("no.onnx", "o.onnx", ["a"], ["f"]), {}, "there is no model at 'no.onnx'"),
    (("m.onnx", "", ["a"], ["f"]), {}, "the path of the part is empty"),
    (("m.onnx", "o.onnx", [], ["f"]), {}, "at least one input"),
    (("m.onnx", "o.onnx", ["a"], []), {}, "at least one output"),
    (("m.onnx", "o.onnx", ["a", "a"], ["f"]), {}, "these inputs of the part are named twice: a"),
    (("m.onnx", "o.onnx", ["a"], ["f", "f"]), {}, "these outputs of the part are named twice: f"),
    (("m.onnx", "o.onnx", ["a"], ["f"]), {}, "f also need b: name it among the inputs"),
    (("m.onnx", "o.onnx", ["a"], ["nothing"]), {}, "the graph has no value 'nothing'"),
    (("m.onnx", "o.onnx", ["c"], ["e"]), {"infer_shapes": False}, "does not say the type of 'c'"),
]


@pytest.mark.parametrize(("arguments", "options", "text"), REFUSED)
def test_refused(arguments: Any, options: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ps.save(parse_model(CHAIN), "m.onnx")
    with pytest.raises(ValueError, match=text):
        extract_model(*arguments, **options)
    assert not Path("o.onnx").exists()
