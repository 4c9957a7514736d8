"""What torch assumed of symbolic sizes while it ran a program, and for which sizes that holds.

torch writes each question that it answered as a guard, an expression of sizes.  Whether a guard matters is found by
trying sizes: one that nearly all sizes fulfil says nothing, and one that hardly any does holds a size fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# From a few on, equal to each other and different: torch's own shape functions leave the smallest open too.
_FEW = (4, 5, 6, 7, 8, 12, 30, 31, 64, 100, 1000, 4096)
_MANY = range(2, 100)


def holds_at(expression: Any, sizes: Mapping[Any, int]) -> bool:
    """Whether an assumption holds for these sizes; False where it has no answer for them."""
    try:
        return bool(expression.subs(sizes))
    except (TypeError, ZeroDivisionError, ValueError):
        return False


def holds_but_for_the_smallest(expression: Any) -> bool:
    """True for a question that all sizes but the smallest answer alike: `Ne(s0, 1)`, `s0 <= 2**24`."""
    symbols = sorted(expression.free_symbols, key=str)
    for shift in range(len(symbols) and 3):
        for first in range(len(_FEW)):
            sizes = [_FEW[(first + shift * place) % len(_FEW)] for place in range(len(symbols))]
            if not holds_at(expression, dict(zip(symbols, sizes, strict=True))):
                return False
    return True


def share_of_sizes(expression: Any, known: Sequence[Any]) -> float:
    """For what share of sizes an assumption holds where those `known` hold: 1 says all, so that it is none.

    Those of one size are tried on many sizes, the constants in them included; others on equal sizes.
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


def open_guards(shapes: Any) -> Iterator[Any]:
    """The guards of torch's book of sizes that speak of sizes which are still free, as these are known now."""
    for guard in shapes.guards:
        expression = guard.expr.xreplace(shapes.replacements)
        if expression.free_symbols:
            yield type(guard)(expression, guard.sloc, guard.size_oblivious)
