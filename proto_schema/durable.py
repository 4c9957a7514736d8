"""Writing files so that a crash, a full disk or an exception leaves either the old file or the new one.

Strategy: the new content goes to a temporary file in the same folder, its space reserved first; it is fsynced,
renamed over the target, and the folder is fsynced. Never through a mapping: a full disk would become a signal.
A link is replaced, not followed. A path that is no regular file (a pipe, a device) is written to directly, as is a
file object: neither needs seeking.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Any

from proto_schema.copying import Sources, by_kernel, read_chunks
from proto_schema.meter import Meter
from proto_schema.payload import CHUNK, BytesLike, Payload, byte_view, pieces

WRITE_BACK = 1 << 28  # bytes between two requests to bring them to the disk
WRITE = 1 << 16  # bytes a call to write: for more, Linux looks for large pages, which takes longer than the copy
JOIN = 1 << 20  # small parts are joined up to this size
_FAILED_SYNC = {errno.EIO, errno.ENOSPC, errno.EDQUOT}  # others say that folders are not synced here
_NO_RESERVE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV}


def gathered(parts: Iterable[BytesLike], limit: int = CHUNK) -> Iterator[bytes | memoryview]:
    """The parts as pieces worth a system call each: small ones joined, large ones passed through as bounded views."""
    small: list[bytes | bytearray | memoryview] = []
    held = 0
    for part in parts:
        for view in read_chunks(part, limit) if isinstance(part, Payload) else [part]:
            size = len(view)
            if size > JOIN // 16:
                if small:
                    yield b"".join(small)
                    small, held = [], 0
                yield from pieces(byte_view(view), limit)
                continue
            small.append(bytes(view) if isinstance(part, Payload) else view)
            held += size
            if held >= JOIN:
                yield b"".join(small)
                small, held = [], 0
    if small:
        yield b"".join(small)


def write_all(write: Callable[[Any], int | None], data: bytes | memoryview, blocks: bool = True) -> None:
    """Writes all of `data` through a function that may take less at a time and says how much it took.

    None counts as everything, as writers without a result mean it, but as nothing where `blocks` is False.
    """
    view = byte_view(data)
    while view:
        taken = write(view)
        if taken is None:
            if not blocks:
                raise BlockingIOError(errno.EAGAIN, "the output does not wait for its reader; give a blocking one")
            return
        if taken <= 0:
            raise OSError(errno.EIO, f"the output took none of {len(view)} bytes")
        view = view[taken:]


def write_stream(file: Any, parts: Iterable[BytesLike], meter: Meter | None = None) -> None:
    """Writes the parts to a binary file object: a file, pipe, socket file, or anything with `write`."""
    raw = isinstance(file, io.RawIOBase)
    for piece in gathered(parts):
        write_all(file.write, piece, blocks=not raw)
        if meter is not None:
            meter.add(len(piece))


def write_new(
    path: str,
    parts: Iterable[BytesLike],
    size: int,
    like: str,
    sources: Sources | None = None,
    meter: Meter | None = None,
) -> None:
    """Writes the parts durably to the new file `path`; on failure nothing stays behind.

    `size` is what the parts add up to. The file gets the permissions of `like`, where that exists. Ranges of files are
    copied by the kernel, from the files that `sources` has looked at.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            keep_mode(descriptor, like)
            reserve(descriptor, size)
            write_parts(descriptor, parts, sources or Sources(), meter or Meter())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except FileExistsError:
        raise
    except BaseException:
        remove(path)
        raise


def create(path: str, size: int, like: str) -> None:
    """Makes the new file `path` of `size` zeros, their space reserved, for others to write to; removed on failure."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            keep_mode(descriptor, like)
            reserve(descriptor, size)
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)
    except FileExistsError:
        raise
    except BaseException:
        remove(path)
        raise


def write_parts(descriptor: int, parts: Iterable[BytesLike], sources: Sources, meter: Meter) -> None:
    """Writes the parts to an open file: ranges of files by the kernel, the rest as `gathered` joins and cuts it."""

    def write(read: Iterable[BytesLike]) -> None:
        told = _writing_back(descriptor, meter.add)
        for piece in gathered(read):
            for step in pieces(byte_view(piece), WRITE):
                write_all(lambda data: os.write(descriptor, data), step)
            told(len(piece))

    for copied, group in groupby(parts, by_kernel):
        if not copied:
            write(group)
            continue
        for part in group:
            if not sources.copy(part, descriptor, meter.add):
                write([part])


def _writing_back(descriptor: int, told: Callable[[int], None]) -> Callable[[int], None]:
    """`told`, and every 256 MB the system is asked to bring them to the disk: else fsync would wait for all at the end.

    Advice that pages are not needed starts writing those that are not on the disk yet, and keeps them. Only for bytes
    that this process writes: what the kernel copies takes 1.4 times as long with it.
    """
    done = begun = 0

    def add(count: int) -> None:
        nonlocal done, begun
        done += count
        if done - begun >= WRITE_BACK:
            with suppress(OSError):
                at = os.lseek(descriptor, 0, os.SEEK_CUR)
                os.posix_fadvise(descriptor, at - (done - begun), done - begun, os.POSIX_FADV_DONTNEED)
            begun = done
        told(count)

    return add if hasattr(os, "posix_fadvise") else told


def temporary_name(target: str) -> str:
    """A fresh name in the folder of `target`, hidden, and telling what it was for."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")


def keep_mode(descriptor: int, target: str) -> None:
    """Gives an open file the permissions of another, if that exists."""
    with suppress(OSError):
        os.fchmod(descriptor, stat.S_IMODE(os.lstat(target).st_mode))


def reserve(descriptor: int, size: int) -> None:
    """So that a full disk shows before anything is written."""
    if size == 0 or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in _NO_RESERVE:
            raise


def sync_folder(path: str) -> None:
    """Makes renames in the folder of `path` durable, where the system can. OSError where the disk fails to."""
    descriptor = None
    try:
        descriptor = os.open(os.path.dirname(path) or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        os.fsync(descriptor)
    except OSError as error:
        if descriptor is not None and error.errno in _FAILED_SYNC:
            raise
    finally:
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)


def remove(path: str) -> None:
    """Removes a file if it is there."""
    with suppress(OSError):
        os.unlink(path)


def remove_all(paths: Collection[str]) -> None:
    """Removes the files that are there, all of them even if an interrupt comes meanwhile."""
    try:
        for path in paths:
            remove(path)
    except BaseException:
        for path in paths:
            remove(path)
        raise


def takes_rename(path: str) -> bool:
    """Whether the path is to be replaced by renaming: it is absent, a regular file, or a link to one."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # absent; or out of reach, which the attempt to write will say better
        return True
    return stat.S_ISREG(mode)


@contextmanager
def blamed_on(path: str) -> Iterator[None]:
    """OSErrors inside name `path`, not a temporary file of ours; FileNotFoundError says that the folder is missing."""
    try:
        yield
    except OSError as error:
        folder = os.path.dirname(path) or "."
        reason = error.strerror or str(error)
        if isinstance(error, FileNotFoundError) and not os.path.isdir(folder):
            reason = f"the folder {folder} does not exist"
        raise OSError(error.errno or errno.EIO, f"cannot save: {reason}", path) from error
