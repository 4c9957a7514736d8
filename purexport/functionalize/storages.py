"""Aliasing: every tensor belongs to a storage, whose base is the root of a tree of views.

A view has a version.  When the storage was written after that version, the view is computed again from its parent.
Inside the body of a branch or loop, a journal records all changes to aliases from outside.  The changes are undone at
the end of the body, because values made in a body are not visible outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from proto_schema.wire.records import dataclass
from purexport.aten.graph import AtenValue, Call, Input


@dataclass(eq=False)
class Alias:
    """A tensor of the model: the base of a storage, or a view of `parent`, made by `call`.

    `index` is the view's position where `call` returns a list.  `depth` is the number of bodies around the place where
    the alias was made.
    """

    current: AtenValue
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
        """The calls of the views from the storage's base to this one."""
        if self.parent is None or self.call is None:
            return []
        return [*self.parent.chain, (self.call, self.index)]


@dataclass
class Journal:
    """The value of every alias from before its changes, while a body is read."""

    depth: int = 0
    entries: list[tuple[Alias, AtenValue, int]] = field(default_factory=list)

    def set(self, alias: Alias, current: AtenValue, version: int) -> None:
        """Change the current value of `alias`."""
        if alias.depth < self.depth:
            self.entries.append((alias, alias.current, alias.version))
        alias.current, alias.version = current, version

    @contextmanager
    def body(self) -> Iterator[WrittenStorages]:
        """Inside, a body is read; afterwards every alias from outside has its former value.

        The result is filled at the end: the storages from outside that were written, and the value of each at that
        time.
        """
        start, written = len(self.entries), WrittenStorages()
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
class WrittenStorages:
    """The storages from outside that a body wrote, and their values at its end."""

    values: dict[Alias, AtenValue] = field(default_factory=dict)
