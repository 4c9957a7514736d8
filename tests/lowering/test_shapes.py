"""Rules say no shapes: the emitter infers those of every node that it makes.

A rule that assigns one says a fact of its own, which may contradict what inference knows.  Where the row of an operator
cannot know a size, the row in `proto_schema/inference` is what to improve.  What only torch promises stays, listed here
with its reason.
"""

from __future__ import annotations

import ast
from pathlib import Path

import purexport.lowering

ROOT = Path(purexport.lowering.__file__).parent
FOLDERS = sorted(path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name != "core")
PATHS = [f"{folder.name}/{path.stem}" for folder in FOLDERS for path in sorted(folder.glob("*.py"))]

ALLOWED = {
    ("support/reshaping", "result"): "a -1 stands for the size that may be 0, and inference cannot tell what is left",
    ("tensor/layout", "without"): "an output must declare a shape, and torch removes the axis of one size only",
    ("tensor/padding", "result"): "the two parts of what is rolled are the whole, wherever a computed cut is",
    ("tensor/scatter", "places"): "torch takes as many slices as there are positions",
    ("tensor/scatter", "written"): "torch takes a source of the size of the slice that it replaces",
    ("tensor/scatter", "src"): "torch takes no source that is smaller than the index",
}
"""(file, what the value is called there): why inference cannot say it."""


def assigned(path: str) -> list[tuple[str, int]]:
    """(what is assigned to, the line) of each shape that a rule file gives to a value."""
    tree = ast.parse((ROOT / f"{path}.py").read_text(encoding="utf-8"))
    found = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            found.append(("setattr", node.lineno))
        for target in [part for whole in targets for part in ast.walk(whole)]:
            if isinstance(target, ast.Attribute) and target.attr in ("shape", "sized"):
                found.append((ast.unparse(target.value), target.lineno))
    return found


def test_rules_assign_no_shapes() -> None:
    found = {(path, name): line for path in PATHS for name, line in assigned(path)}
    wrong = [f"{path}.py:{line} {name}.shape" for (path, name), line in found.items() if (path, name) not in ALLOWED]
    assert not wrong, f"rules assign {', '.join(wrong)}; improve the row in proto_schema/inference instead"
    assert set(ALLOWED) <= set(found), "an exception that no rule needs"
