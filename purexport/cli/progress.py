"""The line of progress on stderr: for people at a terminal, nothing at all in a pipe or a file."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from purexport.progress import Pace

_REDRAWN = 0.1  # seconds between two drawings


class Line:
    """One line that is drawn again and again: the stage of an export, and how far the writing is."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._pace = Pace(clock)
        self._drawn = clock()
        self._width = 0

    def __call__(
        self, stage: str, number: int, stages: int, *, done: int | None = None, total: int | None = None
    ) -> None:
        if done is None or total is None:
            self._pace = Pace(self._clock)
            self._draw(f"{stage} ({number}/{stages})")
        elif done == total or self._clock() - self._drawn >= _REDRAWN:
            self._draw(f"{stage} {self._pace.text(done, total)}")

    def _draw(self, text: str) -> None:
        self._drawn = self._clock()
        self._out.write(f"\r{text:<{self._width}}")
        self._out.flush()
        self._width = len(text)

    def erase(self) -> None:
        """Leaves the terminal as it was."""
        self._draw("")
        self._out.write("\r")
        self._out.flush()


@contextmanager
def shown() -> Iterator[Line | None]:
    """The line if stderr is a terminal, else None; it is removed when the context ends, also after an error.

    A warning takes the place of the line, which is drawn again below it.
    """
    if not sys.stderr.isatty():
        yield None
        return
    line = Line(sys.stderr)
    with warnings.catch_warnings():
        show = warnings.showwarning

        def below(*args: Any, **kwargs: Any) -> None:
            line.erase()
            show(*args, **kwargs)

        warnings.showwarning = below
        try:
            yield line
        finally:
            line.erase()
