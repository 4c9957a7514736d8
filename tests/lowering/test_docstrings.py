"""Every public function of the rule files and of lowering/support says what it is, and a rule opens with its schema.

The schemas are those of the torch that runs.  Operators that another torch adds, drops or declares otherwise differ
there; the docstrings are those of the torch in constraints.txt.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares quantized_decomposed::

import purexport.lowering
from purexport.lowering.rules import FILES, registered
from tests import transformers_shim  # noqa: F401  declares transformers::
from tests.torchvision_shim import torchvision

# declares onnx:: and onnx_symbolic::
pytest.importorskip("torch.onnx.ops", reason="torch.onnx.ops came with torch 2.7")

ROOT = Path(purexport.lowering.__file__).parent
SUPPORT = sorted(path.stem for path in (ROOT / "support").glob("*.py") if path.stem != "__init__")
PATHS = [f"{folder}/{file}" for folder, files in FILES.items() for file in files.split()]
PATHS += [f"support/{file}" for file in SUPPORT]
# lists of tensors, as the interpretation of scripts records them, and calls of fusion: torch has no schema for these
OURS = ("sequence::", "purexport_llm::")
PINNED = re.findall(r"(?m)^torch==(\S+)", (Path(__file__).parents[2] / "constraints.txt").read_text(encoding="utf-8"))


def schema_of(name: str) -> str:
    """The schema of an operator as torch prints it; `name` may have the suffix of rules for other tensors."""
    namespace, _, rest = name.partition("@")[0].partition("::")
    operator, _, overload = rest.partition(".")
    try:
        return str(torch._C._get_schema(f"{namespace}::{operator}", overload))
    except RuntimeError:
        return f"no schema of {name}"


def public_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """The functions, classes and methods at the top of a file that have no leading underscore."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node.name, node
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            if isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{m.name}", m) for m in methods if not m.name.startswith("_"))


@pytest.mark.parametrize("path", PATHS)
def test_public_functions_have_docstrings(path: str) -> None:
    tree = ast.parse((ROOT / f"{path}.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module has no docstring"
    assert [name for name, node in public_functions(tree) if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("path", [path for path in PATHS if not path.startswith("support/")])
def test_rules_open_with_a_schema(path: str) -> None:
    if torch.__version__.partition("+")[0] not in PINNED:
        pytest.skip(f"the docstrings quote the schemas of torch {PINNED[0]}")
    importlib.import_module("torch.nn.modules.linear_cross_entropy")  # declares torch_nn::
    torchvision()
    module = f"purexport.lowering.{path.replace('/', '.')}"
    names: dict[object, list[str]] = {}
    for name, rule in registered().items():
        named = "<" not in rule.function.__qualname__  # others are made by a row, for names of its own
        if rule.function.__module__ == module and named and not name.startswith(OURS):
            names.setdefault(inspect.unwrap(rule.function), []).append(name)
    wrong = [
        f"{function}: {targets}"
        for function, targets in names.items()
        if not any(" ".join((inspect.getdoc(function) or "").split()).startswith(schema_of(name)) for name in targets)
    ]
    assert wrong == []
