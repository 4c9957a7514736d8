"""One tensor of a checkpoint: what it is, and where its bytes are; and the file that a reader of checkpoints opens.

Invariant: the payload has exactly the bytes that data type and shape ask for, row-major and little-endian.
A file is opened once for its headers. It must be a regular file, and is read at given places only. Afterwards only
ranges of it are kept. They remember the file that they were taken from, so a file that changes meanwhile is refused.
"""

from __future__ import annotations

import io
import os
import stat
from copy import copy
from reprlib import Repr
from types import TracebackType
from typing import TypeAlias

from proto_schema.external.addresses import RemoteFile, is_address, name_of, parent
from proto_schema.external.addresses import shown as shown_address
from proto_schema.external.payload import FileRange, Payload, RangePayload, Stamp, stamp_of, without_waiting
from proto_schema.tensors.dtypes import DTYPES, MOST_ELEMENTS, element_count, type_name
from proto_schema.wire.records import dataclass
from purexport.errors import WeightsError
from purexport.weights.budget import TOO_MUCH, Budget

Path: TypeAlias = "str | os.PathLike[str]"
LONGEST_SHOWN = 120
MOST_SHOWN = 5
_AHEAD = 1 << 18  # bytes of an object in storage that are read with those that are asked for


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor and where its bytes are: `dtype` is a TensorProto.DataType, `origin` says where, for messages."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    payload: Payload
    origin: str

    def __post_init__(self) -> None:
        wanted = size_of(self.dtype, self.shape)
        if self.payload.nbytes != wanted:
            what = f"{type_name(self.dtype)} {list(self.shape)} needs {wanted}"
            raise WeightsError(f"{self.origin}: tensor {shown(self.name)} has {self.payload.nbytes} bytes, but {what}")

    @property
    def nbytes(self) -> int:
        """The number of bytes of the data."""
        return self.payload.nbytes


def size_of(dtype: int, shape: tuple[int, ...]) -> int:
    """The number of bytes of a tensor. WeightsError for a type without a size, and for an invalid shape."""
    row = DTYPES.get(dtype)
    if row is None or not row.bits:
        raise WeightsError(f"data type {type_name(dtype)} has no fixed size: weights are numbers")
    count = element_count(shape)
    if count >= MOST_ELEMENTS or (shape and (min(shape) < 0 or max(shape) >= MOST_ELEMENTS)):
        raise WeightsError(f"the shape {shown(list(shape))} is negative or overflows 64 bits")
    return row.nbytes(count)


def shown(value: object) -> str:
    """A value from a file, for a message: its repr, cut where it is long or deep, ASCII.

    What is shared in it is shown again in each place, so the levels are few.
    """
    short = Repr()
    short.maxlevel = 2
    short.maxstring = short.maxother = short.maxlong = LONGEST_SHOWN
    short.maxlist = short.maxtuple = 8
    return short.repr(value).encode("ascii", "backslashreplace").decode()


def listed(names: list[str]) -> str:
    """A few names, and the number of the others, for a message."""
    more = len(names) - MOST_SHOWN
    return ", ".join(map(shown, names[:MOST_SHOWN])) + (f" and {more} more" if more > 0 else "")


class CheckpointFile:
    """A regular file, open for its headers. `label` is its name for messages.

    The files of one checkpoint share a budget of memory for the objects that their headers become.
    """

    def __init__(self, path: Path, budget: Budget | None = None) -> None:
        """Raises OSError if it cannot be opened, WeightsError if it is no regular file."""
        self.budget = budget or Budget()
        self._base = 0
        self._remote: RemoteFile | None = None
        self._file: io.RawIOBase | io.BufferedReader
        if is_address(path):
            self._open_remote(str(path))
            return
        self.path = os.path.abspath(os.fsdecode(path))
        self.label = os.path.basename(self.path)
        _check_regular(os.stat(self.path), self.path)  # opening a device may do something, a socket cannot be opened
        self._file = io.FileIO(self.path, opener=without_waiting)
        status = os.fstat(self._file.fileno())
        try:
            _check_regular(status, self.path)
        except WeightsError:
            self._file.close()
            raise
        self.size = status.st_size
        self.stamp: Stamp | None = stamp_of(status)
        self.start = self.read(0, min(self.size, 64))  # what kind of file it is

    def _open_remote(self, address: str) -> None:
        self.path, self.label = address, name_of(address)
        self._remote = RemoteFile(address)
        self._file = io.BufferedReader(self._remote.range(0, self._remote.size).open(), _AHEAD)
        self.size, self.stamp = self._remote.size, None
        self.start = self.read(0, min(self.size, 64))

    @property
    def folder(self) -> str:
        """Where it is, for messages."""
        return parent(self.path if self._remote is None else shown_address(self.path))

    def __enter__(self) -> CheckpointFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self, offset: int, length: int) -> bytes:
        """Exactly these bytes, which must lie within the file. WeightsError if it has become shorter."""
        self._file.seek(self._base + offset)
        found = bytearray()
        while len(found) < length:
            data = self._file.read(length - len(found))
            if not data:
                raise self.error(f"the file became shorter while it was read, at {offset + len(found)}")
            found += data
        return bytes(found)

    def spend(self, size: int) -> None:
        """So many bytes of memory are about to be taken for what the file says. WeightsError if it is too much."""
        self.budget.left -= size
        if self.budget.left < 0:
            raise self.error(TOO_MUCH)

    def range(self, offset: int, length: int) -> RangePayload:
        """A range of this very file, to be read later."""
        if self._remote is not None:
            return self._remote.range(self._base + offset, length)
        return FileRange(self.path, self._base + offset, length, self.stamp)

    def section(self, offset: int, length: int, label: str) -> CheckpointFile:
        """A part of the file as if it was a file of its own; it is open as long as this one. It must lie within it."""
        made = copy(self)
        made._base += offset
        made.size, made.label = length, label
        made.start = made.read(0, min(length, 64))
        return made

    def error(self, reason: str, code: str = "") -> WeightsError:
        """The error that says what is wrong with the file; the caller raises it."""
        return WeightsError(f"{self.label}: {reason}", code=code)


def _check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((f", but {what}" for is_it, what in _KINDS if is_it(status.st_mode)), "")
        raise WeightsError(f"{path} is not a regular file{kind}: weights are read at many places of it; copy it to one")


_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
