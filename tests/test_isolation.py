"""An export and a load where the official packages, and torch's own ONNX exporters, cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# torch.export imports torch._dynamo, which imports torch.onnx for purposes of its own: imports that start in a file of
# torch are torch's business, those that start anywhere else are forbidden.  The other packages are forbidden to all.
BLOCKER = """
import sys
import torch

NOBODY = ("onnx", "google.protobuf", "onnxscript", "onnx_ir", "ml_dtypes")
TORCH_ONLY = ("torch.onnx",)
TORCH = torch.__path__[0]


def importer():
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename if frame else "?"


class Blocker:
    def find_spec(self, name, path=None, target=None):
        inside = lambda packages: any(name == package or name.startswith(package + ".") for package in packages)
        if inside(NOBODY):
            raise ImportError(f"{name} must not be imported; {importer()} does")
        if inside(TORCH_ONLY) and not importer().startswith(TORCH):
            raise ImportError(f"{name} must not be imported by {importer()}")
        return None


assert not [name for name in sys.modules if name.split(".")[0] in ("onnx", "google", "onnxscript", "onnx_ir")]
sys.meta_path.insert(0, Blocker())
"""

EXPORT = """
import purexport
import proto_schema as ps
from purexport.cli.resnet import resnet50

program = purexport.export(resnet50(), (torch.randn(1, 3, 64, 64),), "resnet50.onnx", capture=ROUTE)
assert program.report.route == ROUTE, program.report
model = ps.load("resnet50.onnx")
assert len(model.graph.initializer) > 50
first = ps.numpy_helper.to_array(model.graph.initializer[0])
assert first.size and first.dtype == "float32"
"""

MISUSES = [
    ("import onnx", "onnx must not be imported"),
    ("import google.protobuf", "google.protobuf must not be imported"),
    ("import torch.onnx.symbolic_opset9", "torch.onnx must not be imported by"),
    ("import onnxscript", "onnxscript must not be imported"),
]


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The blocker, then `code`, in a file of its own (so that frames have a file name) and a process of its own."""
    script = folder / "isolated.py"
    script.write_text(BLOCKER + code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("route", ["trace", "export"])
def test_export_and_load_need_no_official_package(route: str, tmp_path: Path) -> None:
    done = run(EXPORT.replace("ROUTE", repr(route)), tmp_path)
    assert done.returncode == 0, done.stderr


def test_trace_does_not_even_load_torch_onnx(tmp_path: Path) -> None:
    code = EXPORT.replace("ROUTE", "'trace'") + '\nassert not [n for n in sys.modules if n.startswith("torch.onnx")]'
    done = run("TORCH_ONLY, NOBODY = (), (*NOBODY, *TORCH_ONLY)\n" + code, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("code", "message"), MISUSES, ids=[code for code, _ in MISUSES])
def test_the_blocker_blocks(code: str, message: str, tmp_path: Path) -> None:
    done = run(code, tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
