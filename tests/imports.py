"""Who imports whom: the import graph of both packages, read from the sources.  For tests/test_layers.py.

An import counts wherever it stands: at the top, inside a function, and under `TYPE_CHECKING`.  A source is parsed once
for all that is asked of it, and its tree is not kept: the trees of both packages have a million nodes.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Sources = Mapping[str, str]  # module -> source


@functools.cache
def sources(root: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """The text of every module of these packages, by the module's name."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            found[".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")] = path.read_text()
    return found


@dataclass(frozen=True)
class Parsed:
    """What a source says of itself; lines are those of the statement or name."""

    imported: tuple[tuple[int, str], ...]  # (line, module); `from a import b` gives both a and a.b
    taken: tuple[tuple[str, tuple[str, ...]], ...]  # (a, (a.b, a.c)) of `from a import b, c`; (a, ()) of `import a`
    loaded: frozenset[str]  # the modules that are loaded with this one: imports at its top, not for type checkers
    dotted: frozenset[str]  # `torch.jit.trace` and `torch.jit`, wherever an expression says the first
    globals: tuple[int, ...]
    prints: tuple[int, ...]
    has_definitions: bool
    has_docstring: bool


@functools.cache
def parsed(text: str) -> Parsed:
    tree = ast.parse(text)
    imports: list[ast.Import | ast.ImportFrom] = []
    loaded: set[str] = set()
    dotted: set[str] = set()
    globals_, prints = [], []
    has_definitions = False
    for statement in tree.body:
        is_loaded = not _is_definition(statement) and not _is_for_type_checkers(statement)
        for node in ast.walk(statement):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imports.append(node)
                loaded.update(name for _, name in _imported(node) if is_loaded)
            elif isinstance(node, ast.Attribute):
                dotted.add(_dotted(node))
            elif isinstance(node, ast.Global):
                globals_.append(node.lineno)
            elif isinstance(node, ast.Name) and node.id == "print":
                prints.append(node.lineno)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                has_definitions = True
    return Parsed(
        tuple(item for node in imports for item in _imported(node)),
        tuple(item for node in imports for item in _taken(node)),
        frozenset(loaded),
        frozenset(dotted - {""}),
        tuple(globals_),
        tuple(prints),
        has_definitions,
        bool(ast.get_docstring(tree)),
    )


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    else:
        assert node.level == 0, f"line {node.lineno}: write the absolute import"
        yield node.lineno, node.module or ""
        yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _taken(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, ()) for alias in node.names)
    else:
        yield node.module or "", tuple(f"{node.module}.{alias.name}" for alias in node.names)


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of names and attributes only, "" of others."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _is_definition(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def graph(texts: Sources, *, at_load: bool = False) -> dict[str, set[str]]:
    """The modules of `texts` that each of them imports, or, `at_load`, loads; a package is its `__init__`.

    `from package import module` is an import of that module alone; loading it loads the package too.
    """
    found: dict[str, set[str]] = {}
    for module, text in texts.items():
        named = parsed(text).loaded if at_load else {name for _, name in parsed(text).imported}
        taken_from = {name.rpartition(".")[0] for name in named if name in texts}
        plain = {name for name in named if name in texts and (name not in taken_from or name in _named(text, texts))}
        parents = {parent for name in named for parent in _parents(name) if parent in texts} if at_load else set()
        found[module] = (plain | parents) - {module}
    return found


def _named(text: str, known: Collection[str]) -> set[str]:
    """The modules of which something of their own is imported, not only modules in them."""
    return {name for name, inner in parsed(text).taken if not inner or any(item not in known for item in inner)}


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
