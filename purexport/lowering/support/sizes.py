"""Sizes computed in the graph from sizes that can be read somewhere: `2*batch`, `length//2 + 1`, `max(a, b)`.

ONNX divides integers rounding towards zero, and the quotient of a size is rounded down.  Where the numerator may be
negative, its remainder is taken off first.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from proto_schema.sizes import Dim, Size
from proto_schema.sizes.atoms import Atom, Least, Product, Quotient
from proto_schema.sizes.symbols import Symbol
from purexport.lowering.core.emitter import Emitter


def computed_size(op: Emitter, size: Dim) -> Any:
    """The size: an int, or a zero-dim int64 value; None where a symbol in it cannot be read from anywhere."""
    if not isinstance(size, Size):
        return size
    found = op.size(size)
    if found is not None or size.name is not None:
        return found
    total: Any = None
    # what is added first, so that nothing is taken from nothing
    for product, count in sorted(size.terms.items(), key=lambda item: item[1] < 0):
        term = _product(op, product, count if total is None else abs(count))
        if term is None:
            return None
        total = term if total is None else op.Add(total, term) if count > 0 else op.Sub(total, term)
    return total


def _product(op: Emitter, product: Product, count: int) -> Any:
    factors = [_atom(op, atom) for atom in product]
    if any(factor is None for factor in factors):
        return None
    if count != 1 or not factors:
        factors.append(op.const(count))
    return reduce(op.Mul, factors)


def _atom(op: Emitter, atom: Atom) -> Any:
    if isinstance(atom, Symbol):
        return op.size(Size({(atom,): 1}))
    if isinstance(atom, Quotient):
        return _quotient(op, atom)
    items = [_value(op, item) for item in sorted(atom.items, key=str)]
    if any(item is None for item in items):
        return None
    if isinstance(atom, Least):
        return reduce(lambda one, other: op.Where(op.Less(one, other), one, other), items)
    return reduce(lambda one, other: op.Where(op.Less(one, other), other, one), items)


def _quotient(op: Emitter, atom: Quotient) -> Any:
    above, below = _value(op, atom.numerator), _value(op, atom.denominator)
    if above is None or below is None:
        return None
    low = atom.numerator.low if isinstance(atom.numerator, Size) else atom.numerator
    if low is None or low < 0:
        above = op.Sub(above, op.Mod(above, below))
    return op.Div(above, below)


def _value(op: Emitter, size: Dim) -> Any:
    found = computed_size(op, size)
    return op.const(found) if isinstance(found, int) else found
