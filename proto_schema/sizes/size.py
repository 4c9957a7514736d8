"""`Size`: an exact integer expression over symbols, in one canonical form.

A size that is known is a plain `int`; a `Size` always holds at least one symbol.  So code that meets both writes
`a + b`, `a // 2`, and static models never make a `Size`.

A `Size` is a sum of products: a dict from products to their coefficients.  A product is a sorted tuple of factors, each
a `Symbol` or one of the three functions of `atoms`.  The invariants of the form, by which equal sizes are mostly equal
objects:

- no coefficient is 0; the constant is the coefficient of the empty product `()`;
- `a % b` is `a - b * (a // b)`; in a quotient by a number no coefficient reaches the number, they have no common
  factor, and the leading one is positive;
- the arguments of a minimum or maximum have no common part, and none is known to be superfluous.

A symbol has a range, which is that of a size unless said otherwise: 0 and upwards.  Comparison answers True, False or
None (unknown) from the ranges.

Sizes share what they are made of, so that an expression may be small as a graph and very large as a text.  Whatever
walks an expression meets each distinct part once.  A part whose text would be longer than `LONGEST` is ordered,
compared and written by a digest of its content instead.  A sum has at most `MOST_TERMS` products, about: one that makes
more becomes a factor, its quotient by 1.  That is exact, but sizes of such factors may be equal without being found so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TypeAlias

from proto_schema.sizes import products, ranges, text
from proto_schema.sizes.atoms import LONGEST, Atom, Greatest, Least, Quotient, Terms, degree
from proto_schema.sizes.atoms import terms_of as _terms
from proto_schema.sizes.ranges import Span
from proto_schema.sizes.symbols import Symbol
from proto_schema.sizes.text import Arithmetic

MOST_TERMS = 64
"""Products in a sum, about: without a limit 40 factors `a + 1` would be 2**40 products."""

HIGHEST = 64
"""How many symbols are multiplied, at most: 22 bytes of a file double that, so that 60 nodes write `n**(2**60)`."""

DEEPEST = 64
"""Functions inside of one another, at most: walks over an expression call themselves for each."""

LARGEST = 1 << 128
"""Coefficients lie below it: a size is an int64, and what is subtracted from one may be a little more."""

_MOST_ITEMS = 16  # of a minimum or maximum that is made by moving sums into it


class Size:
    """An integer expression that holds at least one symbol; immutable and hashable.

    `+ - * // %` with sizes and ints give a size, or an int where no symbol is left.  `==` compares the canonical forms:
    `equals` says whether two sizes are equal for all values of the symbols.  A size has no truth value and no order of
    its own, because the answer may be unknown: see `equals`, `less`, `at_most`.
    """

    __slots__ = ("_bounds", "_hash", "_text", "terms")

    def __init__(self, terms: Terms) -> None:
        """`terms` in canonical form; use `symbol`, `parse` and arithmetic instead."""
        self.terms = terms
        self._hash: int | None = None
        self._text: str | None = None
        self._bounds: Span | None = None

    # -- values

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Size) and self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError(f"whether the size {self} is 0 is not known; compare it with equals, less or at_most")

    def __str__(self) -> str:
        if self._text is None:
            weights: Iterable[int] = (atom.weight for product in self.terms for atom in product)
            long = sum(weights) > LONGEST
            self._text = f"size_{products.hashed(products.content(self.terms))[:16]}" if long else text.written(self)
        return self._text

    def __repr__(self) -> str:
        return f"Size({str(self)!r})"

    @staticmethod
    def symbol(name: str, low: int | None = 0, high: int | None = None) -> Size:
        """The size called `name`, between `low` and `high` (None: no bound)."""
        return symbol(name, low, high)

    @staticmethod
    def parse(text: str, names: Iterable[str] | None = None) -> Dim:
        """The size that a text says, such as `"2*batch"`; see `proto_schema.sizes.parse`."""
        return parse(text, names)

    # -- arithmetic

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        return _sum(self.terms, _terms(other), 1)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Size({product: -count for product, count in self.terms.items()})

    def __sub__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        return _sum(self.terms, _terms(other), -1)

    def __rsub__(self, other: int) -> Dim:
        if not isinstance(other, int):
            return NotImplemented
        return _sum(_terms(other), self.terms, -1)

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return _made({product: count * other for product, count in self.terms.items()})
        if not isinstance(other, Size):
            return NotImplemented
        mine, others = self.terms, other.terms
        if len(mine) * len(others) > MOST_TERMS and len(mine) > 1 < len(others):
            mine, others = _kept(mine), _kept(others)
        made: Terms = {}
        for one, count in mine.items():
            for two, times in others.items():
                product = tuple(sorted(one + two, key=_order)) if one and two else one or two
                made[product] = made.get(product, 0) + count * times
        return _made(made)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _divided(self, other) if isinstance(other, (int, Size)) else NotImplemented

    def __rfloordiv__(self, other: int) -> Dim:
        return _divided(other, self) if isinstance(other, int) else NotImplemented

    def __mod__(self, other: Dim) -> Dim:
        return self - other * _divided(self, other) if isinstance(other, (int, Size)) else NotImplemented

    def __rmod__(self, other: int) -> Dim:
        return other - self * _divided(other, self) if isinstance(other, int) else NotImplemented

    # -- questions

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols in the expression."""
        return frozenset().union(*(atom.names for product in self.terms for atom in product))

    @property
    def low(self) -> int | None:
        """A number that the size never goes below; None where none is known."""
        return bounds(self)[0]

    @property
    def high(self) -> int | None:
        """A number that the size never exceeds; None where none is known."""
        return bounds(self)[1]

    @property
    def name(self) -> str | None:
        """The name, for a size that is one symbol; else None."""
        if len(self.terms) != 1:
            return None
        ((product, count),) = self.terms.items()
        return product[0].name if count == 1 and len(product) == 1 and isinstance(product[0], Symbol) else None

    def equals(self, other: Dim) -> bool | None:
        """Whether the sizes are equal: True or False where it is so for all values of the symbols, else None."""
        return equals(self, other)

    def less(self, other: Dim) -> bool | None:
        """Whether this size is less than `other`: True, False, or None where it depends."""
        return less(self, other)

    def at_most(self, other: Dim) -> bool | None:
        """Whether this size is at most `other`: True, False, or None where it depends."""
        return less(self, other + 1)

    # -- evaluation

    def at(self, values: Mapping[str, int]) -> int:
        """The number for these values of the symbols.  Raises KeyError for a symbol without a value."""
        found = self.replaced(values)
        if isinstance(found, Size):
            raise KeyError(next(iter(sorted(found.symbols))))
        return found

    def replaced(self, values: Mapping[str, Dim]) -> Dim:
        """The size with sizes or numbers in place of the symbols that `values` names."""
        return _Replacing(values).of(self)


Dim: TypeAlias = int | Size


# Making --------------------------------------------------------------------------------------------------------------


def symbol(name: str, low: int | None = 0, high: int | None = None) -> Size:
    """The size called `name`, between `low` and `high` (None: no bound)."""
    return Size({(Symbol(name, low, high),): 1})


def minimum(*items: Dim) -> Dim:
    """The smallest of one or more sizes."""
    return _chosen(Least, items)


def maximum(*items: Dim) -> Dim:
    """The largest of one or more sizes."""
    return _chosen(Greatest, items)


def _order(atom: Atom) -> tuple[int, str]:
    return atom.order


def _made(terms: Terms) -> Dim:
    """The size of a sum; a symbol of its own for one past the limits."""
    terms = {product: count for product, count in terms.items() if count}
    if not terms.keys() - {()}:
        return terms.get((), 0)
    for product, count in terms.items():
        if not -LARGEST < count < LARGEST or degree(product) > HIGHEST:
            return _unfollowed(terms)
    return Size(terms)


def _unfollowed(terms: Terms) -> Size:
    """A symbol that stands for a sum past the limits: the same one for the same sum."""
    low, high = ranges.of_sum(terms)
    name = f"size_{products.hashed(products.content(terms))[:16]}"
    return symbol(name, None if low is None else min(low, LARGEST), None if high is None or high > LARGEST else high)


def _sum(one: Terms, other: Terms, times: int) -> Dim:
    made = dict(one)
    for product, count in other.items():
        made[product] = made.get(product, 0) + times * count
    if len(made) > MOST_TERMS and len(one) >= len(other):
        return _sum(_kept(one), other, times)
    if len(made) > MOST_TERMS:
        return _sum(one, _kept(other), times)
    return _made(made)


def _kept(terms: Terms) -> Terms:
    """A long sum as one factor."""
    return _atom(_quotient(Size(terms), 1)).terms


def _quotient(numerator: Dim, denominator: Dim) -> Quotient:
    return Quotient(numerator, denominator, _bounds_of_quotient(numerator, denominator))


def _atom(atom: Atom) -> Size:
    """The size of one factor; a symbol of its own for one past the limits."""
    made: Terms = {(atom,): 1}
    return _unfollowed(made) if atom.depth > DEEPEST or atom.degree > HIGHEST else Size(made)


class _Replacing:
    """One replacement of symbols, which meets each distinct part of an expression once."""

    def __init__(self, values: Mapping[str, Dim]) -> None:
        self.values = values
        self.found: dict[int, Dim] = {}  # by the identity of the atom, which the size keeps alive

    def of(self, size: Dim) -> Dim:
        """The size with the symbols replaced."""
        if not isinstance(size, Size) or not any(
            name in self.values for product in size.terms for atom in product for name in atom.names
        ):
            return size
        total: Dim = 0
        for product, count in size.terms.items():
            part: Dim = count
            for atom in product:
                part = part * self._of_atom(atom)
            total = total + part
        return total

    def _of_atom(self, atom: Atom) -> Dim:
        found = self.found.get(id(atom))
        if found is None:
            found = self.found[id(atom)] = self._made(atom)
        return found

    def _made(self, atom: Atom) -> Dim:
        if isinstance(atom, Symbol):
            found = self.values.get(atom.name)
            return _atom(atom) if found is None else found
        if self.values.keys().isdisjoint(atom.names):
            return _atom(atom)
        if isinstance(atom, Quotient):
            return _divided(self.of(atom.numerator), self.of(atom.denominator))
        return _chosen(type(atom), [self.of(item) for item in atom.items])


# Comparison ----------------------------------------------------------------------------------------------------------


def equals(one: Dim, other: Dim) -> bool | None:
    """Whether two sizes are equal: True or False where it is so for all values of the symbols, else None."""
    difference = one - other
    if not isinstance(difference, Size):
        return difference == 0
    low, high = bounds(difference)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    # 2*a = 2*b + 1 has no solution in integers
    factor = math.gcd(*(count for product, count in difference.terms.items() if product))
    return False if difference.terms.get((), 0) % factor else None


def less(one: Dim, other: Dim) -> bool | None:
    """Whether `one` is less than `other`: True, False, or None where it depends."""
    difference = one - other
    if not isinstance(difference, Size):
        return difference < 0
    low, high = bounds(difference)
    if high is not None and high < 0:
        return True
    return False if low is not None and low >= 0 else None


def bounds(size: Dim) -> Span:
    """Numbers between which a size lies, both included; None where there is no bound or none is known."""
    if not isinstance(size, Size):
        return size, size
    size._bounds = size._bounds or _bounds_of_sum(size)
    return size._bounds


def _bounds_of_sum(size: Size) -> Span:
    span = ranges.of_sum(size.terms)
    for product, count in size.terms.items():
        atom = product[0] if len(product) == 1 else None
        if atom is None or isinstance(atom, Symbol):
            continue
        others = {other: times for other, times in size.terms.items() if other != product}
        if not isinstance(atom, Quotient):
            # the sum is one of those with an item in place of the choice, and the least or greatest of them
            spans = [ranges.of_sum(products.together(others, 1, _terms(item), count)) for item in atom.items]
            least = isinstance(atom, Least) == (count > 0)
            for low, high in (ranges.either(spans), *[(None, high) if least else (low, None) for low, high in spans]):
                span = ranges.both(span, (low, high))
        elif isinstance(number := atom.denominator, int):
            # `n*(a//n)` is `a` less a remainder between 0 and n-1: so `a - n*(a//n)` and `a - a//n` have bounds
            inner = ranges.of_sum(products.together(others, number, _terms(atom.numerator), count))
            low, high = ranges.added(inner, ranges.scaled((0, number - 1), -count))
            whole = None if low is None else -(-low // number), None if high is None else high // number
            span = ranges.both(span, whole)
    return span


def _bounds_of_quotient(numerator: Dim, denominator: Dim) -> Span:
    if isinstance(denominator, int) and denominator > 0:
        return ranges.divided(bounds(numerator), denominator)
    return ranges.quotient(bounds(numerator), bounds(denominator))


# Division ------------------------------------------------------------------------------------------------------------


def _divided(one: Dim, other: Dim) -> Dim:
    """`one // other`.  Raises ZeroDivisionError for the number 0; a symbol under the line is taken to be no zero."""
    if isinstance(other, int):
        if isinstance(one, int):
            return one // other
        if other == 0:
            raise ZeroDivisionError(f"the size {one} is divided by 0")
        return _by_number(one, other) if other > 0 else _by_number(-one, -other)
    if isinstance(one, int) and one == 0:
        return 0
    exact = products.quotient(_terms(one), other.terms)
    if exact is not None:
        return _made(exact)
    one, other = map(_made, products.reduced(_terms(one), other.terms))
    if not isinstance(other, Size):
        return _divided(one, other)
    low, high = bounds(one)
    if low is not None and low >= 0 and high is not None and less(one, other):
        return 0
    return _atom(_quotient(one, other))


def _by_number(size: Size, number: int) -> Dim:
    """The quotient by a number above 0, in canonical form."""
    whole: Terms = {}
    rest: Terms = {}
    for product, count in size.terms.items():
        # rounded towards zero, so that -x stays -x; the constant is rounded down
        part = count // number if not product or count > 0 else -(-count // number)
        whole[product] = part
        rest[product] = count - part * number
    rest = {product: count for product, count in rest.items() if count}
    total = _made(whole)
    symbolic = [product for product in rest if product]
    if not symbolic:
        return total
    common = math.gcd(number, *(rest[product] for product in symbolic))
    if common > 1:
        rest = {product: count // common for product, count in rest.items()}
        number //= common
        if number == 1:
            return total + _made(rest)
    if rest[max(symbolic, key=products.rank)] < 0:
        # (-a) // n = -((a + n - 1) // n)
        turned = _made({product: -count for product, count in rest.items()})
        return total - _divided(turned + (number - 1), number)
    inner = _made(rest)
    if not isinstance(inner, Size):
        return total + inner // number
    low, high = bounds(inner)
    if low is not None and high is not None and low // number == high // number:
        return total + low // number
    nested = _nested(inner, number)
    return total + (nested if nested is not None else _atom(_quotient(inner, number)))


def _nested(inner: Size, number: int) -> Dim | None:
    """(x//a + c) // b = (x + c*a) // (a*b) for numbers a and b above 0."""
    symbolic = [product for product in inner.terms if product]
    atom = symbolic[0][0] if len(symbolic) == 1 and len(symbolic[0]) == 1 else None
    if not isinstance(atom, Quotient) or not isinstance(atom.denominator, int) or inner.terms[symbolic[0]] != 1:
        return None
    numerator = atom.numerator + inner.terms.get((), 0) * atom.denominator
    return _divided(numerator, atom.denominator * number)


# Minimum and maximum -------------------------------------------------------------------------------------------------


def _chosen(kind: type[Least] | type[Greatest], given: Iterable[Dim]) -> Dim:
    given = tuple(given)
    # a sum of several minima has as many items as there are ways to choose one of each
    flat = list(islice(_flat(kind, given), _MOST_ITEMS + 1))
    items = list(dict.fromkeys(given if len(flat) > _MOST_ITEMS else flat))
    wins = less if kind is Least else lambda one, other: less(other, one)
    kept: list[Dim] = []
    for place, item in enumerate(items):
        others = (*kept, *items[place + 1 :])
        # of two that are never worse than each other the later one stays
        if not any(wins(item, other) is False for other in others):
            kept.append(item)
    if len(kept) == 1:
        return kept[0]
    common = {
        product: count
        for product, count in _terms(kept[0]).items()
        if all(_terms(item).get(product) == count for item in kept[1:])
    }
    shift = _made(common)
    # the least constant beside a symbol is 0
    shift = shift + min(_terms(item).get((), 0) for item in (item - shift for item in kept) if isinstance(item, Size))
    rest = [item - shift for item in kept]
    factor = math.gcd(*(count for item in rest for count in _terms(item).values()))
    chosen = frozenset(_made({p: c // factor for p, c in _terms(item).items()}) for item in rest)
    return shift + factor * _atom(kind(chosen, ranges.chosen([bounds(item) for item in chosen], least=kind is Least)))


def _flat(kind: type[Least] | type[Greatest], given: Iterable[Dim]) -> Iterable[Dim]:
    """The items, those of a minimum inside of a minimum in its place: `x + 2*min(a, b)` is `min(x + 2*a, x + 2*b)`."""
    for item in given:
        found = next(
            (
                (product[0], count)
                for product, count in _terms(item).items()
                if count > 0 and len(product) == 1 and isinstance(product[0], kind)
            ),
            None,
        )
        if found is None:
            yield item
            continue
        atom, count = found
        rest = item - count * _atom(atom)
        for inner in atom.items:
            yield from _flat(kind, [rest + count * inner])


# -- text

_ARITHMETIC = Arithmetic(symbol, minimum, maximum, LARGEST)


def parse(said: str, names: Iterable[str] | None = None) -> Dim:
    """The size that a text says: a number, an expression, or one symbol whose name is the whole text.

    With `names`, a text is an expression only if all names in it are among these; otherwise it is one symbol.
    """
    found: Dim = text.read(said, None if names is None else frozenset(names), _ARITHMETIC)
    return found
