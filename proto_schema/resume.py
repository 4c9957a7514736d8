"""Data files whose writing can go on after an interruption: a partial file of a fixed name, and a journal beside it.

Strategy: the content goes to NAME.partial. Every `BLOCK` bytes that file is synced; then a line of NAME.partial.journal
says how far it is and the checksum of what lies there since the last line, and is synced too. So the journal never
claims what is not on the disk. Its first line is a fingerprint of the plan: every offset and length, and for bytes that
come from a file which file, its size and time.
The next save with the same plan believes nothing: it computes the checksums of what lies there, and compares what is
not from files (tensors in memory, computed ones) byte by byte with what it would write. It goes on after the last
range that holds. After a different plan, other bytes or a damaged journal it starts again, and the log says why.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from types import ModuleType

from proto_schema.commit import Commit
from proto_schema.copying import Sources, read_chunks
from proto_schema.datafiles import DataFile
from proto_schema.durable import keep_mode, remove_all, reserve, sync_folder, write_all, write_parts
from proto_schema.meter import Meter
from proto_schema.payload import CHUNK, BytesLike, FileRange, Payload, byte_view, chunks, file_range, nbytes, stamp_of

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

BLOCK = 1 << 28  # bytes between two lines of the journal: what an interruption costs at most
_MAGIC = "partial data file of an ONNX model, 1"
_FLAGS = os.O_RDWR | os.O_CREAT
for _name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):
    _FLAGS |= getattr(os, _name, 0)
_log = logging.getLogger("proto_schema")


def write_resumable(commit: Commit, target: str, content: DataFile) -> str:
    """Writes a data file durably, going on where an earlier save stopped; returns the path of the partial file.

    Where that fails, what is finished stays for the next save. Raises OSError, also where another process writes it.
    """
    partial, journal_path = f"{target}.partial", f"{target}.partial.journal"
    commit.keep(partial, journal_path)
    with _owned(partial) as descriptor:
        ranges: list[tuple[int, str]] = []
        try:
            with _owned(journal_path) as journal_descriptor:
                journal = _Journal(journal_path, journal_descriptor, _fingerprint(content), ranges)
                sync_folder(partial)
                _write(descriptor, target, content, journal, commit.sources or Sources(), commit.meter)
        except BaseException:
            if not ranges:  # of no use to anyone
                remove_all([partial, journal_path])
            raise
    return partial


def partial_space(target: str) -> int:
    """The disk space, in bytes, that an interrupted save of a data file has already."""
    try:
        return os.stat(f"{target}.partial").st_blocks * 512
    except (OSError, AttributeError):  # absent; Windows does not say
        return 0


def _write(descriptor: int, target: str, content: DataFile, journal: _Journal, sources: Sources, meter: Meter) -> None:
    rest = _verified(descriptor, content, journal)
    if rest is None:
        journal.begin()
        os.ftruncate(descriptor, 0)
        rest = _sections(content)
    at = journal.finished
    if at:
        _log.info("%s.partial: going on at %d of %d bytes", target, at, content.size)
    meter.add(at)
    keep_mode(descriptor, target)
    reserve(descriptor, content.size)
    while at < content.size:
        os.lseek(descriptor, at, os.SEEK_SET)
        taken: list[int] = []
        write_parts(descriptor, _block(rest, at, taken), sources, meter)
        os.fsync(descriptor)
        stop = at + sum(taken)
        journal.add(stop, _checksum(descriptor, at, stop))
        at = stop


def _block(parts: Iterator[BytesLike], at: int, taken: list[int]) -> Iterator[BytesLike]:
    """The parts from position `at` up to the next line of the journal; `taken` gets their sizes."""
    end = (at // BLOCK + 1) * BLOCK
    for part in parts:
        taken.append(nbytes(part))
        at += taken[-1]
        yield part
        if at >= end:
            return


def _verified(descriptor: int, content: DataFile, journal: _Journal) -> Iterator[BytesLike] | None:
    """What is left to write after the finished ranges that hold; None if nothing can be continued."""
    start = 0
    for number, (stop, checksum) in enumerate(journal.ranges):
        if stop > content.size or _checksum(descriptor, start, stop) != checksum:
            _log.warning("%s: the bytes from %d to %d are not those that were written", journal.path, start, stop)
            journal.cut(number)
            break
        start = stop
    if not journal.ranges:
        return None
    rest = _behind(descriptor, _sections(content), journal.finished)
    if rest is None:
        _log.warning("%s: the weights are others than those of the interrupted save: starting anew", journal.path)
    return rest


def _behind(descriptor: int, parts: Iterator[BytesLike], done: int) -> Iterator[BytesLike] | None:
    """The parts from the position `done` on; None where bytes before it, not from a file, differ from the partial's."""
    at = 0
    while at < done:
        part = next(parts)
        head, tail = _section(part, 0, done - at), _section(part, done - at, nbytes(part))
        if file_range(part) is None and not _lie_at(descriptor, at, head):
            return None
        at += nbytes(head)
        if nbytes(tail):
            return chain([tail], parts)
    return parts


def _lie_at(descriptor: int, at: int, data: BytesLike) -> bool:
    for chunk in chunks(data):
        if os.pread(descriptor, len(chunk), at) != chunk:
            return False
        at += len(chunk)
    return True


def _sections(content: DataFile) -> Iterator[BytesLike]:
    """The content in parts that can be cut, none across a multiple of `BLOCK` but the pieces of computed ones."""
    at = 0
    for data in content.parts():
        computed = isinstance(data, Payload) and not isinstance(data, FileRange)
        for part in read_chunks(data) if computed else [data]:
            start, size = 0, nbytes(part)
            while start < size:
                stop = size if computed else min(size, start + BLOCK - at % BLOCK)
                yield _section(part, start, stop)
                at += stop - start
                start = stop


def _section(data: BytesLike, start: int, stop: int) -> BytesLike:
    """Some bytes of what is in memory or in a file."""
    if not isinstance(data, Payload):
        return byte_view(data)[start:stop]
    assert isinstance(data, FileRange)
    if not isinstance(data.source, str):
        return memoryview(data.source)[data.offset + start : data.offset + min(stop, data.nbytes)]
    return FileRange(data.source, data.offset + start, max(min(stop, data.nbytes) - start, 0), data.stamp)


def _fingerprint(content: DataFile) -> str:
    """Equal for two contents only if their layouts are equal, and their bytes as far as they come from files."""
    made = hashlib.sha256(f"{content.size}\n".encode())
    for offset, data in content.payloads:
        found, source = file_range(data), ""
        if found is not None:
            path = os.path.abspath(str(found.source))
            source = f"{path!r} {found.offset} {found.stamp or stamp_of(os.stat(path))}"
        made.update(f"{offset} {nbytes(data)} {source}\n".encode(errors="surrogateescape"))
    return made.hexdigest()


def _checksum(descriptor: int, start: int, stop: int) -> str:
    """Of bytes of the file; another one than any that was noted where the file ends too early."""
    made = hashlib.sha256()
    while start < stop:
        data = os.pread(descriptor, min(CHUNK, stop - start), start)
        if not data:
            return ""
        made.update(data)
        start += len(data)
    return made.hexdigest()


class _Journal:
    """The finished ranges, each from the end of the one before: (end, checksum). They survive a crash of the system."""

    def __init__(self, path: str, descriptor: int, fingerprint: str, ranges: list[tuple[int, str]]) -> None:
        self.path = path
        self.ranges = ranges
        self._descriptor = descriptor
        self._head = f"{_MAGIC}: {fingerprint}\n".encode()
        self._read(os.pread(descriptor, os.fstat(descriptor).st_size, 0))

    @property
    def finished(self) -> int:
        """How many bytes of the partial file are finished."""
        return self.ranges[-1][0] if self.ranges else 0

    def begin(self) -> None:
        """Nothing is finished."""
        self.ranges.clear()
        os.ftruncate(self._descriptor, 0)
        self._append(self._head)

    def cut(self, count: int) -> None:
        """Only the first `count` ranges hold."""
        del self.ranges[count:]
        os.ftruncate(self._descriptor, len(self._head) + sum(len(_line(*row)) for row in self.ranges))
        os.fsync(self._descriptor)

    def add(self, stop: int, checksum: str) -> None:
        """The bytes up to `stop` are on the disk."""
        self._append(_line(stop, checksum))
        self.ranges.append((stop, checksum))

    def _append(self, line: bytes) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_END)
        write_all(lambda data: os.write(self._descriptor, data), line)
        os.fsync(self._descriptor)

    def _read(self, found: bytes) -> None:
        if not found.startswith(self._head):
            if found:
                _log.warning("%s: of another save, or damaged: starting anew", self.path)
            return
        at = len(self._head)
        for line in found[at:].splitlines(keepends=True):
            with suppress(ValueError):
                stop, checksum = line.decode("ascii").split()[:2]
                if int(stop) > self.finished and line == _line(int(stop), checksum):
                    self.ranges.append((int(stop), checksum))
                    at += len(line)
                    continue
            break  # a line that was being written when the end came
        if at < len(found):
            self.cut(len(self.ranges))


def _line(stop: int, checksum: str) -> bytes:
    """With a checksum of its own."""
    text = f"{stop} {checksum}"
    return f"{text} {hashlib.sha256(text.encode()).hexdigest()[:16]}\n".encode()


@contextmanager
def _owned(path: str) -> Iterator[int]:
    """An open file of this name, locked; never a link, which would lead out of the folder.

    Raises BlockingIOError where another process has it.
    """
    descriptor = None
    while descriptor is None:
        descriptor = _opened(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(path: str) -> int | None:
    """The file, locked; None where something else was in its place, which is removed."""
    try:
        descriptor = os.open(path, _FLAGS, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK):
            raise
        os.unlink(path)
        return None
    try:
        _lock(descriptor, path)
        status, there = os.fstat(descriptor), os.lstat(path)
        if not os.path.samestat(status, there):  # another process has just finished and renamed it
            raise FileNotFoundError
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return descriptor
        os.unlink(path)
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _lock(descriptor: int, path: str) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(errno.EAGAIN, f"another process is writing {path}: wait for it, or end it") from None
    except OSError:  # a file system without locks
        return
