"""The process of a command line: its standard streams and the signals that end it.

Strategy: a verb must not find out about its streams, because its answer is the exit status, which stands also where the
text goes nowhere.  So the streams never raise: they keep their first error and let the rest of the text go.  A reader
that went away (`| head`) is no error.  Any other one, a full disk for example, is told by `complain` at the end.
SIGTERM and SIGHUP raise an exception, as SIGINT does in any case: what stands in `finally` is done, and so temporary
files are removed.  Only `entry` uses this; a library must leave streams and signals to the program that calls it.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
_ONE_ORDER = 2.0  # seconds: timeout(1) sends its signal twice, and a closed terminal several


class EndedBySignal(KeyboardInterrupt):
    """A signal ends the process.  A KeyboardInterrupt that is none of these was raised by somebody's code."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name

    @property
    def status(self) -> int:
        """The exit status that shells expect."""
        return 128 + self.number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise Ended inside, unless the process was started with them ignored (nohup)."""
    last = -_ONE_ORDER

    def end(number: int, _: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _ONE_ORDER:  # another one so soon must not interrupt the clean-up
            last = now
            raise EndedBySignal(number)

    before: dict[int, Any] = {}
    for number in [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Raw(io.RawIOBase):
    """A standard stream that takes everything, and keeps the first error."""

    def __init__(self, number: int, terminal: bool) -> None:
        self._number = number
        self._terminal = terminal
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return self._terminal

    def write(self, data: Any) -> int:
        with memoryview(data) as view:
            size = view.nbytes
            if self.failure is None:
                try:
                    return os.write(self._number, view)
                except OSError as error:
                    self.failure = error
        return size


class Stream(io.TextIOWrapper):
    """Text on a standard stream: it never raises, and characters that its encoding lacks are escaped."""

    def __init__(self, old: TextIO) -> None:
        self.raw = _Raw(old.fileno(), old.isatty())
        super().__init__(
            io.BufferedWriter(self.raw),
            encoding=old.encoding,
            errors="backslashreplace",
            line_buffering=old.isatty() or old is sys.stderr,
        )


def take_streams() -> str | None:
    """Puts such streams in the place of the standard ones; returns what is wrong if one of them is closed.

    A closed one is refused: the next file to be opened would get its number, and with it what torch or onnxruntime
    print there.
    """
    names = [("output", "", sys.stdout), ("error", "2", sys.stderr)]
    for name, number, stream in names:
        if stream is None:
            return f"standard {name} is closed; redirect it, as in {number}>/dev/null"
    sys.stdout, sys.stderr = Stream(sys.stdout), Stream(sys.stderr)
    return None


def complain() -> None:
    """Raises OSError if what was written to standard output did not arrive, unless its reader went away."""
    sys.stdout.flush()
    failure = sys.stdout.raw.failure if isinstance(sys.stdout, Stream) else None
    if failure is not None and not isinstance(failure, BrokenPipeError):
        raise OSError(failure.errno, failure.strerror, "standard output")
