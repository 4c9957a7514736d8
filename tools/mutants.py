"""The small changes that `tools/mutate.py` makes to a module, each of which some test should notice.

A module is parsed; a change puts another node in the place of one, or leaves a statement out. What says nothing about
behaviour stays as it is: docstrings, annotations, imports, decorators, names of type checkers, and the words of
errors. Where a module writes code as text (`texts`), comparisons and numbers in its strings are changed as well.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}
LEFT_OUT = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Continue, ast.Break)
NOT_BEHAVIOUR = ("annotation", "returns", "decorator_list", "type_comment")
NOT_LOOKED_INTO = (ast.Import, ast.ImportFrom, ast.AnnAssign)

# (what stands in generated code, what to write instead)
IN_TEXTS = [
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r"\bis None\b", "is not None"),
    (r"\bis not\b", "is"),
    (r"\bif not\b", "if"),
    (r"\bnot in\b", "in"),
    (r"\band\b", "or"),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \+= ", " = "),
    (r" -= ", " = "),
    (r"\bcontinue\b", "pass"),
    (r"\braise Malformed\b", "pass"),
    (r"(?<![\w#])\d+\b", "+1"),
    (r"(?<![\w#])\d+\b", "-1"),
]


@dataclass(frozen=True)
class Change:
    """`new` in the place of one node of a tree; None leaves the element of a list out."""

    line: int
    text: str
    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST

    def source(self, tree: ast.Module) -> str:
        """The module with this change; `tree` is as before afterwards."""
        old = self._put(self.new)
        try:
            return ast.unparse(tree)
        finally:
            self._put(old)

    def _put(self, node: Any) -> Any:
        held = getattr(self.parent, self.field)
        if self.index is None:
            setattr(self.parent, self.field, node)
            return held
        old, held[self.index] = held[self.index], node
        return old


@dataclass(frozen=True)
class Found:
    """A change by its text and its place: the function around it, the text of its line, and a number among the same.

    The line's number is for people; the change is found again without it, in another state of the module too.
    """

    line: int
    scope: str
    code: str
    text: str
    number: int

    @property
    def key(self) -> str:
        return f"{self.scope}: {self.code}: {self.text} #{self.number}"


def found_changes(source: str, texts: bool = False) -> list[Found]:
    """Every change of a module."""
    return [found for found, _ in _with_places(source, ast.parse(source), texts)]


def found_again(source: str, wanted: Found, texts: bool = False) -> str | None:
    """A module with a change that was found in this or another state of it; None where its line is not there."""
    tree = ast.parse(source)
    for found, change in _with_places(source, tree, texts):
        if found.key == wanted.key:
            return change.source(tree)
    return None


def located(source: str, wanted: list[Found], texts: bool = False) -> list[list[ast.AST]]:
    """The nodes from the module to the place of each change; none where its line is not there."""
    tree = ast.parse(source)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    places = {}
    for found, change in _with_places(source, tree, texts):
        held = getattr(change.parent, change.field)
        nodes = [held if change.index is None else held[change.index]]
        nodes.append(change.parent)
        while nodes[-1] in above:
            nodes.append(above[nodes[-1]])
        places[found.key] = nodes[::-1]
    return [places.get(found.key, []) for found in wanted]


def _with_places(source: str, tree: ast.Module, texts: bool) -> Iterator[tuple[Found, Change]]:
    lines = source.splitlines()
    scopes = list(_scopes(tree, ""))
    seen: Counter[tuple[str, str, str]] = Counter()
    for change in changes(tree, texts):
        inner = [name for name, first, last in scopes if first <= change.line <= last]
        place = (inner[-1] if inner else "", lines[change.line - 1].strip() if change.line else "", change.text)
        seen[place] += 1
        yield Found(change.line, *place, seen[place]), change


def _scopes(node: ast.AST, above: str) -> Iterator[tuple[str, int, int]]:
    """The functions and classes below a node, from outside to inside: name, first line, last line."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{above}.{child.name}".lstrip(".")
            yield name, child.lineno, child.end_lineno or child.lineno
            yield from _scopes(child, name)
        else:
            yield from _scopes(child, above)


def changes(tree: ast.Module, texts: bool = False) -> list[Change]:
    """Every change of a module, in the order of its lines."""
    return sorted(_below(tree, texts), key=lambda change: change.line)


def _below(node: ast.AST, texts: bool) -> Iterator[Change]:
    for field, value in ast.iter_fields(node):
        if field in NOT_BEHAVIOUR:
            continue
        for index, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(item, ast.AST) or _says_nothing(item, texts):
                continue
            instead = list(_instead(item, texts))
            shown = _shown(item) if instead else ""
            for new in instead:
                yield Change(getattr(item, "lineno", 0), f"{shown}  =>  {_shown(new)}", node, field, index, new)
            yield from _below(item, texts)


def _says_nothing(node: ast.AST, texts: bool) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
        return True
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
        return True
    return isinstance(node, NOT_LOOKED_INTO) or (isinstance(node, ast.JoinedStr) and not texts)


def _instead(node: ast.AST, texts: bool) -> Iterator[ast.AST]:
    """What to write instead of a node."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                yield ast.Compare(node.left, [*node.ops[:index], other(), *node.ops[index + 1 :]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        for index in range(len(node.values)):
            rest = [value for at, value in enumerate(node.values) if at != index]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
    elif isinstance(node, ast.Constant):
        yield from map(ast.Constant, _other_constants(node.value, texts))
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.If):
        yield from (ast.If(ast.Constant(found), node.body, node.orelse) for found in (True, False))
    elif isinstance(node, ast.While) and not isinstance(node.test, ast.Constant):
        yield ast.While(ast.Constant(False), node.body, node.orelse)
    elif isinstance(node, ast.Return) and not (node.value is None or _is_none(node.value)):
        yield ast.Return(ast.Constant(None))
    if isinstance(node, LEFT_OUT):
        yield ast.Pass()


def _other_constants(value: Any, texts: bool) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, str) and texts:
        for pattern, other in IN_TEXTS:
            for found in re.finditer(pattern, value):
                new = str(int(found[0]) + int(other)) if found[0].isdigit() else other
                yield value[: found.start()] + new + value[found.end() :]


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _shown(node: ast.AST) -> str:
    """The first line of a statement or an expression."""
    if isinstance(node, ast.If | ast.While):
        node = type(node)(node.test, [ast.Pass()], [])
    text = ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]
    return text if len(text) <= 90 else f"{text[:87]}..."
