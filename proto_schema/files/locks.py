"""Writers of one target take turns: each holds a lock from its first look at the target to the last removal.

Strategy: the lock is an empty file beside the target, locked by the system (`flock`), so that it ends with the process
that holds it, however that ends. Who has it removes the file before letting go. Who waited for a removed file sees that
its path leads elsewhere, and starts again. Each attempt opens the file anew, so threads of one process exclude each
other too.
Invariants: a file that is not empty is somebody else's and stays; a link is not followed. Where there are no locks (on
some network file systems, or if a folder has the name) `Lock.sure` is False, and the writer must not replace or remove
anything but the target itself.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from proto_schema.files.durable import remove
from proto_schema.files.naming import lock_name

_FLAGS = os.O_RDWR
for _name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):
    _FLAGS |= getattr(os, _name, 0)
_NO_LOCK_FILE = {errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM}
_log = logging.getLogger("proto_schema")
_held: ContextVar[frozenset[str]] = ContextVar("locks that the callers hold", default=frozenset())

if sys.platform == "win32":
    import msvcrt
    import time

    def _try(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLOCK):
                return False
            raise
        return True

    def _wait(descriptor: int) -> None:
        while not _try(descriptor):
            time.sleep(0.05)

    def _let_go(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try(descriptor: int) -> bool:
        """Whether the lock is had now. OSError where there are none."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def _let_go(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # children that were forked meanwhile have the descriptor too


def lock_file(descriptor: int) -> None:
    """Locks an open file until it is closed, where the system can."""
    with suppress(OSError):
        _wait(descriptor)


class Lock:
    """The lock of one target.

    `sure`: the system gave it. `found`: its file was there before, so perhaps the last writer was killed.
    """

    def __init__(self, target: str) -> None:
        self.sure = True
        self.found = False
        self._target = target
        self.path = lock_name(target)
        self._descriptor: int | None = None
        self._held = False

    def take(self) -> None:
        """Waits until it is this writer's turn. Raises OSError where no file can be made in the folder."""
        told = False
        while True:
            self._descriptor = self._opened()
            if self._descriptor is None:
                break
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                break
            try:
                if not _try(self._descriptor):
                    if not told:
                        _log.warning("%s: another writer is at work; waiting until it is done", self._target)
                    told = True
                    _wait(self._descriptor)
            except OSError:  # a file system without locks
                break
            if self._is_current(status):
                self._held = True
                return
            self._close()
        self.sure = False
        _log.warning("%s: no lock can be had in this folder, so earlier data files stay", self._target)

    def _opened(self) -> int | None:
        self.found = False
        with suppress(FileExistsError):
            try:
                return os.open(self.path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
            except PermissionError:
                if not os.path.lexists(self.path):
                    raise
        self.found = True
        for flags in (_FLAGS, _FLAGS & ~os.O_RDWR | os.O_RDONLY):  # of another user: it can be locked all the same
            try:
                return os.open(self.path, flags)
            except FileNotFoundError:  # just removed by the one who had it
                return self._opened()
            except OSError as error:
                if error.errno not in _NO_LOCK_FILE:
                    raise
        return None

    def _is_current(self, status: os.stat_result) -> bool:
        try:
            return os.path.samestat(os.lstat(self.path), status)
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Removes the file and lets go; nothing if the lock is not had. May be called again after an interrupt."""
        if self._descriptor is None:
            self._forget()
            return
        try:
            status = os.fstat(self._descriptor)
            mine = stat.S_ISREG(status.st_mode) and status.st_size == 0 and self._is_current(status)
            if mine and (self._held or not self.sure or _try(self._descriptor)):
                remove(self.path)
        finally:
            with suppress(OSError):
                _let_go(self._descriptor)
            self._close()

    def _forget(self) -> None:
        """Removes a file that was made just before an interrupt, if nobody has taken its lock since."""
        if not self.sure:
            return
        try:
            self._descriptor = os.open(self.path, _FLAGS)
        except OSError:
            return
        try:
            if _try(self._descriptor):
                self.release()
        except OSError:
            pass
        finally:
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor, self._held = self._descriptor, None, False
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)


@contextmanager
def locked(target: str) -> Iterator[Lock]:
    """The lock of a target, for the time of the block.

    OSError where no file can be made in its folder, and in a block for the same target, which would wait for itself.
    """
    lock = Lock(target)
    name = os.path.realpath(lock.path)
    if name in _held.get():
        raise OSError(errno.EDEADLK, "it is being written by the same thread; let that end first", target)
    before = _held.set(_held.get() | {name})
    try:
        lock.take()
        yield lock
    finally:
        _held.reset(before)
        try:
            lock.release()
        except BaseException:
            lock.release()
            raise


@contextmanager
def folder_locked(folder: str) -> Iterator[Lock]:
    """The lock of all targets in a folder, for the short time in which files get their names and old ones go."""
    with locked(os.path.join(folder or ".", "")) as lock:
        yield lock
