"""The line of progress on stderr: for people at a terminal or a notebook, nothing at all in a pipe or a file.

Functions of this package draw it where nobody said what `progress` shall be and the work takes longer than two seconds.
A thread looks at the clock, since a stage may be long and says nothing meanwhile.  The command line draws it at once.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import environ
from typing import Any, TextIO

from purexport.progress import Pace, Told, duration

DELAY = 2.0  # seconds that work takes before anything is drawn
_REDRAWN = 0.1  # seconds between two drawings
_TICK = 0.5  # seconds between two drawings of a stage that says nothing
_CELLS = 20  # of a bar


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
            self.draw(f"{stage} ({number}/{stages})")
        elif done == total or self._clock() - self._drawn >= _REDRAWN:
            self.draw(f"{stage} {_bar(done, total)} {self._pace.text(done, total)}")

    def draw(self, text: str) -> None:
        """Draw a text over the one before it."""
        self._drawn = self._clock()
        self._out.write(f"\r{text:<{self._width}}")
        self._out.flush()
        self._width = len(text)

    def erase(self) -> None:
        """Leaves the terminal as it was."""
        self.draw("")
        self._out.write("\r")
        self._out.flush()


class LateLine:
    """A line that appears when the work has taken `delay` seconds, and then says how long a stage has taken so far."""

    def __init__(self, line: Line, delay: float = DELAY) -> None:
        self._line, self._delay = line, delay
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._last: tuple[str, int, int] | None = None
        self._since = time.monotonic()
        self._writes = self._is_started = self._is_drawn = False
        self._thread = threading.Thread(target=self._look, name="purexport-progress", daemon=True)

    def __call__(
        self, stage: str, number: int, stages: int, *, done: int | None = None, total: int | None = None
    ) -> None:
        with self._lock:
            if not self._is_started:
                self._is_started = True
                self._thread.start()
            if done is None:
                self._last, self._since = (stage, number, stages), time.monotonic()
            self._writes = done is not None
            if self._is_drawn:
                self._line(stage, number, stages, done=done, total=total)

    def erase(self) -> None:
        """Take the line away, if it is there; it may be drawn again."""
        with self._lock:
            if self._is_drawn:
                self._line.erase()

    def end(self) -> None:
        """Take the line away for good."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.erase()

    def _look(self) -> None:
        pause = self._delay
        while not self._ended.wait(pause):
            pause = _TICK
            with self._lock:
                if self._last is not None and not self._writes:
                    stage, number, stages = self._last
                    seconds = time.monotonic() - self._since
                    so_far = f" {duration(seconds)}" if seconds >= 1 else ""
                    self._line.draw(f"{stage} ({number}/{stages}){so_far}")
                self._is_drawn = True


@contextmanager
def shown(told: Told = None, delay: float = DELAY) -> Iterator[Told]:
    """What `progress` becomes: a line of the process's stderr where `told` is None and a person looks at it.

    It is removed when the context ends, also after an error.  A warning takes its place, and it is drawn again below.
    """
    if told is not None or not is_looked_at(sys.stderr):
        yield told
        return
    line = Line(sys.stderr)
    late = LateLine(line, delay) if delay else None
    show = warnings.showwarning

    def below(*args: Any, **kwargs: Any) -> None:
        (late or line).erase()
        show(*args, **kwargs)

    warnings.showwarning = below
    try:
        yield late or line
    finally:
        if warnings.showwarning is below:
            warnings.showwarning = show
        if late is not None:
            late.end()
        else:
            line.erase()


def is_looked_at(stream: Any) -> bool:
    """Whether a person sees what is written: a terminal that can draw over a line, or a notebook."""
    if stream is None:
        return False
    if type(stream).__module__.startswith("ipykernel."):
        return True
    return bool(stream.isatty()) and environ.get("TERM") != "dumb"


def _bar(done: int, total: int) -> str:
    """`[####------]`, as long as the terminal has room for it."""
    cells = min(_CELLS, max(5, shutil.get_terminal_size().columns // 4))
    full = cells * done // total if total else cells
    return f"[{'#' * full}{'-' * (cells - full)}]"
