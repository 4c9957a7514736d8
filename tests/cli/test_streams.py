"""`purexport export -o -`, `--tar` and `--resume`: models through pipes, and exports that go on."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import proto_schema as ps
from proto_schema.files.marks import size_of_data
from purexport.cli.main import main

ROOT = Path(__file__).parents[2]
NET = """
from torch import nn

print("imported")


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64))
        for parameter in self.parameters():
            nn.init.constant_(parameter, 0.5)

    def forward(self, x):
        print("called")
        return super().forward(x)
"""
X = ("net.py:Net", "--input", "x=float32[1,64]")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def export(*argv: str) -> int:
    return main(["export", *X, *argv])


def test_stdout_has_the_model_and_nothing_else(capfdbinary: pytest.CaptureFixture[bytes], folder: Path) -> None:
    """What the model prints goes to stderr, as the report does."""
    assert export("-o", "same.onnx") == 0
    capfdbinary.readouterr()
    assert export("-o", "-", "--verify") == 0
    out, err = capfdbinary.readouterr()
    assert out == (folder / "same.onnx").read_bytes()
    assert b"called" in err and f"wrote     standard output {len(out) / 1000:.1f}".encode() in err
    assert b"onnxruntime computes what torch computes" in err


@pytest.mark.parametrize("external", [False, True])
def test_a_tar_to_stdout_and_to_a_file(external: bool, capfdbinary: pytest.CaptureFixture[bytes], folder: Path) -> None:
    options = ["--external-data"] if external else []
    assert export("--tar", *options, "--json", "-o", "-") == 0
    out, err = capfdbinary.readouterr()
    facts = json.loads(err[err.index(b"{\n") :])
    assert facts["file"] == "-" and facts["files"] == {"standard output": len(out)} and facts["nodes"] == 3
    with tarfile.open(fileobj=io.BytesIO(out)) as found:
        assert found.getnames() == (["model.onnx", "model.onnx.data"] if external else ["model.onnx"])
        found.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.10.12 and 3.11.4
        found.extractall(folder / "unpacked")
    graph = ps.load(folder / "unpacked" / "model.onnx").graph
    assert graph is not None
    for tensor in graph.initializer:
        assert (ps.numpy_helper.to_array(tensor) == 0.5).all()
    assert export("--tar", *options) == 0
    with tarfile.open(folder / "Net.tar") as found:
        assert found.getnames() == (["Net.onnx", "Net.onnx.data"] if external else ["Net.onnx"])
    assert f"wrote     Net.tar {(folder / 'Net.tar').stat().st_size / 1000:.1f}".encode() in capfdbinary.readouterr()[0]


def test_the_plan_of_a_stream(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert export("--tar", "--external-data", "--dry-run", "-o", "-") == 0
    said = capsys.readouterr().out
    assert "model.onnx.data" in said and "nothing is written" in said
    assert set(os.listdir(folder)) - {"__pycache__"} == {"net.py"}


WRONG = [
    (["-o", "-", "--resume"], "--resume: what went to standard output is not kept"),
    (["-o", "-", "--external-data"], "external data needs a file's path"),
    (["--tar", "--external-data", "reference"], "an archive holds the weights"),
]


@pytest.mark.parametrize(("argv", "message"), WRONG, ids=[row[1] for row in WRONG])
def test_wrong_options(argv: list[str], message: str, capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    assert export(*argv) == 2
    err = capfd.readouterr().err
    assert message in err.splitlines()[-1]
    assert set(os.listdir(folder)) - {"__pycache__"} == {"net.py"}


@pytest.mark.full
def test_a_reader_that_goes_away(folder: Path) -> None:
    """One line, and a status that says so."""
    command = f"{sys.executable} -m purexport export {X[0]} {X[1]} '{X[2]}' -o - | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last == "purexport export: the reader of standard output went away before the model was complete"
    assert done.stdout.strip() == "2"


def test_a_terminal_is_spared(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert export("-o", "-") == 2
    os.close(leader)
    assert "standard output is a terminal" in capfd.readouterr().err


def test_resume(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert export("-o", "plain.onnx", "--external-data") == 0
    real = os.replace

    def fails(source: str, target: str) -> None:
        if not target.endswith(".journal"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", fails)
    assert export("-o", "m.onnx", "--external-data", "--resume") == 2
    assert {name for name in os.listdir(folder) if name.startswith("m.")} == {
        "m.onnx.data.partial",
        "m.onnx.data.partial.journal",
    }
    monkeypatch.setattr(os, "replace", real)
    assert export("-o", "m.onnx", "--external-data", "--resume") == 0
    size = size_of_data("plain.onnx.data")
    assert (folder / "m.onnx.data").read_bytes()[:size] == (folder / "plain.onnx.data").read_bytes()[:size]
    assert {name for name in os.listdir(folder) if name.startswith("m.")} == {"m.onnx", "m.onnx.data"}
    capsys.readouterr()
