"""What a conversion did: what computes in the new type, what stays in float32 and why, and what else changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from proto_schema.graphs.names import as_text
from proto_schema.units import counted, size_text
from proto_schema.wire.records import dataclass

_ALIKE = 3  # nodes of one operator and reason that are named


@dataclass(frozen=True)
class Stay:
    """A node that computes in float32."""

    node: str
    op_type: str
    reason: str


@dataclass(frozen=True)
class PrecisionReport:
    """`converted` has how many nodes of each operator compute in the type. `clamped` has constants with the numbers in
    them that stand for infinity and became the type's largest. `casts` are those in the result that were not in the
    model. `before` and `after` are bytes of float constants. `notes` say what else is to be known.
    """

    dtype: str
    io: str
    converted: Mapping[str, int]
    stays: tuple[Stay, ...]
    clamped: Mapping[str, int]
    casts: int
    before: int
    after: int
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """A line for each kind of node that stays, for each constant with infinities, and for the sums."""
        groups: dict[tuple[str, str], list[str]] = {}
        for item in self.stays:
            groups.setdefault((item.op_type, item.reason), []).append(item.node)
        for (op_type, reason), names in groups.items():
            named = ", ".join(repr(name) for name in names[:_ALIKE] if name)
            more = f" and {len(names) - _ALIKE} more" if named and len(names) > _ALIKE else ""
            count = f"{len(names)} " if len(names) > 1 else ""
            yield f"{count}{op_type}{' ' + named if named else ''}{more} stays in float32: it {reason}"
        for name, infinite in self.clamped.items():
            yield f"constant {name!r}: {counted(infinite, 'number')} near infinity became the largest of {self.dtype}"
        yield from self.notes
        total = sum(self.converted.values())
        stays = f", {counted(len(self.stays), 'node')} in float32" if self.stays else ""
        sizes = f"{size_text(self.before)} -> {size_text(self.after)}"
        yield f"{counted(total, 'node')} in {self.dtype}{stays}; {counted(self.casts, 'cast')} added; constants {sizes}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def counts(items: Iterator[str]) -> dict[str, int]:
    """How often each is there, sorted by name."""
    return dict(sorted(Counter(as_text(item) for item in items).items()))
