"""An export and a load where the official packages, and torch's own ONNX exporters, cannot be imported.

And what an export loads beyond `import torch`: sympy, which torch needs for symbols as sizes, takes longer than all the
rest, and an export by trace whose sizes cannot change does without it.
"""

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


LOADED = """
import sys
import torch
before = set(sys.modules)
import purexport
from torch import nn
model = {model}
program = purexport.export(model, ({example},), {options})
assert program.report.route == "trace", program.report
ours = ("purexport", "proto_schema", "numpy", *sys.stdlib_module_names, "cython_runtime")
new = sorted(set(sys.modules) - before)
print(*(name for name in new if name.partition(".")[0] not in ours and not name.startswith("_cython")))
"""
PICTURE = "torch.ones(1, 3, 8, 8)"
NETWORK = (
    "nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2), "
    "nn.Softmax(1))"
)
MODE_OF_DEVICE = "torch.utils._device"  # torch loads it when it is asked for its default device

# (model, example, options)
LEAN = [
    ("nn.Linear(2, 2)", "torch.ones(1, 2)", "capture='trace'"),
    ("nn.Linear(2, 2)", "torch.ones(1, 2)", "opset_version=17, f='linear.onnx'"),
    ("nn.Linear(2, 2)", "torch.ones(1, 2)", "report=True, verbose=True, metadata=True"),
    (NETWORK, PICTURE, "capture='trace'"),
    ("nn.TransformerEncoderLayer(8, 2, 8)", "torch.ones(3, 1, 8)", "capture='trace'"),
    ("nn.ReLU()", "torch.ones(2)", "dynamic_axes={'input': [0]}, input_names=['input']"),
    ("nn.LSTM(8, 2)", "torch.ones(3, 1, 8)", "dynamic_axes={'x': [0, 1]}, input_names=['x']"),
]


def loaded(model: str, example: str, options: str, folder: Path) -> list[str]:
    """What an export loads that `import torch` did not, beside our own packages, numpy and the standard library."""
    done = run(LOADED.format(model=model, example=example, options=options), folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(("model", "example", "options"), LEAN)
def test_a_trace_loads_little_of_torch(model: str, example: str, options: str, tmp_path: Path) -> None:
    assert loaded(model, example, options, tmp_path) == [MODE_OF_DEVICE]


def test_what_is_loaded_is_seen(tmp_path: Path) -> None:
    """So the test above would see it."""
    found = loaded("(__import__('torch.fx.experimental.symbolic_shapes'), nn.ReLU())[1]", "torch.ones(2)", "", tmp_path)
    assert {"sympy", "torch.fx.experimental.symbolic_shapes"} <= set(found)
