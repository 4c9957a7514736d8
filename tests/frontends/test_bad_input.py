"""Bad input: one clear error of the documented type that says where and what next, and no file harmed."""

from __future__ import annotations

import functools
import inspect
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport

EXAMPLE = torch.ones(2, 4)
WIDE = (torch.ones(2, 5),)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU())


def export(**options: Any) -> Any:
    """An export that works, but for what `options` say."""
    args = options.pop("args", (EXAMPLE,))
    return purexport.export(options.pop("model", None) or model(), args, options.pop("f", None), **options)


class Strange(nn.Module):
    """Two operators that ONNX does not have, on lines of their own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.poisson(x.abs())
        return torch.linalg.eigvals(x @ x.T).abs()


class Two(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


# what is wrong, the export, the documented type, what the text must say
BAD_EXPORTS: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("args of a wrong shape, trace", {"args": (torch.ones(2, 5),), "capture": "trace"}, purexport.ExportError, "args"),
    (
        "args of a wrong shape, export",
        {"args": (torch.ones(2, 5),), "capture": "export"},
        purexport.ExportError,
        "2x5|2, 5",
    ),
    ("args of a wrong shape, auto", {"args": (torch.ones(2, 5),)}, purexport.ExportError, "2x5|2, 5"),
    ("too many args", {"args": (EXAMPLE, EXAMPLE)}, purexport.ExportError, "args"),
    ("no args", {"args": ()}, purexport.ExportError, "args|argument"),
    ("unknown kwargs", {"kwargs": {"scale": 2}}, purexport.ExportError, "scale"),
    (
        "no such torch dtype in ONNX",
        {"args": (torch.ones(2, 4, dtype=torch.complex32),)},
        purexport.ExportError,
        "complex32|ComplexHalf",
    ),
    ("opset too old", {"opset_version": 8}, ValueError, "opset_version=8 is not one of 9 to"),
    ("opset too new", {"opset_version": 99}, ValueError, "opset_version=99 is not one of 9 to"),
    ("opset is not a number", {"opset_version": "20"}, ValueError, "opset_version='20'"),
    ("unknown capture", {"capture": "script"}, ValueError, "'trace', 'export'"),
    ("unknown policy", {"mutated_state": "drop"}, ValueError, "'warn', 'error', 'io'"),
    ("names that are a string", {"input_names": "x"}, ValueError, "lists of names"),
    ("names that repeat", {"output_names": ["y", "y"]}, ValueError, "differ"),
    ("more names than outputs", {"output_names": ["y", "z"]}, ValueError, "2 values, and the model has 1"),
    (
        "more names than inputs and parameters",
        {"input_names": list("abcd")},
        ValueError,
        "4 values, and the model has 3",
    ),
    ("axis out of range", {"input_names": ["x"], "dynamic_axes": {"x": {2: "n"}}}, ValueError, "'x' has 2 axes"),
    (
        "axis of an argument that one of its tensors lacks",
        {
            "model": lambda b: b["x"] * b["y"],
            "args": ({"x": EXAMPLE, "y": torch.tensor(2.0)},),
            "dynamic_axes": {"b": [0]},
        },
        ValueError,
        "'b_y' has 0 axes; give the tensors of an argument entries of their own",
    ),
    ("operators without a form in ONNX", {"model": Strange()}, purexport.UnsupportedOperatorError, "poisson"),
    ("no model", {"model": 5}, TypeError, "callable"),
    ("a path as the model", {"model": "net.pt"}, TypeError, "the path 'net.pt', which is not callable; load it first"),
    ("weights as the model", {"model": model().state_dict()}, TypeError, "weights=state_dict"),
    ("a class as the model", {"model": nn.ReLU}, TypeError, r"the class ReLU; give an object of it, as in ReLU\(\)"),
    ("the example first", {"model": (EXAMPLE,), "args": model()}, TypeError, "the model comes first"),
    (
        "no example",
        {"args": ()},
        purexport.ExportError,
        r"Sequential.forward\(input\): missing .*input",
    ),
    ("sizes for an example", {"args": (2, 4)}, purexport.ExportError, r"torch.randn\(2, 4\)"),
]
BAD_EXPORT_NAMES = [name for name, *_ in BAD_EXPORTS]


@pytest.mark.parametrize(("name", "options", "kind", "text"), BAD_EXPORTS, ids=BAD_EXPORT_NAMES)
def test_bad_export(name: str, options: dict[str, Any], kind: type[Exception], text: str, tmp_path: Path) -> None:
    """The error, and the file that was there before is as it was, with nothing beside it."""
    before = b"an earlier model"
    target = tmp_path / "model.onnx"
    target.write_bytes(before)
    with pytest.raises(kind, match=text):
        export(**options, f=target)
    assert target.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.onnx"]


# args and f that are in each other's place, what the error says
SWAPPED: list[tuple[Any, Any, str]] = [
    ("m.onnx", EXAMPLE, "the example comes second and the path third"),
    (Path("m.onnx"), (EXAMPLE,), "the example comes second and the path third"),
    ("m.onnx", None, "comes before the path"),
    (EXAMPLE, EXAMPLE, "several arguments of the model are one tuple"),
]


@pytest.mark.parametrize(("args", "f", "text"), SWAPPED)
def test_swapped_arguments(args: Any, f: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        purexport.export(model(), args, f)


def _with_more(function: Any) -> Any:
    @functools.wraps(function)
    def call(self: Any, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function(self, x, x)
        return result

    return call


class Decorated(nn.Module):
    @_with_more
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Hooked(Two):
    def __init__(self) -> None:
        super().__init__()
        self.register_forward_pre_hook(lambda module, args: (args[0], args[0]))


@pytest.mark.parametrize("kind", [Decorated, Hooked])
def test_what_runs_is_not_refused_by_its_signature(kind: type[nn.Module]) -> None:
    """Something else than the signature says what the model takes."""
    assert purexport.export(kind(), (EXAMPLE,)).report.nodes == 1


def test_every_unsupported_operator_is_listed_with_its_line() -> None:
    """Also the one that depends on the result of the other."""
    with pytest.raises(purexport.UnsupportedOperatorError) as caught:
        export(model=Strange())
    lines = str(caught.value).splitlines()
    source, start = inspect.getsourcelines(Strange.forward)
    for operator in ("poisson", "eigvals"):
        line = start + next(i for i, text in enumerate(source) if operator in text)
        assert any(operator in text and f"{Path(__file__).name}:{line}" in text for text in lines), lines


# what stands at the path, the path
UNWRITABLE = [("a folder", "x.onnx"), ("no folder", "no/such/folder/x.onnx"), ("a file as folder", "file/x.onnx")]


@pytest.mark.parametrize(("what", "path"), UNWRITABLE, ids=[what for what, _ in UNWRITABLE])
def test_unwritable_path(what: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "x.onnx").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"x\.onnx|file") as caught:
        export(f=tmp_path / path)
    assert caught.value.filename
    assert sorted(os.listdir(tmp_path)) == ["file", "x.onnx"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up while the new file is written."""
    target = tmp_path / "model.onnx"
    target.write_bytes(b"an earlier model")

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    for name in ("posix_fallocate", "write", "writev"):
        monkeypatch.setattr(os, name, full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        export(f=target)
    monkeypatch.undo()
    assert target.read_bytes() == b"an earlier model"
    assert os.listdir(tmp_path) == ["model.onnx"]


def good_bytes() -> bytes:
    weight = ps.numpy_helper.from_array(np.ones((4, 3), np.float32), "weight")
    node = ps.helper.make_node("MatMul", ["x", "weight"], ["y"])
    return ps.helper.make_model(ps.helper.make_graph([node], "g", [], [], [weight])).SerializeToString()


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\\noid sha256:4d7a\\nsize 12\\n"

# what the file holds instead of a model, its bytes, what the text must say
BAD_FILES: list[tuple[str, Callable[[], bytes], str]] = [
    ("truncated", lambda: good_bytes()[:-7], "@0x.*cut off"),
    ("truncated at the first field", lambda: good_bytes()[:1], "cut off"),
    ("random", lambda: random.Random(5).randbytes(4096), "@0x"),
    ("empty", lambda: b"", "empty"),
    ("zeros", lambda: bytes(4096), "zeros"),
    (
        "Git LFS pointer",
        lambda: LFS_POINTER,
        "git lfs pull",
    ),
    ("web page", lambda: b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "web page"),
    ("web page without doctype", lambda: b"\n<html><head></head></html>", "web page"),
    ("JSON", lambda: b'{"error": "not found"}', "JSON"),
    ("pickle", lambda: b"\x80\x02}q\x00.", "pickle"),
]


@pytest.mark.parametrize(("name", "make", "text"), BAD_FILES, ids=[name for name, *_ in BAD_FILES])
def test_bad_file(name: str, make: Callable[[], bytes], text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(make())
    with pytest.raises(ps.DecodeError, match=text) as caught:
        ps.load(path)
    assert "bad.onnx" in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.onnx"):
        ps.load(tmp_path / "none.onnx")


@pytest.mark.full  # a process of its own; tests/shapes/test_dynamic_shapes.py asks the same in this one
def test_torch_does_not_log_pages_beside_our_error() -> None:
    code = (
        "import torch, purexport\n"
        "try:\n"
        "    purexport.export(torch.nn.Linear(4, 3), (torch.ones(2, 5),))\n"
        "except purexport.ExportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith("the model does not run on these args: RuntimeError: mat1 and mat2")
