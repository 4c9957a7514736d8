"""The architecture, linted: who may import what, and the house rules that a program can check."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("proto_schema", "purexport")
FILES = sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PYTHON_FILES = [path.as_posix() for path in FILES]
LONGEST_FILE = 600

# (files under this path, but not these, may not import these modules, because)
BANNED = [
    ("", (), ("onnx", "google", "onnxscript", "onnx_ir", "ml_dtypes"), "the point of the project"),
    ("", (), ("torch.onnx",), "its exporters are the peers, not a part"),
    ("proto_schema", (), ("torch", "purexport"), "an ONNX toolkit that is useful without torch"),
    ("purexport", ("purexport/cli", "purexport/__main__.py"), ("purexport.cli",), "the command line sits on top"),
    (
        "purexport/lowering",
        (),
        ("purexport.capture.torchscript", "purexport.capture.exported", "purexport.export", "purexport.api"),
        "rules know no front end",
    ),
    (
        "purexport/graph",
        (),
        ("purexport.capture.torchscript", "purexport.capture.exported", "purexport.lowering", "purexport.export"),
        "the ONNX graph knows neither where it came from nor how",
    ),
    ("purexport/inspect", (), ("torch",), "files are looked at where torch is not installed"),
    (
        "purexport/weights",
        (),
        ("torch", "purexport.capture", "purexport.lowering", "purexport.pipeline", "purexport.api"),
        "checkpoints are read where torch is not installed",
    ),
    ("purexport/capture", (), ("purexport.graph", "purexport.lowering", "purexport.export"), "capture comes first"),
]


def imports_of(path: Path, run_time_only: bool = False) -> Iterator[tuple[int, str]]:
    """(line, module) for each import anywhere in a file; `from a import b` gives both a and a.b."""
    tree = ast.parse(path.read_text())
    if run_time_only:
        tree.body = [node for node in tree.body if not is_for_type_checkers(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the absolute import"
            yield node.lineno, node.module or ""
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize(
    ("under", "but", "banned", "because"), BANNED, ids=[f"{b[0] or 'all'}-{b[2][0]}" for b in BANNED]
)
def test_banned_imports(under: str, but: tuple[str, ...], banned: tuple[str, ...], because: str) -> None:
    files = [
        path for path in FILES if path.as_posix().startswith(under) and not path.as_posix().startswith(but or ("?",))
    ]
    assert files, f"nothing under {under}"
    found = [
        f"{path}:{line} imports {module}: {because}"
        for path in files
        for line, module in imports_of(ROOT / path)
        if any(is_inside(module, name) for name in banned)
    ]
    assert not found, "\n".join(found)


def test_proto_schema_needs_numpy_only() -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "proto_schema"}
    found = [
        f"{path}:{line} imports {module}"
        for path in FILES
        if path.parts[0] == "proto_schema"
        for line, module in imports_of(ROOT / path, run_time_only=True)
        if module.partition(".")[0] not in allowed
    ]
    assert not found, "\n".join(found)


def test_torch_onnx_passes_are_not_used() -> None:
    found = [path for path in PYTHON_FILES if "_jit_pass_onnx" in (ROOT / path).read_text()]
    assert not found, found


@pytest.mark.parametrize("path", PYTHON_FILES)
def test_house_rules(path: str) -> None:
    text = (ROOT / path).read_text()
    tree = ast.parse(text)
    assert text.isascii(), "ASCII only"
    assert ast.get_docstring(tree) or not text.strip(), "a module opens with its strategy"
    assert len(text.splitlines()) <= LONGEST_FILE, "split the file: nobody finds a room in it"
    if any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in ast.walk(tree)):
        assert "from __future__ import annotations" in text
    globals_ = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Global)]
    assert not globals_, f"no global state: lines {globals_}"
    if not path.startswith("purexport/cli/"):
        prints = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "print"]
        assert not prints, f"a library logs or reports, it does not print: lines {prints}"
