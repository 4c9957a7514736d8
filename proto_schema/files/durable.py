"""Writing files so that a crash, a full disk or an exception leaves either the old file or the new one.

Strategy: the new content goes to a temporary file in the same folder, its space reserved first; it is fsynced,
renamed over the target, and the folder is fsynced. Never through a mapping: a full disk would become a signal.
A new file has the mode and the owner of what it replaces, and until it has both, nobody else can open it.
A link is replaced, not followed. A path that is no regular file (a pipe, a device, an open file as in /dev/stdout) is
written to directly, as is a file object: neither needs seeking.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Any

from proto_schema.external.copying import Sources, by_kernel, read_chunks
from proto_schema.external.meter import Meter
from proto_schema.external.payload import CHUNK, BytesLike, Payload, byte_view, nbytes, pieces

WRITE_BACK = 1 << 28  # bytes between two requests to bring them to the disk
WRITE = 1 << 16  # bytes a call to write: for more, Linux looks for large pages, which takes longer than the copy
JOIN = 1 << 20  # small parts are joined up to this size
_log = logging.getLogger("proto_schema")
_FAILED_SYNC = {errno.EIO, errno.ENOSPC, errno.EDQUOT}  # others say that folders are not synced here
_BLAME = "cannot save: "
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
    like: Sequence[str],
    sources: Sources | None = None,
    meter: Meter | None = None,
) -> None:
    """Writes the parts durably to the new file `path`; on failure nothing stays behind.

    `size` is what the parts add up to. The file gets mode and owner of the first of the files `like` that exists.
    Ranges of files are copied by the kernel, from the files that `sources` has looked at.
    """
    with _made(path, size, like) as descriptor:
        write_parts(descriptor, parts, sources or Sources(), meter or Meter())
        os.fsync(descriptor)


def open_to_append(path: str, folder: int | None) -> int:
    """Opens a file for reading and writing, made if it is not there; `folder` is a handle of its folder, if any.

    OSError for a link, and for what is no regular file or has other names: its content may be somebody else's. What is
    in the file stays: a caller writes behind its end only.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    flags |= getattr(os, "O_NONBLOCK", 0)  # so that opening a pipe does not wait
    where = path if folder is None else os.path.basename(path)
    descriptor = os.open(where, flags, 0o666, dir_fd=folder)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EPERM, "it is not a regular file, or has other names (hard links)", path)


def create(path: str, size: int, like: Sequence[str]) -> None:
    """Makes the new file `path` of `size` zeros, their space reserved, for others to write to; removed on failure."""
    with _made(path, size, like) as descriptor:
        os.ftruncate(descriptor, size)


def write_at(path: str, size: int, places: Iterable[tuple[int, BytesLike]], sources: Sources) -> int:
    """Writes payloads to offsets of a file that has this size already, and syncs it; returns how many bytes.

    OSError where that fails, and where the file is not the one that was made.
    """
    flags = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        reason = "the first process made it, this one does not see it: save to a folder that all processes share"
        raise OSError(errno.ENOENT, reason, path) from None
    count = 0
    try:
        if os.fstat(descriptor).st_size != size:
            raise OSError(f"{path} is not the file of {size} bytes that the first process made")
        for offset, data in places:
            os.lseek(descriptor, offset, os.SEEK_SET)
            write_parts(descriptor, [data], sources, Meter())
            count += nbytes(data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return count


@contextmanager
def _made(path: str, size: int, like: Sequence[str]) -> Iterator[int]:
    """A new file, open, its space reserved; it is removed if the block fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, creation_mode(like))
        try:
            keep_mode(descriptor, path, like)
            reserve(descriptor, size)
            yield descriptor
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


def creation_mode(like: Sequence[str]) -> int:
    """The mode to make a file with that `keep_mode` is called for next: nobody else may open it in between."""
    return 0o666 if _status_of(like) is None else 0o600


def keep_mode(descriptor: int, path: str, like: Sequence[str]) -> None:
    """Gives the open file at `path` mode and owner of the first of the files `like` that exists.

    A warning says where the owner cannot be kept.
    """
    found = _status_of(like)
    if found is None:
        return
    if hasattr(os, "fchown"):
        mine = os.fstat(descriptor)
        if (mine.st_uid, mine.st_gid) != (found.st_uid, found.st_gid) and not _owned_alike(descriptor, found):
            _log.warning("%s: owner or group of the file that it replaces cannot be kept", path)
    if hasattr(os, "fchmod"):
        with suppress(OSError):
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & 0o777)


def _status_of(paths: Sequence[str]) -> os.stat_result | None:
    """Of the first that exists and is a regular file, also behind a link."""
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                return status
    return None


def _owned_alike(descriptor: int, found: os.stat_result) -> bool:
    """Gives the file owner and group of another, or at least the group; whether both were given."""
    try:
        os.fchown(descriptor, found.st_uid, found.st_gid)
    except OSError:
        with suppress(OSError):
            os.fchown(descriptor, -1, found.st_gid)
        return False
    return True


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
    if _open_file(path) is not None:
        return False
    try:
        mode = os.stat(path).st_mode
    except OSError:  # absent; or out of reach, which the attempt to write will say better
        return True
    return stat.S_ISREG(mode)


def write_through(path: str, parts: Iterable[BytesLike], meter: Meter | None = None) -> None:
    """Writes to what does not take a rename. An open file goes on at its place, as a shell means it."""
    name = _open_file(path)
    if name is not None and name.isdigit():
        descriptor = os.dup(int(name))
    else:
        descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "wb", buffering=0) as file:
        write_stream(file, parts, meter)


def _open_file(path: str) -> str | None:
    """The number of the open file of this process that a path such as /dev/stdout leads to; '' for one of another."""
    for _ in range(40):  # no more links than the system follows
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder)
        if folder in ("/dev/fd", "/proc/self/fd", f"/proc/{os.getpid()}/fd"):
            return name
        if not os.path.islink(path):
            return None
        if folder.startswith("/proc/"):
            return ""
        path = os.path.join(folder, os.readlink(path))
    return None


@contextmanager
def blamed_on(path: str) -> Iterator[None]:
    """OSErrors inside name `path`, not a temporary file of ours; FileNotFoundError says that the folder is missing."""
    try:
        yield
    except OSError as error:
        if error.filename == path and str(error.strerror).startswith(_BLAME):
            raise
        folder = os.path.dirname(path) or "."
        reason = error.strerror or str(error)
        if isinstance(error, FileNotFoundError) and not os.path.isdir(folder):
            reason = f"the folder {folder} does not exist"
        raise OSError(error.errno or errno.EIO, f"{_BLAME}{reason}", path) from error
