"""`purexport convert`: what it writes and says, and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import proto_schema as ps
from proto_schema.version_converter import opset
from purexport.cli.main import main

HEAD = '<ir_version: 10, opset_import: ["": 20]>\n'
GOOD = "g (float[n, 3] x) => (float[n, 3] y) { h = Gelu(x) y = Mish(h) }"
TEXT = 'g (string[n] x) => (string[n] y) { ["join"] y = StringConcat(x, x) }'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("good", GOOD), ("text", TEXT)):
        onnx.save(onnx.parser.parse_model(HEAD + text), f"{name}.onnx")
    return tmp_path


def test_an_older_file_computes_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "good.onnx", "--opset", "9", "--ir-version", "4", "-o", "old.onnx"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "old.onnx is of opset ai.onnx 9, IR version 4; 11 nodes (before: 2)"
    assert "  Gelu: 1 -> 0" in rest and "  Erf: 0 -> 1" in rest
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    wanted, found = (
        np.asarray(onnxruntime.InferenceSession(name).run(None, {"x": x})[0]) for name in ("good.onnx", "old.onnx")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_dry_run_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir(folder))
    assert main(["convert", "good.onnx", "--opset", "13", "--dry-run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["converts"] and facts["opsets"] == {"ai.onnx": 13} and facts["operators"]["Mish"] == [1, 0]
    assert sorted(os.listdir(folder)) == before


def test_what_cannot_be_converted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "text.onnx", "--opset", "13", "-o", "old.onnx"]) == 1
    text = capsys.readouterr().out
    assert "node 'join' (StringConcat): the operator StringConcat does not exist before opset 20" in text
    assert text.endswith("opset 20 is the nearest to which the whole model converts\n")
    assert not (folder / "old.onnx").exists()
    assert main(["convert", "text.onnx", "--opset", "13", "-o", "old.onnx", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (
        not facts["converts"] and facts["needs"] == 20 and facts["refused"][0]["node"] == "node 'join' (StringConcat)"
    )


def test_another_float_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "good.onnx", "--dtype", "float16", "--keep", "Softmax,Mish", "-o", "half.onnx"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Mish 'y' stays in float32: it is named by keep (Mish)",
        "keep 'Softmax' fits no node of the model",
        "1 node in float16, 1 node in float32; 2 casts added; constants 0 B -> 0 B",
    ]
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    wanted, found = (
        np.asarray(onnxruntime.InferenceSession(name).run(None, {"x": x})[0]) for name in ("good.onnx", "half.onnx")
    )
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)


def test_another_float_type_of_what_has_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.full((1, 3), 300, np.float32))
    more = ["--samples", "a.npy", "--search", "--opset", "21", "--dry-run", "--json"]
    assert main(["convert", "good.onnx", "--dtype", "float16", *more]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["converts"] and facts["converted"] == {"Gelu": 1, "Mish": 1} and "search kept 0" in facts["notes"][0]
    assert main(["convert", "text.onnx", "--dtype", "bfloat16", "--dry-run"]) == 1
    assert "nothing computes in bfloat16" in capsys.readouterr().out
    assert main(["convert", "good.onnx", "--dtype", "float16", "--keep", "Mihs", "-o", "half.onnx"]) == 2
    assert "--keep 'Mihs' fits no node and is no operator; near: 'Mish'" in capsys.readouterr().err
    assert not (folder / "half.onnx").exists()


LIMITED = """
import re, sys
from purexport.cli.main import main
status = main(["convert", "big.onnx", "--opset", "11", "-o", "old.onnx"])
sys.stderr.write(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
sys.exit(status)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_thirty_gigabytes(folder: Path) -> None:
    """Weights in a sparse file of 30 GB: neither read nor copied."""
    model = ps.ModelProto.FromString(onnx.parser.parse_model(HEAD + GOOD).SerializeToString())
    assert model.graph is not None
    size = 30 << 30
    with open("big.data", "wb") as file:
        file.truncate(size)
    entries = {"location": "big.data", "offset": "0", "length": str(size)}
    model.graph.initializer = [
        ps.TensorProto(
            name="w", data_type=1, dims=[size // 4], data_location=ps.TensorProto.EXTERNAL,
            external_data=[ps.StringStringEntryProto(key=key, value=value) for key, value in entries.items()],
        )
    ]  # fmt: skip
    model.graph.node.append(ps.NodeProto(op_type="Identity", input=["w"], output=["z"]))
    Path("big.onnx").write_bytes(model.SerializeToString())
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) < 400 * 1024, "kilobytes of memory"
    assert opset(ps.load("old.onnx")) == 11 and sorted(os.listdir(folder)) == [
        "big.data", "big.onnx", "good.onnx", "old.onnx", "text.onnx",
    ]  # fmt: skip
