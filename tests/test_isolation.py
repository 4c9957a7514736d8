"""An export and a load where the official packages, and torch's own ONNX exporters, cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

EXPORT_AND_LOAD = """
import torch
from tests.import_blocker import install

blocker = install(torch_too={torch_too})

import purexport
import proto_schema as ps
from purexport.cli.resnet import resnet50

program = purexport.export(resnet50(), (torch.randn(1, 3, 64, 64),), "resnet50.onnx", capture={route!r})
assert program.report.route == {route!r}, program.report
model = ps.load("resnet50.onnx")
assert len(model.graph.initializer) > 50
first = ps.numpy_helper.to_array(model.graph.initializer[0])
assert first.size and first.dtype == "float32"
assert not blocker.attempts, blocker.attempts
"""

# torch.jit.trace can do without torch.onnx altogether; torch.export imports it itself.
ROUTES = [("trace", True), ("export", False)]

MISUSES = [
    "import onnx",
    "import google.protobuf",
    "from onnxscript import script",
    "import onnx_ir",
    "import ml_dtypes",
    "import torch.onnx.symbolic_opset9",
    "import importlib; importlib.import_module('torch.onnx')",
]


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`code` in a file and a process of its own, in which the checkout can be imported."""
    script = folder / "isolated.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("route", "torch_too"), ROUTES)
def test_export_and_load_need_no_official_package(route: str, torch_too: bool, tmp_path: Path) -> None:
    done = run(EXPORT_AND_LOAD.format(route=route, torch_too=torch_too), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("statement", MISUSES)
def test_the_blocker_blocks(statement: str, tmp_path: Path) -> None:
    done = run(f"from tests.import_blocker import install\ninstall()\n{statement}\n", tmp_path)
    assert done.returncode == 1
    assert "must not be imported, and" in done.stderr and "isolated.py does" in done.stderr
