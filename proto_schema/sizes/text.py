"""Sizes as text, and back: `dim_param` of ONNX is the only place of a file that can hold one.

A size that is one symbol is written as its name, whatever characters that has.  Inside an expression a name that is no
identifier is quoted: `2*'batch-size'`.  Expressions are written in Python's syntax, `a % n` for `a - n*(a//n)`.

`parse` reads that, and what torch writes (`Max(a, b)`, `Mod(a, 2)`, `FloorDiv(a, 2)`, `floor(a/2)`, `a**2`).  A text
that is not such an expression is a name.  `Size` uses this module, which knows what it makes by `Arithmetic` alone.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping
from typing import NamedTuple

from proto_schema.sizes.atoms import Atom, Part, Product, Quotient, Terms
from proto_schema.sizes.symbols import Symbol

_CHOICES = {"Least": "min", "Greatest": "max"}
_DEEPEST = 64  # levels of an expression that is read
_LONGEST = 4096  # characters of one
_HIGHEST = 16  # a power


# Writing -------------------------------------------------------------------------------------------------------------


def written(size: Part) -> str:
    """The text of a size."""
    if size.name is not None:
        return str(size.name)
    text = ""
    for count, body, wrapped in _parts(size):
        number = str(abs(count))
        # `a + b//2`, but `2*(b//2)` and `-(b//2)`
        bare = body[1:-1] if wrapped and number == "1" and (text or count > 0) else body
        piece = number if not bare else bare if number == "1" else f"{number}*{bare}"
        text = f"{text} {'-' if count < 0 else '+'} {piece}" if text else piece if count > 0 else f"-{piece}"
    return text


def _parts(size: Part) -> list[tuple[int, str, bool]]:
    """The parts of a sum, the constant last: coefficient, text, and whether this is one quotient or remainder."""
    terms: Terms = dict(size.terms)
    found: list[tuple[int, str, bool]] = []
    for product, count in size.terms.items():
        atom = product[0] if len(product) == 1 else None
        if not isinstance(atom, Quotient) or not isinstance(atom.denominator, int) or isinstance(atom.numerator, int):
            continue
        times, rest = divmod(-count, atom.denominator)
        inner = atom.numerator.terms
        if rest or any(terms.get(part) != times * number for part, number in inner.items()):
            continue
        for part in (product, *inner):
            del terms[part]
        found.append((times, f"({_operand(atom.numerator)} % {atom.denominator})", True))
    constant = terms.pop((), 0)
    plain = sorted(terms, key=lambda product: (-len(product), [atom.order for atom in product]))
    others = [
        (terms[product], _product(product), len(product) == 1 and isinstance(product[0], Quotient)) for product in plain
    ]
    positive = [item for item in (*others, *found) if item[0] > 0]
    negative = [item for item in (*others, *found) if item[0] < 0]
    return [*positive, *negative, *([(constant, "", False)] if constant else [])]


def _product(product: Product) -> str:
    return "*".join(map(_atom, product))


def _atom(atom: Atom) -> str:
    if isinstance(atom, Symbol):
        return _name(atom.name)
    if isinstance(atom, Quotient):
        return f"({_operand(atom.numerator)}//{_operand(atom.denominator)})"
    items = ", ".join(sorted((_whole(item) for item in atom.items), key=lambda text: (text.isdigit(), text)))
    return f"{_CHOICES[type(atom).__name__]}({items})"


def _name(name: str) -> str:
    plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return name if plain else repr(name)


def _whole(size: Part) -> str:
    """A size as an expression: also a lone name is quoted where it must be."""
    return str(size) if isinstance(size, int) or size.name is None else _name(size.name)


def _operand(size: Part) -> str:
    """A size beside `//` or `%`."""
    text = _whole(size)
    return text if isinstance(size, int) or size.name is not None else f"({text})"


# Reading -------------------------------------------------------------------------------------------------------------


class Arithmetic(NamedTuple):
    """What a reader makes: a symbol, and the functions `min` and `max` of sizes; no number lies past `largest`."""

    symbol: Callable[[str], Part]
    minimum: Callable[..., Part]
    maximum: Callable[..., Part]
    largest: int


def read(text: str, names: frozenset[str] | None, by: Arithmetic) -> Part:
    """What `Size.parse` documents."""
    if (names is not None and text in names) or len(text) > _LONGEST:
        return by.symbol(text)
    try:
        return _SizeReader(names, by).value(ast.parse(text.strip(), mode="eval").body, 0)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return by.symbol(text)


class _SizeReader:
    def __init__(self, names: frozenset[str] | None, by: Arithmetic) -> None:
        self.names = names
        self.by = by

    def value(self, tree: ast.AST, depth: int) -> Part:
        """Raises ValueError for what is no expression of sizes."""
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        if isinstance(tree, ast.Constant) and type(tree.value) in (int, str):
            return tree.value if isinstance(tree.value, int) else self._symbol(str(tree.value))
        if isinstance(tree, ast.Name):
            return self._symbol(tree.id)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            return -self.value(tree.operand, depth + 1)
        if isinstance(tree, ast.BinOp):
            if isinstance(tree.op, ast.Pow):
                return self._power(self.value(tree.left, depth + 1), tree.right)
            function = _OPERATORS.get(type(tree.op))
            if function is not None:
                return function(self.value(tree.left, depth + 1), self.value(tree.right, depth + 1))
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.keywords:
            return self._call(tree.func.id, tree.args, depth + 1)
        raise ValueError("no expression of sizes")

    def _symbol(self, name: str) -> Part:
        if self.names is not None and name not in self.names:
            raise ValueError(f"{name!r} is not known")
        return self.by.symbol(name)

    def _power(self, base: Part, power: ast.AST) -> Part:
        if not isinstance(power, ast.Constant) or type(power.value) is not int or not 0 <= power.value <= _HIGHEST:
            raise ValueError("no power of a size")
        result: Part = 1
        for _ in range(power.value):
            result = result * base
            if isinstance(result, int) and abs(result) > self.by.largest:
                raise ValueError("no size is that large")
        return result

    def _call(self, name: str, args: list[ast.expr], depth: int) -> Part:
        inner = args[0] if len(args) == 1 else None
        if name in ("floor", "ceil", "ceiling") and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div):
            above, below = (self.value(item, depth) for item in (inner.left, inner.right))
            return above // below if name == "floor" else -(-above // below)
        choices = {"min": self.by.minimum, "max": self.by.maximum}
        function = choices.get(name.lower()) if name in _CHOOSING else _FUNCTIONS.get(name)
        if function is None or not args or (name not in _CHOOSING and len(args) != 2):
            raise ValueError("no function of sizes")
        return function(*(self.value(item, depth) for item in args))


def _quotient_up(one: Part, other: Part) -> Part:
    return -(-one // other)


_CHOOSING = ("min", "max", "Min", "Max")
_OPERATORS: dict[type[ast.operator], Callable[[Part, Part], Part]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.FloorDiv: lambda one, other: one // other,
    ast.Mod: lambda one, other: one % other,
}
_FUNCTIONS: Mapping[str, Callable[[Part, Part], Part]] = {
    "Mod": _OPERATORS[ast.Mod],
    "PythonMod": _OPERATORS[ast.Mod],
    "FloorDiv": _OPERATORS[ast.FloorDiv],
    "CleanDiv": _OPERATORS[ast.FloorDiv],
    "CeilDiv": _quotient_up,
}
