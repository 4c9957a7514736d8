"""The guards: what torch assumed of symbolic sizes while it ran a program, and for which sizes that holds.

torch records each question that it answered as a guard, which is an expression of sizes.  To find out whether a guard
matters, sizes are tried.  A guard that nearly all sizes fulfil is no restriction.  A guard that hardly any size fulfils
specializes a size.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

# They begin at 4, because torch's own shape functions also make assumptions that fail for the smallest sizes only.
_FEW = (4, 5, 6, 7, 8, 12, 30, 31, 64, 100, 1000, 4096)
_MANY = range(2, 100)


# by the names of sympy's classes and of torch's
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *terms: sum(terms),
    "Mul": lambda *factors: math.prod(factors),
    "Pow": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "PythonMod": operator.mod,
    "Mod": operator.mod,
    "Max": max,
    "Min": min,
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "LessThan": operator.le,
    "StrictLessThan": operator.lt,
    "GreaterThan": operator.ge,
    "StrictGreaterThan": operator.gt,
    "And": lambda *parts: all(parts),
    "Or": lambda *parts: any(parts),
    "Not": operator.not_,
}


def holds_at(expression: Any, sizes: Mapping[Any, int]) -> bool:
    """Whether an assumption holds for these sizes; False where it cannot be evaluated for them."""
    try:
        return bool(_evaluated(expression, sizes))
    except (TypeError, ZeroDivisionError, ValueError):
        return False
    except LookupError:  # of another kind, so that sympy is asked, which takes a hundred times as long
        return _holds_by_sympy(expression, sizes)


def _holds_by_sympy(expression: Any, sizes: Mapping[Any, int]) -> bool:
    try:
        return bool(expression.subs(sizes))
    except (TypeError, ZeroDivisionError, ValueError):
        return False


def _evaluated(item: Any, sizes: Mapping[Any, int]) -> Any:
    """The exact value.  Raises LookupError for what has no row."""
    if item.is_Symbol:
        return sizes[item]
    if item.is_Rational:
        return int(item) if item.is_Integer else Fraction(int(item.p), int(item.q))
    if not item.args:
        return {"BooleanTrue": True, "BooleanFalse": False}[type(item).__name__]
    operation = _OPERATIONS[type(item).__name__]
    args = [_evaluated(arg, sizes) for arg in item.args]
    if operation is operator.pow and args[1] < 0:
        return Fraction(args[0]) ** args[1]
    return operation(*args)


def holds_but_for_the_smallest(expression: Any) -> bool:
    """True for an assumption that holds for all sizes except very small or huge ones: `Ne(s0, 1)`, `s0 <= 2**24`."""
    symbols = sorted(expression.free_symbols, key=str)
    for shift in range(len(symbols) and 3):
        for first in range(len(_FEW)):
            sizes = [_FEW[(first + shift * place) % len(_FEW)] for place in range(len(symbols))]
            if not holds_at(expression, dict(zip(symbols, sizes, strict=True))):
                return False
    return True


def share_of_sizes(expression: Any, known: Sequence[Any]) -> float:
    """The share of sizes for which an assumption holds, among those for which the assumptions `known` hold.

    1 means all sizes, so that nothing is assumed.  An assumption about one size is tried on many sizes, including the
    constants in it and their neighbours.  An assumption about several sizes is tried with all of them equal.
    """
    constants = {int(number) for number in expression.atoms() if number.is_Integer and abs(number) < 2**40}
    edges = {number + by for number in constants for by in (-1, 0, 1)} | {2**power for power in range(8, 40)}
    symbols = expression.free_symbols
    others = [other for other in known if other.free_symbols == symbols]
    common = [_holds_at_equal(expression, symbols, size) for size in _MANY]
    if len(symbols) == 1:
        tried = [size for size in (*_MANY, *edges) if size >= 0]
        sizes = [size for size in tried if all(_holds_at_equal(item, symbols, size) for item in others)]
        if all(_holds_at_equal(expression, symbols, size) for size in sizes):
            return 1
    return min(sum(common) / len(common), 0.99)


def _holds_at_equal(expression: Any, symbols: Any, size: int) -> bool:
    return holds_at(expression, dict.fromkeys(symbols, size))
