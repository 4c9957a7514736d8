"""The functions of sizes that are no products: `Quotient` (rounded down), `Least` and `Greatest`.

They hold sizes, which are made of them in turn; this module asks of a size only whether it is an int, and its terms.
Whoever makes one gives its range.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from proto_schema.sizes import products
from proto_schema.sizes.ranges import Bound, Span
from proto_schema.sizes.symbols import Symbol

LONGEST = 2000
"""Characters, about, of the longest expression that is written out."""

Part: TypeAlias = Any
"""An int or a `Size`."""


def terms_of(size: Part) -> dict[tuple[Any, ...], int]:
    """The products of a size with their coefficients."""
    if isinstance(size, int):
        return {(): size} if size else {}
    terms: dict[tuple[Any, ...], int] = size.terms
    return terms


class SizeFunction:
    """What the functions of sizes share.

    `names`: those of the symbols inside.  `weight`: about how many characters it has as a text.  `degree`: how often
    symbols are multiplied inside.  `depth`: how many functions lie inside of one another.
    """

    __slots__ = ("_digest", "_hash", "degree", "depth", "high", "low", "names", "order", "weight")

    _hash: int
    low: Bound
    high: Bound
    order: tuple[int, str]
    weight: int

    def __init__(self, parts: tuple[Part, ...], span: Span) -> None:
        self._digest: str | None = None
        self.low, self.high = span
        held = [product for part in parts for product in terms_of(part)]
        atoms = [atom for product in held for atom in product]
        self.names: frozenset[str] = frozenset().union(*(atom.names for atom in atoms))
        self.weight = 6 * (1 + len(parts)) + sum(atom.weight for atom in atoms)
        self.degree = max((degree(product) for product in held), default=0)
        self.depth = 1 + max((atom.depth for atom in atoms), default=0)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The sizes that it is a function of; a minimum's and maximum's have no order."""
        raise NotImplementedError

    @property
    def digest(self) -> str:
        """A short text that says the content: two functions of one digest are the same."""
        if self._digest is None:
            parts = [products.content(terms_of(part)) for part in self.parts]
            parts = parts if isinstance(self, Quotient) else sorted(parts)
            self._digest = products.hashed(f"{type(self).__name__}({';'.join(parts)})")
        return self._digest

    def _is(self, other: SizeFunction) -> bool:
        """Whether both have the same parts, told by the digests where those are long."""
        if self._hash != other._hash:
            return False
        return self.digest == other.digest if self.weight > LONGEST else self.parts == other.parts

    def __hash__(self) -> int:
        return self._hash


class Quotient(SizeFunction):
    """`numerator // denominator`, rounded down."""

    __slots__ = ("denominator", "numerator")

    def __init__(self, numerator: Part, denominator: Part, span: Span) -> None:
        super().__init__((numerator, denominator), span)
        self.numerator = numerator
        self.denominator = denominator
        self._hash = hash(("//", numerator, denominator))
        self.order = (1, self.digest if self.weight > LONGEST else f"{numerator}//{denominator}")

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.numerator, self.denominator

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Quotient) and self._is(other))

    __hash__ = SizeFunction.__hash__


class Choice(SizeFunction):
    """What `Least` and `Greatest` share: the smallest or the largest of several sizes."""

    __slots__ = ("items",)

    def __init__(self, items: frozenset[Part], span: Span) -> None:
        super().__init__(tuple(items), span)
        self.items = items
        self._hash = hash((type(self).__name__, items))
        text = self.digest if self.weight > LONGEST else ",".join(sorted(map(str, items)))
        self.order = (2, type(self).__name__ + text)

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(self.items)

    def _is(self, other: SizeFunction) -> bool:
        if self._hash != other._hash:
            return False
        if self.weight > LONGEST:
            return self.digest == other.digest
        return isinstance(other, Choice) and self.items == other.items

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and isinstance(other, Choice) and self._is(other))

    __hash__ = SizeFunction.__hash__


class Least(Choice):
    """The minimum of several sizes."""

    __slots__ = ()


class Greatest(Choice):
    """The maximum of several sizes."""

    __slots__ = ()


Atom: TypeAlias = Symbol | Quotient | Least | Greatest
Product: TypeAlias = tuple[Atom, ...]
Terms: TypeAlias = dict[Product, int]


def degree(product: Product) -> int:
    """How many symbols are multiplied in a product, those inside of its functions included."""
    return sum(atom.degree for atom in product)
