"""`purexport run` and `purexport simplify`: what they compute, write and say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.parser import parse_model
from purexport.cli.main import main

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
g (float[n, 2] x, int64[n] file) => (float[n, 2] y, int64[n] file2) <float[2] w = {1.0, 2.0}> {
  a = Identity(x)
  b = Add(w, w)
  y = Mul(a, b)
  file2 = Neg(file)
}"""


GIVEN = ("--inputs", "in.npz", "--input", "file=@seven.npy")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ps.save(parse_model(TEXT), "m.onnx")
    ps.save(parse_model(TEXT.replace("float[2] w = {1.0, 2.0}", "float[3] w = {1.0, 2.0, 3.0}")), "wrong.onnx")
    np.save("x.npy", np.array([[1, -2], [3, np.nan]], np.float32))
    np.savez("in.npz", x=np.ones((1, 2), np.float32))
    np.save("seven.npy", np.array([7]))
    return tmp_path


def test_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "m.onnx", "--input", "x=@x.npy", "--input", "file=int64[2]:5..5", "-o", "out.npz"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "input   x  float32[2, 2]  from nan to nan, 1 not finite",
        "input   file  int64[2]  from 5 to 5",
        "output  y  float32[2, 2]  from nan to nan, 1 not finite",
        "output  file2  int64[2]  from -5 to -5",
        "wrote out.npz",
    ]
    with np.load("out.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["y"], np.array([[2, -8], [6, np.nan]], np.float32))
        np.testing.assert_array_equal(found["file2"], [-5, -5])


def test_run_on_random_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same in each run, another by another seed; sizes of named axes as they are asked for."""
    seen = []
    for seed in ("0", "0", "1"):
        assert main(["run", "m.onnx", "--dim", "n=3", "--seed", seed, "--json"]) == 0
        seen.append(json.loads(capsys.readouterr().out))
    assert seen[0] == seen[1] != seen[2]
    assert [item["type"] for item in seen[0]["inputs"]] == ["float32[3, 2]", "int64[3]"]
    assert main(["run", "m.onnx", *GIVEN, "--json"]) == 0
    assert [item["first"] for item in json.loads(capsys.readouterr().out)["outputs"]] == [[2.0, 4.0], [-7]]


def test_trace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "m.onnx", *GIVEN, "--trace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "Identity             a  float32[1, 2]  from 1 to 1",
        "Add                  b  float32[2]  from 2 to 4",
    ]
    assert main(["run", "m.onnx", *GIVEN, "--trace", "--json"]) == 0
    assert [item["node"] for item in json.loads(capsys.readouterr().out)["trace"]] == ["Identity", "Add", "Mul", "Neg"]


def test_sizes_that_inference_cannot_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Reshape to three elements, which only numbers tell: the first shapes do not run, and other ones do."""
    text = (
        TEXT.partition("g (")[0]
        + """g (float[n] x) => (float[m] y) <float[1] z = {0.0}, float[1] two = {2.0}> {
      e = Exp(z) f = Add(e, two) t = Cast<to = 7>(f) y = Reshape(x, t)
    }"""
    )
    ps.save(parse_model(text), "three.onnx")
    assert main(["run", "three.onnx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["type"] == "float32[3]"
    assert main(["run", "three.onnx", "--dim", "n=2"]) == 1
    assert "float[2]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["m.onnx", "--input", "z=float32[1]"], 2, "the model has no input 'z'; it has 'x', 'file'"),
        (["m.onnx", "--input", "x=float64[1,2]"], 2, "input 'x' does not fit"),
        (["m.onnx", "--input", "x=bfloat16[1,2]"], 2, "numpy has no bfloat16; give an array"),
        (["m.onnx", "--input", "x=float32[100000,100000]"], 2, "more than 2 GB of random numbers"),
        (["m.onnx", "--input", "file=int64[1]:5..99999999999999999999"], 2, "write a range within it"),
        (["m.onnx", "--input", "file=@none.npy"], 2, "none.npy"),
        (["m.onnx", "--dim", "n=many"], 2, "--dim n=many: write NAME=N"),
        (["m.onnx", "-o", "y.npy"], 2, "the model has 2 outputs; name a .npz file"),
        (["wrong.onnx", "--dim", "n=2"], 1, "cannot be computed"),
    ],
)
def test_what_run_refuses(
    words: list[str], status: int, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == status
    streams = capsys.readouterr()
    assert said in streams.err and streams.out == ""


def test_simplify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simplify", "m.onnx", "-o", "small.onnx", "--prove", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "small.onnx has 2 nodes (before: 4)",
        "  1 computed from constants",
        "  1 change nothing",
        "  Add: 1 -> 0",
        "  Identity: 1 -> 0",
        "proven: both compute the same on 2 random inputs",
    ]
    graph = ps.load("small.onnx").graph
    assert [node.op_type for node in graph.node] == ["Mul", "Neg"]
    assert [item.name for item in graph.input] == ["x", "file"]
    assert main(["simplify", "m.onnx", "--dry-run", "--json", "--fold-bytes", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == [4, 3]


SIZED = """<ir_version: 9, opset_import: ["" : 17]>
g (float[n, m] x) => (float[n, 1] y) <float[5, 1] w = {1, 2, 3, 4, 5}> { a = Identity(x) y = MatMul(a, w) }"""


def test_sizes_that_the_model_takes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """5 is what the weight says; the number of rows is what is asked for."""
    ps.save(parse_model(SIZED), "sized.onnx")
    assert main(["run", "sized.onnx", "--dim", "n=3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["type"] == "float32[3, 5]"
    np.save("x.npy", np.ones((4, 5), np.float32))
    for words in ([], ["--dim", "n=3"], ["--input", "x=float32[7,5]"], ["--input", "x=@x.npy"]):
        assert main(["simplify", "sized.onnx", "--dry-run", "--prove", "2", *words]) == 0
        assert "proven: both compute the same on 2 random inputs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--dim", "n=3"], 2, "--input, --inputs and --dim say what both models are run on: add --prove N"),
        (["--prove", "1", "--dim", "n=x"], 2, "--dim n=x: write NAME=N"),
        (["--prove", "1", "--input", "z=float32[1]"], 2, "the model has no input 'z'; it has 'x'"),
        (["--prove", "1", "--input", "x=float32[1,3]"], 2, "the models cannot be run on these inputs"),
    ],
)
def test_what_a_proof_refuses(
    words: list[str], status: int, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ps.save(parse_model(SIZED), "sized.onnx")
    assert main(["simplify", "sized.onnx", "--dry-run", *words]) == status
    streams = capsys.readouterr()
    assert said in streams.err and streams.out == ""


LARGE = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from purexport.cli.main import main
status = main(["simplify", "big.onnx", "-o", "small.onnx"])
sys.exit(status)
"""


def test_a_model_larger_than_memory(folder: Path) -> None:
    """The weights, 30 GB in a sparse file, are neither read nor copied."""
    import subprocess
    import sys

    size = 30 << 30
    with open("big.onnx.data", "wb") as file:
        file.truncate(size)
    model = parse_model(TEXT)
    entries = {"location": "big.onnx.data", "offset": "0", "length": str(size)}
    model.graph.initializer.append(
        ps.TensorProto(
            name="large",
            data_type=1,
            dims=[size // 4],
            data_location=1,
            external_data=[ps.StringStringEntryProto(key=key, value=value) for key, value in entries.items()],
        )
    )
    model.graph.node.append(ps.NodeProto(op_type="Size", input=["large"], output=["s"]))
    model.graph.output.append(ps.helper.make_tensor_value_info("s", 7, []))
    Path("big.onnx").write_bytes(model.SerializeToString())
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = ps.load("small.onnx")
    assert sorted(node.op_type for node in made.graph.node) == ["Constant", "Mul", "Neg"]
