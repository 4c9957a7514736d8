"""Counts the steps of a piece of work, those hidden in C included: copies of the packages that count as they run.

Strategy: while `counting` is open, the modules of the packages are compiled from changed syntax trees. Each call and
each turn of a loop is a step. An operation whose work grows with its operand counts as many steps as the operand has
elements, or a sixteenth of its bytes: `in` for a list, `+` and slices, comparisons, f-strings, whole numbers of many
digits, and every function in C (`list.index`, `list.pop(0)`, `sorted`, `bytes.find`, `b"".join`), but for those in
`CONSTANT`, which take the same time for any size. `difflib` is counted like our own modules, and so is the source that
`proto_schema.wire.generate` compiles. The counts depend on the input alone, not on the machine, its load, or the
Python.

What is not counted: matching inside regular expressions (a search counts as one pass), what C code does with elements
that it compares, and the work of the system. `tests/fuzz/test_growth.py` measures time for that.
"""

from __future__ import annotations

import ast
import builtins
import collections
import functools
import importlib.machinery
import importlib.util
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

PACKAGES = ("proto_schema", "purexport", "difflib")
_NAME = "__steps__"  # in builtins, so that every module finds it
_SHIFT = 4  # 16 bytes are a step

CONSTANT = frozenset(
    {
        *("len", "isinstance", "issubclass", "id", "getattr", "setattr", "hasattr", "callable", "iter", "next", "ord"),
        *("chr", "hash", "bisect_left", "bisect_right", "bisect", "get", "setdefault", "append", "add", "discard"),
        *("items", "keys", "values", "__setattr__", "__contains__", "__getitem__", "startswith", "endswith", "cast"),
        *("appendleft", "popleft", "popitem", "close", "fileno", "flush", "__new__", "match", "group", "start", "end"),
        *("frombuffer", "madvise", "clear", "release", "exec", "append"),
    }
)
"""Functions in C, by their names, whose time does not grow with their arguments."""

_OF_ARGUMENTS = ("extend", "update", "join", "isdisjoint")  # methods whose time does not grow with their own object
_LAZY = (map, filter, zip, enumerate, reversed)
_TYPES = (type, memoryview, range, slice, property, staticmethod, classmethod, object, functools.partial)
_TYPES += (collections.ChainMap,)
_BYTES = (str, bytes, bytearray)
_SIZED = (list, tuple, set, frozenset, dict, collections.Counter, collections.defaultdict, collections.deque)
_KEPT = frozenset({"super", "locals", "globals", "vars", "dir"})  # which look at the frame that calls them


def size(value: Any) -> int:
    """The steps of a pass over a value."""
    kind = type(value)
    if kind in _BYTES:
        return len(value) >> _SHIFT
    if kind in _SIZED:
        return len(value)
    if kind is int:
        return int(value.bit_length() >> 6)
    if kind is memoryview or kind.__module__ == "numpy":
        return int(getattr(value, "nbytes", 0)) >> _SHIFT
    return len(value) if kind.__name__ in ("dict_values", "dict_items", "dict_keys") else 0


class Steps:
    """The counter, with one method for each kind of operation that the changed syntax trees call."""

    def __init__(self) -> None:
        self.count = 0

    def tick(self) -> None:
        """A call of a function, or a turn of a `while` loop."""
        self.count += 1

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values of a loop, each a step."""
        for value in values:
            self.count += 1
            yield value

    def made(self, value: Any) -> Any:
        """A new value: a slice, a text, a list of others. A slice of a view is no copy."""
        if type(value) is not memoryview:
            self.count += size(value)
        return value

    def added(self, value: Any) -> None:
        """The target of `+=`: what cannot change is made anew."""
        if not isinstance(value, (list, set, dict, bytearray)):
            self.count += size(value)

    def deleted(self, holder: Any) -> Any:
        """`del holder[...]` moves what follows."""
        if isinstance(holder, (list, bytearray)):
            self.count += size(holder)
        return holder

    def compared(self, name: str, left: Any, right: Any) -> Any:
        """A comparison, or a search with `in`."""
        if name in ("In", "NotIn"):
            if not isinstance(right, (set, frozenset, dict, range)) and type(right).__name__ != "dict_keys":
                self.count += size(right)
            return (left in right) is (name == "In")
        self.count += min(size(left), size(right))
        return _OPERATORS[name](left, right)

    def operated(self, name: str, left: Any, right: Any) -> Any:
        """Arithmetic, joining, formatting, sets."""
        result = _OPERATORS[name](left, right)
        if isinstance(left, (set, frozenset, dict)):
            self.count += size(left)
        self.count += size(result)
        return result

    def call(self, function: Any, *args: Any, **named: Any) -> Any:
        """A call: what it does itself is counted inside if it is ours, else by its arguments and its result."""
        if function is builtins.compile:
            return compiled(*args)
        if _is_ours(function):
            return function(*args, **named)
        holder = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        if isinstance(holder, re.Pattern):
            return self._matched(function, *args, **named)
        if name in ("pop", "remove") and not isinstance(holder, ModuleType):
            moves = isinstance(holder, (list, bytearray)) and (args or name == "remove")
            self.count += size(holder) if moves else 0
            return function(*args, **named)
        result = function(*args, **named)
        if function in _LAZY or type(result).__module__ == "itertools" or type(result) in _LAZY:
            return self.each(result)
        if name in CONSTANT or function in _TYPES or isinstance(function, functools._lru_cache_wrapper):
            return result
        if holder is not None and not isinstance(holder, ModuleType) and name not in _OF_ARGUMENTS:
            self.count += size(holder)
        self.count += sum(map(size, args)) + size(result) + (len(args) if len(args) > 8 else 0)
        return result

    def _matched(self, function: Any, *args: Any, **named: Any) -> Any:
        """A regular expression: up to the match, or the whole text."""
        result = function(*args, **named)
        if function.__name__ == "finditer":
            return self._found(result)
        if function.__name__ != "match":
            self.count += sum(map(size, args)) + size(result)
        elif result is not None:
            self.count += size(result[0])
        return result

    def _found(self, matches: Iterator[re.Match[Any]]) -> Iterator[re.Match[Any]]:
        at = None
        for match in matches:
            self.count += 1 + (0 if at is None else (match.end() - at) >> _SHIFT)
            at = match.end()
            yield match


def _is_ours(function: Any) -> bool:
    """Whether the callable was compiled here, or is a class whose construction was."""
    while isinstance(function, (MethodType, functools.partial)):
        function = function.__func__ if isinstance(function, MethodType) else function.func
    if isinstance(function, FunctionType):
        return _NAME in function.__code__.co_names or _NAME in function.__code__.co_consts
    if isinstance(function, BuiltinFunctionType):
        return False
    return isinstance(function, type) and function.__module__.partition(".")[0] in PACKAGES


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": operator.pow,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
    "BitOr": operator.or_,
    "BitAnd": operator.and_,
    "BitXor": operator.xor,
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
}


# -- the change of the syntax trees ------------------------------------------------------------------------------------


def _asked(method: str, *args: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
    function = ast.Attribute(ast.Name(_NAME, ast.Load()), method, ast.Load())
    return ast.Call(function, list(args), list(keywords))


class _Changed(ast.NodeTransformer):
    """Every operation whose work may grow becomes a call of `Steps`."""

    def _visited(self, node: Any, *fields: str) -> Any:
        for name in fields:
            value = getattr(node, name)
            if isinstance(value, list):
                found = [self.visit(item) if item is not None else None for item in value]
                setattr(node, name, [one for item in found for one in (item if isinstance(item, list) else [item])])
            elif value is not None:
                setattr(node, name, self.visit(value))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self._visited(node, "decorator_list", "body")
        self._visited(node.args, "defaults", "kw_defaults")
        first = int(ast.get_docstring(node, clean=False) is not None)
        node.body.insert(first, ast.Expr(_asked("tick")))
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self._visited(node, "body")
        self._visited(node.args, "defaults", "kw_defaults")
        node.body = ast.BoolOp(ast.Or(), [_asked("tick"), node.body])
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        self._visited(node, "target", "value")
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.iter = _asked("each", node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.iter = _asked("each", node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(_asked("tick")))
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        name = type(node.ops[0]).__name__
        if len(node.ops) > 1 or name in ("Is", "IsNot"):
            return node
        return _asked("compared", ast.Constant(name), node.left, node.comparators[0])

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = type(node.op).__name__
        return _asked("operated", ast.Constant(name), node.left, node.right) if name in _OPERATORS else node

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        self.generic_visit(node)
        node.value = _asked("made", node.value)
        if isinstance(node.target, ast.Name):
            after: ast.expr = ast.Name(node.target.id, ast.Load())
        elif isinstance(node.target, ast.Attribute):
            after = ast.Attribute(node.target.value, node.target.attr, ast.Load())
        else:
            return [node]
        return [node, ast.Expr(_asked("added", after))]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return _asked("made", node) if isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice) else node

    def visit_Delete(self, node: ast.Delete) -> ast.Delete:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                target.value = _asked("deleted", self.visit(target.value))
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                value.value = self.visit(value.value)
        return _asked("made", node)

    def _display(self, node: Any) -> Any:
        self.generic_visit(node)
        parts = getattr(node, "elts", None) or getattr(node, "keys", [])
        joined = any(part is None or isinstance(part, ast.Starred) for part in parts)
        return _asked("made", node) if joined and isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else node

    visit_List = visit_Tuple = visit_Set = visit_Dict = _display  # noqa: N815

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _KEPT:
            return node
        return _asked("call", node.func, *node.args, keywords=node.keywords)


def compiled(source: Any, filename: str, mode: str) -> CodeType:
    """The code of a source that counts its steps in `__steps__`."""
    tree = _Changed().visit(ast.parse(source, filename, mode))
    code: CodeType = compile(ast.fix_missing_locations(tree), filename, mode, dont_inherit=True)
    return code


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path, "exec")


class _Finder:
    """Finds the modules of the packages, for the changed loader."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


@contextmanager
def counting() -> Iterator[Steps]:
    """The counter of a process in which none of the packages has been imported yet. RuntimeError if one has."""
    there = [name for name in PACKAGES if name in sys.modules and name != "difflib"]
    if there:
        raise RuntimeError(f"{', '.join(there)} is imported already: count in a process of its own")
    sys.modules.pop("difflib", None)
    steps = Steps()
    setattr(builtins, _NAME, steps)
    finder: Any = _Finder
    sys.meta_path.insert(0, finder)
    try:
        yield steps
    finally:
        sys.meta_path.remove(finder)


__all__ = ["CONSTANT", "PACKAGES", "Steps", "compiled", "counting", "size"]
