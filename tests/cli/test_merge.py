"""`purexport merge`: what it writes, where external data stays, and `infer --dry-run`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import proto_schema as ps
from proto_schema.parser import parse_model
from purexport.cli.main import main

HEAD = '<ir_version: 10, opset_import: ["": 21]> '
FIRST = HEAD + "one (float[N, 2] x) => (float[N, 2] y, float[N, 2] z) { y = Relu(x) z = Neg(x) }"
SECOND = HEAD + "two (float[N, 2] x) => (float[N, 256] y) { y = MatMul(x, w) }"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ps.save(parse_model(FIRST), "a.onnx")
    second = parse_model(SECOND)
    second.graph.initializer = [ps.numpy_helper.from_array(np.arange(512, dtype=np.float32).reshape(2, 256), "w")]
    ps.save(second, "b.onnx", external_data=True, size_threshold=0)


def test_one_model_of_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "a.onnx", "b.onnx", "--map", "y:x", "--prefix", "a/", "--prefix", "b/", "-o", "m.onnx"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("wrote m.onnx, ") and head.endswith(": 3 nodes")
    assert lines == ["  input  a/x  float32[N, 2]", "  output  a/z  float32[N, 2]", "  output  b/y  float32[N, 256]"]
    onnx.checker.check_model("m.onnx", full_check=True)
    model = ps.load("m.onnx")
    assert model.graph.initializer[0].data_location == ps.TensorProto.EXTERNAL
    assert sorted(path.name for path in Path().iterdir()) == ["a.onnx", "b.onnx", "b.onnx.data", "m.onnx"]
    assert ps.numpy_helper.to_array(model.graph.initializer[0]).tolist()[1][:2] == [256, 257]


def test_dry_run_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--map", "z:x", "--prefix", "a_", "--outputs", "y", "--json", "--dry-run"]
    assert main(["merge", "a.onnx", "b.onnx", "-o", "m.onnx", *options]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["nodes"], facts["dry_run"], [value["name"] for value in facts["outputs"]]) == (2, True, ["y"])
    assert not Path("m.onnx").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--map", "y"], "--map y: write an output and an input with a colon between"),
        (["--map", "q:x", "--prefix", "a_"], "the first graph has no output 'a_q'"),
        (["--map", "y:x"], "; --prefix a_ --prefix b_ goes before the names of the two"),
        (["--prefix", "a", "--prefix", "b", "--prefix", "c"], "--prefix: give it once"),
    ],
)
def test_mistakes(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "a.onnx", "b.onnx", "-o", "m.onnx", *options]) == 2
    assert text in capsys.readouterr().err
    assert not Path("m.onnx").exists()


def test_what_is_read_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("b.onnx.data").read_bytes()
    options = ["--map", "y:x", "--prefix", "a/", "--force"]
    assert main(["merge", "a.onnx", "b.onnx", "-o", "b.onnx.data", *options]) == 2
    assert Path("b.onnx.data").read_bytes() == before


def test_infer_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "a.onnx", "-o", "out.onnx", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("would write out.onnx\n")
    assert not Path("out.onnx").exists()
