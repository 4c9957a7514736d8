"""Reads the header of a .gguf file: metadata, then name, shape, type and place of each tensor; data lies behind it.

Metadata is walked and checked, and only what says where data is, is kept: a vocabulary is left where it lies. Tensors
must follow each other in the order of the header, each at the next multiple of the alignment, as llama.cpp demands.
Elements in blocks become float32 when they are written. Shapes are those of the checkpoint that the file was made of:
the file lists the sizes from the innermost on.
Source: the format as docs/gguf.md of ggml describes it, versions 2 and 3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from proto_schema.external.payload import Payload
from purexport.errors import WeightsError
from purexport.weights.budget import ROW
from purexport.weights.gguf.payload import BlocksPayload, CodedBlocks
from purexport.weights.gguf.types import REFUSED, TYPES, GgufType
from purexport.weights.stored import CheckpointFile, Path, Stored, shown, size_of

MAGIC = b"GGUF"
_READ = 1 << 16  # bytes of the header that are held
_LONGEST_NAME = 65535  # of the format, for keys; names of tensors are shorter
_MOST_AXES = 4
_DEEPEST = 8  # arrays in arrays
_NUMBERS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # type of metadata: bytes
_TEXT, _ARRAY, _UINT32 = 8, 9, 4
_ALIGNMENT, _PARTS, _ARCHITECTURE = "general.alignment", "split.count", "general.architecture"
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf")
_AGAIN = "copy or download it again"


def read(file: CheckpointFile) -> list[Stored]:
    """The tensors, in the order of the header. WeightsError says what is malformed, and at which byte.

    Of a model in several files the first one stands for all; the others are beside it, with the names of llama.cpp.
    """
    rows, parts = _tensors(file)
    match = _PART.search(file.label)
    if parts <= 1 or match is None or match[1] != "00001" or int(match[2]) != parts:
        return rows
    names = {row.name for row in rows}
    for part in range(2, parts + 1):
        start = file.label[: match.start()]
        path = os.path.join(os.path.dirname(file.path), f"{start}-{part:05}-of-{parts:05}.gguf")
        try:
            other = CheckpointFile(path, file.budget)
        except FileNotFoundError:
            raise file.error(f"it is part 1 of {parts}, and {os.path.basename(path)} is not beside it") from None
        with other:
            if not other.start.startswith(MAGIC):
                raise other.error(f"it is part {part} of {file.label}, but no GGUF file; {_AGAIN}")
            for row in _tensors(other)[0]:
                if row.name in names:
                    raise other.error(f"tensor {shown(row.name)} is in another part of the model, too")
                names.add(row.name)
                rows.append(row)
    return rows


def architecture(path: Path) -> str:
    """The architecture that a file says its model is of; empty where it says none. WeightsError for a malformed one."""
    with CheckpointFile(path) as file:
        if not file.start.startswith(MAGIC):
            raise file.error(f"it is not a GGUF file; {_AGAIN}")
        cursor = _Cursor(file)
        _, entries = _counts(cursor)
        found = _metadata(cursor, entries).get(_ARCHITECTURE, "")
        return found if isinstance(found, str) else ""


class _Cursor:
    """The header, read from its beginning, a bounded piece at a time."""

    def __init__(self, file: CheckpointFile) -> None:
        self.file = file
        self.at = len(MAGIC)
        self._held = b""
        self._start = 0

    @property
    def left(self) -> int:
        return self.file.size - self.at

    def error(self, reason: str, at: int) -> WeightsError:
        return self.file.error(f"at byte {at}: {reason}; {_AGAIN}")

    def take(self, size: int, what: str) -> bytes:
        """The next bytes."""
        at = self.at
        self.skip(size, what)
        begin = at - self._start
        if not 0 <= begin <= len(self._held) - size:
            self._held = self.file.read(at, min(max(size, _READ), self.file.size - at))
            self._start, begin = at, 0
        return self._held[begin : begin + size]

    def skip(self, size: int, what: str) -> None:
        """Past bytes that must be there."""
        if size > self.left:
            raise self.error(f"{what} needs {size} bytes, and the file ends after {self.left}", self.at)
        self.at += size

    def number(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "little")

    def count(self, least: int, what: str) -> int:
        """How many of something follow that need at least so many bytes each."""
        at = self.at
        count = self.number(8, what)
        if count * least > self.left:
            raise self.error(f"{what} is {count}, for which the file is too short", at)
        return count

    def text(self, what: str) -> str:
        at = self.at
        length = self.count(1, f"the length of {what}")
        if length > _LONGEST_NAME:
            raise self.error(f"{what} would have {length} bytes", at)
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} is not text in UTF-8", at) from None


def _tensors(file: CheckpointFile) -> tuple[list[Stored], int]:
    """(the tensors of one file, how many files the model has)."""
    cursor = _Cursor(file)
    tensors, entries = _counts(cursor)
    found = _metadata(cursor, entries)
    alignment = _number(found, _ALIGNMENT, 32)
    if alignment < 1 or alignment & (alignment - 1):
        raise file.error(f"{_ALIGNMENT} is {alignment}, and must be a power of two; {_AGAIN}")
    rows = _infos(cursor, tensors)
    start = _aligned(cursor.at, alignment)
    made, expected = [], 0
    for at, name, kind, shape, offset, size in rows:
        if offset != expected:
            raise cursor.error(f"tensor {shown(name)} begins at {offset} of the data, not at {expected}", at)
        if start + offset + size > file.size:
            reason = f"tensor {shown(name)} ends at byte {start + offset + size} of a file of {file.size}"
            raise cursor.error(reason, at)
        payload: Payload = file.range(start + offset, size)
        if kind.parts is not None and len(shape) == 2 and payload.nbytes:
            payload = CodedBlocks(payload, kind, *shape)
        elif kind.decode is not None:
            payload = BlocksPayload(payload, kind)
        made.append(Stored(name, kind.dtype, shape, payload, file.label))
        expected = _aligned(offset + size, alignment)
    return made, _number(found, _PARTS, 1)


def _counts(cursor: _Cursor) -> tuple[int, int]:
    """(how many tensors follow, how many entries of metadata before them)."""
    file = cursor.file
    version = cursor.number(4, "the version")
    if version not in (2, 3):
        if version & 0xFFFF == 0:
            raise file.error("it is a GGUF file in big-endian order; convert it with gguf's gguf-convert-endian")
        raise file.error(f"it is GGUF of version {version}, and 2 and 3 can be read; write it again with llama.cpp")
    tensors = cursor.count(24, "the number of tensors")
    entries = cursor.count(13, "the number of entries of metadata")
    return tensors, entries


def _number(found: Mapping[str, int | str], key: str, usual: int) -> int:
    value = found.get(key, usual)
    return value if isinstance(value, int) else usual


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


def _metadata(cursor: _Cursor, entries: int) -> dict[str, int | str]:
    """The numbers that say where tensors are, and the architecture; everything else is checked and left."""
    found: dict[str, int | str] = {}
    seen: set[str] = set()
    for _ in range(entries):
        at = cursor.at
        key = cursor.text("a key of the metadata")
        if key in seen:
            raise cursor.error(f"the key {shown(key)} comes twice", at)
        cursor.file.spend(len(key) + ROW // 4)
        seen.add(key)
        at = cursor.at
        kind = cursor.number(4, f"the type of {shown(key)}")
        if key in (_ALIGNMENT, _PARTS):
            if kind not in _NUMBERS or kind in (6, 12) or (key == _ALIGNMENT and kind != _UINT32):
                raise cursor.error(f"{key} has the type {kind}, which is not a count", at)
            found[key] = cursor.number(_NUMBERS[kind], key)
        elif key == _ARCHITECTURE and kind == _TEXT:
            found[key] = cursor.text(key)
        else:
            _skip(cursor, kind, key, at, 0)
    return found


def _skip(cursor: _Cursor, kind: int, key: str, at: int, depth: int) -> None:
    """Past one value of metadata."""
    if kind in _NUMBERS:
        cursor.skip(_NUMBERS[kind], shown(key))
    elif kind == _TEXT:
        cursor.skip(cursor.count(1, f"the length of {shown(key)}"), shown(key))
    elif kind == _ARRAY and depth < _DEEPEST:
        at = cursor.at
        inner = cursor.number(4, f"the type of the items of {shown(key)}")
        least = _NUMBERS.get(inner, 8 if inner == _TEXT else 12)
        count = cursor.count(least, f"the number of items of {shown(key)}")
        if inner in _NUMBERS:
            cursor.skip(count * least, shown(key))
            return
        for _ in range(count):
            _skip(cursor, inner, key, at, depth + 1)
    else:
        what = "is in too many arrays" if kind == _ARRAY else f"has the type {kind}, which the format does not know"
        raise cursor.error(f"{shown(key)} {what}", at)


_Info = tuple[int, str, GgufType, tuple[int, ...], int, int]  # byte of the header, name, type, shape, offset, bytes


def _infos(cursor: _Cursor, tensors: int) -> list[_Info]:
    rows: list[_Info] = []
    names: set[str] = set()
    for _ in range(tensors):
        at = cursor.at
        name = cursor.text("the name of a tensor")
        if name in names:
            raise cursor.error(f"the tensor {shown(name)} comes twice", at)
        cursor.file.spend(ROW + 2 * len(name))
        names.add(name)
        axes = cursor.number(4, f"the number of axes of {shown(name)}")
        if axes > _MOST_AXES:
            raise cursor.error(f"tensor {shown(name)} would have {axes} axes, and {_MOST_AXES} are the most", at)
        sizes = [cursor.number(8, f"a size of {shown(name)}") for _ in range(axes)]
        code = cursor.number(4, f"the type of {shown(name)}")
        offset = cursor.number(8, f"the place of {shown(name)}")
        kind = TYPES.get(code)
        if kind is None:
            what = REFUSED.get(code, f"{code}, which is none of llama.cpp's")
            raise cursor.file.error(f"at byte {at}: tensor {shown(name)} has the type {what}", code="no-dtype")
        try:
            count = size_of(kind.dtype, tuple(sizes)) // size_of(kind.dtype, ())
        except WeightsError as error:
            raise cursor.error(f"tensor {shown(name)}: {error}", at) from None
        if count and (sizes[0] if sizes else 1) % kind.elements:
            reason = f"rows of {sizes[0] if sizes else 1} elements, not a multiple of the {kind.elements} of a block"
            raise cursor.error(f"tensor {shown(name)} is {kind.name} and has {reason}", at)
        rows.append((at, name, kind, tuple(reversed(sizes)), offset, count // kind.elements * kind.size))
    return rows
