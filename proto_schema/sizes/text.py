"""Sizes as text, and back: `dim_param` of ONNX is the only place of a file that can hold one.

A size that is one symbol is written as its name, whatever characters that has.  Inside an expression a name that is no
identifier is quoted: `2*'batch-size'`.  Expressions are written in Python's syntax, `a % n` for `a - n*(a//n)`.

`parse` reads that, and what torch writes (`Max(a, b)`, `Mod(a, 2)`, `FloorDiv(a, 2)`, `floor(a/2)`, `a**2`).  A text
that is not such an expression is a name.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Iterable

from proto_schema.sizes.atoms import Atom, Product, Quotient
from proto_schema.sizes.size import LARGEST, Dim, Size, maximum, minimum, symbol
from proto_schema.sizes.symbols import Symbol

_CHOICES = {"Least": "min", "Greatest": "max"}
_DEEPEST = 64  # levels of an expression that is read
_LONGEST = 4096  # characters of one
_HIGHEST = 16  # a power


# Writing -------------------------------------------------------------------------------------------------------------


def written(size: Size) -> str:
    """The text of a size."""
    if size.name is not None:
        return size.name
    text = ""
    for count, body, wrapped in _parts(size):
        number = str(abs(count))
        # `a + b//2`, but `2*(b//2)` and `-(b//2)`
        bare = body[1:-1] if wrapped and number == "1" and (text or count > 0) else body
        piece = number if not bare else bare if number == "1" else f"{number}*{bare}"
        text = f"{text} {'-' if count < 0 else '+'} {piece}" if text else piece if count > 0 else f"-{piece}"
    return text


def _parts(size: Size) -> list[tuple[int, str, bool]]:
    """The parts of a sum, the constant last: coefficient, text, and whether this is one quotient or remainder."""
    terms = dict(size.terms)
    found: list[tuple[int, str, bool]] = []
    for product, count in size.terms.items():
        atom = product[0] if len(product) == 1 else None
        if (
            not isinstance(atom, Quotient)
            or not isinstance(atom.denominator, int)
            or not isinstance(atom.numerator, Size)
        ):
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


def _whole(size: Dim) -> str:
    """A size as an expression: also a lone name is quoted where it must be."""
    return _name(size.name) if isinstance(size, Size) and size.name is not None else str(size)


def _operand(size: Dim) -> str:
    """A size beside `//` or `%`."""
    text = _whole(size)
    return text if isinstance(size, int) or size.name is not None else f"({text})"


# Reading -------------------------------------------------------------------------------------------------------------


def parse(text: str, names: Iterable[str] | None = None) -> Dim:
    """The size that `text` says: a number, an expression, or one symbol whose name is the whole text.

    With `names`, a text is an expression only if all names in it are among these; otherwise it is one symbol.
    """
    known = None if names is None else frozenset(names)
    if known is not None and text in known:
        return symbol(text)
    if len(text) > _LONGEST:
        return symbol(text)
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, known, 0)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return symbol(text)


def _value(tree: ast.AST, known: frozenset[str] | None, depth: int) -> Dim:
    """Raises ValueError for what is no expression of sizes."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(tree, ast.Constant) and type(tree.value) in (int, str):
        return tree.value if isinstance(tree.value, int) else _symbol(str(tree.value), known)
    if isinstance(tree, ast.Name):
        return _symbol(tree.id, known)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_value(tree.operand, known, depth + 1)
    if isinstance(tree, ast.BinOp):
        if isinstance(tree.op, ast.Pow):
            return _power(_value(tree.left, known, depth + 1), tree.right)
        function = _OPERATORS.get(type(tree.op))
        if function is not None:
            return function(_value(tree.left, known, depth + 1), _value(tree.right, known, depth + 1))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.keywords:
        return _call(tree.func.id, tree.args, known, depth + 1)
    raise ValueError("no expression of sizes")


def _symbol(name: str, known: frozenset[str] | None) -> Size:
    if known is not None and name not in known:
        raise ValueError(f"{name!r} is not known")
    return symbol(name)


def _power(base: Dim, power: ast.AST) -> Dim:
    if not isinstance(power, ast.Constant) or type(power.value) is not int or not 0 <= power.value <= _HIGHEST:
        raise ValueError("no power of a size")
    result: Dim = 1
    for _ in range(power.value):
        result = result * base
        if isinstance(result, int) and abs(result) > LARGEST:
            raise ValueError("no size is that large")
    return result


def _call(name: str, args: list[ast.expr], known: frozenset[str] | None, depth: int) -> Dim:
    inner = args[0] if len(args) == 1 else None
    if name in ("floor", "ceil", "ceiling") and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div):
        above, below = (_value(item, known, depth) for item in (inner.left, inner.right))
        return above // below if name == "floor" else -(-above // below)
    function = _FUNCTIONS.get(name)
    if function is None or not args or (name not in ("min", "max", "Min", "Max") and len(args) != 2):
        raise ValueError("no function of sizes")
    return function(*(_value(item, known, depth) for item in args))


def _quotient_up(one: Dim, other: Dim) -> Dim:
    return -(-one // other)


_OPERATORS: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.FloorDiv: lambda one, other: one // other,
    ast.Mod: lambda one, other: one % other,
}
_FUNCTIONS: dict[str, Callable[..., Dim]] = {
    "min": minimum,
    "Min": minimum,
    "max": maximum,
    "Max": maximum,
    "Mod": _OPERATORS[ast.Mod],
    "PythonMod": _OPERATORS[ast.Mod],
    "FloorDiv": _OPERATORS[ast.FloorDiv],
    "CleanDiv": _OPERATORS[ast.FloorDiv],
    "CeilDiv": _quotient_up,
}
