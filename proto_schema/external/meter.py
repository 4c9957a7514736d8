"""How far a save is: what its `progress` callback hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], object]

EVERY = 1 << 22  # bytes between two calls


class Meter:
    """Counts the bytes that were written and tells them, at most every 4 MiB, and once, at the end, all of them.

    Whatever the callback raises ends the save as a failed write does. The last call comes before the commit.
    """

    def __init__(self, progress: Progress | None = None, total: int = 0) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._told = 0
        self._finished = False

    def add(self, count: int) -> None:
        """So many more bytes were written."""
        self._done += count
        if self._progress is not None and not self._finished and self._told + EVERY <= self._done < self._total:
            self._told = self._done
            self._progress(self._done, self._total)

    def finish(self) -> None:
        """All is written; the next step is the commit."""
        if self._progress is not None and not self._finished:
            self._progress(self._total, self._total)
        self._finished = True
