"""The command line: what it prints, its exit status, and one line for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
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

ROOT = Path(__file__).parents[2]

NET = """
import collections
import torch
from torch import nn

number = 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x, scale=1.0):
        return self.linear(x).relu() * scale


class Wide(Net):
    def __init__(self, width):
        super().__init__()


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 4)

    def forward(self, ids):
        return self.table(ids)


class Strange(nn.Module):
    def forward(self, x):
        return torch.poisson(x.abs())


class zoo:
    made = Net()


def factory():
    return Net()


def script():
    return torch.jit.script(nn.Sequential(collections.OrderedDict(linear=nn.Linear(4, 2))))


def broken():
    raise RuntimeError("two\\nlines")


def nothing():
    return None


def example():
    return {"x": torch.ones(1, 4), "scale": torch.tensor(2.0)}


def nested():
    return {"data": {"left": torch.ones(2, 3), "right": torch.ones(2, 3)}}


def added():
    return lambda data: data["left"] + data["right"]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with net.py in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name == "net" or name.startswith("net_")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def run(*argv: str) -> int:
    return main(argv)


# Export ---------------------------------------------------------------------------------------------------------------

X = ("--input", "x=float32[1,4]")

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


# Mistakes -------------------------------------------------------------------------------------------------------------

# a key whose hash takes twice as long for every five bytes: pairs of the pair before, 62 deep
BOMB = b"\x80\x02}N" + b"".join(b"q%ch%c\x86" % (level, level) for level in range(62)) + b"Ns."

# the command line, what its one line on stderr must say
MISTAKES: list[tuple[Sequence[str], str]] = [
    (["export", "net:Net", *X, "--rtol", "0.1"], "--rtol is about --verify, which is not given"),
    (["export", "net:Net", *X, "--verify", "--atol", "-1"], "atol=-1.0 is not a number from 0 on"),
    (["nope"], "'nope' is not a verb (purexport --help explains)"),
    (["shwo", "net.py"], "'shwo' is not a verb; did you mean 'show'?"),
    (["--vrsion"], "purexport: there is no option --vrsion; did you mean '--version'? (purexport --help explains)"),
    (
        ["show", "--jsn"],
        "purexport show: there is no option --jsn; did you mean '--json'? (purexport show --help explains)",
    ),
    (["stat", "--limt", "3", "net.py"], "purexport stat: there is no option --limt"),
    (["show", "good.onnx", "more"], "purexport show: more is one argument too many (purexport show --help explains)"),
    (["export", "net:Net"], "; this would run: purexport export net:Net --input "),
    (["show", "weights.ptt"], "weights.ptt: No such file or directory; did you mean 'weights.pt'?"),
    (["check", "pipes/lug"], "pipes/lug: No such file or directory; did you mean 'pipes/log'?"),
    (["export", "nett.py:Net"], "there is no such file; did you mean 'net.py'?"),
    (["export", "nett:Net"], "No module named 'nett'; did you mean 'net'?"),
    (
        ["export", "net:Net", "--inptu", "x=float32[1,4]"],
        "there is no option --inptu; did you mean '--input'?",
    ),
    (["export", "net:Net", *X, "--target", "onnx; onnxruntime==0.9"], "the kernels of ONNX Runtime 0.9 are not known"),
    (["export", "net:Net", *X, "--target", "onnx; onnxruntime==1.17", "--opset", "21"], "loads opsets up to 20"),
    (["show"], "required: FILE"),
    (["show", "none.onnx"], "none.onnx: No such file"),
    (["show", "."], "Is a directory"),
    (["show", "net.py"], "net.py"),
    (["show", "net.py", "--jsn"], "--jsn"),
    (["inspect"], "required: FILE"),
    (["inspect", "none.onnx"], "none.onnx: No such file"),
    (["inspect", "net.py", "graf"], "has no field 'graf'"),
    (["inspect", "net.py", "--root", "Model"], "there is no such message"),
    (["locate", "net.py"], "required: OFFSET-or-PATH"),
    (["locate", "net.py", "0xffffff"], "outside the file"),
    (["locate", "net.py", "graph[0"], "no path"),
    (["locate", "net.py", "graph", "--data", "x"], "--data needs an offset"),
    (["check", "net.py"], "net.py: "),
    (["infer"], "required: FILE"),
    (["merge", "net.py", "net.py", "-o", "out.onnx"], "net.py: "),
    (["merge", "none.onnx", "none.onnx", "-o", "out.onnx"], "none.onnx: No such file"),
    (["scan"], "required: FILE"),
    (["scan", "none.onnx"], "none.onnx: No such file"),
    (
        ["scan", "net.py", "--fail-on", "grave"],
        "--fail-on grave: write one of info, low, medium, ",
    ),
    (["infer", "net.py"], "net.py: "),
    (["infer", "none.onnx", "-o", "out.onnx"], "none.onnx: No such file"),
    (["quantize", "none.onnx"], "say where to write the result"),
    (["quantize", "none.onnx", "-o", "out.onnx"], "none.onnx: No such file"),
    (["quantize", "none.onnx", "-o", "out.onnx", "--type", "int3"], "there is no --type 'int3'; it can be int4"),
    (["quantize", "none.onnx", "-o", "out.onnx", "--block-size", "20"], "a power of two from 16 on"),
    (["quantize", "none.onnx", "-o", "out.onnx", "--threads", "0"], "--threads 0: at least one"),
    (["run"], "required: FILE"),
    (["run", "net.py"], "net.py: "),
    (["run", "none.onnx", "-o", "y.txt"], "-o y.txt: name a .npz file"),
    (["run", "none.onnx", "--input", "x"], "write NAME=DTYPE[SIZES]"),
    (["simplify", "net.py"], "say where to write the result"),
    (["simplify", "net.py", "-o", "out.onnx"], "net.py: "),
    (["simplify", "net.py", "-o", "out.onnx", "--prove", "-1"], "--prove -1: write how many inputs"),
    (["simplify", "none.onnx", "--dry-run", "--fold-bytes", "much"], "none.onnx: No such file"),
    (["convert", "net.py"], "say which version to convert to"),
    (["convert", "net.py", "--opset", "12"], "say where to write the result"),
    (["convert", "net.py", "--opset", "ai.onnx.ml", "-o", "out.onnx"], "write a version, as in 12"),
    (["convert", "net.py", "--opset", "12", "-o", "out.onnx"], "net.py: "),
    (["convert", "none.onnx", "--opset", "12", "-o", "out.onnx"], "none.onnx: No such file"),
    (["canonicalize", "net.py", "-o", "out.onnx"], "net.py: "),
    (["canonicalize", "net.py"], "required: -o"),
    (["diff", "net.py"], "required: B"),
    (["diff", "net.py", "none.onnx"], "net.py: "),
    (["salvage", "none.onnx", "-o", "out.onnx"], "none.onnx: No such file"),
    (["edit"], "required: FILE"),
    (["edit", "none.onnx", "--drop-doc-strings"], "none.onnx: No such file"),
    (["edit", "net.py", "--drop-doc-strings"], "net.py: "),
    (["edit", "net.py"], "say what to change"),
    (["edit", "net.py", "--set", "producer_name"], "write FIELD=VALUE"),
    (["edit", "net.py", "--rename-input", "x"], "there is no = in it"),
    (["edit", "net.py", "--metadata", "a=b", "--metadata", "a=c"], "given twice, with 'b' and 'c'"),
    (["edit", "net.py", "--opset", "ai.onnx.ml"], "write a version"),
    (["edit", "net.py", "--remove", "domain", "--append", "-o", "out.onnx"], "leave out the name"),
    (["extract", "net.py", "--tensors", "-o", "out"], "net.py: "),
    (["share", "none.onnx", "-o", "out"], "none.onnx: No such file"),
    (["share", "net.py"], "required: -o"),
    (["share", "net.py", "./net.py", "-o", "out"], "two files are called net.py"),
    (["share", "net.py", "-o", "."], "is in that folder itself"),
    (["share", "net.py", "-o", "out"], "net.py: "),
    (["stat", "net.py"], "net.py: "),
    (["stat", "none.onnx"], "none.onnx: No such file"),
    (["demo", "--capture", "magic"], "'magic'"),
    (["demo", "--opset", "3"], "opset_version=3 is not one of 9 to"),
    (["demo", "-o", "none/resnet50.onnx"], "none"),
    (["export"], "required: MODULE:NAME"),
    (["export", "Net"], "write MODULE:NAME"),
    (["export", "none:Net"], "cannot import none"),
    (["export", "none.py:Net"], "no such file"),
    (["export", "net.py:Nett"], "it has Net, Wide, Words"),
    (["export", "net:number"], "an int"),
    (["export", "net:Wide"], "takes arguments (width)"),
    (["export", "net:broken"], "RuntimeError: two\nlines"),
    (["export", "net:nothing"], "returned a NoneType"),
    (["export", "net:Net", "--input", "x"], "write NAME=DTYPE[SIZES]"),
    (["export", "net:Net", "--input", "x=float32"], "write NAME=DTYPE[SIZES]"),
    (["export", "net:Net", "--input", "x=float32[1,,4]"], "a size is missing"),
    (["export", "net:Net", "--input", "x=float99[1,4]"], "unknown dtype 'float99'; known are float32"),
    (["export", "net:Net", "--input", "x=int64[4]:5..2"], "range is empty"),
    (["export", "net:Net", "--input", "x=@none.npy"], "none.npy: No such file"),
    (["export", "net:Net", "--input", "x=@net.py"], "numpy.save"),
    (["export", "net:Net", *X, *X], "names must differ"),
    (["export", "net:Net", *X, "--dynamic", "x"], "write INPUT:AXIS=NAME"),
    (["export", "net:Net", *X, "--dynamic", "x:first=batch"], "write INPUT:AXIS=NAME"),
    (["export", "net:Net", *X, "--dynamic", "y:0=batch"], "no --input is called 'y'; there is x"),
    (["export", "net:Net", *X, "--dynamic", "x:5=batch"], "'x' has 2 axes"),
    (["export", "net:Net", *X, "--example", "net:example"], "leave --input out"),
    (["export", "net:Net", "--example", "net:none"], "net has no 'none'"),
    (
        ["export", "net:added", "--example", "net:nested", "--dynamic", "data.left:0=n"],
        "outputs are data_left, data_right",
    ),
    (["export", "net:added", "--example", "net:nested", "--dynamic", "all", "--dynamic", "z:0=n"], "names 'z', and"),
    (["export", "net:Net", *X, "--kwargs", "{"], "not JSON"),
    (["export", "net:Net", *X, "--kwargs", "[1]"], "JSON object"),
    (["export", "net:Net", *X, "--opset", "99"], "opset_version=99 is not one of 9 to"),
    (["export", "net:Net", *X, "--weights", "none.pt"], "none.pt: No such file"),
    (["export", "net:Net", *X, "--weights", "net.py"], "net.py: it is not a checkpoint that is known: safetensors"),
    (["export", "net:Net", *X, "--weights", "pickle"], "pickle: it is a pickle, but torch.save did not"),
    (["export", "net:Net", *X, "--weights", "bomb"], "bomb: it is a pickle, but torch.save did not write it"),
    (["export", "net:script", *X, "--weights", "bomb"], "bomb: it is a pickle, but torch.save did not write it"),
    (["export", "net:Net", *X, "--weights", "pipe"], "pipe is not a regular file, but a pipe"),
    (["export", "net:script", *X, "--weights", "pipe"], "pipe is not a regular file, but a pipe"),
    (["export", "net:Net", *X, "--weights", "pipes"], "pytorch_model.bin is not a regular file, but a pipe"),
    (["export", "net:Net", *X, "--weights", "i.json"], "pipe is not a regular file, but a pipe"),
    (["export", "net:Net", "--input", "x=@pipe"], "pipe is not a regular file, but a pipe"),
    (["export", "net:Net", "--input", "x=@huge.npy"], "its header asks for 4398046511104 bytes of data, but 4 follow"),
    (["export", "net:Net", "--input", "x=@text.npy"], "ONNX has no data type for numpy's <U1"),
    (["export", "net:Net", "--input", "x=@big.npy"], "it is big-endian"),
    (["export", "net:script", *X, "--weights", "pickle"], "pickle: it is a pickle, but torch.save did not"),
    (["export", "net:script", *X, "--weights", "weights.pt"], "(weights.pt) does not fit the model: 1 missing"),
    (["export", "net:script", *X, "--weights", "none.pt"], "none.pt: No such file"),
    (["export", "net:Net", *X, "--rename", "a=b"], "name a checkpoint with --weights FILE"),
    (["export", "net:Net", *X, "--weights", "weights.pt", "--rename", "a"], "--rename a: write OLD=NEW once"),
    (["export", "net:Net", *X, "--meta"], "the model has no values for 2 of its tensors"),
    (["export", "net:Net", *X, "--weights", "weights.pt"], "missing: 'linear.bias' float[2]"),
    (["export", "net:Words", *X, "--weights", "weights.pt"], "does not fit the model"),
    (["export", "net:Net", *X, "-o", "none/out.onnx"], "none"),
]


def _make_hostile(folder: Path) -> None:
    """Pipes that nobody writes to, a pickle whose keys take forever, arrays that are not what numpy.save writes."""
    (folder / "bomb").write_bytes(BOMB)
    (folder / "i.json").write_text('{"weight_map": {"linear.weight": "pipe"}}')
    for name, kind, size in (("huge", "<f4", 1 << 40), ("big", ">f4", 1), ("text", "<U1", 1)):
        header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({size},), }}".encode()
        (folder / f"{name}.npy").write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + b"1234")
    (folder / "pipes").mkdir()
    for pipe in ("pipe", "pipes/pytorch_model.bin", "pipes/log"):
        os.mkfifo(pipe)


def test_without_a_verb_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    streams = capsys.readouterr()
    assert streams.out.startswith("usage: purexport") and "first steps:" in streams.out and streams.err == ""


def test_the_lines_of_an_error_stay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """torch's errors, and a checkpoint that does not fit, have a line for each finding."""
    code = "def net(x):\n    raise RuntimeError('one\\n  two \\x1b[2J\\n  three')\n\n\ndef made():\n    return net\n"
    (folder / "lines.py").write_text(code)
    assert run("export", "net:Net", *X, "-o", "net.onnx") == 0
    capsys.readouterr()
    assert run("compare", "lines.py:made", "net.onnx", *X) == 2
    assert capsys.readouterr().err.splitlines()[:3] == [
        "purexport compare: RuntimeError: one",
        "  two \\x1b[2J",
        "  three",
    ]
    torch.save({"linear.weight": torch.zeros(3, 4), "other": torch.zeros(1)}, "w.pt")
    assert run("export", "net:Net", *X, "--weights", "w.pt") == 2
    assert len(capsys.readouterr().err.splitlines()) > 2


# a package that is not there, the command line, what is said
MISSING: list[tuple[str, Sequence[str], str]] = [
    ("torch", ["demo"], "torch is not installed, and this verb needs it: pip install 'torch>=2.6'"),
    ("torch", ["export", "net:Net", *X], "torch is not installed, and this verb needs it: pip install"),
    ("torch", ["compare", "net:Net", "good.onnx", *X], "torch is not installed, and this verb needs it: pip install"),
    ("torch", ["compare", "good.onnx", "good.onnx", *X], "torch is not installed, and this verb needs it: pip install"),
    ("torch", ["llm", ".", "-o", "out"], "torch is not installed, and this verb needs it: pip install"),
    ("torch", ["hf", ".", "-o", "out"], "torch is not installed, and this verb needs it: pip install"),
    (
        "onnxruntime",
        ["export", "net:Net", *X, "--verify"],
        "running a model needs onnxruntime: pip install 'onnxruntime>=1.17'",
    ),
    (
        "transformers",
        ["llm", "lm", "-o", "out"],
        "by transformers, which is not installed: pip install 'transformers>=5'",
    ),
]
WITHOUT = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from purexport.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(("package", "argv", "text"), MISSING, ids=[f"{row[0]} {' '.join(row[1])}" for row in MISSING])
def test_a_package_is_missing(
    package: str,
    argv: Sequence[str],
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line, which says what to install. Where torch is there, it is loaded already: no other process is needed."""
    ps.save(ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g")), "good.onnx")
    (folder / "lm").mkdir()
    (folder / "lm" / "config.json").write_text('{"model_type": "llama"}')
    if package == "torch":
        done = process([sys.executable, "-c", WITHOUT, package, *argv])
        status, out, err = done.returncode, done.stdout, done.stderr
    else:
        monkeypatch.setitem(sys.modules, package, None)
        status = run(*argv)
        out, err = capsys.readouterr()
    assert status == (1 if package == "transformers" else 2) and out == ""
    assert err.count("\n") == 1 and text in err and "--traceback" not in err


@pytest.mark.parametrize(("argv", "text"), MISTAKES, ids=[" ".join(argv) or "nothing" for argv, _ in MISTAKES])
def test_mistake(argv: Sequence[str], text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, one line that helps and one for each tensor, nothing on stdout, no file made."""
    torch.save({"linear.weight": torch.zeros(2, 4)}, "weights.pt")
    (folder / "pickle").write_bytes(b"\x80\x02no")
    _make_hostile(folder)
    before = sorted(os.listdir(folder))
    assert run(*argv) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    first, *others = streams.err.splitlines()
    assert first.startswith("purexport") and not any(line.startswith("purexport") for line in others)
    # these list tensors, or have what the model's code said
    assert not others or any(part in first for part in ("checkpoint", "the model has no values", "raised"))
    assert text in streams.err
    assert "--traceback" not in streams.err  # no error took the way of the unforeseen ones
    assert [name for name in sorted(os.listdir(folder)) if name != "__pycache__"] == before


def test_an_unsupported_operator_is_a_no(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", "net.py:Strange", *X) == 1
    error = capsys.readouterr().err
    assert "poisson" in error and "net.py:" in error and "Traceback" not in error
    assert error.splitlines()[0].endswith("1 operator cannot be exported at opset 20 [no-rule]")


# odd values of options, on a model of two Relu nodes and the weight `w`; what is said of them
ODD: list[tuple[Sequence[str], str]] = [
    (["inspect", "good.onnx", "graph.node[-3]"], "graph.node[-3] is not in this file; it has 2 of them"),
    (["inspect", "good.onnx", "graph.initializer[0].dims[-3]"], "dims[-3] is not in this file; it has 2 of them"),
    (["locate", "good.onnx", "graph.node[-3]"], "graph.node[-3] is not in this file; it has 2 of them"),
    (["locate", "good.onnx", "\u0663"], "no path"),
    (["locate", "good.onnx", "no_name"], "no path: ModelProto has no field 'no_name', and nothing in the file has"),
    (["locate", "good.onnx", "9" * 5000], "no path"),
    (["inspect", "good.onnx", f"graph.node[{'9' * 5000}]"], "no path"),
    (["edit", "good.onnx", "--set", "graph.node[-3].name=x", "-o", "out"], "is not in this file; it has 2 of them"),
    (["extract", "good.onnx", "--outputs", "", "-o", "out"], "--outputs: name at least one value"),
    (["extract", "good.onnx", "--outputs", ",", "-o", "out"], "--outputs: name at least one value"),
    (["export", "net:Net", *X, "--shard-size", "9" * 400 + "GB"], "--shard-size"),
    (["export", "net:Net", *X, "--shard-size", "9" * 30], "--shard-size"),
    (["export", "net:Net", *X, "--kwargs", "[" * 100_000], "--kwargs: not JSON"),
    (["export", "net:Net", *X, "--kwargs", f'{{"scale": {"9" * 5000}}}'], "--kwargs: not JSON"),
    (["export", "net:Net", *X, "--dynamic", "x:0=n,0=m"], "axis 0 of 'x' is given twice, as 'n' and 'm'"),
    (["export", "net:Net", *X, "--dynamic", "x:0=n", "--dynamic", "x:0=m"], "axis 0 of 'x' is given twice"),
    (["locate", "good.onnx", "9" * 40], "is outside the file"),
    (["inspect", "good.onnx", 'graph.node["\\x"]'], "no path"),
    (["inspect", "good.onnx", 'graph.node["\\N{none}"]'], "no path"),
    (["inspect", "good.onnx", 'graph.node["a\nb"]'], "no path"),
    (["edit", "good.onnx", "--remove", 'graph.node["\\u"].name', "-o", "out"], "no path"),
    (["export", "net:Net", *X, "--dynamic", f"x:{'9' * 5000}=n"], "write INPUT:AXIS=NAME"),
    (["export", "net:Net", *X, "--dynamic", "x:\u0660=n"], "write INPUT:AXIS=NAME"),
    (["export", "sys:exit", *X], "is ended by SystemExit"),
]


@pytest.mark.parametrize(("argv", "text"), ODD, ids=[" ".join(argv)[:80] for argv, _ in ODD])
def test_an_odd_value(argv: Sequence[str], text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2 and one short line, instead of an answer to another question."""
    nodes = [ps.helper.make_node("Relu", [a], [b], name=b) for a, b in ("wh", "hy")]
    weight = ps.helper.make_tensor("w", ps.TensorProto.FLOAT, [1, 2], [1.0, 2.0])
    output = ps.helper.make_tensor_value_info("y", ps.TensorProto.FLOAT, [1, 2])
    ps.save(ps.helper.make_model(ps.helper.make_graph(nodes, "g", [], [output], [weight])), "good.onnx")
    before = sorted(os.listdir(folder))
    assert run(*argv) == 2
    streams = capsys.readouterr()
    assert streams.out == "" and streams.err.count("\n") == 1 and len(streams.err) < 3000
    assert text in streams.err and "--traceback" not in streams.err
    assert sorted(name for name in os.listdir(folder) if name != "__pycache__") == before


# every verb that reads a file, on one without a byte
EMPTY = [
    "show empty.onnx",
    "show empty.onnx --json",
    "inspect empty.onnx",
    "inspect empty.onnx --json",
    "inspect empty.onnx --hex",
    "inspect empty.onnx graph",
    "inspect empty.onnx --root TensorProto",
    "locate empty.onnx 0",
    "locate empty.onnx graph",
    "locate empty.onnx 0 --data x",
    "stat empty.onnx",
    "check empty.onnx",
    "check empty.onnx --full",
    "check empty.onnx --parsers",
    "canonicalize empty.onnx -o out",
    "diff empty.onnx empty.onnx",
    "diff empty.onnx good.onnx",
    "diff good.onnx empty.onnx",
    "edit empty.onnx --drop-doc-strings",
    "edit empty.onnx --set producer_name=me --append",
    "extract empty.onnx --tensors -o out",
    "extract empty.onnx --tensor x -o out",
    "extract empty.onnx --outputs x -o out",
    "salvage empty.onnx -o out",
    "html empty.onnx",
    "html empty.onnx -o out",
    "export torch.nn:ReLU --input x=@empty.onnx",
    "export torch.nn:ReLU --input x=float32[1] --weights empty.onnx",
    "export torch.nn:ReLU --input x=float32[1] --weights empty.safetensors",
    "export torch.nn:ReLU --input x=float32[1] --weights empty.npz",
    "export torch.nn:ReLU --input x=float32[1] --weights empty.json",
    "show /dev/null",
    "inspect /dev/null",
    "html /dev/null -o out",
]


@pytest.mark.parametrize("argv", EMPTY)
def test_an_empty_file_is_said_to_be_empty(argv: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("onnx", "safetensors", "npz", "json"):
        (folder / f"empty.{kind}").touch()
    ps.save(ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g")), "good.onnx")
    before = sorted(os.listdir(folder))
    assert run(*argv.split()) == 2
    streams = capsys.readouterr()
    assert streams.out == "" and "the file is empty" in streams.err
    assert sorted(name for name in os.listdir(folder) if name != "__pycache__") == before


# the command line, the code of its error
CODES = [
    (["export", "net.py:Strange", *X], "no-rule"),
    (["export", "net:Net", *X, "--weights", "net.py"], "weights-unreadable"),
    (["export", "net:Net", *X, "--opset", "99"], None),
    (["show", "net.py"], "malformed"),
    (["show", "none.onnx"], None),
]


@pytest.mark.parametrize(("argv", "code"), CODES)
def test_errors_for_programs(
    argv: Sequence[str], code: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*argv, "--json") in (1, 2)
    streams = capsys.readouterr()
    error = json.loads(streams.err.splitlines()[-1])["error"]
    assert (error["code"], streams.out) == (code, "")
    assert error["message"]
    assert [gap["code"] for gap in error["gaps"]] == ([code] if code == "no-rule" else [])
    assert not (folder / "Strange.onnx").exists()


def test_the_unforeseen_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("purexport.cli.verbs.show.describe", fail)
    assert run("export", "net:Net", *X) == 0
    capsys.readouterr()
    assert run("show", "Net.onnx") == 2
    assert capsys.readouterr().err == "purexport show: KeyError: 'a bug' (--traceback shows where)\n"
    assert run("show", "Net.onnx", "--traceback") == 2
    assert "Traceback (most recent call last)" in capsys.readouterr().err


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


def process(command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)


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
