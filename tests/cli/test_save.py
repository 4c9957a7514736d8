"""`purexport export`: where the weights go, what would be written, and disks that are too small."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
import torch

from proto_schema.units import size_text
from purexport.cli.errors import UsageError
from purexport.cli.main import main
from purexport.cli.specs import parse_size
from tests.weights.models import safetensors

NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64))
"""
NET_BYTES = 3 * 64 * 64 * 4
X = ("--input", "x=float32[1,64]")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with net.py in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "net", raising=False)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def export(*argv: str) -> int:
    return main(["export", *argv])


PLACES: list[tuple[Sequence[str], set[str]]] = [
    (["net:Net", *X], set()),
    (["net:Net", *X, "--external-data"], {"Net.onnx.data"}),
    (["--external-data", "net:Net", *X], {"Net.onnx.data"}),  # the next word is not the option's
    ([*X, "--external-data", "--dynamic", "x:0=batch", "net:Net"], {"Net.onnx.data"}),
    (["net:Net", *X, "--external-data", "file"], {"Net.onnx.data"}),
    (["net:Net", *X, "--external-data=file"], {"Net.onnx.data"}),
    (["net:Net", *X, "--shard-size", "20kB"], {f"Net.onnx-0000{index}-of-00003.data" for index in (1, 2, 3)}),
    (["net:Net", *X, "--external-data", "--shard-size", "40 kB"], {f"Net.onnx-0000{i}-of-00002.data" for i in (1, 2)}),
]


@pytest.mark.parametrize(("argv", "files"), PLACES, ids=[" ".join(row[0]) for row in PLACES])
def test_where_the_weights_go(
    argv: Sequence[str], files: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(*argv) == 0
    assert capsys.readouterr().err == ""  # progress is for terminals
    assert set(os.listdir(folder)) - {"net.py", "__pycache__"} == {"Net.onnx", *files}
    onnx.checker.check_model("Net.onnx", full_check=True)


MISTAKES = [
    (["net:Net", *X, "--external-data=elsewhere"], "invalid choice: 'elsewhere'"),
    (["net:Net", *X, "--shard-size", "big"], "--shard-size 'big': write a size, as in 2GB"),
    (["net:Net", *X, "--external-data", "reference"], "no tensor can be referred to in place: '"),
]


@pytest.mark.parametrize(("argv", "message"), MISTAKES, ids=[" ".join(row[0]) for row in MISTAKES])
def test_mistakes(argv: Sequence[str], message: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert export(*argv) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (folder / "Net.onnx").exists()


SIZES = [("4096", 4096), ("2GB", 2 * 10**9), ("1.5 GiB", 3 << 29), ("500mb", 5 * 10**8), ("7k", 7000), ("3 B", 3)]


@pytest.mark.parametrize(("text", "count"), SIZES)
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "0", "-1", "GB", "1e9", "2 XB", "2GBs", "0.1"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="write a size"):
        parse_size(text)


def test_dry_run(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert export("net:Net", *X, "--external-data", "--dry-run") == 0
    text = capsys.readouterr().out
    for part in (
        "Net.onnx\n",
        "Net.onnx.data\n",
        "6 tensors written (memory)",
        "free",
        "at most",
        "nothing is written",
    ):
        assert part in text
    assert export("net:Net", *X, "--external-data", "--dry-run", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert not list(folder.glob("*.onnx*"))
    assert export("net:Net", *X, "--external-data") == 0
    assert {file["name"]: file["size"] for file in plan["files"]} == {
        name: os.path.getsize(name) for name in ("Net.onnx", "Net.onnx.data")
    }
    assert plan["kind"] == "external" and plan["target"] == "Net.onnx" and plan["fits"]
    assert sum(tensor["length"] for tensor in plan["tensors"] if tensor["file"] == "Net.onnx.data") == NET_BYTES


def test_weights_that_stay_where_they_are(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    state = {
        f"{index}.{name}": value for index in range(3) for name, value in torch.nn.Linear(64, 64).named_parameters()
    }
    safetensors(folder / "w.safetensors", state)
    reference = ("net:Net", "--meta", *X, "--weights", "w.safetensors", "--external-data", "reference")
    assert export(*reference, "--dry-run") == 0
    assert "3 tensors used where they lie (w.safetensors)" in capsys.readouterr().out
    assert export(*reference) == 0
    lines = capsys.readouterr().out.splitlines()
    size = (folder / "w.safetensors").stat().st_size
    assert lines[0] == f"wrote     Net.onnx {size_text((folder / 'Net.onnx').stat().st_size)}"
    assert lines[1] == f"refers to w.safetensors {size_text(size)}"
    onnx.checker.check_model("Net.onnx", full_check=True)
    assert not (folder / "Net.onnx.data").exists()
    assert export(*reference, "--json") == 0
    assert json.loads(capsys.readouterr().out)["referenced"] == ["w.safetensors"]
    (folder / "out").mkdir()
    assert export(*reference, "-o", "out/m.onnx") == 2
    error = capsys.readouterr().err
    assert "w.safetensors lies outside of" in error and f"write the .onnx file to {folder}, or" in error


def test_a_disk_that_is_too_small(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type(shutil.disk_usage(folder))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 1000))
    assert export("net:Net", *X, "--dry-run") == 1
    assert "TOO SMALL" in capsys.readouterr().out
    assert export("net:Net", *X) == 2
    error = capsys.readouterr().err
    assert "Net.onnx: cannot save: 50" in error and "has 1 kB free: make room" in error and error.count("\n") == 1
    assert not (folder / "Net.onnx").exists()
