"""Mistakes on the command line: one line that helps for each, the exit status, and nothing written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import proto_schema as ps
from tests.cli.networks import X, process, run

pytestmark = pytest.mark.usefixtures("folder")

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
    (["convert", "net.py", "--opset", "12", "--search"], "--search is of another float type; say --dtype float16"),
    (["convert", "net.py", "--dtype", "float16", "--tolerance", "0.1"], "--tolerance is of --search"),
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
    ("torch", ["pipeline", ".", "-o", "out"], "torch is not installed, and this verb needs it: pip install"),
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
