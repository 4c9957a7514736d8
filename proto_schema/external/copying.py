"""Bytes from file to file by the kernel: Python never sees them, and file systems that can do so share the blocks.

Strategy: `os.copy_file_range`, then `os.sendfile`, then bounded reads and writes; each goes on where the last one
stopped, so a file system that lacks one (or a kernel that refuses halfway) costs speed only.
Invariant: what is copied comes from one and the same file from the first look at it to the last. A file that another
has taken the place of, that was written to or cut meanwhile, is an ExternalDataError that names it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from proto_schema.errors import ExternalDataError, UnreadableDataError
from proto_schema.external.payload import (
    CHUNK,
    BytesLike,
    FileMap,
    FileRange,
    Stamp,
    changed,
    chunks,
    file_range,
    is_same,
    nbytes,
    stamp_of,
)

STEP = 1 << 24  # bytes a system call: few calls, and a signal or a progress callback waits some milliseconds
WORTH = 1 << 16  # from this size on a range of a file is not read but copied by the kernel

# the kernel's ways of saying "not between these two files"; EIO, so that reads show which of the two is damaged
_ANOTHER_WAY = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.EBADF,
    errno.EPERM,
    errno.ENOTSOCK,
    errno.EOVERFLOW,
    errno.ETXTBSY,
    errno.EIO,
}

_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

Way = Callable[[int, int, int, int], int]


def _kernel_copy(source: int, target: int, offset: int, count: int) -> int:
    return os.copy_file_range(source, target, count, offset)


def _sendfile(source: int, target: int, offset: int, count: int) -> int:
    return os.sendfile(target, source, offset, count)


def _read_and_write(source: int, target: int, offset: int, count: int) -> int:
    with reading():
        data = os.pread(source, min(count, CHUNK), offset)
    return os.write(target, data) if data else 0


def _ways() -> list[Way]:
    """The ways that this system has, best first."""
    ways = [("copy_file_range", _kernel_copy), ("sendfile", _sendfile), ("pread", _read_and_write)]
    return [way for name, way in ways if hasattr(os, name)]


@contextmanager
def reading() -> Iterator[None]:
    """Errors inside are the source's: ExternalDataError, so that they are not taken for the target's."""
    try:
        yield
    except EOFError as error:
        raise ExternalDataError(f"cannot read what is to be written: {error}") from error
    except OSError as error:
        raise UnreadableDataError(f"cannot read what is to be written: {error}") from error


def by_kernel(data: BytesLike) -> bool:
    """Whether these bytes are a range of a file, and enough of them to let the kernel copy them."""
    if not hasattr(os, "pread") or nbytes(data) < WORTH:
        return False
    return isinstance(data, FileRange) or (isinstance(data, memoryview) and isinstance(data.obj, FileMap))


def read_chunks(data: BytesLike, limit: int = CHUNK) -> Iterator[memoryview]:
    """`payload.chunks`, whose errors of files are ExternalDataErrors."""
    made = chunks(data, limit)
    while True:
        with reading():
            chunk = next(made, None)
        if chunk is None:
            return
        yield chunk


def copy_range(source: int, offset: int, length: int, target: int, told: Callable[[int], None] | None = None) -> None:
    """Writes `length` bytes at `offset` of an open file to another, at the position where that one is.

    `told` hears the number of bytes of each step. Raises EOFError where the source ends too early, OSError as the
    system calls do, ExternalDataError where the source cannot be read.
    """
    at, end = offset, offset + length
    for way in _ways():
        while at < end:
            try:
                count = way(source, target, at, min(STEP, end - at))
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno not in _ANOTHER_WAY or way is _read_and_write:
                    raise
                break
            if count == 0:  # the end of the file, or one of those that tell the kernel nothing of their size
                break
            at += count
            if told is not None:
                told(count)
    if at < end:
        raise EOFError(f"{end - at} of {length} bytes at {offset} are missing")


class Sources:
    """The files that a save copies from: looked at before the first byte, and the same until the last."""

    def __init__(self) -> None:
        self._stamps: dict[str, Stamp] = {}
        self._maps: dict[str, FileMap] = {}
        self._seen: dict[int, FileMap] = {}

    def look(self, data: BytesLike) -> None:
        """Notes which file a range names by its path. ExternalDataError where it is absent, another, or too short.

        Of a mapped file that was written into, too: its bytes are no longer those that were loaded.
        """
        if isinstance(data, memoryview) and isinstance(data.obj, FileMap):
            self._look_at(data.obj)
            return
        if not (isinstance(data, FileRange) and isinstance(data.source, str)):
            return
        path = data.source
        if path not in self._stamps:
            with reading():
                status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                return
            self._stamps[path] = stamp_of(status)
        stamp = self._stamps[path]
        if data.stamp is not None and not is_same(stamp, data.stamp):
            raise changed(path)
        end = data.offset + data.nbytes
        if end > stamp[2]:
            raise ExternalDataError(f"{path} has {stamp[2]} bytes, not those from {data.offset} to {end}: cut off?")

    def _look_at(self, data: FileMap) -> None:
        if id(data) in self._seen:
            return
        self._seen[id(data)] = data
        data.expect_unchanged()

    def stamp(self, data: BytesLike) -> Stamp | None:
        """The stamp of the file that a payload lies in, which `look` has seen; None where it lies in none."""
        found = file_range(data)
        return None if found is None else found.stamp or self._stamps.get(str(found.source))

    def reads(self, path: str) -> bool:
        """Whether the file at `path` is one that payloads were read from, as far as it was looked at."""
        with suppress(OSError):
            place = stamp_of(os.stat(path))[:2]
            return any(stamp[:2] == place for stamp in self._stamps.values())
        return False

    def pinned(self, data: BytesLike) -> BytesLike:
        """The payload, but a range of a file as a view of a mapping: the same bytes also when its path is replaced."""
        if not (isinstance(data, FileRange) and isinstance(data.source, str) and data.nbytes):
            return data
        path = data.source
        if path not in self._maps:
            descriptor = self._open(path, data.stamp, named=True)
            if descriptor is None:
                return data
            try:
                self._maps[path] = FileMap.of(descriptor, path)
            finally:
                os.close(descriptor)
        return memoryview(self._maps[path])[data.offset : data.offset + data.nbytes]

    def copy(self, data: BytesLike, target: int, told: Callable[[int], None] | None = None) -> bool:
        """Lets the kernel write a payload that is a range of a file; False where it must be read after all.

        Raises ExternalDataError where the file is not what it was, OSError where the target cannot be written.
        """
        found = file_range(data)
        if found is None:
            return False
        path = str(found.source)
        descriptor = self._open(path, found.stamp, named=isinstance(data, FileRange) and data.source == path)
        if descriptor is None:
            return False
        try:
            before = stamp_of(os.fstat(descriptor))
            try:
                copy_range(descriptor, found.offset, found.nbytes, target, told)
            except EOFError as error:
                raise ExternalDataError(f"cannot read what is to be written: {path}: {error}") from error
            if stamp_of(os.fstat(descriptor)) != before:
                raise changed(path)
        finally:
            os.close(descriptor)
        return True

    def _open(self, path: str, stamp: Stamp | None, named: bool) -> int | None:
        """The open file; None where its bytes are better read: it is a pipe, or no longer what is mapped.

        Only a payload that is `named` has no other way to its bytes than the path: then what fails is an error.
        """
        try:
            with reading():
                descriptor = os.open(path, os.O_RDONLY | _FLAGS)
        except ExternalDataError:
            if named:
                raise
            return None
        status = os.fstat(descriptor)
        regular, found = stat.S_ISREG(status.st_mode), stamp_of(status)
        expected = stamp or self._stamps.setdefault(path, found)
        if regular and is_same(found, expected):
            return descriptor
        os.close(descriptor)
        if named and regular:
            raise changed(path)
        return None
