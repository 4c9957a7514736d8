"""`purexport infer`: what it says of shapes, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import proto_schema as ps
from purexport.cli.describe import interface
from purexport.cli.main import main

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
FITS = "g (float[n, 3] x) => (y, z) { h = Relu(x) y = Concat<axis=0>(h, h) z = NonZero(x) k = Shape(x) }"
FITS_NOT = 'g (float[2, 3] a, float[4, 5] b) => (y) { ["product"] y = MatMul(a, b) ["sum"] z = Add(a, b) }'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("fits", FITS), ("not", FITS_NOT)):
        onnx.save(onnx.parser.parse_model(HEAD + text), f"{name}.onnx")
    return tmp_path


def test_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "fits.onnx"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "fits.onnx: all shapes fit",
        "  1  values whose sizes are numbers",
        "  2  values with sizes that follow from the sizes of the inputs",
        "  1  values with sizes that do not follow from the inputs",
        "",
        "inputs",
        "  x  float32[n, 3]",
        "",
        "outputs",
        "  y  float32[2*n, 3]",
        "  z  int64[2, unk__0]",
    ]


def test_what_contradicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "not.onnx", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert not facts["fits"]
    assert [text.split(":")[0] for text in facts["problems"]] == ["node 'product' (MatMul)", "node 'sum' (Add)"]
    assert facts["values"] == {"numbers": 0, "symbols": 0, "fresh": 0, "unknown": 2}


@pytest.mark.parametrize(("options", "written"), [([], True), (["--strict"], False)])
def test_strict_stops_at_the_first(options: list[str], written: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "not.onnx", "-o", "out.onnx", *options]) == 1
    text = capsys.readouterr().out
    assert "node 'product' (MatMul)" in text and ("'sum'" in text) is written
    assert Path("out.onnx").exists() is written


def test_the_file_has_the_shapes() -> None:
    assert main(["infer", "fits.onnx", "-o", "out.onnx"]) == 0
    graph = ps.load("out.onnx").graph
    assert graph is not None
    assert [item.name for item in graph.value_info] == ["h", "k"]
    onnx.checker.check_model("out.onnx", full_check=True)


def test_external_data_stays_where_it_is(folder: Path) -> None:
    """The new model beside the old one uses the same data."""
    model = ps.loads(
        onnx.parser.parse_model(HEAD + "g (float[n, 64] x) => (y) { y = MatMul(x, w) }").SerializeToString()
    )
    assert model.graph is not None
    data = bytes(64 * 64 * 4)
    model.graph.initializer = [ps.TensorProto(name="w", dims=[64, 64], data_type=ps.TensorProto.FLOAT, raw_data=data)]
    ps.save(model, "big.onnx", external_data=True)
    assert main(["infer", "big.onnx", "-o", "out.onnx"]) == 0
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(("big", "out"))) == [
        "big.onnx",
        "big.onnx.data",
        "out.onnx",
    ]
    ps.checker.check_model("out.onnx", full_check=True)


def test_a_report_of_the_interface_reads_no_nodes() -> None:
    nodes = [ps.helper.make_node("Relu", [f"x{at}"], [f"x{at + 1}"]) for at in range(2000)]
    ends = [[ps.helper.make_tensor_value_info(name, 1, [1])] for name in ("x0", "x2000")]
    model = ps.loads(ps.dumps(ps.helper.make_model(ps.helper.make_graph(nodes, "g", *ends))))
    known = interface(model)
    assert (known["inputs"], known["outputs"]) == tuple(
        [{"name": name, "type": "float32[1]"}] for name in ("x0", "x2000")
    )
    assert not model.graph._node._made  # type: ignore[attr-defined]
