"""A `dim_value` of -1, which some exporters write, is a size that is not known, for every tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.calibration.samples import Samples
from proto_schema.compose import merge_models
from proto_schema.inliner import inline_local_functions
from proto_schema.parser import parse_model
from proto_schema.reference import ReferenceEvaluator
from proto_schema.shape_inference import infer_shapes
from proto_schema.tools.update_model_dims import update_inputs_outputs_dims
from proto_schema.utils import Extractor
from proto_schema.version_converter import convert_version
from purexport.cli.main import main

PLAIN = """<ir_version: 9, opset_import: ["" : 17]>
g (float[N, 3] x) => (float[N, 3] y) { a = Relu(x) y = Neg(a) }"""
LOOP = """<ir_version: 9, opset_import: ["" : 17]>
g (float[3] x, int64 n) => (float[M, N, 3] y) <bool t = {1}> {
  y = Loop(n, t) <body = b (int64 i, bool c) => (bool d, float[N, 3] r) <int64[2] s = {0, 3}>
  { d = Identity(c) e = Expand(x, s) r = Relu(e) }>
}"""


def negative(text: str) -> ps.ModelProto:
    """The model with -1 where it says N, also in bodies."""
    model = parse_model(text)
    graphs = [model.graph, *(item.g for node in model.graph.node for item in node.attribute if item.g is not None)]
    for graph in graphs:
        for item in (*graph.input, *graph.output, *graph.value_info):
            for dim in item.type.tensor_type.shape.dim if item.type is not None else ():
                if dim.dim_param == "N":
                    dim.dim_param, dim.dim_value = None, -1
    return model


def with_default(model: ps.ModelProto) -> ps.ModelProto:
    model.graph.initializer.append(ps.numpy_helper.from_array(np.ones((4, 3), np.float32), "x"))
    return model


def extracted(model: ps.ModelProto) -> ps.ModelProto:
    return Extractor(infer_shapes(model)).extract_model(["x"], ["a"])


def renamed(model: ps.ModelProto) -> ps.ModelProto:
    return update_inputs_outputs_dims(model, {"x": [5, 3]}, {"y": [5, 3]})


def merged(model: ps.ModelProto) -> ps.ModelProto:
    other = parse_model(PLAIN.replace("(float[N, 3] x)", "(float[4, 3] z)").replace("Relu(x)", "Relu(z)"))
    return merge_models(model, ps.compose.add_prefix(other, "two_"), [("y", "two_z")])


FEED = {"x": np.ones((4, 3), np.float32)}
ROWS: list[tuple[str, Callable[[ps.ModelProto], Any]]] = [
    ("check", lambda model: ps.checker.check_model(model, full_check=True)),
    ("check, with a default", lambda model: ps.checker.check_model(with_default(model), full_check=True)),
    ("infer", lambda model: infer_shapes(model, check_type=True, strict_mode=True)),
    ("evaluate", lambda model: ReferenceEvaluator(model).run(None, FEED)),
    ("simplify", lambda model: ps.simplify(model, prove=2)),
    ("convert up", lambda model: convert_version(model, 23)),
    ("convert down", lambda model: convert_version(model, 11)),
    ("extract", extracted),
    ("merge", merged),
    ("inline", inline_local_functions),
    ("dims", renamed),
    ("samples", lambda model: list(Samples(model, [FEED]))),
]


@pytest.mark.parametrize("run", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
def test_tool(run: Callable[[ps.ModelProto], Any]) -> None:
    made = run(negative(PLAIN))
    if isinstance(made, ps.ModelProto):
        ps.checker.check_model(made, full_check=True)


def test_a_loop_without_turns() -> None:
    found = ReferenceEvaluator(negative(LOOP)).run(None, {"x": np.ones(3, np.float32), "n": np.array(0)})
    assert found[0].shape == (0, 0, 3)


VERBS = [
    (["show", "m.onnx"], "x  float32[?, 3]"),
    (["infer", "m.onnx", "-o", "i.onnx"], "all shapes fit"),
    (["run", "m.onnx"], "x  float32[2, 3]"),
    (["simplify", "m.onnx", "-o", "s.onnx", "--prove", "1"], "proven"),
    (["check", "m.onnx", "--full"], "valid"),
    (["html", "m.onnx", "-o", "m.html"], ""),
]


@pytest.mark.parametrize(("words", "said"), VERBS, ids=[row[0][0] for row in VERBS])
def test_verb(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.save(negative(PLAIN), "m.onnx")
    assert main(words) == 0
    streams = capsys.readouterr()
    assert said in streams.out + streams.err
    assert "-1" not in streams.out
