"""Data files whose writing can go on after an interruption: a partial file of a fixed name, and a journal beside it.

Strategy: the content goes to NAME.partial. Every `BLOCK` bytes that file is synced; then a line of NAME.partial.journal
says how far it is, and is synced too. So the journal never claims what is not on the disk. It begins with the mark of
the model (`marks.py`): a partial file without such a journal is somebody else's. Its second line is a fingerprint of
the plan: every offset and length, and for bytes that come from a file which file, its size and time. It gets its name
with these two lines in it: saves of other models in the folder see at every moment whose it is.
The next save with the same plan believes nothing: it compares what lies there with what it would write, byte by byte,
and goes on after the last finished range that is right. Reading both is quicker than writing again.
The lock of the target is held, so no other save of this model is at work.
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

from proto_schema.external.copying import Sources, read_chunks
from proto_schema.external.datafiles import DataFile
from proto_schema.external.meter import Meter
from proto_schema.external.payload import BytesLike, FileRange, Payload, byte_view, file_range, nbytes, stamp_of
from proto_schema.files.commit import Commit
from proto_schema.files.durable import (
    creation_mode,
    keep_mode,
    remove_all,
    reserve,
    sync_folder,
    write_all,
    write_new,
    write_parts,
)
from proto_schema.files.marks import is_journal, journal_mark
from proto_schema.files.naming import JOURNAL, PARTIAL

BLOCK = 1 << 28  # bytes between two lines of the journal: what an interruption costs at most
_FLAGS = os.O_RDWR | os.O_CREAT
for _name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):
    _FLAGS |= getattr(os, _name, 0)
_log = logging.getLogger("proto_schema")


def write_resumable(commit: Commit, target: str, content: DataFile) -> str:
    """Writes a data file durably, going on where an earlier save stopped; returns the path of the partial file.

    Where that fails, what is finished stays for the next save. Raises OSError, also where somebody else has a file of
    one of the names.
    """
    partial, journal_path = target + PARTIAL, target + JOURNAL
    model = os.path.basename(commit.path)
    _refuse_others(partial, journal_path, model)
    commit.keep(partial, journal_path)
    ranges: list[int] = []
    try:
        head = journal_mark(model) + f"{_fingerprint(content)}\n".encode()
        _begin(commit, target, head)
        with _opened(journal_path) as journal_descriptor:
            journal = _Journal(journal_path, journal_descriptor, head, ranges)
            with _opened(partial, creation_mode(commit.like(target))) as descriptor:
                keep_mode(descriptor, partial, commit.like(target))
                sync_folder(partial)
                _write(descriptor, target, content, journal, commit.sources or Sources(), commit.meter)
    except BaseException:
        if not ranges:  # of no use to anyone
            remove_all([partial, journal_path])
        raise
    return partial


def _refuse_others(partial: str, journal: str, model: str) -> None:
    """FileExistsError unless both files are of an interrupted save of this model, or absent."""
    for path in (journal, partial):
        if os.path.lexists(path) and not (is_journal(journal, model) and _is_plain(path)):
            raise FileExistsError(
                errno.EEXIST, f"{path} was not left by a save of {model}; remove it, or save without resume", path
            )


def _begin(commit: Commit, target: str, head: bytes) -> None:
    """The journal begins with this head afterwards: it is the one that was there, or a new one."""
    path = target + JOURNAL
    with suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:
        if file.read(len(head)) == head:
            return
        _log.warning("%s: of a save with other weights: starting anew", path)
    made = commit.temporary()
    write_new(made, [head], len(head), commit.like(target))
    os.replace(made, path)
    sync_folder(path)


def _is_plain(path: str) -> bool:
    status = os.lstat(path)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def partial_space(target: str) -> int:
    """The disk space, in bytes, that an interrupted save of a data file has already."""
    try:
        return os.stat(target + PARTIAL).st_blocks * 512
    except (OSError, AttributeError):  # absent; Windows does not say
        return 0


def _write(descriptor: int, target: str, content: DataFile, journal: _Journal, sources: Sources, meter: Meter) -> None:
    size = content.whole_size
    rest = _verified(descriptor, content, journal)
    at = journal.finished
    if at:
        _log.info("%s%s: going on at %d of %d bytes", target, PARTIAL, at, size)
    else:
        os.ftruncate(descriptor, 0)
    meter.add(at)
    reserve(descriptor, size)
    while at < size:
        os.lseek(descriptor, at, os.SEEK_SET)
        taken: list[int] = []
        write_parts(descriptor, _block(rest, at, taken), sources, meter)
        os.fsync(descriptor)
        at += sum(taken)
        journal.add(at)


def _block(parts: Iterator[BytesLike], at: int, taken: list[int]) -> Iterator[BytesLike]:
    """The parts from position `at` up to the next line of the journal; `taken` gets their sizes."""
    end = (at // BLOCK + 1) * BLOCK
    for part in parts:
        taken.append(nbytes(part))
        at += taken[-1]
        yield part
        if at >= end:
            return


def _verified(descriptor: int, content: DataFile, journal: _Journal) -> Iterator[BytesLike]:
    """What is left to write after the finished ranges, of which the journal keeps those that are right."""
    at, parts = 0, _sections(content)
    while at < journal.finished:
        part = next(parts, b"")
        head, tail = _section(part, 0, journal.finished - at), _section(part, journal.finished - at, nbytes(part))
        if not nbytes(head) or not _lie_at(descriptor, at, head):
            _log.warning("%s: the bytes from %d on are not those that are to be written", journal.path, at)
            journal.keep_up_to(at)
            return _verified(descriptor, content, journal)
        at += nbytes(head)
        if nbytes(tail):
            return chain([tail], parts)
    return parts


def _lie_at(descriptor: int, at: int, data: BytesLike) -> bool:
    for chunk in read_chunks(data):
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
    made = hashlib.sha256(f"{content.whole_size}\n".encode())
    for offset, data in content.payloads:
        found, source = file_range(data), ""
        if found is not None:
            path = os.path.abspath(str(found.source))
            source = f"{path!r} {found.offset} {found.stamp or stamp_of(os.stat(path))}"
        made.update(f"{offset} {nbytes(data)} {source}\n".encode(errors="surrogateescape"))
    return made.hexdigest()


class _Journal:
    """The ends of the finished ranges; each begins where the one before ends. They survive a crash of the system."""

    def __init__(self, path: str, descriptor: int, head: bytes, ranges: list[int]) -> None:
        self.path = path
        self.ranges = ranges
        self._descriptor = descriptor
        self._head = head
        self._read(os.pread(descriptor, os.fstat(descriptor).st_size, 0))

    @property
    def finished(self) -> int:
        """How many bytes of the partial file are finished."""
        return self.ranges[-1] if self.ranges else 0

    def keep_up_to(self, end: int) -> None:
        """Only the ranges that end there, or before, hold."""
        while self.ranges and self.ranges[-1] > end:
            self.ranges.pop()
        os.ftruncate(self._descriptor, len(self._head) + sum(len(_line(stop)) for stop in self.ranges))
        os.fsync(self._descriptor)

    def add(self, stop: int) -> None:
        """The bytes up to `stop` are on the disk."""
        self._append(_line(stop))
        self.ranges.append(stop)

    def _append(self, line: bytes) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_END)
        write_all(lambda data: os.write(self._descriptor, data), line)
        os.fsync(self._descriptor)

    def _read(self, found: bytes) -> None:
        at = len(self._head)
        for line in found[at:].splitlines(keepends=True):
            with suppress(ValueError, IndexError):
                stop = int(line.decode("ascii").split()[0])
                if stop > self.finished and line == _line(stop):
                    self.ranges.append(stop)
                    at += len(line)
                    continue
            break  # a line that was being written when the end came
        if at < len(found):
            self.keep_up_to(self.finished)


def _line(stop: int) -> bytes:
    """With a checksum of its own."""
    return f"{stop} {hashlib.sha256(str(stop).encode()).hexdigest()[:16]}\n".encode()


@contextmanager
def _opened(path: str, mode: int = 0o600) -> Iterator[int]:
    """An open file of this name, which is made where there is none; never a link."""
    descriptor = os.open(path, _FLAGS, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
