"""Equations between sizes that are learnt on the way, and comparison under them.

An equation that says what one symbol is becomes a replacement of that symbol; `resolved` carries out all replacements.
An equation that says less (`a*b == 12`) is kept as it is, and makes the same comparison true.  Invariants: no symbol
that is replaced is left in a replacement; a kept equation is written in the symbols that are left.
"""

from __future__ import annotations

from collections.abc import Callable

from proto_schema.sizes.atoms import Product
from proto_schema.sizes.size import Dim, Size, bounds, equals, less
from proto_schema.sizes.symbols import Symbol


class ContradictionError(ValueError):
    """Two sizes were said to be equal, and are not for any values of the symbols."""


class Equations:
    """What is known of the symbols of one graph beyond their ranges."""

    def __init__(self) -> None:
        self.replacements: dict[str, Dim] = {}
        self.kept: set[Size] = set()
        self._resolved: dict[Size, Dim] = {}

    def copy(self) -> Equations:
        """The same equations; what is learnt from now on is not shared."""
        made = Equations()
        made.replacements = dict(self.replacements)
        made.kept = set(self.kept)
        return made

    def resolved(self, size: Dim) -> Dim:
        """The size in the symbols that are left."""
        if not isinstance(size, Size) or not self.replacements:
            return size
        found = self._resolved.get(size)
        if found is None:
            found = self._resolved[size] = size.replaced(self.replacements)
        return found

    def equals(self, one: Dim, other: Dim) -> bool | None:
        """Whether two sizes are equal under the equations: True, False, or None where it depends."""
        difference = self.resolved(one) - self.resolved(other)
        if isinstance(difference, Size) and (difference in self.kept or -difference in self.kept):
            return True
        return equals(difference, 0)

    def less(self, one: Dim, other: Dim) -> bool | None:
        """Whether `one` is less than `other` under the equations: True, False, or None where it depends."""
        return less(self.resolved(one), self.resolved(other))

    def learn(self, one: Dim, other: Dim, preferred: Callable[[str], int] = len) -> None:
        """From now on the two sizes are equal.

        A symbol is replaced if the equation says what it is; of several, the one for which `preferred(name)` is the
        largest.  Raises ContradictionError where the sizes cannot be equal.
        """
        difference = self.resolved(one) - self.resolved(other)
        if not isinstance(difference, Size):
            if difference:
                raise ContradictionError(f"{one} and {other} are two sizes")
            return
        if equals(difference, 0) is False:
            raise ContradictionError(f"{one} and {other} are never the same size")
        solved = [item for item in map(self._solved, *_alone(difference)) if item is not None]
        if not solved:
            self.kept.add(difference)
            return
        # a sum of sizes is better than a difference: it is known not to be negative
        name, value = max(solved, key=lambda item: (preferred(item[0]), _is_no_difference(item[1]), item[0]))
        self._replace(name, value)

    @staticmethod
    def _solved(product: Product, difference: Size) -> tuple[str, Dim] | None:
        """What a symbol is, where `difference == 0` says it by the product that holds the symbol alone."""
        atom = product[0]
        count = difference.terms[product]
        if not isinstance(atom, Symbol):
            return None
        rest = difference - count * Size({product: 1})
        if isinstance(rest, int):
            return (atom.name, -rest // count)  # `equals` has seen that there is no remainder
        return (atom.name, -rest if count == 1 else rest) if abs(count) == 1 else None

    def _replace(self, name: str, value: Dim) -> None:
        step = {name: value}
        self.replacements = {
            other: old.replaced(step) if isinstance(old, Size) else old for other, old in self.replacements.items()
        }
        self.replacements[name] = value
        self._resolved = {}
        kept, self.kept = self.kept, set()
        for difference in kept:
            changed = difference.replaced(step)
            if changed != difference:
                self.learn(changed, 0)
            else:
                self.kept.add(difference)


def _is_no_difference(size: Dim) -> bool:
    low = bounds(size)[0]
    return low is not None and low >= 0


def _alone(difference: Size) -> tuple[list[Product], list[Size]]:
    """The products that are one symbol which is nowhere else in the expression, and the expression for each."""
    found: list[Product] = []
    for product in difference.terms:
        if len(product) != 1 or not isinstance(product[0], Symbol):
            continue
        others = Size({other: count for other, count in difference.terms.items() if other != product})
        if product[0].name not in others.symbols:
            found.append(product)
    return found, [difference] * len(found)
