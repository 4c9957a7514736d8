"""The verbs of the command line: what they print, and their exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import proto_schema as ps
from proto_schema.units import size_text
from purexport.cli.describe import attribute_text
from purexport.cli.main import VERBS, main
from purexport.cli.verbs import demo
from purexport.stages import finish
from tests.cli.networks import X, process, run

pytestmark = pytest.mark.usefixtures("folder")

# Export ---------------------------------------------------------------------------------------------------------------


# the rest of the command line, and what it makes of the file
GOOD_EXPORTS: list[tuple[str, Sequence[str]]] = [
    ("class in a file", ["net.py:Net", *X]),
    ("class in a module", ["net:Net", *X]),
    ("factory", ["net:factory", *X]),
    ("dotted name", ["net:zoo.made", *X]),
    ("torch.export", ["net:Net", *X, "--capture", "export"]),
    ("opset", ["net:Net", *X, "--opset", "9"]),
    ("output name", ["net:Net", *X, "--output-name", "scores"]),
    ("dynamic axis", ["net:Net", *X, "--dynamic", "x:0=batch"]),
    ("every axis", ["net:Net", *X, "--dynamic", "all"]),
    ("kwargs", ["net:Net", *X, "--kwargs", '{"scale": 2.5}']),
    ("whole numbers in a range", ["net:Words", "--input", "x=int64[2,3]:0..99"]),
    ("array from a file", ["net:Net", "--input", "x=@x.npy"]),
    ("weights", ["net:Net", *X, "--weights", "weights.pt"]),
    ("weights of an old torch", ["net:Net", *X, "--weights", "old.pt"]),
    ("weights of a script", ["net:script", *X, "--weights", "weights.pt"]),
    ("weights of a script and an old torch", ["net:script", *X, "--weights", "old.pt"]),
    ("weights of a script under another name", ["net:script", *X, "--weights", "prefixed.pt", "--rename", "model.="]),
    ("weights of a script of another type", ["net:script", *X, "--weights", "double.pt", "--cast"]),
    ("weights of a script in part", ["net:script", *X, "--weights", "part.pt", "--partial"]),
    ("weights without memory", ["net:Net", *X, "--weights", "weights.pt", "--meta", "--capture", "export"]),
    ("weights under another name", ["net:Net", *X, "--weights", "prefixed.pt", "--rename", "model.="]),
    ("weights of another type", ["net:Net", *X, "--weights", "double.pt", "--cast"]),
    ("one weight over another", ["net:Net", *X, "--weights", "part.pt", "--weights", "weights.pt", "--partial"]),
    ("places in the source", ["net:Net", *X, "--metadata"]),
    ("data in a file of its own", ["net:Net", *X, "--external-data"]),
]


@pytest.mark.parametrize(("name", "argv"), GOOD_EXPORTS, ids=[name for name, _ in GOOD_EXPORTS])
def test_export(name: str, argv: Sequence[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.ones((3, 4), np.float32))
    state = torch.nn.ModuleDict({"linear": torch.nn.Linear(4, 2)}).state_dict()
    torch.save(state, "weights.pt")
    torch.save(state, "old.pt", _use_new_zipfile_serialization=False)
    torch.save({f"model.{name}": tensor for name, tensor in state.items()}, "prefixed.pt")
    torch.save({name: tensor.double() for name, tensor in state.items()}, "double.pt")
    torch.save({"linear.bias": torch.zeros(2), "more": torch.zeros(1)}, "part.pt")
    assert run("export", *argv, "-o", "out.onnx", "--verify", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    onnx.checker.check_model("out.onnx", full_check=True)
    session = onnxruntime.InferenceSession("out.onnx")
    assert [value.name for value in session.get_inputs()] == ["x", *(["scale"] if "--kwargs" in argv else [])]
    assert facts["verified"] and facts["file"] == "out.onnx" and facts["nodes"] == len(onnx.load("out.onnx").graph.node)
    assert facts["files"]["out.onnx"] == (folder / "out.onnx").stat().st_size
    assert facts["opset"] == (9 if "--opset" in argv else 20)
    assert facts["capture"] == ("export" if "--capture" in argv else "script" if "net:script" in argv else "trace")
    assert facts["outputs"][0]["name"] == ("scores" if "--output-name" in argv else "output")
    assert ("batch" in facts["inputs"][0]["type"]) == ("--dynamic" in argv)
    assert bool(onnx.load("out.onnx").graph.node[0].metadata_props) == ("--metadata" in argv)


def test_arguments_come_from_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    """They may be nested, and axes are given by the names of inputs and of arguments."""
    given = ["net.py:added", "--example", "net.py:nested", "-o", "out.onnx"]
    assert run("export", *given, "--dynamic", "data:0=n", "--dynamic", "data_left:1=m", "--json") == 0
    types = {item["name"]: item["type"] for item in json.loads(capsys.readouterr().out)["inputs"]}
    assert types == {"data_left": "float32[n, 3]", "data_right": "float32[n, 3]"}
    assert run("export", *given, "--dynamic", "all", "--dynamic", "data_left:1=m") == 0
    text = capsys.readouterr().out
    assert "dynamic   data_left axis 0: batch" in text
    assert "dynamic   data_right axis 1: m" in text


def test_the_command_says_why_an_axis_is_static(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", "net.py:Net", "--example", "net.py:example", "--dynamic", "all", "-o", "out.onnx") == 0
    assert "static    x axis 1: 4: the model does not run at other sizes: RuntimeError: mat1" in capsys.readouterr().out


def test_export_speaks_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", "net.py:Net", *X, "--dynamic", "x:0=batch", "--verify") == 0
    text = capsys.readouterr().out
    for part in ("wrote     Net.onnx", "opset 20", "captured by trace", "x  float32[batch, 4]", "verified"):
        assert part in text


def test_bounds_of_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    usual = finish.tolerance

    def noted(*args: Any) -> Any:
        seen.append(args[1:])
        return usual(*args)

    monkeypatch.setattr(finish, "tolerance", noted)
    for bounds in ([], ["--rtol", "1e-2", "--atol", "0.5"]):
        assert run("export", "net.py:Net", *X, "--verify", *bounds, "-o", "out.onnx") == 0
    assert seen == [(None, None), (0.01, 0.5)]


def test_weights_are_the_given_ones() -> None:
    torch.save({"state_dict": {"linear.weight": torch.zeros(2, 4), "linear.bias": torch.tensor([3.0, 4.0])}}, "w.pt")
    assert run("export", "net:Net", *X, "--weights", "w.pt", "-o", "out.onnx") == 0
    result = onnxruntime.InferenceSession("out.onnx").run(None, {"x": np.ones((1, 4), np.float32)})
    assert result[0].tolist() == [[3.0, 4.0]]


# Demo -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of three layers stands for ResNet-50, which takes seconds."""
    layers = [torch.nn.Conv2d(3, 4, 8, stride=8), torch.nn.Flatten(), torch.nn.Linear(4 * 28 * 28, 10)]
    monkeypatch.setattr("purexport.cli.resnet.resnet50", lambda: torch.nn.Sequential(*layers).eval())


def test_demo(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo") == 0
    text = capsys.readouterr().out
    for part in ("resnet50.onnx", "checked", "batch of 1", "batch of 3", "same classes", "result    fine"):
        assert part in text
    onnx.checker.check_model(folder / "resnet50.onnx", full_check=True)


@pytest.mark.full
def test_demo_of_the_whole_network_by_torch_export(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo", "--capture", "export") == 0
    assert "result    fine" in capsys.readouterr().out


def test_demo_by_torch_export_and_as_json(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo", "--capture", "export", "--opset", "17", "-o", "r.onnx", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["file"], facts["opset"], facts["capture"], facts["checked"]) == ("r.onnx", 17, "export", True)
    assert [result["batch"] for result in facts["runs"]] == [1, 3]
    assert facts["inputs"] == [{"name": "images", "type": "float32[batch, 3, 224, 224]"}]


def test_demo_says_no_when_the_results_differ(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "TOLERANCE", -1.0)
    assert run("demo") == 1
    assert "onnxruntime and torch differ" in capsys.readouterr().out


def test_demo_without_onnxruntime(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "onnxruntime" else object())
    assert run("demo") == 0
    assert "not run   onnxruntime is not installed: pip install 'onnxruntime>=1.17'" in capsys.readouterr().out


# Show -----------------------------------------------------------------------------------------------------------------


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    run("export", "net:Net", *X, "--dynamic", "x:0=batch")
    capsys.readouterr()
    assert run("show", "Net.onnx") == 0
    text = capsys.readouterr().out
    for part in ("Net.onnx, ", "opset", "purexport", "x  float32[batch, 4]", "Relu", "linear.weight", " tensors, "):
        assert part in text
    assert run("show", "Net.onnx", "--no-nodes") == 0
    assert "linear.weight" not in capsys.readouterr().out


SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"
FILES = [path for path in sorted(SHIPPED.rglob("*.onnx")) if "light_" in path.name or "sequence" in path.parent.name]


@pytest.mark.parametrize("path", FILES[:40], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_show_reads_what_others_wrote(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", str(path)) == 0
    text = capsys.readouterr().out
    model = onnx.load(path, load_external_data=False)
    assert text.isascii()
    for node in model.graph.node:
        assert node.op_type in text
    assert run("show", str(path), "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [node["op_type"] for node in facts["nodes"]] == [node.op_type for node in model.graph.node]
    assert [value["name"] for value in facts["outputs"]] == [value.name for value in model.graph.output]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (97_800_000, "97.8 MB"), (3_221_000_000, "3.22 GB")]
)
def test_size_text(count: int, text: str) -> None:
    assert size_text(count) == text


# The process ----------------------------------------------------------------------------------------------------------


def test_python_m_purexport() -> None:
    done = process([sys.executable, "-m", "purexport", "show"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert process([sys.executable, "-m", "purexport", "--version"]).stdout.startswith("purexport ")


def test_help_starts_without_torch_and_numpy() -> None:
    code = (
        "import sys; from purexport.cli.main import main; main(['--help']); "
        "assert not {'torch', 'numpy'} & {*sys.modules}"
    )
    done = process([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "purexport demo" in done.stdout


def test_a_verb_starts_without_the_others() -> None:
    code = (
        "import sys; from purexport.cli.main import main; main(['show', 'none.onnx']); "
        "assert not {'torch', 'numpy', 'purexport.cli.verbs.check'} & {*sys.modules}"
    )
    done = process([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(verb, "--help") == 0
    text = capsys.readouterr().out
    assert text.isascii() and "--json" in text


def test_a_reader_that_stops_early() -> None:
    """`purexport show m.onnx | head` ends quietly."""
    pipe = f"set -o pipefail; {sys.executable} -m purexport show --json {FILES[0]} | true"
    done = process(["bash", "-c", pipe])
    assert (done.returncode, done.stderr) == (0, "")


ATTRIBUTES = [
    (b"plain", "a='plain'"),
    (b'back\\slash "q"\n', "a='back\\\\slash \"q\"\\n'"),
    ("\u00fc".encode(), "a='\\xfc'"),
    (b"\xff\\n\x00", "a=b'\\xff\\\\n\\x00'"),
    ([b"\xfe", b"ok"], "a=[b'\\xfe', 'ok']"),
]


@pytest.mark.parametrize(("value", "text"), ATTRIBUTES, ids=[text for _, text in ATTRIBUTES])
def test_show_writes_strings_as_python_does(value: bytes | list[bytes], text: str) -> None:
    assert attribute_text(ps.helper.make_attribute("a", value)) == text


def test_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan says what is written then; a folder that was made for nothing is gone."""
    tensor = ps.numpy_helper.from_array(np.arange(5000, dtype=np.float32), "w")
    for name in ("a.onnx", "b.onnx"):
        graph = ps.GraphProto(name="g", initializer=[tensor])
        ps.save(ps.ModelProto(ir_version=8, graph=graph), tmp_path / name)
    words = ["share", str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"), "-o", str(tmp_path / "out"), "--json"]
    assert main([*words, "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "out").exists() and (planned["tensors"], planned["stored"]) == (2, 1)
    assert main(words) == 0 and json.loads(capsys.readouterr().out) == planned
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.onnx", "b.onnx", "model.onnx.data"]
    assert main([*words[:3], "-o", str(tmp_path / "new"), "--location", ".."]) == 2
    assert not (tmp_path / "new").exists()
    assert main([*words[:3], "-o", str(tmp_path), "--force"]) == 0
    assert (tmp_path / "model.onnx.data").exists()
