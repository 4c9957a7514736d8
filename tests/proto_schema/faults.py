"""A disk for tests that fails, is interrupted, or stops at the n-th call of the operating system.

Strategy: the functions of `os` that change files are wrapped and counted. One of them, the `at`-th, meets a `Fault`;
after one that stops the machine no later call has any effect, as if the process were gone. Where the power fails too,
what was written and not fsynced becomes zeros, and the last `lost` changes of names since the folder was fsynced are
taken back: a disk may forget those in just that way. A test walks `at` from 1 until the work is done before the fault.
A signal comes to a process of its own, a fork, with the default action: `Disk.in_a_fork`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

WRITES = ("write", "pwrite", "sendfile", "copy_file_range")
NAMES = ("open", "replace", "link", "unlink")
CALLS = (*WRITES, *NAMES, "fsync", "fdatasync", "ftruncate", "posix_fallocate", "fchmod", "close", "pread")


class Stopped(BaseException):
    """The process is gone: nothing that it still does has an effect."""


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th call. `error`: the call fails so; otherwise as `kind` says."""

    kind: str
    error: int = 0

    def __str__(self) -> str:
        return errno.errorcode[self.error] if self.error else self.kind


FAULTS = [
    Fault("error", errno.ENOSPC),
    Fault("error", errno.EIO),
    Fault("error", errno.EINTR),
    Fault("short"),  # a write takes a part of what it is given, and succeeds
    Fault("interrupted before"),  # KeyboardInterrupt instead of the call
    Fault("interrupted after"),  # ... and right after it
    Fault("killed"),
    Fault("torn"),  # a part is written, then killed
    Fault("power"),  # killed, and the disk forgets what it may
]
SIGNALS = [Fault("SIGTERM"), Fault("SIGHUP")]


@dataclass
class Disk:
    """One run on a folder with a fault at call `at`; `undone` is how many changes of names were lost."""

    folder: Path
    at: int
    fault: Fault
    lost: int = 0
    calls: int = 0
    stopped: bool = False
    undone: int = 0
    log: list[str] = field(default_factory=list)
    _dirty: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # what was written and not synced, by inode
    _undo: list[Callable[[], object]] = field(default_factory=list)

    @property
    def met(self) -> bool:
        """Whether the work made as many calls."""
        return self.calls >= self.at

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """The wrapped functions are in place; a stop of the machine ends the block silently."""
        self.real = {name: getattr(os, name) for name in CALLS if hasattr(os, name)}
        with pytest.MonkeyPatch.context() as patch:
            for name in self.real:
                patch.setattr(os, name, self._wrapped(name))
            with suppress(Stopped):
                yield
        if self.stopped and self.fault.kind == "power":
            self._forget()

    def in_a_fork(self, work: Callable[[], object]) -> None:
        """The work is done by a process that a signal ends at the call; one that fails otherwise is an error here."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with self.mounted():
                    work()
                status = 0
            finally:
                os._exit(status)
        ended = os.waitpid(child, 0)[1]
        self.stopped = os.WIFSIGNALED(ended)
        assert self.stopped or os.WEXITSTATUS(ended) == 0, "the work has failed"
        assert not self.stopped or os.WTERMSIG(ended) == signal.Signals[self.fault.kind]
        self.calls = self.at if self.stopped else self.at - 1
        self.log.append("in another process")

    def _wrapped(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, args, kwargs)

        return call

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        real = self.real[name]
        if self.stopped:
            if name == "close":  # so that the test itself leaks no descriptors
                return real(*args)
            raise Stopped
        self.calls += 1
        self.log.append(name)
        if self.calls != self.at:
            return self._done(name, args, kwargs)
        kind = self.fault.kind
        if self.fault in SIGNALS:
            os.kill(os.getpid(), signal.Signals[kind])
        if kind in ("error", "interrupted before"):
            if name == "close":  # a descriptor is closed even where close reports an error
                real(*args)
            raise KeyboardInterrupt if kind != "error" else OSError(self.fault.error, os.strerror(self.fault.error))
        if kind == "interrupted after":
            self._done(name, args, kwargs)
            raise KeyboardInterrupt
        if kind in ("short", "torn") and name in WRITES:
            result = self._done(name, _halved(name, args), kwargs)
            if kind == "short":
                return result
        elif kind == "short":
            return self._done(name, args, kwargs)
        self.stopped = True
        if name == "close":
            real(*args)
        raise Stopped

    def _done(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        back = self._way_back(name, args) if name in NAMES else None
        start = self._position(name, args) if name in WRITES else 0
        result = self.real[name](*args, **kwargs)
        if back is not None:
            self._undo.append(back)
        if name in WRITES:
            self._dirty.setdefault(os.fstat(_written(name, args)).st_ino, []).append((start, start + result))
        if name in ("fsync", "fdatasync"):
            self._dirty.pop(os.fstat(args[0]).st_ino, None)
            if os.path.sameopenfile(args[0], self._folder()):
                self._undo.clear()
        return result

    @staticmethod
    def _position(name: str, args: tuple[Any, ...]) -> int:
        """Where a write is going to put its bytes."""
        target = _written(name, args)
        if name == "pwrite":
            return int(args[2])
        if fcntl.fcntl(target, fcntl.F_GETFL) & os.O_APPEND:
            return os.fstat(target).st_size
        return os.lseek(target, 0, os.SEEK_CUR)

    def _folder(self) -> int:
        if not hasattr(self, "_handle"):
            self._handle: int = self.real["open"](self.folder, os.O_RDONLY)
        return self._handle

    def _way_back(self, name: str, args: tuple[Any, ...]) -> Callable[[], object] | None:
        """How to take back a change of names that is about to be made."""
        target = args[1] if name in ("replace", "link") else args[0]
        held = Path(target).read_bytes() if os.path.isfile(target) else None
        if name == "open" and not (args[1] & os.O_CREAT and held is None):
            return None

        def back() -> None:
            if name == "replace":
                self.real["replace"](target, args[0])
            elif name != "unlink":
                self.real["unlink"](target)
            if held is not None and name != "open":
                Path(target).write_bytes(held)

        return back

    def _forget(self) -> None:
        for path in self.folder.iterdir():
            status = path.lstat()
            for start, stop in self._dirty.get(status.st_ino, []) if stat.S_ISREG(status.st_mode) else ():
                data = path.read_bytes()
                path.write_bytes(data[:start] + bytes(len(data[start:stop])) + data[stop:])
        while self._undo and self.undone < self.lost:
            self._undo.pop()()
            self.undone += 1

    def close(self) -> None:
        """Gives back what the disk itself holds."""
        if hasattr(self, "_handle"):
            self.real["close"](self._handle)


def _written(name: str, args: tuple[Any, ...]) -> int:
    """The descriptor that a call of `WRITES` writes to."""
    descriptor: int = args[1] if name == "copy_file_range" else args[0]
    return descriptor


def _halved(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a write, for half of its bytes and at least one."""
    if name in ("write", "pwrite"):
        view = memoryview(args[1])
        return (args[0], view[: max(view.nbytes // 2, 1)], *args[2:])
    count = 3 if name == "sendfile" else 2
    return (*args[:count], max(args[count] // 2, 1), *args[count + 1 :])
