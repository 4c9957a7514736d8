"""What a save would write, for people and programs: a view of the `Work` that the save itself goes by."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from proto_schema.external import tensors as tensors_of
from proto_schema.external.addresses import is_address, name_of
from proto_schema.external.copying import by_kernel
from proto_schema.external.datafiles import Plan, payload_of, plan
from proto_schema.external.payload import CHUNK, BytesLike, Payload, address, byte_view, file_range, nbytes
from proto_schema.external.pieces import pieces_of
from proto_schema.files.naming import data_names, fitted
from proto_schema.files.saving import Stored, Work, WriteOptions
from proto_schema.onnx import ModelProto
from proto_schema.units import size_text
from proto_schema.wire.generate import SMALL
from proto_schema.wire.records import dataclass


@dataclass(frozen=True)
class PlannedFile:
    """A file of the saved model.

    `action`: "write", "keep" (it holds these bytes already), "refer" (in place) or "member" (of the archive).
    `size` is that of the whole file; `replaces` the size of what lies there now and goes, None for a new file.
    """

    name: str
    size: int
    action: str
    replaces: int | None = None


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor of the saved model, and where its `length` bytes will lie.

    `file` is relative to the model's folder, `offset` None for a tensor of up to 1 kB amid the text of the graph.
    `source` says where they come from: "file" (with its `path`), "memory", "computed", or a device such as "cuda:0".
    `way`: "write" (through Python), "copy" (by the kernel), "keep" or "refer" (they lie there already), or "shared"
    (stored once, with the earlier tensor `shared_with`).
    """

    name: str
    file: str
    offset: int | None
    length: int
    source: str
    path: str
    way: str
    shared_with: str | None = None


@dataclass(frozen=True)
class PlannedPiece:
    """A part of the work on a data file that does not depend on others: bytes `start` to `end` of `file`.

    `tensors` are those whose bytes, or some of them, are in it. `functions` are the names of the classes that compute
    these ("copy" for bytes as they are), `sources` the ranges (path or address, offset, length) that they read.
    `where`: "anywhere" any process can make it, "threads" those of this process, "here" only the one that saves.
    """

    file: str
    start: int
    end: int
    tensors: list[str]
    functions: list[str]
    sources: list[tuple[str, int, int]]
    where: str

    def __str__(self) -> str:
        made = f"{', '.join(self.functions)}: {_few(self.tensors)}"
        read = [f"{os.path.basename(path)} {offset}..{offset + length}" for path, offset, length in self.sources]
        from_ = f" <- {_few(read)}" if read else ""
        return f"{self.file} {self.start}..{self.end}  {self.where:<8}  {made}{from_}"


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@dataclass(frozen=True)
class SavePlan:
    """What `save` with the same arguments would write.

    `kind` is "inline", "external" or "reference"; `target` the path, '' for a stream. `needed` is the disk space that
    it takes until what it replaces is gone, `free` what there is (None where unknown). `memory` bounds what the save
    holds beside the model; a function that computes a tensor holds what it makes besides. `pieces` are the independent
    parts of the work on data files, which `executor` of `save` deals out.
    """

    target: str
    kind: str
    files: list[PlannedFile]
    tensors: list[PlannedTensor]
    needed: int
    free: int | None
    memory: int
    pieces: list[PlannedPiece]

    @property
    def written(self) -> int:
        """Bytes that are written, by Python or the kernel."""
        return sum(file.size for file in self.files if file.action == "write")

    @property
    def copied(self) -> int:
        """Of these, bytes that the kernel copies from other files."""
        return self._length("copy")

    @property
    def referenced(self) -> int:
        """Bytes that are used where they lie, in files that the save does not touch."""
        return self._length("refer")

    @property
    def shared(self) -> int:
        """Bytes that are not stored again, because another tensor has the same source."""
        return self._length("shared")

    @property
    def fits(self) -> bool:
        """False where the disk is known to be too small: `save` refuses then."""
        return self.free is None or self.needed <= self.free

    def _length(self, way: str) -> int:
        return sum(tensor.length for tensor in self.tensors if tensor.way == way)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the fields, and the sums."""
        sums = {name: getattr(self, name) for name in ("written", "copied", "referenced", "shared", "fits")}
        return {**asdict(self), **sums}

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The plan for people: files, where the bytes come from, disk and memory."""
        for file in self.files:
            old = f", in place of {size_text(file.replaces)}" if file.replaces is not None else ""
            yield f"{file.action:<9} {size_text(file.size):>8}  {file.name}{old}"
        counts = Counter(tensor.way for tensor in self.tensors)
        for way, what in _WAYS.items():
            if counts[way]:
                number = f"{counts[way]} tensor{'s' if counts[way] > 1 else ''}"
                yield f"{way:<9} {size_text(self._length(way)):>8}  {number} {what}{self._places(way)}"
        free = "" if self.free is None else f", {size_text(self.free)} free"
        yield f"{'disk':<9} {size_text(self.needed):>8}  needed{free}{'' if self.fits else ': TOO SMALL'}"
        if self.pieces:
            away = sum(piece.where == "anywhere" for piece in self.pieces)
            yield f"{'pieces':<9} {len(self.pieces):>8}  {away} of which any worker of an executor can write"
        yield f"{'memory':<9} {size_text(self.memory):>8}  at most, beside the model"

    def _places(self, way: str) -> str:
        found = {tensor.path or tensor.source for tensor in self.tensors if tensor.way == way}
        names = sorted(os.path.basename(place) for place in found)
        return f" ({', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''})"


_WAYS = {
    "copy": "copied by the kernel",
    "write": "written",
    "shared": "stored once with others",
    "keep": "in a data file that stays as it is",
    "refer": "used where they lie",
}


def describe(work: Work) -> SavePlan:
    """The plan of a save that was prepared."""
    tensors = list(_tensors(work))
    memory = _memory(work, tensors)
    pieces = [] if work.archive or work.unchanged else list(_pieces(work.stored, work.layout, work.names))
    return SavePlan(work.path or "", work.kind, list(_files(work)), tensors, work.needed, work.free(), memory, pieces)


def planned_pieces(model: ModelProto, name: str, options: WriteOptions) -> list[PlannedPiece]:
    """The pieces of a save with data files to a file or an object of this name; in storage each is a whole file."""
    stored = [(tensor, data) for tensor in tensors_of(model) if (data := payload_of(tensor)) is not None]
    layout = plan(stored, options.size_threshold, options.alignment, options.shard_size)
    names = data_names(options.location or fitted(name_of(name), ".data"), len(layout.files))
    return list(_pieces(stored, layout, names, whole=is_address(name)))


def _pieces(stored: Stored, layout: Plan, names: list[str], whole: bool = False) -> Iterator[PlannedPiece]:
    there: list[list[tuple[int, int, str]]] = [[] for _ in layout.files]
    for tensor, data in stored:
        if place := layout.places.get(id(tensor)):
            there[place[0]].append((place[1], place[1] + nbytes(data), tensor.name or ""))
    for name, content, rows in zip(names, layout.files, there, strict=True):
        rows.sort()
        first = 0
        for piece in pieces_of(content, content.whole_size or 1 if whole else None):
            while first < len(rows) and rows[first][1] <= piece.start:
                first += 1
            inside = []
            for start, end, tensor_name in rows[first:]:
                if start >= piece.end:
                    break
                if end > piece.start:
                    inside.append(tensor_name)
            yield PlannedPiece(name, piece.start, piece.end, inside, piece.functions, list(piece.sources), piece.reach)


def _files(work: Work) -> Iterator[PlannedFile]:
    yield PlannedFile(os.path.basename(work.path or ""), work.size, "write", _size(work.path))
    for name, content in zip(work.names, work.layout.files, strict=True):
        path = os.path.join(work.folder, name)
        if work.archive:
            yield PlannedFile(name, content.whole_size, "member", None)
            continue
        yield PlannedFile(name, content.whole_size, *(("keep", None) if work.unchanged else ("write", _size(path))))
    for name in dict.fromkeys(place[0] for place in work.references.values()):
        yield PlannedFile(name, _size(os.path.join(work.folder, name)) or 0, "refer")


def _size(path: str | None) -> int | None:
    try:
        return os.path.getsize(path) if path is not None else None
    except OSError:
        return None


def _tensors(work: Work) -> Iterator[PlannedTensor]:
    inside = _Inside(work.parts)
    first: dict[tuple[str, int | None], str] = {}
    for tensor, data in work.stored:
        name, key = tensor.name or "", id(tensor)
        source, path = _source(data)
        way = "copy" if path and by_kernel(data) else "write"
        moved, found = work.layout.places.get(key), work.references.get(key)
        file, offset, shared = os.path.basename(work.path or ""), None, None
        if found is not None:
            (file, offset, _), way = found, "refer"
        elif moved is None:
            offset = inside.offset(work.held.get(key, data))
        else:
            file, offset = work.names[moved[0]], moved[1]
            if (file, offset) in first:
                way, shared = "shared", first[file, offset]
            elif work.unchanged:
                way = "keep"
            first.setdefault((file, offset), name)
        yield PlannedTensor(name, file, offset, nbytes(data), source, path, way, shared)


class _Inside:
    """Where payloads lie among the parts of an encoding; asked for in the order of the encoding."""

    def __init__(self, parts: list[BytesLike]) -> None:
        self._parts = iter(parts)
        self._at = 0

    def offset(self, data: BytesLike) -> int | None:
        if not nbytes(data) or (isinstance(data, bytes) and len(data) <= SMALL):
            return None
        for part in self._parts:
            start, self._at = self._at, self._at + nbytes(part)
            if part is data or _same(part, data):
                return start
        return None


def _same(part: BytesLike, data: BytesLike) -> bool:
    """Whether these are the same bytes in memory: the encoder passes a view of what is no Payload."""
    if isinstance(part, Payload) or isinstance(data, Payload) or not part or nbytes(part) != nbytes(data):
        return False
    return address(byte_view(part)) == address(byte_view(data))


def _source(data: BytesLike) -> tuple[str, str]:
    """("file", its path), or another source and ''."""
    found = file_range(data)
    if found is not None:
        return "file", str(found.source)
    return (data.place if isinstance(data, Payload) else "memory"), ""


def _memory(work: Work, tensors: list[PlannedTensor]) -> int:
    """The text of the graph, encoded and joined (again where the model is written twice), and pieces of payloads."""
    text = sum(len(part) for part in work.parts if isinstance(part, bytes))
    return text * (4 if work.taken else 2) + (3 * CHUNK if any(tensor.way == "write" for tensor in tensors) else 0)
