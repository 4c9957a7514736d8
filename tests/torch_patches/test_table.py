"""What is replaced in torch: it is there, it is replaced inside, and it is itself again afterwards."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any, TypeGuard

import pytest
import torch

from purexport.torch_patches.table import PATCHES, TorchPatch

pytest.importorskip("torch.nn.attention.flex_attention", reason="what is replaced there is there once it is imported")

ROOT = Path(__file__).parents[2]
FOLDER = "purexport/torch_patches/"
LOWEST = re.search(r'"torch>=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())


def handler(function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2


# what a context takes; nothing where it is not named
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "conversions_recorded": ([{}], {int: lambda item: None}),
    "calls_before_composites": (handler,),
    "math_recorded": ({"sqrt": lambda item: None},),
    "functions_handed_to": (handler,),
    "operators_handed_to": (handler,),
    "conditions_handed_to": (lambda node: None,),
    "scripts_handed_to": (lambda script, args, kwargs, run: run(*args, **kwargs),),
    "sizes_hashed": (lambda node: 0,),
    "applied_by": (handler,),
    "forward_handed_to": (handler, [Twice]),
    "left_whole_by_dynamo": ([Twice],),
}


class PlannedError(Exception):
    """An error inside a context."""


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
@pytest.mark.parametrize("error", [None, PlannedError, KeyboardInterrupt], ids=["ends", "fails", "is interrupted"])
def test_the_original_is_back_afterwards(patch: TorchPatch, error: type[BaseException] | None) -> None:
    arguments = ARGUMENTS.get(patch.name, ())
    checked = []
    if patch.name == "uncompiled":
        importlib.import_module("torch._dynamo.eval_frame")  # without it nothing is wrapped, and nothing is replaced

    def check() -> None:
        before = patch.now()
        try:
            with patch.context(*arguments):
                assert patch.now() != before, "nothing is replaced"
                with patch.context(*arguments):  # an export inside an export
                    assert patch.now() != before
                assert patch.now() != before, "the inner context took back what the outer one needs"
                if error is not None:
                    raise error
        except (PlannedError, KeyboardInterrupt):
            assert error is not None
        assert patch.now() == before
        checked.append(patch)

    check()
    assert checked == [patch]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_every_torch_that_is_allowed_has_it(patch: TorchPatch) -> None:
    assert LOWEST is not None
    assert patch.since <= (int(LOWEST[1]), int(LOWEST[2]))
    assert patch.reason and patch.replaced


def _is_context(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.ClassDef]:
    if isinstance(node, ast.ClassDef):
        return any(isinstance(item, ast.FunctionDef) and item.name == "__enter__" for item in node.body)
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(item) == "contextmanager" for item in node.decorator_list
    )


@pytest.mark.full
def test_the_table_names_every_context_once() -> None:
    """What the folder offers as a context manager is in the table, and nothing twice."""
    offered = [
        node.name
        for path in sorted((ROOT / FOLDER).glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if _is_context(node)
    ]
    assert sorted(patch.name for patch in PATCHES) == sorted(offered)


# Nothing else replaces anything -------------------------------------------------------------------------------------

# what changes torch where it is called or subclassed, by name
CHANGING = frozenset(
    [
        "TorchFunctionMode",
        "TorchDispatchMode",
        "_set_tracing_state",
        "set_tracing_state",
        "_dispatch_tls_set_dispatch_key_excluded",
        "set_fastpath_enabled",
        "_allowed_callable_ids",
        "_trace_module_map",
        "addFilter",
    ]
)
ELSEWHERE = {"purexport/compat/torch_onnx.py": "what patch() puts into torch.onnx, with a list of its own"}


def replacements(text: str) -> list[int]:
    """The lines that set or delete attributes of torch, or use what changes it."""
    tree = ast.parse(text)
    theirs = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).partition(".")[0] == "torch"
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _root(node) in theirs:
            found.add(node.lineno)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            found |= {node.lineno} if _root(node.args[0]) in theirs else set()
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = node.id if isinstance(node, ast.Name) else node.attr
            found |= {node.lineno} if name in CHANGING else set()
    return sorted(found)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.full
def test_nothing_else_replaces_anything_in_torch() -> None:
    paths = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "purexport").rglob("*.py"))]
    found = {
        path: lines
        for path in paths
        if not path.startswith(FOLDER) and path not in ELSEWHERE and (lines := replacements((ROOT / path).read_text()))
    }
    assert not found, "make it a context manager in purexport/torch_patches, with a row in its table"


PLANTED = [
    "import torch\ntorch.foo = 1",
    "import torch.jit\ntorch.jit._trace._x = 1",
    "from torch.jit import _trace as jit_trace\njit_trace._trace_x = 1",
    "from torch.autograd import function\ndel function._SingleLevelFunction.apply",
    "import torch\nsetattr(torch.nn, 'Linear', 1)",
    "import torch\ntorch.backends.mha.set_fastpath_enabled(False)",
    "from torch.overrides import TorchFunctionMode\nclass Mode(TorchFunctionMode): ...",
    "from purexport.torch_patches import torch_jit\ntorch_jit.set_tracing_state(None)",
]


@pytest.mark.parametrize("text", PLANTED)
def test_a_replacement_is_found(text: str) -> None:
    assert replacements(text) == [2]
