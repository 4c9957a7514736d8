"""Progress reports of an export: its stages, and the number of bytes written while it saves.

The user's function is called as (stage, its number, number of stages) when a stage begins.  If it also takes the
keywords `done` and `total`, it is called again with these, in bytes, while the file is written.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from proto_schema.units import size_text

Told: TypeAlias = bool | Callable[..., object] | None  # what `progress=` may be
STAGES = ("capture", "functionalize", "lower", "build", "verify", "save")
QUANTIZED_STAGES = ("capture", "functionalize", "lower", "build", "verify", "quantize", "save")
FOLDER_STAGES = ("capture", "functionalize", "lower", "build", "save", "verify")  # what is verified is the folder
PAUSE = 5.0  # seconds between two lines of a log


class Progress:
    """`progress`: None or False (nothing), True (the log), or a function as above.  Raises ValueError for others."""

    def __init__(self, told: Told, stages: Sequence[str] = STAGES) -> None:
        if told not in (None, False, True) and not callable(told):
            raise ValueError(f"progress={told!r} is neither True, False nor a function of (stage, number, stages)")
        self._tell: Callable[..., object] | None = Log() if told is True else told if callable(told) else None
        self._stages = stages

    def at(self, stage: str) -> None:
        """Report that a stage begins."""
        if self._tell is not None:
            self._tell(stage, self._stages.index(stage) + 1, len(self._stages))

    @property
    def bytes(self) -> Callable[[int, int], object] | None:
        """The `progress` argument for `proto_schema.save`; None where no report is wanted."""
        tell = self._tell
        if tell is None or not _takes_bytes(tell):
            return None
        number, stages = self._stages.index("save") + 1, len(self._stages)
        return lambda done, total: tell("save", number, stages, done=done, total=total)


def _takes_bytes(tell: Callable[..., object]) -> bool:
    try:
        inspect.signature(tell).bind("save", 1, 1, done=0, total=0)
    except (TypeError, ValueError):
        return False
    return True


class Pace:
    """How fast bytes are written, as text; the time counts from the first report."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()

    def text(self, done: int, total: int) -> str:
        """`1.2 GB of 4.4 GB, 1.1 GB/s, 3 s left`."""
        seconds = self._clock() - self._start
        so_far = f"{size_text(done)} of {size_text(total)}"
        if seconds <= 0 or not done:
            return so_far
        rate = done / seconds
        left = f"{duration((total - done) / rate)} left" if done < total else f"in {duration(seconds)}"
        return f"{so_far}, {size_text(int(rate))}/s, {left}"


def duration(seconds: float) -> str:
    """`5 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Log:
    """Logs each stage, and while the file is written a line every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = Pace(clock)
        self._said = clock()

    def __call__(
        self, stage: str, number: int, stages: int, *, done: int | None = None, total: int | None = None
    ) -> None:
        if done is None or total is None:
            self._pace, self._said = Pace(self._clock), self._clock()
            say(f"export: {stage} ({number}/{stages})")
        elif self._clock() - self._said >= PAUSE:
            self._said = self._clock()
            say(f"export: {stage} ({number}/{stages}) {self._pace.text(done, total)}")


LOGGER = logging.getLogger("purexport")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging hears of nothing that it did not ask


def say(text: str) -> None:
    """Log what the user asked to see: at level INFO, and on stderr where the program has not set up logging."""
    if _is_heard(LOGGER):
        LOGGER.info(text)
    elif logging.lastResort is not None:
        logging.lastResort.handle(LOGGER.makeRecord(LOGGER.name, logging.INFO, __file__, 0, text, (), None))


def _is_heard(logger: logging.Logger | None) -> bool:
    """Whether a handler of the program gets what is logged."""
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
