"""`--shard-size` of the verbs that write weights: several data files, which all other verbs and ONNX Runtime read."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.files.marks import is_marked
from proto_schema.files.owned import data_of
from purexport.cli.main import main

RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 32)).astype(np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A chain of three products: m.onnx has its weights inside, e.onnx in one data file, s.onnx in three."""
    monkeypatch.chdir(tmp_path)
    nodes = [helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}"], f"n{i}") for i in range(3)]
    values = [(RNG.standard_normal((32, 32)) / 6).astype(np.float32) for _ in range(3)]
    weights = [ps.numpy_helper.from_array(value, f"w{i}") for i, value in enumerate(values)]
    given, made = (helper.make_tensor_value_info(name, 1, ["n", 32]) for name in ("x", "h3"))
    graph = helper.make_graph(nodes, "g", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    ps.save(model, "m.onnx")
    ps.save(model, "e.onnx", external_data=True)
    ps.save(model, "s.onnx", external_data=True, shard_size=5000)
    return tmp_path


def results(name: str, given: str = "x") -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.asarray(onnxruntime.InferenceSession(name).run(None, {given: X})[0], np.float32)


# the words, the size of a data file in them, how many there are then, how far the results may be from those of m.onnx
WRITERS = [
    (["quantize", "{}", "-o", "o.onnx", "--type", "int8", "--smallest", "1"], "1200", 3, 0.05),
    (["convert", "{}", "-o", "o.onnx", "--dtype", "float16"], "2kB", 3, 0.01),
    (["convert", "{}", "-o", "o.onnx", "--opset", "17"], "5kB", 3, 0),
    (["simplify", "{}", "-o", "o.onnx"], "5kB", 3, 0),
    (["infer", "{}", "-o", "o.onnx"], "5kB", 3, 0),
    (["extract", "{}", "--outputs", "h3", "-o", "o.onnx"], "9kB", 2, 0),
]


@pytest.mark.parametrize("source", [pytest.param("m", marks=pytest.mark.full), "s"])
@pytest.mark.parametrize(("words", "size", "count", "bound"), WRITERS, ids=lambda value: str(value)[2:22])
def test_verbs_write_several_files(words: list[str], size: str, count: int, bound: float, source: str) -> None:
    argv = [word.format(f"{source}.onnx") for word in words]
    assert main([*argv, "--shard-size", size, "--checksums"]) == 0
    names = [f"o.onnx-{index:05}-of-{count:05}.data" for index in range(1, count + 1)]
    assert data_of("o.onnx") == names
    assert all(is_marked(name, {name}, "o.onnx") for name in names)
    assert main(["check", "o.onnx", "--checksums"]) == 0
    wanted = results("m.onnx")
    assert np.linalg.norm(results("o.onnx") - wanted) <= bound * np.linalg.norm(wanted)
    assert main(argv) == 0  # without the option: one file, or none, or the data stays; those of before are gone
    assert not [name for name in os.listdir() if name.startswith("o.onnx-")]


def test_merge() -> None:
    for name, prefix in (("s.onnx", "a_"), ("e.onnx", "b_")):
        ps.save(ps.compose.add_prefix(ps.load(name), prefix), prefix + name, external_data=True, shard_size=5000)
    assert main(["merge", "a_s.onnx", "b_e.onnx", "--map", "a_h3:b_x", "-o", "o.onnx", "--shard-size", "9kB"]) == 0
    assert len(data_of("o.onnx")) == 3
    ps.save(ps.load("o.onnx"), "one.onnx")
    assert np.array_equal(results("o.onnx", "a_x"), results("one.onnx", "a_x"))


def test_share(capsys: pytest.CaptureFixture[str]) -> None:
    """Of models in one file, none and several; each data file is counted, and a second run changes nothing."""
    words = ["share", "m.onnx", "e.onnx", "s.onnx", "-o", "to", "--shard-size", "5kB"]
    assert main([*words, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert not os.path.exists("to")
    assert main(words) == 0
    names = [f"model.onnx-0000{index}-of-00003.data" for index in (1, 2, 3)]
    assert list(planned["data_files"]) == [f"to/{name}" for name in names]
    assert {path: os.path.getsize(path) for path in planned["data_files"]} == planned["data_files"]
    assert planned["data_size"] == sum(planned["data_files"].values()) and planned["data"] == f"to/{names[0]}"
    assert "9 tensors stored as 3" in capsys.readouterr().out
    assert sorted(os.listdir("to")) == sorted(["m.onnx", "e.onnx", "s.onnx", *names])
    for name in ("m.onnx", "e.onnx", "s.onnx"):
        assert np.array_equal(results(f"to/{name}"), results("m.onnx"))


def test_readers(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """stat, check, diff and edit see all of the files."""
    assert main(["stat", "s.onnx", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["data_files"]] == data_of("s.onnx")
    assert main(["check", "s.onnx", "--full"]) == 0
    assert main(["diff", "s.onnx", "e.onnx"]) == 1
    assert capsys.readouterr().out.count("the same values, stored in s.onnx-0000") == 3
    assert main(["edit", "s.onnx", "--metadata", "k=v"]) == 0
    assert "not touched: " + ", ".join(data_of("s.onnx")) in capsys.readouterr().out
    second = folder / data_of("s.onnx")[1]
    data = bytearray(second.read_bytes())
    data[17] ^= 1
    second.write_bytes(data)
    assert main(["diff", "s.onnx", "e.onnx"]) == 1
    assert "w1" in capsys.readouterr().out
    second.write_bytes(data[:100])
    assert main(["stat", "s.onnx"]) == 1
    assert f"{second.name}: w1 reach past its end" in capsys.readouterr().out
    second.unlink()
    assert main(["check", "s.onnx"]) == 1
    assert second.name in capsys.readouterr().out


MISTAKES = [
    (
        ["extract", "m.onnx", "--tensor", "w0", "-o", "w.npy", "--shard-size", "1GB"],
        "--shard-size, --checksums, --executor and --resume go with",
    ),
    (["quantize", "m.onnx", "-o", "q.onnx", "--shard-size", "big"], "--shard-size 'big': write a size"),
    (["share", "m.onnx", "-o", "to", "--shard-size", "0"], "--shard-size '0': write a size"),
    (["infer", "m.onnx", "-o", "q.onnx", "--executor", "cuda"], "--executor: there is no executor 'cuda'; it can be"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=lambda value: str(value)[:30])
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir())
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and sorted(os.listdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ["quantize", "s.onnx", "-o", "q.onnx", "--type", "int8", "--smallest", "1"],
        ["convert", "s.onnx", "-o", "q.onnx", "--dtype", "float16"],
    ],
    ids=lambda value: str(value[0]),
)
def test_pieces(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run says which ranges become which, by whom; an executor writes what one process would."""
    options = ["--shard-size", "2kB", "--executor", "threads"]
    before = sorted(os.listdir())
    assert main([*words, *options, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert re.search(
        r"q\.onnx-00001-of-0000\d\.data 0\.\.\d+  anywhere .* <- s\.onnx-00001-of-\d+\.data 0\.\.\d+", said
    )
    assert sorted(os.listdir()) == before
    assert main([*words, *options[:2]]) == 0
    alone = {name: Path(name).read_bytes() for name in os.listdir() if name.startswith("q.onnx")}
    assert main([*words, *options, "--resume", "--checksums"]) == 0 and main([*words, *options]) == 0
    assert {name: Path(name).read_bytes() for name in os.listdir() if name.startswith("q.onnx")} == alone
