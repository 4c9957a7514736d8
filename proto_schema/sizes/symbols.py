"""A symbol: what sizes are made of in the end."""

from __future__ import annotations

from proto_schema.sizes.ranges import Bound


class Symbol:
    """A size with a name.  The name is any text; two symbols of one name are one symbol."""

    __slots__ = ("high", "low", "name", "names", "order", "weight")
    degree = 1
    depth = 0

    def __init__(self, name: str, low: Bound = 0, high: Bound = None) -> None:
        self.name = name
        self.low = low
        self.high = high
        self.order = (0, name)
        self.names = frozenset((name,))
        self.weight = len(name) + 3

    @property
    def digest(self) -> str:
        """What says the content; here that is short."""
        return f"{self.name!r}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)
