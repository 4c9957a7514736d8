"""Where large bytes come from: memory, a range of a file, or a function that computes them piece by piece.

Strategy: a field of kind PAYLOAD holds any bytes-like object or a `Payload`. The codec asks a payload for its size and
passes the object itself through; only a writer asks for its chunks, one bounded piece at a time. So weights are
never copied and never concatenated, and a model may be larger than memory.
Invariant: the chunks of a payload are contiguous byte views, none is empty, and their sizes sum up to `nbytes`.
Where bytes lie unchanged in a file, `file_range` says where, so that a writer can let the kernel copy them.
"""

from __future__ import annotations

import io
import mmap
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Any, TypeAlias

from proto_schema.errors import UnreadableDataError

CHUNK = 1 << 22  # a size that amortizes a system call and bounds a writer's memory
# before Python 3.13 a mapping keeps a descriptor open, of which a process has few
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) and os.name == "posix" else {}
KEEPS_OPEN = not _UNTRACKED
# after this many pieces of `_LONG` bytes or more, a mapping lets go of its pages; one of `_HUGE` bytes counts as two
_LONG, _OFTEN, _HUGE = 1 << 16, 8, 1 << 22
_ANY_DEVICE = -1  # in a stamp: machines number the file systems that they share differently


class Payload(ABC):
    """Bytes of a known size that are produced when they are written.

    Two payloads with the same `identity` (where it is not None) hold the same bytes: a writer stores them once.
    """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The number of bytes, known without producing them."""

    @abstractmethod
    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """The bytes in order, as views of at most `limit` bytes each. May be called again."""

    @property
    def identity(self) -> object:
        """A hashable key of the source, or None where only the object itself identifies it."""
        return None

    @property
    def place(self) -> str:
        """Where the bytes are before they are produced, for plans: "memory", "file", "computed", or a device."""
        return "computed"

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        """What these bytes are computed from, and from nothing else. Empty where that is not known, and for ranges."""
        return ()

    @property
    def together(self) -> object:
        """A key that payloads share which come out of one pass over their source; None for others."""
        return None

    def section(self, start: int, stop: int) -> Payload | None:
        """The bytes from `start` to `stop`; None where they cannot be made without others."""
        return None

    def tobytes(self) -> bytes:
        """All the bytes, copied together."""
        return b"".join(self.chunks())

    def __len__(self) -> int:
        return self.nbytes

    def __bytes__(self) -> bytes:
        return self.tobytes()

    def __eq__(self, other: object) -> bool:
        """Equal bytes; `other` may be bytes-like too."""
        if not isinstance(other, (Payload, bytes, bytearray, memoryview)):
            return NotImplemented
        if other is self:
            return True
        if nbytes(other) != self.nbytes:
            return False
        return all(mine == theirs for mine, theirs in zip_longest(_even(self), _even(other)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.nbytes} bytes>"


BytesLike: TypeAlias = "bytes | bytearray | memoryview | Payload"
Stamp: TypeAlias = "tuple[int, int, int, int, int]"


def stamp_of(status: os.stat_result) -> Stamp:
    """What tells a file from another that takes its place, and from itself after a change.

    Device, inode, size, and two times: that of the last write can be set back, as copying tools do it, that of the last
    change of the file or its properties cannot.
    """
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_same(found: Stamp, stamp: Stamp) -> bool:
    """Whether a file with the one stamp is that of the other, which may come from another machine."""
    return found[1:] == stamp[1:] and stamp[0] in (found[0], _ANY_DEVICE)


class FileMap(mmap.mmap):
    """A whole regular file, mapped read-only, that knows which file it is: views of it can be copied by the kernel."""

    path: str
    stamp: Stamp
    _left: int = _OFTEN

    @classmethod
    def of(cls, descriptor: int, path: str) -> FileMap:
        """The mapping of an open file that is not empty; `path` is where it can be opened again."""
        try:
            made = cls(descriptor, 0, access=mmap.ACCESS_READ, **_UNTRACKED)
        except OSError as error:  # it does not say which file
            raise OSError(error.errno, error.strerror, path) from error
        made.path = os.path.abspath(path)
        made.stamp = stamp_of(os.fstat(descriptor))
        return made

    def expect_unchanged(self) -> None:
        """Raises ExternalDataError if somebody has written into the file: its bytes are no longer those of before.

        A file that is gone, or has another in its place, is the same as ever where it is mapped.
        """
        with suppress(OSError):
            found = stamp_of(os.stat(self.path))
            if found[:2] == self.stamp[:2] and found != self.stamp:
                raise changed(self.path)

    def went_past(self, size: int) -> None:
        """Says that a reader is done with a piece of so many bytes, or has left it out: not many pages stay resident.

        Reading one byte can make 2 MiB of a file count as this process's memory. What is let go comes back by itself.
        """
        if size >= _LONG and hasattr(mmap, "MADV_DONTNEED"):
            self._left -= 1 + size // _HUGE
            if self._left <= 0:
                self._left = _OFTEN
                self.madvise(mmap.MADV_DONTNEED)


class RangePayload(Payload):
    """Bytes that lie together somewhere, from `offset` on, of which parts can be taken."""

    offset: int

    @abstractmethod
    def part(self, offset: int, length: int) -> RangePayload:
        """`length` of these bytes, from `offset` on; they must lie within them."""

    def section(self, start: int, stop: int) -> RangePayload:
        return self.part(start, stop - start)

    @property
    @abstractmethod
    def name(self) -> str:
        """What they lie in, for messages."""

    @abstractmethod
    def open(self) -> io.RawIOBase:
        """What they lie in, to be read at several places: that they begin at `offset` of it is for the caller."""


class FileRange(RangePayload):
    """`length` bytes at `offset` of a file that is opened when it is read, or of an open mapping.

    With a `stamp` (of `stamp_of`) the file must still be the one that had it: reading another raises ExternalDataError.
    """

    def __init__(
        self, source: str | os.PathLike[str] | mmap.mmap, offset: int, length: int, stamp: Stamp | None = None
    ) -> None:
        if offset < 0 or length < 0:
            raise ValueError(f"a file range needs offset and length of at least 0, not {offset} and {length}")
        self.source = source if isinstance(source, mmap.mmap) else os.fspath(source)
        self.offset = offset
        self.stamp = stamp
        self._length = length

    @property
    def nbytes(self) -> int:
        return self._length

    @property
    def place(self) -> str:
        return "file"

    @property
    def identity(self) -> object:
        source = self.source if isinstance(self.source, str) else id(self.source)
        return (source, self.offset, self._length)

    @property
    def name(self) -> str:
        return str(self.source)

    def part(self, offset: int, length: int) -> FileRange:
        return FileRange(self.source, self.offset + offset, length, self.stamp)

    def __reduce__(self) -> tuple[type[FileRange], tuple[str, int, int, Stamp | None]]:
        """For another process, also of another machine that sees the file by this path. TypeError for a mapping."""
        found = file_range(self)
        if found is None:
            raise TypeError(f"{self!r} of a mapping without a file cannot be handed to another process")
        stamp = None if found.stamp is None else (_ANY_DEVICE, *found.stamp[1:])
        return FileRange, (os.path.abspath(str(found.source)), self.offset, self.nbytes, stamp)

    def open(self) -> io.RawIOBase:
        path = str(self.source)
        return io.FileIO(path) if self.stamp is None else opened(path, self.stamp)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """Raises OSError where the file cannot be read, EOFError where it is too short, ExternalDataError by stamp."""
        if isinstance(self.source, mmap.mmap):
            yield from pieces(memoryview(self.source)[self.offset : self.offset + self._length], limit)
            return
        with open(self.source, "rb", buffering=0) if self.stamp is None else opened(self.source, self.stamp) as file:
            file.seek(self.offset)
            left = self._length
            while left:
                data = file.read(min(left, limit))
                if not data:
                    raise EOFError(f"{self.source}: {left} of {self._length} bytes at {self.offset} are missing")
                left -= len(data)
                yield memoryview(data)


def opened(path: str, stamp: Stamp) -> io.FileIO:
    """The file that had this stamp, open. ExternalDataError for another that has its name now, be it a pipe."""
    file = io.FileIO(path, opener=without_waiting)
    if not is_same(stamp_of(os.fstat(file.fileno())), stamp):
        file.close()
        raise changed(path)
    return file


def without_waiting(path: str, flags: int) -> int:
    """An opener for `open`: that of a pipe does not wait for somebody who writes to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def changed(path: str) -> UnreadableDataError:
    """The error for a file that is not what it was when the work began."""
    return UnreadableDataError(f"{path} has changed or been replaced since it was opened; start again")


def file_range(data: BytesLike) -> FileRange | None:
    """Where in a file these bytes lie unchanged; None for bytes in memory and computed ones.

    The range of a view of a `FileMap` carries its stamp: whoever finds another file there takes the view instead.
    """
    if isinstance(data, FileRange):
        source = data.source
        if isinstance(source, FileMap):
            return FileRange(source.path, data.offset, data.nbytes, source.stamp)
        return data if isinstance(source, str) else None
    if isinstance(data, memoryview) and isinstance(data.obj, FileMap) and data.c_contiguous and data.nbytes:
        offset = address(data) - address(memoryview(data.obj))
        return FileRange(data.obj.path, offset, data.nbytes, data.obj.stamp)
    return None


def address(view: memoryview) -> int:
    """Where in memory the bytes of a view lie."""
    import numpy as np

    place: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return place


class MemoryPayload(Payload):
    """Bytes in memory, which stay alive with it. Two of them at one place are the same bytes."""

    def __init__(self, data: object) -> None:
        self.view = byte_view(data)

    @property
    def nbytes(self) -> int:
        return self.view.nbytes

    @property
    def place(self) -> str:
        return "memory"

    @property
    def identity(self) -> object:
        return (address(self.view), self.view.nbytes) if self.view.nbytes else None

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        return pieces(self.view, limit)

    def section(self, start: int, stop: int) -> MemoryPayload:
        return MemoryPayload(self.view[start:stop])

    def __reduce__(self) -> tuple[type[MemoryPayload], tuple[bytes]]:
        return MemoryPayload, (bytes(self.view),)


def as_payload(data: BytesLike) -> Payload:
    """The payload of bytes that may be in memory."""
    return data if isinstance(data, Payload) else MemoryPayload(data)


class LazyPayload(Payload):
    """`size` bytes that `function` makes when they are written: one bytes-like object, or an iterable of them.

    `function` is called again for every pass. A pass that makes another number of bytes raises ValueError. `sources`
    are what it reads, if it reads nothing else.
    """

    def __init__(
        self,
        size: int,
        function: Callable[[], object],
        identity: object = None,
        description: str = "",
        sources: tuple[BytesLike, ...] = (),
    ) -> None:
        self._size = size
        self._function = function
        self._identity = identity
        self._sources = sources
        self._description = description or getattr(function, "__qualname__", "a function")

    @property
    def nbytes(self) -> int:
        return self._size

    @property
    def identity(self) -> object:
        return self._identity

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return self._sources

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        made = 0
        for view in _views(self._function()):
            made += view.nbytes
            if made > self._size:
                break
            yield from pieces(view, limit)
        if made != self._size:
            more = "more than " if made > self._size else ""
            raise ValueError(f"{self._description} made {more}{made} bytes for a payload of {self._size}")


def _views(made: object) -> Iterator[memoryview]:
    try:
        view = memoryview(made)  # type: ignore[arg-type]
    except TypeError:
        if not isinstance(made, Iterable):
            raise
        for part in made:
            yield byte_view(part)
    else:
        yield byte_view(view)


def byte_view(data: object) -> memoryview:
    """The bytes of an object with the buffer protocol, contiguous and as format B: a view where that is possible."""
    view = memoryview(data)  # type: ignore[arg-type]
    if not view.c_contiguous:
        return memoryview(view.tobytes())
    if view.nbytes == 0:
        return memoryview(b"")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def pieces(view: memoryview, limit: int = CHUNK) -> Iterator[memoryview]:
    """A byte view cut into views of at most `limit` bytes."""
    for start in range(0, view.nbytes, limit):
        expect_unchanged(view)
        yield view[start : start + limit]
        went_past(view, limit)
    expect_unchanged(view)


def expect_unchanged(data: object) -> None:
    """`FileMap.expect_unchanged` of the mapping that a view is of; nothing for other objects."""
    if isinstance(data, memoryview) and isinstance(data.obj, FileMap):
        data.obj.expect_unchanged()


def went_past(view: memoryview, size: int) -> None:
    """`FileMap.went_past` of the mapping that a view is of; nothing for other views."""
    if isinstance(view.obj, FileMap):
        view.obj.went_past(size)


def nbytes(data: BytesLike) -> int:
    """The size of a payload or bytes-like object."""
    return data.nbytes if isinstance(data, (Payload, memoryview)) else len(data)


def chunks(data: BytesLike, limit: int = CHUNK) -> Iterator[memoryview]:
    """The bytes of a payload or bytes-like object as bounded views. ValueError for a payload of another size."""
    return _counted(data, limit) if isinstance(data, Payload) else pieces(byte_view(data), limit)


def _counted(data: Payload, limit: int) -> Iterator[memoryview]:
    """Offsets are laid out by sizes, so a payload of another size would shift or overwrite what lies behind it."""
    made = 0
    for view in data.chunks(limit):
        made += view.nbytes
        if made > data.nbytes:
            break
        yield view
    if made != data.nbytes:
        more = "more than " if made > data.nbytes else ""
        raise ValueError(f"{data!r} made {more}{min(made, data.nbytes)} bytes; a payload must make as many as it says")


def contiguous(data: BytesLike) -> memoryview | bytes:
    """The bytes of a payload or bytes-like object in one buffer: a view where they are in memory already."""
    if isinstance(data, FileRange) and isinstance(data.source, mmap.mmap):
        data = memoryview(data.source)[data.offset : data.offset + data.nbytes]
    expect_unchanged(data)
    return data.tobytes() if isinstance(data, Payload) else byte_view(data)


def _even(data: BytesLike, size: int = 1 << 16) -> Iterator[bytes]:
    """The bytes cut at the multiples of `size`, however the source cuts them."""
    held = bytearray()
    for chunk in chunks(data, size):
        held += chunk
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)


def whole(source: Payload, size: int, width: int) -> Iterator[memoryview]:
    """The bytes of a payload in pieces of at most `size` that hold whole elements, however the source cuts them."""
    rest = b""
    for chunk in source.chunks(size):
        data = memoryview(rest + bytes(chunk)) if rest else chunk
        end = data.nbytes // width * width
        if end:
            yield data[:end]
        rest = bytes(data[end:])
