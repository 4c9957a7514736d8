"""A torch without torch.jit: everything works but scripts, of which there are none.

torch itself imports torch.jit today, so it keeps it here; for files of this package the module, its names and the
functions of torch's tracer are gone.  `tests/test_layers.py` says by default that no file names torch.jit elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.full  # a process that imports torch takes seconds

GONE = """
import builtins, sys
import torch, torch.export, torch._dynamo, torch.jit
from torch.fx.experimental import proxy_tensor, symbolic_shapes

ROOT = sys.argv[1]
imported, jit = builtins.__import__, torch.jit

def ours(depth):
    return sys._getframe(depth).f_code.co_filename.startswith(ROOT)

def without(name, globals=None, locals=None, fromlist=(), level=0):
    wanted = {name, *(f"{name}.{part}" for part in fromlist or ())}
    if ours(2) and any(part.startswith(("torch.jit", "torch._jit_internal")) for part in wanted):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return imported(name, globals, locals, fromlist, level)

def attribute(name):
    if name == "jit" and not ours(2):
        return jit
    raise AttributeError(f"module 'torch' has no attribute {name!r}")

builtins.__import__ = without
torch.__getattr__ = attribute
del torch.__dict__["jit"]
TRACER = ("_create_graph_by_tracing", "_set_tracing_state", "_set_value_trace", "_get_value_trace", "ScriptModule")
PASSES = ("_jit_interpret_graph", "_jit_pass_dce", "_jit_pass_inline", "_jit_pass_inline_fork_wait")
for name in (*TRACER, *PASSES):
    delattr(torch._C, name)

import purexport
from purexport.cli.main import main

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.linear(torch.relu(x)).softmax(-1)

X = torch.ones(3, 4)
"""

# what is done, what is printed
ROWS = {
    "export": (
        """
program = purexport.export(Net(), (X,), "m.onnx", capture="export", dynamic_axes={"x": {0: "n"}}, input_names=["x"])
print(program.report.route, main(["show", "m.onnx", "--no-nodes"]))
""",
        "float32[n, 4]",
    ),
    "auto": ("print(purexport.export(Net(), (X,)).report.route)", "trace\n"),
    "program": ("print(purexport.export(torch.export.export(Net(), (X,))).report.route)", "export\n"),
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each row prints, all in one process."""
    code = GONE + "".join(f"\nprint('<{name}>')\n{code}" for name, (code, _) in ROWS.items())
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", code, str(ROOT / "purexport")]
    where = tmp_path_factory.mktemp("without")
    done = subprocess.run(words, env=variables, cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^<(\w+)>\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_torch_without_torch_jit(name: str, printed: dict[str, str]) -> None:
    assert ROWS[name][1] in printed[name]
