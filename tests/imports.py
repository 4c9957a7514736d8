"""Who imports whom: the import graph of both packages, read from the sources.  For tests/test_layers.py.

An import counts wherever it stands: at the top, inside a function, and under `TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

Sources = Mapping[str, str]  # module -> source


def sources(root: Path, packages: Iterable[str]) -> dict[str, str]:
    """The text of every module of these packages, by the module's name."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            found[".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")] = path.read_text()
    return found


@functools.cache
def imported(text: str) -> tuple[tuple[int, str], ...]:
    """(line, module) of each import; `from a import b` gives both a and a.b."""
    return tuple(_imported(ast.parse(text)))


@functools.cache
def loaded(text: str) -> set[str]:
    """The modules that are loaded when this one is: imports at its top, but for those under `TYPE_CHECKING`."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not _is_for_type_checkers(node)]
    return {module for node in tree.body if not _is_definition(node) for _, module in _imported(node)}


def _imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the absolute import"
            yield node.lineno, node.module or ""
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _is_definition(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def graph(texts: Sources, *, at_load: bool = False) -> dict[str, set[str]]:
    """The modules of `texts` that each of them imports, or, `at_load`, loads; a package is its `__init__`.

    `from package import module` is an import of that module alone; loading it loads the package too.
    """
    found: dict[str, set[str]] = {}
    known = frozenset(texts)
    for module, text in texts.items():
        named = loaded(text) if at_load else {name for _, name in imported(text)}
        taken_from = {name.rpartition(".")[0] for name in named if name in texts}
        plain = {name for name in named if name in texts and (name not in taken_from or name in _named(text, known))}
        parents = {parent for name in named for parent in _parents(name) if parent in texts} if at_load else set()
        found[module] = (plain | parents) - {module}
    return found


@functools.cache
def _named(text: str, known: frozenset[str]) -> set[str]:
    """The modules of which something of their own is imported, not only modules in them."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and any(f"{node.module}.{item.name}" not in known for item in node.names):
            found.add(node.module or "")
    return found


def _parents(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def reachable(edges: Mapping[str, Collection[str]], start: str) -> dict[str, str]:
    """Every module that `start` reaches, with the one before it on a shortest way."""
    came_from: dict[str, str] = {}
    layer = [start]
    while layer:
        found = []
        for module in layer:
            for other in sorted(edges.get(module, ())):
                if other not in came_from and other != start:
                    came_from[other] = module
                    found.append(other)
        layer = found
    return came_from


def way(came_from: Mapping[str, str], end: str) -> str:
    """`a -> b -> c`: how `end` is reached."""
    steps = [end]
    while steps[0] in came_from:
        steps.insert(0, came_from[steps[0]])
    return " -> ".join(steps)


def circles(edges: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The groups of nodes that all reach each other, each sorted; by Tarjan's algorithm."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in order:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], order[other])
        if lowest[node] == order[node]:
            place = stack.index(node)
            group = stack[place:]
            del stack[place:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return found


def between_folders(edges: Mapping[str, Collection[str]], packages: Collection[str]) -> dict[str, set[str]]:
    """The same graph between folders; a file at the top of a package stands for itself.

    `packages` are the modules that are folders: their `__init__` belongs to the folder.
    """

    def folder(module: str) -> str:
        if module in packages:
            return module
        parent = module.rpartition(".")[0]
        return parent if "." in parent else module

    found: dict[str, set[str]] = {}
    for module, others in edges.items():
        found.setdefault(folder(module), set()).update(folder(other) for other in others)
    return {name: others - {name} for name, others in found.items()}
