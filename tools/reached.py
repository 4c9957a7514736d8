"""Which tests come to the place of a change: what `tools/mutate.py --reached` runs for it, and nothing else.

    python -m tools.reached --count 600 --seed 7 -o reached.json [--tree ../older]

The changes are those that `tools/mutate.py` draws.  In a copy of the tree, the statement of each one (or the condition
of its `if`, or the body of its lambda) calls `__hit__` first, and all default tests and those of the tier `full` run
once.  The result has for each change and tier the tests, and for each test its seconds.  A change that an import comes
to has no list: any test may notice it.  A test that uses what an earlier one has left in a cache is not seen to come to
the places of what is cached.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.children import Folder
from tools.hits import FOLDER
from tools.mutants import located
from tools.mutate import DEFAULT, MARKS, ROOT, Mutant, drawn
from tools.rooms import ROOMS, path_in

Edit = tuple[int, int, int, str]  # line, column, order among edits of a place, text
COMPOUND = {ast.If: "test", ast.While: "test", ast.For: "iter", ast.Match: "subject"}


def marked(source: str, places: list[tuple[int, list[ast.AST]]]) -> tuple[str, set[int]]:
    """A module that calls `__hit__` at places (a number, the nodes from the module to it), and the numbers left out."""
    edits: list[Edit] = []
    left_out = set()
    for number, nodes in places:
        made = list(_edits(number, nodes))
        edits += made
        if not made:
            left_out.add(number)
    lines = source.splitlines(keepends=True)
    for line, column, _, text in sorted(edits, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + text + old[column:]
    return "".join(lines), left_out


def _edits(number: int, nodes: list[ast.AST]) -> Iterator[Edit]:
    """Where a place calls `__hit__`; nothing for what runs at an import."""
    depth = len(nodes) - 1
    while depth and not isinstance(nodes[depth], ast.stmt):
        above = nodes[depth - 1]
        if isinstance(above, ast.Lambda) and nodes[depth] is above.body:
            yield from _around(number, above.body)
            return
        depth -= 1
    node = nodes[depth]
    if not isinstance(node, ast.stmt) or not any(isinstance(above, ast.FunctionDef) for above in nodes[:depth]):
        return
    if isinstance(node, ast.With):
        yield from _around(number, node.items[0].context_expr)
    elif type(node) in COMPOUND:
        yield from _around(number, getattr(node, COMPOUND[type(node)]))
    elif not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Try):
        yield (node.lineno, node.col_offset, -1, f"__hit__({number}); ")


def _around(number: int, node: ast.AST) -> Iterator[Edit]:
    assert isinstance(node, ast.expr)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    yield (node.lineno, node.col_offset, 0, f"(__hit__({number}) or (")
    yield (node.end_lineno, node.end_col_offset, 0, "))")


def reached(mutants: list[Mutant], tree: Path) -> dict[str, object]:
    """Runs the tests of a tree, each once: `changes` (name, tier to tests, or None) and `took` (test to seconds)."""
    by_module: dict[str, list[int]] = {}
    for number, mutant in enumerate(mutants):
        by_module.setdefault(mutant.module, []).append(number)
    anywhere: set[int] = set()
    with Folder(tree, 1) as folder, tempfile.TemporaryDirectory() as notes:
        copy = folder.slots[0].tree
        for module, numbers in by_module.items():
            path = copy / path_in(copy, module)
            if not path.exists():
                continue
            source = path.read_text()
            texts = any(module in ROOMS[mutants[number].room].texts for number in numbers)
            found = located(source, [mutants[number].found for number in numbers], texts)
            places = [(number, nodes) for number, nodes in zip(numbers, found, strict=True) if nodes]
            text, left_out = marked(source, places)
            anywhere |= left_out
            ast.parse(text)
            path.write_text(text)
        hits: dict[tuple[int, str], list[str]] = {}
        took: dict[str, float] = {}
        for tier, marks in MARKS.items() if (copy / "tests" / "tiers.py").exists() else [(DEFAULT, "not sweep")]:
            folder_of_tier = Path(notes) / tier
            folder_of_tier.mkdir()
            _run(copy, folder_of_tier, marks)
            for line in (folder_of_tier / "hits").read_text().splitlines():
                test, _, number = line.rpartition("\t")
                if test:
                    hits.setdefault((int(number), tier), []).append(test)
                else:
                    anywhere.add(int(number))
            for line in (folder_of_tier / "took").read_text().splitlines():
                test, _, seconds = line.rpartition("\t")
                took[test] = float(seconds)
    changes = {
        mutant.name: None
        if number in anywhere
        else {tier: [test for test in dict.fromkeys(hits.get((number, tier), [])) if test in took] for tier in MARKS}
        for number, mutant in enumerate(mutants)
    }
    return {"changes": changes, "took": took}


def _run(copy: Path, notes: Path, marks: str) -> None:
    start = notes / "start"
    start.mkdir()
    (start / "sitecustomize.py").write_text("import tools.hits\n")
    tools = Path(__file__).parent
    if copy != ROOT:  # an older tree has no such module
        for name in ("__init__", "hits"):
            target = copy / "tools" / f"{name}.py"
            if not target.exists() and (tools / f"{name}.py").exists():
                target.write_text((tools / f"{name}.py").read_text())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(start), str(copy))), FOLDER: str(notes)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.hits", "-m", marks]
    ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    print(ended.stdout[-2000:], ended.stderr[-2000:], flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.reached", description="Which tests come to a change.")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    asked = parser.parse_args()
    found = reached(drawn(ROOMS, asked.count, asked.seed, []), asked.tree.resolve())
    asked.out.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
