"""SHA-256 of every tensor and every data file, in the model itself: what a save writes down, and a check compares.

A tensor carries the digest of its bytes in its `metadata_props`, so it stays with the tensor under any name, in any
file and any model. The model's `metadata_props` have the digest of each data file. A save takes digests while the bytes
pass: data files are written before the model. Bytes that stay where they are, are read.
A tensor whose bytes come from a file keeps its digest through a save, and a save with digests compares: bytes that
went bad on the way are an error, not the new truth. A tensor whose bytes were replaced in memory loses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from hashlib import sha256
from typing import Any

from proto_schema.errors import ExternalDataError
from proto_schema.external import entries, origin, tensors
from proto_schema.external.copying import read_chunks
from proto_schema.external.datafiles import DataFile, Place, Plan, rewritten
from proto_schema.external.payload import CHUNK, BytesLike, Payload, nbytes, went_past
from proto_schema.onnx import ModelProto, StringStringEntryProto, TensorProto
from proto_schema.wire.records import dataclass

KEY = "proto_schema.sha256"
"""The key of a tensor's digest; with `:` and the name of a file behind it, that of the file."""
PENDING = "0" * 64
_MOST_READ = 4  # how often ranges that overlap may be read, all of a file together

Range = tuple[int, int]  # offset, end


def digest_of(tensor: TensorProto) -> str:
    """The digest that a tensor carries; '' without one."""
    return next((entry.value or "" for entry in tensor.metadata_props if entry.key == KEY), "")


def with_digest(tensor: TensorProto, digest: str) -> TensorProto:
    """The tensor with this digest, or for '' without one: itself, or a copy."""
    if digest_of(tensor) == digest:
        return tensor
    changed = copy(tensor)
    changed.metadata_props = [entry for entry in tensor.metadata_props if entry.key != KEY]
    if digest:
        changed.metadata_props.append(StringStringEntryProto(key=KEY, value=digest))
    return changed


def digests_of_files(model: ModelProto) -> dict[str, str]:
    """The digests of data files that a model says, by their names in it."""
    found = [(entry.key or "", entry.value or "") for entry in model.metadata_props]
    return {key[len(KEY) + 1 :]: value for key, value in found if key.startswith(f"{KEY}:")}


def with_digests_of_files(model: ModelProto, digests: Mapping[str, str]) -> ModelProto:
    """The model that says these digests of data files, and no others: itself, or a copy."""
    if digests_of_files(model) == digests:
        return model
    changed = copy(model)
    changed.metadata_props = [entry for entry in model.metadata_props if not (entry.key or "").startswith(f"{KEY}:")]
    changed.metadata_props += [StringStringEntryProto(key=f"{KEY}:{name}", value=digests[name]) for name in digests]
    return changed


def sha256_of(data: BytesLike) -> str:
    """The digest of some bytes."""
    return sums_of(data, ())[0]


def sums_of(data: BytesLike, ranges: Iterable[Range]) -> tuple[str, dict[Range, str]]:
    """The digests of some bytes and of ranges of them, in one pass."""
    waiting = sorted(set(ranges), reverse=True)
    whole, found, at = sha256(), dict[Range, str](), 0
    active: list[tuple[Range, Any]] = []
    for chunk in read_chunks(data):
        whole.update(chunk)
        end = at + len(chunk)
        while waiting and waiting[-1][0] < end:
            active.append((waiting.pop(), sha256()))
        for (start, stop), digest in active:
            digest.update(chunk[max(start - at, 0) : stop - at])
        found.update((place, digest.hexdigest()) for place, digest in active if place[1] <= end)
        active = [one for one in active if one[0][1] > end]
        at = end
        went_past(chunk, len(chunk))
    return whole.hexdigest(), found


def with_room_for_digests(model: ModelProto) -> ModelProto:
    """The model with tensors of its own, of which each with raw or external data has a digest, if only a pending one.

    A digest stays if the bytes come from a file.
    """

    def changed(tensor: TensorProto) -> TensorProto:
        external = tensor.data_location == TensorProto.EXTERNAL
        if not external and not tensor.raw_data:
            return tensor
        return with_digest(copy(tensor), (digest_of(tensor) if external else "") or PENDING)

    return rewritten(model, changed)


def without_stale_digests(model: ModelProto) -> ModelProto:
    """The model without the digests of tensors whose bytes were not loaded from a data file: they may be others now."""

    def changed(tensor: TensorProto) -> TensorProto:
        return tensor if tensor.data_location == TensorProto.EXTERNAL else with_digest(tensor, "")

    return rewritten(model, changed)


def note_digests(stored: Iterable[tuple[TensorProto, BytesLike]]) -> None:
    """Gives tensors, of a copy that has room for it, the digests of their bytes."""
    for tensor, data in stored:
        if nbytes(data):
            _note(tensor, sha256_of(data))


def _note(tensor: TensorProto, digest: str) -> None:
    """ExternalDataError where the tensor carries another one."""
    said = digest_of(tensor)
    if said not in (PENDING, digest):
        raise ExternalDataError(
            f"tensor {tensor.name or ''!r}: its bytes have the SHA-256 {digest[:16]}..., and the model says "
            f"{said[:16]}...: the file that they come from is damaged; copy or download it again"
        )
    tensor.metadata_props = [entry for entry in tensor.metadata_props if entry.key != KEY]
    tensor.metadata_props.append(StringStringEntryProto(key=KEY, value=digest))


class Sums:
    """The digests of what a save writes to data files, or refers to in them.

    They go to the tensors, which are of a copy that has room for them, as soon as they are known.
    """

    def __init__(self, found: Iterable[tuple[TensorProto, BytesLike]], layout: Plan) -> None:
        self._at: dict[tuple[int, int], list[TensorProto]] = {}  # by file and offset
        self._others: dict[str, str] = {}  # of files that are referred to
        self.files: dict[int, str] = {}  # by their place in the layout
        for tensor, _ in found:
            if found_at := layout.places.get(id(tensor)):
                self._at.setdefault(found_at[:2], []).append(tensor)

    def by_name(self, names: Sequence[str]) -> dict[str, str]:
        """What the model says of its data files, pending where they are not written."""
        made = {name: self.files.get(index, PENDING) for index, name in enumerate(names)}
        return {**self._others, **made}

    def passing(self, index: int, content: DataFile) -> Iterator[BytesLike]:
        """The content of a data file; its digests are known when it has passed."""
        return passing(content, lambda offset, digest: self.note(index, offset, digest))

    def note(self, index: int, offset: int | None, digest: str) -> None:
        """The digest of the tensors at that offset of a data file, or for None that of the file."""
        if offset is None:
            self.files[index] = digest
        for tensor in self._at.get((index, offset), ()) if offset is not None else ():
            _note(tensor, digest)

    def read(self, index: int, content: DataFile, written: BytesLike) -> None:
        """Takes the digests of a data file from what is there already."""
        places = [(offset, offset + nbytes(data)) for offset, data in content.payloads]
        self.files[index], found = sums_of(written, places)
        for (offset, _), digest in found.items():
            self.note(index, offset, digest)

    def read_references(
        self,
        found: Iterable[tuple[TensorProto, BytesLike]],
        references: Mapping[int, Place],
        whole: Callable[[str], BytesLike],
    ) -> None:
        """Takes the digests of tensors that stay in files of others, and of those files."""
        places: dict[str, dict[Range, list[TensorProto]]] = {}
        for tensor, _ in found:
            if found_at := references.get(id(tensor)):
                location, offset, length = found_at
                places.setdefault(location, {}).setdefault((offset, offset + length), []).append(tensor)
        for location, rows in places.items():
            self._others[location], digests = sums_of(whole(location), rows)
            for place, digest in digests.items():
                for tensor in rows[place]:
                    _note(tensor, digest)


def passing(content: DataFile, noted: Callable[[int | None, str], None]) -> Iterator[BytesLike]:
    """The content of a data file; `noted` hears the offset and the digest of each payload, and at last None and all."""
    offsets = {id(data): offset for offset, data in content.payloads}
    whole = sha256()
    for part in content.parts():
        at = offsets.get(id(part))
        own = None if at is None else sha256()
        yield _Passing(part, [whole] if own is None else [whole, own])
        if at is not None and own is not None:
            noted(at, own.hexdigest())
    noted(None, whole.hexdigest())


class _Passing(Payload):
    """Bytes whose digests are taken when they are written, once."""

    def __init__(self, data: BytesLike, digests: list[Any]) -> None:
        self._data = data
        self._digests = digests

    @property
    def nbytes(self) -> int:
        return nbytes(self._data)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        for chunk in read_chunks(self._data, limit):
            for digest in self._digests:
                digest.update(chunk)
            yield chunk


# ---- the check


@dataclass(frozen=True)
class Mismatch:
    """What is not as the model says: a tensor's bytes, or, without a tensor, other bytes of a data file.

    `file` is '' for bytes in the model's own file. `start` and `end` are the bytes of the data file.
    """

    file: str
    tensor: str | None
    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        what = "" if self.tensor is None else f"tensor {self.tensor!r}"
        if what and self.file and self.end:
            what += f", bytes {self.start} to {self.end} of the file"
        return f"{where}{what}{': ' if what else ''}{self.reason}"


@dataclass(frozen=True)
class Compared:
    """How many tensors and files were compared with their digests, how many tensors have none, and what differs."""

    tensors: int
    files: int
    without: int
    mismatches: list[Mismatch]


def compare(model: ModelProto) -> Compared:
    """Reads all bytes that the model says a digest of, each data file once, and compares.

    Raises UnreadableDataError for what cannot be read for a reason that is not the model's.
    """
    inline: list[TensorProto] = []
    outside: dict[str, list[TensorProto]] = {}
    without = 0
    for tensor in tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            outside.setdefault(entries(tensor).location, []).append(tensor)
        elif digest_of(tensor):
            inline.append(tensor)
        else:
            without += bool(tensor.raw_data)
    found = [
        Mismatch("", tensor.name or "", 0, 0, _differs(digest_of(tensor), sha256_of(tensor.raw_data or b"")))
        for tensor in inline
        if sha256_of(tensor.raw_data or b"") != digest_of(tensor)
    ]
    said = digests_of_files(model)
    compared = len(inline)
    for location, rows in outside.items():
        digested = [tensor for tensor in rows if digest_of(tensor)]
        without += len(rows) - len(digested)
        compared += len(digested)
        if digested or location in said:
            found += _of_file(location, digested or rows[:1], said.get(location, ""))
    return Compared(compared, sum(location in outside for location in said), without, found)


def _of_file(location: str, rows: list[TensorProto], said: str) -> Iterator[Mismatch]:
    """What differs in a data file; `rows` are tensors in it, with digests as far as they are to be compared."""
    folder = origin(rows[0])
    if folder is None:
        raise ExternalDataError(f"{location} is not beside the model: give the path of the model's file")
    try:
        whole = folder.whole(rows[0], location)
    except ExternalDataError as error:
        yield Mismatch(location, None, 0, 0, str(error))
        return
    places: dict[Range, list[TensorProto]] = {}
    for tensor in rows:
        if not digest_of(tensor):
            continue
        entry = entries(tensor)
        end = whole.nbytes if entry.length is None else entry.offset + entry.length
        if entry.offset >= end or end > whole.nbytes:
            yield Mismatch(location, tensor.name or "", entry.offset, end, f"the file ends at {whole.nbytes}")
            said = ""
            continue
        places.setdefault((entry.offset, end), []).append(tensor)
    if sum(end - start for start, end in places) > _MOST_READ * whole.nbytes:
        yield Mismatch(location, None, 0, 0, "its tensors overlap too often to be compared one by one")
        return
    digest, found = sums_of(whole, places)
    differing = [
        (place, tensor) for place, row in places.items() for tensor in row if found[place] != digest_of(tensor)
    ]
    for (start, end), tensor in differing:
        reason = _differs(digest_of(tensor), found[start, end])
        yield Mismatch(location, tensor.name or "", start, end, reason)
    if said and digest != said and not differing:
        yield Mismatch(location, None, 0, 0, f"no tensor, but bytes between them or behind: {_differs(said, digest)}")


def _differs(said: str, found: str) -> str:
    return f"its SHA-256 is {found[:16]}..., and the model says {said[:16]}...; copy or download it again"
