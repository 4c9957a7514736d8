"""An export and a load where the official packages, and torch's own ONNX exporters, cannot be imported.

And what an export loads beyond `import torch`: sympy, which torch needs for symbols as sizes, takes longer than all the
rest, and a trace does without it.  A process takes seconds to load torch, so one
answers all questions, each beside what it asks; `-m full` asks of a whole network, in a process a route.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

import purexport

ROOT = Path(__file__).parent.parent

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
    (NETWORK, PICTURE, "dynamic_axes={'x': [0, 2, 3]}, input_names=['x']"),
    ("nn.TransformerEncoderLayer(8, 2, 8)", "torch.ones(3, 1, 8)", "capture='trace'"),
    ("nn.TransformerEncoderLayer(8, 2, 8)", "torch.ones(3, 1, 8)", "dynamic_axes={'x': [0, 1]}, input_names=['x']"),
    ("nn.ReLU()", "torch.ones(2)", "dynamic_axes={'input': [0]}, input_names=['input']"),
    ("nn.LSTM(8, 2)", "torch.ones(3, 1, 8)", "dynamic_axes={'x': [0, 1]}, input_names=['x']"),
    ("nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), nn.Dropout(), nn.Softmax(1))", "torch.ones(2, 4)", ""),
    ("Pooled()", "torch.ones(2, 5, dtype=torch.int64)", "dynamic_axes={'x': [0, 1]}, input_names=['x']"),
]

MISUSES = [
    "import onnx",
    "import google.protobuf",
    "from onnxscript import script",
    "import onnx_ir",
    "import ml_dtypes",
    "import torch.onnx.symbolic_opset9",
    "import importlib; importlib.import_module('torch.onnx')",
]

QUESTIONS = f"""
import json, sys
import torch
from tests.import_blocker import install

blocker = install(torch_too=True)
before = set(sys.modules)
import purexport
import proto_schema as ps
from torch import nn

ours = ("purexport", "proto_schema", "numpy", *sys.stdlib_module_names, "cython_runtime")

def loaded():
    new = sorted(set(sys.modules) - before)
    return [name for name in new if name.partition(".")[0] not in ours and not name.startswith("_cython")]

class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids):
        x = self.table(ids)
        x = torch.cat([x.mean(1), x[:, 0], x[:, 1:].amax(1)], -1).sum(0, keepdim=True)
        return torch.where(x > 0, x, torch.zeros_like(x)).masked_fill(x.isnan(), 0) + torch.einsum("ij,kj->ik", x, x)

def exported(model, example, options):
    program = eval(f"purexport.export({{model}}, ({{example}},), {{options}})")
    return program.report.route

lean = [(exported(*row), loaded()) for row in {LEAN!r}]
attempts = list(blocker.attempts)
blocker.torch_too = False  # torch.export imports torch.onnx itself
refused = []
for statement in {MISUSES!r}:
    try:
        exec(compile(statement, __file__, "exec"))
        refused.append("nothing is refused")
    except ImportError as error:
        refused.append(str(error))
blocker.attempts.clear()
of_torch_export = exported({NETWORK!r}, {PICTURE!r}, "f='m.onnx', capture='export'"), loaded()
read = len(ps.load("m.onnx").graph.initializer)
attempts += blocker.attempts
print(json.dumps([lean, of_torch_export, read, attempts, refused]))
"""


def run(code: str, folder: Path) -> str:
    """What `code` prints in a process of its own, in which the checkout can be imported."""
    script = folder / "isolated.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return json.loads(run(QUESTIONS, tmp_path_factory.mktemp("isolated")).splitlines()[-1])


def test_export_and_load_need_no_official_package(answers: Any) -> None:
    """The first routes do without torch.onnx altogether, which is blocked for torch too until the last of them."""
    lean, (route, _), read, attempts, _ = answers
    assert [route for route, _ in lean] == ["trace" for _, _, options in LEAN]
    assert (route, read) == ("export", 9)
    assert attempts == []


@pytest.mark.parametrize("row", range(len(MISUSES)), ids=MISUSES)
def test_the_blocker_blocks(row: int, answers: Any) -> None:
    message = answers[-1][row]
    assert "must not be imported, and" in message and "isolated.py does" in message


@pytest.mark.parametrize("row", range(len(LEAN)), ids=[f"{model[:40]}-{options}" for model, _, options in LEAN])
def test_the_first_routes_load_little_of_torch(row: int, answers: Any) -> None:
    """Nothing that `import torch` did not, beside our own packages, numpy and the standard library."""
    _, loaded = answers[0][row]
    assert loaded == [MODE_OF_DEVICE]


def test_what_is_loaded_is_seen(answers: Any) -> None:
    """So the test above would see it: torch.export loads it."""
    _, loaded = answers[1]
    assert {"sympy", "torch.fx.experimental.symbolic_shapes"} <= set(loaded)


OF_A_NETWORK = """
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


@pytest.mark.full
@pytest.mark.parametrize(("route", "torch_too"), [("trace", True), ("export", False)])
def test_a_network_needs_no_official_package(route: str, torch_too: bool, tmp_path: Path) -> None:
    run(OF_A_NETWORK.format(route=route, torch_too=torch_too), tmp_path)


def test_without_torch_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs torch says so, and no error of an import inside is shown before it."""
    monkeypatch.setattr(purexport, "import_module", missing_torch)
    for name in ("export", "language_model"):
        with pytest.raises(ModuleNotFoundError) as caught:
            getattr(purexport, name)
        assert str(caught.value) == f"purexport.{name} needs torch: pip install 'torch>=2.6'"
        assert caught.value.__context__ is None


def missing_torch(module: str) -> NoReturn:
    raise ModuleNotFoundError("No module named 'torch'", name="torch")
