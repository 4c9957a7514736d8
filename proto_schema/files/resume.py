"""Data files whose writing can go on after an interruption: a partial file of a fixed name, and a journal beside it.

Strategy: the content goes to NAME.partial, a piece (`external/pieces.py`) at a time. When a piece is synced, a line of
NAME.partial.journal says so, and is synced too. So the journal never claims what is not on the disk. It begins with the
mark of the model (`marks.py`): a partial file without such a journal is somebody else's. Its second line is a
fingerprint of the plan: every offset and length, and for bytes of files which files, their size and time. It
gets its name with these two lines in it: saves of other models in the folder see at every moment whose it is.
The next save with the same plan compares what lies there. A piece that is computed from files alone has its SHA-256 in
the journal, so that it is not computed again; of all others each byte is compared with what would be written. Reading
both is quicker than writing again.
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

from proto_schema.external.copying import Sources, read_chunks
from proto_schema.external.datafiles import DataFile
from proto_schema.external.executors import Workers
from proto_schema.external.payload import nbytes
from proto_schema.external.pieces import Piece, description, digest_of, pieces_of, write_pieces
from proto_schema.files.commit import Commit
from proto_schema.files.durable import (
    creation_mode,
    keep_mode,
    remove_all,
    reserve,
    sync_folder,
    write_all,
    write_new,
)
from proto_schema.files.marks import is_journal, journal_mark
from proto_schema.files.naming import JOURNAL, PARTIAL
from proto_schema.version import VERSION

_FLAGS = os.O_RDWR | os.O_CREAT
for _name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):
    _FLAGS |= getattr(os, _name, 0)
_log = logging.getLogger("proto_schema")


def write_resumable(commit: Commit, target: str, content: DataFile, workers: Workers | None = None) -> str:
    """Writes a data file durably, going on where an earlier save stopped; returns the path of the partial file.

    Where that fails, what is finished stays for the next save. Raises OSError, also where somebody else has a file of
    one of the names.
    """
    partial, journal_path = target + PARTIAL, target + JOURNAL
    model = os.path.basename(commit.path)
    _refuse_others(partial, journal_path, model)
    commit.keep(partial, journal_path)
    finished: dict[int, tuple[int, str]] = {}
    try:
        head = journal_mark(model) + f"{_fingerprint(content)}\n".encode()
        _begin(commit, target, head)
        with _opened(journal_path) as journal_descriptor:
            journal = _Journal(journal_path, journal_descriptor, head, finished)
            pieces = pieces_of(content)
            with _opened(partial, creation_mode(commit.like(target))) as descriptor:
                keep_mode(descriptor, partial, commit.like(target))
                sync_folder(partial)
                if not finished:
                    os.ftruncate(descriptor, 0)
                left = _left(descriptor, partial, pieces, journal)
                reserve(descriptor, content.whole_size)
                os.ftruncate(descriptor, content.whole_size)
            if len(left) < len(pieces):
                done = sum(piece.size for piece in pieces) - sum(piece.size for piece in left)
                _log.info("%s: going on at %d of %d bytes", partial, done, content.whole_size)
                commit.meter.add(done)
            sources = commit.sources or Sources()
            write_pieces(partial, content.whole_size, left, workers, sources, commit.meter, journal.add, digests=True)
    except BaseException:
        if not finished:  # of no use to anyone
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


def _left(descriptor: int, path: str, pieces: list[Piece], journal: _Journal) -> list[Piece]:
    """The pieces that are to be written; the journal keeps those that are there and right."""
    right, wrong = [], 0
    for piece in pieces:
        said = journal.finished.get(piece.end)
        if said is None or said[0] != piece.start:
            continue
        if _is_there(descriptor, path, piece, said[1]):
            right.append(piece)
        else:
            _log.warning("%s: the bytes from %d on are not those that are to be written", path, piece.start)
            wrong += 1
    if wrong or len(right) < len(journal.finished):
        journal.keep([piece.end for piece in right])
    ends = {piece.end for piece in right}
    return [piece for piece in pieces if piece.end not in ends]


def _is_there(descriptor: int, path: str, piece: Piece, digest: str) -> bool:
    if os.fstat(descriptor).st_size < piece.end:
        return False
    if digest:
        return digest_of(path, piece.start, piece.end) == digest
    at = piece.start
    for _, data in piece.places():
        for chunk in read_chunks(data):
            if os.pread(descriptor, len(chunk), at) != chunk:
                return False
            at += len(chunk)
    return True


def _fingerprint(content: DataFile) -> str:
    """Equal for two contents only if their layouts are equal, and their bytes as far as they come from files."""
    made = hashlib.sha256(f"{content.whole_size} {VERSION}\n".encode())
    for offset, data in content.payloads:
        made.update(f"{offset} {nbytes(data)} {description(data)}\n".encode(errors="surrogateescape"))
    return made.hexdigest()


class _Journal:
    """The finished pieces: by their ends, their starts and digests ('' without one). They survive a crash."""

    def __init__(self, path: str, descriptor: int, head: bytes, finished: dict[int, tuple[int, str]]) -> None:
        self.path = path
        self.finished = finished
        self._descriptor = descriptor
        self._head = head
        self._read(os.pread(descriptor, os.fstat(descriptor).st_size, 0))

    def keep(self, ends: list[int]) -> None:
        """Only the pieces with these ends hold."""
        kept = {end: self.finished[end] for end in ends}
        self.finished.clear()
        self.finished.update(kept)
        os.ftruncate(self._descriptor, len(self._head))
        self._append(b"".join(_line(end, *said) for end, said in kept.items()))

    def add(self, piece: Piece, digest: str) -> None:
        """The piece is on the disk."""
        self._append(_line(piece.end, piece.start, digest))
        self.finished[piece.end] = (piece.start, digest)

    def _append(self, lines: bytes) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_END)
        write_all(lambda data: os.write(self._descriptor, data), lines)
        os.fsync(self._descriptor)

    def _read(self, found: bytes) -> None:
        at = len(self._head)
        for line in found[at:].splitlines(keepends=True):
            with suppress(ValueError):
                end, start, digest, _ = line.decode("ascii").split(" ")
                said = (int(start), digest.strip("-"))
                if line == _line(int(end), *said):
                    self.finished[int(end)] = said
                    at += len(line)
                    continue
            break  # a line that was being written when the end came
        if at < len(found):
            self.keep(list(self.finished))


def _line(end: int, start: int, digest: str) -> bytes:
    """With a checksum of its own."""
    said = f"{end} {start} {digest or '-'}"
    return f"{said} {hashlib.sha256(said.encode()).hexdigest()[:16]}\n".encode()


@contextmanager
def _opened(path: str, mode: int = 0o600) -> Iterator[int]:
    """An open file of this name, which is made where there is none; never a link."""
    descriptor = os.open(path, _FLAGS, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
