"""`purexport quantize`: what it writes and says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import proto_schema as ps
from proto_schema import helper
from purexport.cli.main import main

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of two products, and one with its weights in a file of their own."""
    monkeypatch.chdir(tmp_path)
    nodes = [helper.make_node("MatMul", ["x", "up"], ["h"]), helper.make_node("MatMul", ["h", "down"], ["y"])]
    shapes = {"up": (64, 96), "down": (96, 32)}
    weights = [
        ps.numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    given, made = (helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 64), ("y", 32)))
    graph = helper.make_graph(nodes, "g", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    ps.save(model, "m.onnx")
    ps.save(model, "e.onnx", external_data=True)
    return tmp_path


def results(name: str, precise: bool = False) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    x = np.linspace(-1, 1, 3 * 64, dtype=np.float32).reshape(3, 64)
    options = onnxruntime.SessionOptions()
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")  # without VNNI sums overflow otherwise
    return np.asarray(onnxruntime.InferenceSession(name, options).run(None, {"x": x})[0])


@pytest.mark.parametrize("source", ["m", "e"])
@pytest.mark.parametrize("target", ["onnx", "onnxruntime"])
def test_a_file_computes_nearly_the_same(source: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quantize", f"{source}.onnx", "-o", "q.onnx", "--type", "int8", "--block-size", "32", "--target", target]
    assert main(words) == 0
    form = "MatMulNBits" if target == "onnxruntime" else "DequantizeLinear"
    *rows, total = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["up", "down"] and all(row.endswith(form) for row in rows)
    assert total.startswith("2 of 2 to int8: 36.9 kB -> ")
    wanted, found = results("m.onnx"), results("q.onnx")
    assert 0 < np.linalg.norm(wanted - found) / np.linalg.norm(wanted) < 0.02
    assert os.path.exists("q.onnx.data") is (source == "e")


def test_another_model_may_be_replaced(folder: Path) -> None:
    """A file of before, not the model that is read: its weights would be lost."""
    wanted = results("m.onnx")
    for name, target in (("m.onnx", "e.onnx"), ("e.onnx", "m.onnx")):
        assert main(["quantize", name, "-o", name, "--type", "float16"]) == 2
        assert main(["quantize", name, "-o", target, "--type", "float16"]) == 0
        assert 0 < np.linalg.norm(results(target) - wanted) / np.linalg.norm(wanted) < 1e-3
    assert sorted(os.listdir(folder)) == ["e.onnx", "m.onnx"]


def test_a_dry_run_tells_errors_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir(folder))
    assert main(["quantize", "m.onnx", "--type", "uint4", "--exclude", "d*", "--dry-run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    left, taken = sorted(facts["entries"], key=lambda row: str(row["name"]))
    assert left["form"] == "" and left["reason"] == "is left out by --include and --exclude" and left["error"] is None
    assert taken["form"] == "DequantizeLinear" and 0.05 < taken["error"] < 0.1
    assert facts["after"] == taken["after"] + left["before"] < facts["before"]
    assert sorted(os.listdir(folder)) == before


def test_an_opset_without_the_type_is_raised(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["quantize", "m.onnx", "-o", "q.onnx", "--type", "nvfp4"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "opset 21 -> 23, the first that has nvfp4 for these weights"
    assert [item.version for item in ps.load("q.onnx").opset_import] == [23]
    assert main(["quantize", "m.onnx", "-o", "q.onnx", "--type", "nvfp4", "--opset", "24", "--force"]) == 0
    assert "opset 21 ->" not in capsys.readouterr().out and ps.load("q.onnx").opset_import[0].version == 24
    assert main(["quantize", "m.onnx", "-o", "w.onnx", "--opset", "99"]) == 2
    assert "99" in capsys.readouterr().err and not (folder / "w.onnx").exists()


def test_activations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both models: the weights of the second stay in a file of their own."""
    samples = folder / "samples"
    samples.mkdir()
    for number in range(3):
        np.savez(samples / f"{number}.npz", x=RNG.standard_normal((3, 64)).astype(np.float32))
    words = ["--activations", "uint8", "--calibrate", "samples", "--method", "percentile", "--per-channel"]
    for source in ("m", "e"):
        assert main(["quantize", f"{source}.onnx", "-o", f"{source}q.onnx", *words, "--percentile", "99.9"]) == 0
        *rows, total = capsys.readouterr().out.splitlines()
        assert [row.split()[:3] for row in rows] == [
            ["x", "activation", "uint8"],
            ["h", "activation", "uint8"],
            ["y", "activation", "uint8"],
            ["up", "weight", "int8"],
            ["down", "weight", "int8"],
        ]
        assert "and 95 more" in rows[3] and "zero point" in rows[0]
        assert total.startswith("3 activations to uint8, 2 weights and biases to integers: 36.9 kB -> ")
        wanted, found = results("m.onnx"), results(f"{source}q.onnx", precise=True)
        assert 0 < np.linalg.norm(wanted - found) / np.linalg.norm(wanted) < 0.03
        assert os.path.exists(f"{source}q.onnx.data") is (source == "e")
    assert main(["quantize", "m.onnx", *words, "--dry-run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["options"]["percentile"] == 99.999 and facts["entries"][3]["channels"] == 96


CALIBRATION_MISTAKES = [
    (["--activations", "uint8"], "--activations needs samples: --calibrate FOLDER"),
    (["--activations", "uint8", "--calibrate", ".", "--target", "onnxruntime"], "leave --target out"),
    (["--activations", "uint8", "--calibrate", ".", "--type", "int4"], "with activations weights are int8, not int4"),
    (["--activations", "uint8", "--calibrate", "."], "has no .npz and no .npy file"),
    (["--activations", "uint8", "--calibrate", "none.npz"], "none.npz"),
    (["--calibrate", "."], "--calibrate is of activations; say --activations uint8 or int8, too"),
    (["--per-channel"], "--per-channel is of activations"),
]


@pytest.mark.parametrize(("words", "text"), CALIBRATION_MISTAKES)
def test_mistakes_of_calibration(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", "m.onnx", "-o", "q.onnx", *words]) == 2
    assert text in " ".join(capsys.readouterr().err.split())
    assert not os.path.exists("q.onnx")


MISTAKES = [
    (["--type", "int3"], "there is no --type 'int3'; it can be int4"),
    (["--block-size", "7"], "--block-size is a power of two from 16 on, or 0 for"),
    (["--type", "nvfp4", "--clip"], "leave --symmetric, --zero-points and --clip out"),
    (["--accuracy-level", "7"], "--accuracy-level is 0 to 4"),
    (["--activations", "int8", "--calibrate", ".", "--clip"], "--clip is of weights alone; leave it out with"),
]


@pytest.mark.parametrize(("words", "text"), MISTAKES)
def test_mistakes_are_told_in_options(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", "m.onnx", "-o", "q.onnx", *words]) == 2
    assert text in " ".join(capsys.readouterr().err.split())


def test_what_stays_is_told_in_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Also those that are small, and a weight that holds a NaN."""
    weights = {
        "conv": np.ones((8, 64, 3, 3), np.float32),
        "table": np.ones((40, 40), np.float32),
        "small": np.ones((4, 8), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv"], ["a"]),
        helper.make_node("Gather", ["table", "i"], ["b"]),
        helper.make_node("MatMul", ["c", "small"], ["d"]),
    ]
    tensors = [ps.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [], [], tensors)
    ps.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "s.onnx")
    capsys.readouterr()
    assert main(["quantize", "s.onnx", "--dry-run"]) == 1
    *rows, total, _ = capsys.readouterr().out.splitlines()
    assert [row.partition("stays: it ")[2] for row in rows] == [
        "is read by Conv, which has no int4 in blocks (--type int8 takes it)",
        "is a table of embeddings (--embeddings takes it)",
        "has fewer elements than the 1,024 that a weight needs here (--smallest 1 takes all)",
    ]
    assert total.startswith("0 of 3 to int4: ")
    assert main(["quantize", "s.onnx", "--dry-run", "--smallest", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 of 3 to int4: ")
    weights["table"][3, 3] = np.nan
    graph.initializer[1].CopyFrom(ps.numpy_helper.from_array(weights["table"], "table"))
    ps.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "n.onnx")
    assert main(["quantize", "n.onnx", "-o", "q.onnx", "--embeddings"]) == 2
    assert "leave it out by --exclude 'table'" in capsys.readouterr().err


def test_nothing_to_quantize(capsys: pytest.CaptureFixture[str]) -> None:
    """The file is as before, and this is said, by the exit status too."""
    assert main(["quantize", "m.onnx", "-o", "q.onnx", "--exclude", "*"]) == 1
    *reasons, last = capsys.readouterr().out.splitlines()
    assert len(reasons) >= 2 and last == "no weight is quantized: q.onnx has the weights of m.onnx as they are"
    np.testing.assert_array_equal(results("q.onnx"), results("m.onnx"))
    assert main(["quantize", "m.onnx", "--dry-run", "--exclude", "*"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "no weight is quantized"
