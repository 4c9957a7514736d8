"""A data file as a list of pieces that are made independently, each written to its own range of the file.

A piece says which bytes of which files become which bytes of the data file, and by which payloads: classes, which
another process finds by their names. So any worker can make it that sees the same files, and making it twice gives the
same bytes. What lies in the memory of this process, or is computed by a function of its user, is made here.
The file is there with its whole size before the first piece; whoever makes one opens it, writes, and syncs.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Literal, TypeAlias

from proto_schema.external.addresses import RemoteRange
from proto_schema.external.copying import Sources
from proto_schema.external.datafiles import DataFile, with_gaps
from proto_schema.external.executors import Job, Workers
from proto_schema.external.meter import Meter
from proto_schema.external.payload import (
    CHUNK,
    BytesLike,
    MemoryPayload,
    Payload,
    byte_view,
    file_range,
    nbytes,
    stamp_of,
)
from proto_schema.files.durable import write_at
from proto_schema.wire.records import dataclass

PIECE = 1 << 26  # bytes of a piece, if what it is made of can be cut
SMALL = 1 << 16  # bytes in memory that are handed to other processes

Reach: TypeAlias = Literal["anywhere", "threads", "here"]
_REACHES: tuple[Reach, ...] = ("anywhere", "threads", "here")


@dataclass(frozen=True)
class Piece:
    """The bytes `start` to `end` of a data file: these payloads at these offsets of the file, zeros between."""

    start: int
    end: int
    payloads: tuple[tuple[int, BytesLike], ...]

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.start

    def places(self) -> Iterator[tuple[int, BytesLike]]:
        """All bytes, with their offsets in the file."""
        return with_gaps(self.payloads, self.start, self.end)

    @property
    def reach(self) -> Reach:
        """Who can make it: any process, the threads of this one, or this thread alone."""
        return max((reach(data) for _, data in self.payloads), key=_REACHES.index, default="anywhere")

    @property
    def digested(self) -> bool:
        """Whether its digest tells later whether it is what it should be: it is computed, from known files alone."""
        computed = any(isinstance(data, Payload) and data.sources for _, data in self.payloads)
        return computed and all(description(data) for _, data in self.payloads)

    @property
    def functions(self) -> list[str]:
        """The names of the classes that compute its bytes, "copy" for bytes as they are."""
        kinds = [type(data) for _, data in self.payloads if isinstance(data, Payload) and data.sources]
        copies = ["copy"] if len(kinds) < len(self.payloads) else []
        return sorted({f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}) + copies

    @property
    def sources(self) -> Iterator[tuple[str, int, int]]:
        """The ranges that it reads, each once: path or address, offset, length."""
        seen = set()
        for leaf in (leaf for _, data in self.payloads for leaf in leaves(data)):
            found = leaf if isinstance(leaf, RemoteRange) else file_range(leaf)
            if found is not None and (place := (found.name, found.offset, found.nbytes)) not in seen:
                seen.add(place)
                yield place

    def for_others(self) -> Piece:
        """The same, to be handed to another process."""
        return Piece(self.start, self.end, tuple((offset, _for_others(data)) for offset, data in self.payloads))


def pieces_of(content: DataFile, size: int | None = None) -> list[Piece]:
    """The pieces of a data file, in order and without gaps; payloads that come out of one pass stay together."""
    size = PIECE if size is None else size
    made: list[Piece] = []
    held: list[tuple[int, BytesLike]] = []
    start = end = 0
    together: object = None
    for offset, data in _sections(content, size):
        key = data.together if isinstance(data, Payload) else None
        if held and (key is None or key != together) and offset + nbytes(data) - start > size:
            made.append(Piece(start, end, tuple(held)))
            held, start = [], end
        held.append((offset, data))
        end, together = offset + nbytes(data), key
    if held:
        made.append(Piece(start, end, tuple(held)))
    return made


def _sections(content: DataFile, size: int) -> Iterator[tuple[int, BytesLike]]:
    """The payloads and the mark, with their offsets; long ones in sections, where they can be cut."""
    for offset, data in (*content.payloads, (content.size, content.mark)):
        length = nbytes(data)
        for start in range(0, length, size):
            cut = _section(data, start, min(start + size, length)) if length > size else data
            if cut is None:
                yield offset, data
                break
            yield offset + start, cut


def _section(data: BytesLike, start: int, stop: int) -> BytesLike | None:
    return data.section(start, stop) if isinstance(data, Payload) else byte_view(data)[start:stop]


# ---- what a piece is made of


def leaves(data: BytesLike) -> Iterator[BytesLike]:
    """What some bytes are computed from in the end, or they themselves."""
    sources = data.sources if isinstance(data, Payload) else ()
    if not sources:
        yield data
    for source in sources:
        yield from leaves(source)


def reach(data: BytesLike) -> Reach:
    """Who can make these bytes."""
    return max((_reach_of_leaf(leaf) for leaf in leaves(data)), key=_REACHES.index)


def _reach_of_leaf(data: BytesLike) -> Reach:
    if file_range(data) is not None or isinstance(data, RemoteRange):
        return "anywhere"
    if not isinstance(data, Payload) or isinstance(data, MemoryPayload):
        return "anywhere" if nbytes(data) <= SMALL else "threads"
    return "here"


def _for_others(data: BytesLike) -> BytesLike:
    found = file_range(data)
    if found is not None:
        return found
    return data if isinstance(data, Payload) else bytes(byte_view(data))


def description(data: BytesLike) -> str:
    """A text that two payloads share only if they are the same bytes of the same unchanged files; '' if none is."""
    found, whole = list(leaves(data)), data.identity if isinstance(data, Payload) else ()
    if whole is None:
        return ""
    lines = [] if found[0] is data else [f"{type(data).__name__} {whole!r}"]
    for leaf in found:
        place = file_range(leaf)
        if place is not None:
            path = os.path.abspath(str(place.source))
            stamp = tuple(place.stamp or stamp_of(os.stat(path)))
            lines.append(f"{path!r} {place.offset} {place.nbytes} {stamp}")
        elif isinstance(leaf, RemoteRange):
            lines.append(f"{leaf.identity!r} {leaf.version!r}")
        else:
            return ""
    return "\n".join(lines)


# ---- pieces that are written


def write_pieces(
    path: str,
    size: int,
    pieces: list[Piece],
    workers: Workers | None,
    sources: Sources,
    meter: Meter,
    finished: Callable[[Piece, str], None] = lambda piece, digest: None,
    digests: bool = False,
) -> None:
    """Writes pieces of the file of this path and size, each durably, by the workers, or one after the other here.

    `finished` hears of each, in any order; with `digests` what `Piece.digested` has its digest, others ''.
    Raises what the payloads raise, and OSError.
    """

    def done(piece: Piece, digest: str) -> None:
        meter.add(piece.size)
        finished(piece, digest)

    def here(piece: Piece) -> None:
        write_at(path, size, piece.places(), sources)
        done(piece, digest_of(path, piece.start, piece.end) if digests and piece.digested else "")

    if workers is None:
        for piece in pieces:
            here(piece)
        return
    away = [piece for piece in pieces if workers.take(piece.reach)]
    stay = [piece for piece in pieces if not workers.take(piece.reach)]
    place = os.path.abspath(path)
    jobs = [
        Job(
            _write if workers.threads else _write_pickled,
            lambda piece=piece: (  # type: ignore[misc]
                place,
                size,
                piece if workers.threads else pickle.dumps(piece.for_others()),
                digests and piece.digested,
            ),
            f"bytes {piece.start} to {piece.end} of {path}",
        )
        for piece in away
    ]
    workers.run(jobs, lambda index, digest: done(away[index], str(digest)), [lambda p=p: here(p) for p in stay])  # type: ignore[misc]


def _write_pickled(path: str, size: int, data: bytes, digested: bool) -> str:
    piece: Piece = pickle.loads(data)
    return _write(path, size, piece, digested)


def _write(path: str, size: int, piece: Piece, digested: bool) -> str:
    write_at(path, size, piece.places(), Sources())
    return digest_of(path, piece.start, piece.end) if digested else ""


def digest_of(path: str, start: int, end: int) -> str:
    """The SHA-256 of some bytes of a file, as far as it has them."""
    made, at = sha256(), start
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        while at < end and (data := file.read(min(CHUNK, end - at))):
            made.update(data)
            at += len(data)
    return made.hexdigest()
