"""Names that differ from each other: `x`, `x_1`, `x_2`."""

from __future__ import annotations

from collections.abc import Iterable


class UniqueNames:
    """Gives each name once.  `taken` are the names that are in use already."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._counts: dict[str, int] = {}

    def unique(self, wish: str) -> str:
        """`wish`, or `wish_1`, `wish_2`, ... when it is taken."""
        name = wish
        while name in self.taken:
            self._counts[wish] = self._counts.get(wish, 0) + 1
            name = f"{wish}_{self._counts[wish]}"
        self.taken.add(name)
        return name


def distinct(names: Iterable[str]) -> list[str]:
    """The names in their order; a repeated name gets a number."""
    given = UniqueNames()
    return [given.unique(name) for name in names]
