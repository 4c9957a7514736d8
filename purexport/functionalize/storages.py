"""Who shares memory: every tensor belongs to a storage, whose base is the root of a chain of views.

What a view shows is known by its version: when the storage was written since, the view is taken again from its parent.
Inside the body of a branch or loop all changes to what lies outside are kept in a journal, and taken back at its end,
because values made in a body are not seen outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from purexport.aten.graph import Call, Input, Value


@dataclass(eq=False)
class Alias:
    """A tensor as the model sees it: the storage's base, or a view (`call` on `parent`; `index` of a list).

    `depth` counts the bodies around the place where it was made.
    """

    current: Value
    parent: Alias | None = None
    call: Call | None = None
    index: int | None = None
    version: int = 0
    origin: Input | None = None
    depth: int = 0

    @property
    def root(self) -> Alias:
        """The storage's base."""
        alias = self
        while alias.parent is not None:
            alias = alias.parent
        return alias

    @property
    def chain(self) -> list[tuple[Call, int | None]]:
        """The views from the storage's base to here."""
        if self.parent is None or self.call is None:
            return []
        return [*self.parent.chain, (self.call, self.index)]


@dataclass
class Journal:
    """What every alias showed before it changed, while a body is read."""

    depth: int = 0
    entries: list[tuple[Alias, Value, int]] = field(default_factory=list)

    def set(self, alias: Alias, current: Value, version: int) -> None:
        """Change what `alias` shows."""
        if alias.depth < self.depth:
            self.entries.append((alias, alias.current, alias.version))
        alias.current, alias.version = current, version

    @contextmanager
    def body(self) -> Iterator[Written]:
        """A body is read inside; afterwards everything outside is as it was.

        The result is filled at the end: the roots from outside that were written, and the value that each has then.
        """
        start, written = len(self.entries), Written()
        self.depth += 1
        try:
            yield written
            before: dict[Alias, int] = {}
            for alias, _, version in self.entries[start:]:
                before.setdefault(alias, version)
            written.values = {
                alias: alias.current
                for alias, version in before.items()
                if alias.parent is None and alias.version != version
            }
        finally:
            for alias, current, version in reversed(self.entries[start:]):
                alias.current, alias.version = current, version
            del self.entries[start:]
            self.depth -= 1


@dataclass
class Written:
    """The storages from outside that a body wrote, and their values at its end."""

    values: dict[Alias, Value] = field(default_factory=dict)
