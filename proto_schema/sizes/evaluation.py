"""The value of a size where symbols are objects of somebody else, such as those of sympy or torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proto_schema.sizes.atoms import Atom, Least, Quotient
from proto_schema.sizes.size import Dim, Size
from proto_schema.sizes.symbols import Symbol


def evaluated(
    size: Dim, symbol_of: Callable[[str], Any], least: Callable[..., Any], greatest: Callable[..., Any]
) -> Any:
    """The value of a size where symbols are objects with Python's arithmetic: `symbol_of` gives the one of a name.

    `least` and `greatest` are minimum and maximum of such objects.
    """
    found: dict[int, Any] = {}  # by the identity of the atom

    def of(atom: Atom) -> Any:
        if id(atom) not in found:
            found[id(atom)] = made(atom)
        return found[id(atom)]

    def made(atom: Atom) -> Any:
        if isinstance(atom, Symbol):
            return symbol_of(atom.name)
        if isinstance(atom, Quotient):
            return total(atom.numerator) // total(atom.denominator)
        items = [total(item) for item in sorted(atom.items, key=str)]
        return (least if isinstance(atom, Least) else greatest)(*items)

    def total(size: Dim) -> Any:
        if not isinstance(size, Size):
            return size
        summed: Any = None
        for product, count in size.terms.items():
            part: Any = None
            for atom in product:
                part = of(atom) if part is None else part * of(atom)
            part = count if part is None else part if count == 1 else part * count
            summed = part if summed is None else summed + part
        return summed

    return total(size)
