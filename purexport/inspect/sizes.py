"""Where the bytes of a model go, and whether its files of external data are what the model says.

Strategy: the bytes are walked once, for exact counts by kind, and the messages once, for tensors and who uses them.
Weights are counted by their headers; only `duplicates` reads those that could be equal.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

import proto_schema as ps
from proto_schema.errors import DecodeError, ExternalDataError
from proto_schema.external import Entries, entries, tensors
from proto_schema.external.addresses import is_address, joined, parent, size_at
from proto_schema.external.datafiles import payload_of
from proto_schema.external.payload import chunks, nbytes, went_past
from proto_schema.graphs.names import as_text
from proto_schema.onnx import AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto
from proto_schema.tensors.dtypes import DTYPES, element_count, type_name
from proto_schema.wire import LEN, MAX_DEPTH
from proto_schema.wire.fields import MESSAGE, STRING, Field, Message, message_class
from proto_schema.wire.runs import SHORTEST, begun
from purexport.inspect.elements import Bytes, accepts, header

_TYPES = {"ValueInfoProto", "TypeProto", "TensorShapeProto"}
_SAMPLE = 4096


@dataclass(frozen=True)
class Weight:
    """A tensor with the bytes of its values, `external` when they lie in a file of their own."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    nbytes: int
    external: bool


@dataclass
class DataFile:
    """What a model says of a file of external data, and what there is: `size` is None if it is missing.

    `gaps` are bytes between tensors, `tail` those after the last. `overlaps` and `beyond` name tensors that share bytes
    without being equal ranges, and that reach past the end.
    """

    name: str
    size: int | None
    tensors: int = 0
    covered: int = 0
    gaps: int = 0
    tail: int = 0
    overlaps: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether all data is there and no tensor overlaps another."""
        return self.size is not None and not self.overlaps and not self.beyond


@dataclass
class Sizes:
    """Bytes by what they are for, by message, operator, dtype and module; tensors, largest first; data files."""

    file: int
    by_use: dict[str, int]
    by_message: dict[str, int]
    by_operator: dict[str, int]
    by_dtype: dict[str, int]
    by_module: dict[str, int]
    weights: list[Weight]
    data_files: list[DataFile]
    problems: list[str]


def sizes(path: str | os.PathLike[str]) -> Sizes:
    """The sizes of a model's file and of what it refers to. Raises DecodeError or OSError if it cannot be read."""
    path = os.fspath(path)
    source, model = Bytes(path), ps.load(path)
    by_use, by_message = _bytes_by_kind(source)
    found = [_weight(tensor) for tensor in tensors(model)]
    outside = sum(weight.nbytes for weight in found if weight.external)
    if outside:
        by_use["weights in data files"] = outside
    files, problems = audit(model, parent(path))
    by_dtype, by_module = Counter[str](), Counter[str]()
    for weight in found:
        by_dtype[weight.dtype] += weight.nbytes
        by_module[module_of(weight.name)] += weight.nbytes
    return Sizes(
        source.size,
        _descending(by_use),
        _descending(by_message),
        _descending(_bytes_by_operator(model)),
        _descending(by_dtype),
        _descending(by_module),
        sorted(found, key=lambda weight: -weight.nbytes),
        files,
        problems,
    )


def module_of(name: str, depth: int = 2) -> str:
    """The first steps of the module path in a tensor's name: `layer1.0` of `layer1.0.conv1.weight`."""
    steps = [step for step in re.split(r"[./]|::", name) if step]
    return ".".join(steps[:-1][:depth]) or "(no module)"


def _descending(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


# Structure ------------------------------------------------------------------------------------------------------------


def _bytes_by_kind(source: Bytes) -> tuple[Counter[str], Counter[str]]:
    """Each byte once: tags and lengths are `tags and lengths`, and count to the message that holds them."""
    by_use, by_message = Counter[str](), Counter[str]()
    counted: _Counted = defaultdict(lambda: [0, 0])
    _count(source.view, source.root, None, 0, source.size, MAX_DEPTH, counted)
    for (owner, row, above), (headers, payloads) in counted.items():
        by_message[owner.__qualname__] += headers + payloads
        by_use["tags and lengths"] += headers
        if payloads:
            by_use[_use(owner, row, above)] += payloads
    return by_use, by_message


_Counted: TypeAlias = "defaultdict[tuple[type[Message], Field | None, Field | None], list[int]]"
"""Bytes of headers and of values other than messages, by owner, field (None: unknown) and the field the owner is in."""


def _count(
    view: memoryview, owner: type[Message], above: Field | None, at: int, stop: int, depth: int, counted: _Counted
) -> None:
    """Counts the fields of one message, and those of the messages in it, as `Bytes.walk` meets them."""
    table = _fields(owner)
    tried: set[int] = set()  # a run is looked for at its first value only, as decoders do
    while at < stop:
        start, tag = at, view[at]
        if 7 < tag < 128 and tag & 7 == LEN and stop - at > 1 and view[at + 1] <= min(127, stop - at - 2):
            body, at = at + 2, at + 2 + view[at + 1]
        else:
            try:
                tag, body, at, _ = header(view, at, stop)
            except DecodeError:
                counted[owner, None, above][1] += stop - at
                return
        row, child = table.get(tag, (None, None))
        if child is not None and depth:
            counted[owner, row, above][0] += body - start
            _count(view, child, row, body, at, depth - 1, counted)
            continue
        run = None
        form = None if row is None or tag in tried else row.form
        if form is not None and form.tag == tag and not form.packed and stop - start >= SHORTEST:
            tried.add(tag)
            run = begun(form, view, start, stop)
        tally = counted[owner, row, above]
        if run is None:
            tally[0] += body - start
            tally[1] += at - body
            went_past(view, at - body)
        else:
            at = run[1]
            payload = run[0].payload
            tally[0] += at - start - payload
            tally[1] += payload


@cache
def _fields(owner: type[Message]) -> dict[int, tuple[Field, type[Message] | None]]:
    """By tag the row and the class of its messages."""
    found: dict[int, tuple[Field, type[Message] | None]] = {}
    for row in owner.FIELDS:
        child = message_class(owner, row) if row.kind is MESSAGE else None
        found |= {row.number << 3 | kind: (row, child) for kind in range(8) if accepts(row, kind)}
    return found


def _use(owner: type[Message], row: Field | None, above: Field | None) -> str:
    if row is None:
        return "unknown fields"
    if owner is TensorProto and row.name.endswith("_data"):
        return "weights"
    if row.name == "doc_string":
        return "doc strings"
    if owner is StringStringEntryProto:
        return "external data entries" if above is not None and above.name == "external_data" else "metadata"
    if owner.__qualname__.split(".")[0] in _TYPES and row.name != "name":
        return "types and shapes"
    if row.kind is STRING:
        return "names"
    return "attributes" if owner is AttributeProto else "other numbers"


def _bytes_by_operator(model: ModelProto) -> Counter[str]:
    """Weights by the operator that takes them first; weights in attributes by the operator of their node."""
    counts: Counter[str] = Counter()
    for graph in _graphs(model):
        left = {tensor.name: _weight(tensor).nbytes for tensor in graph.initializer}
        for node in graph.node:
            held = sum(_weight(tensor).nbytes for row in node.attribute for tensor in _held(row))
            taken = sum(left.pop(name, 0) for name in node.input)
            if held or taken:
                counts[_operator(node)] += held + taken
    return counts


def _held(attribute: AttributeProto) -> Iterator[TensorProto]:
    yield from [attribute.t] if attribute.t is not None else []
    yield from attribute.tensors


def _operator(node: NodeProto) -> str:
    kind = as_text(node.op_type)
    return f"{as_text(node.domain)}::{kind}" if node.domain else kind


def _graphs(model: ModelProto) -> Iterator[GraphProto]:
    """The main graph and those in attributes of nodes, at any depth."""
    todo = [model.graph] if model.graph is not None else []
    while todo:
        graph = todo.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                todo += [*([attribute.g] if attribute.g is not None else []), *attribute.graphs]


# Tensors --------------------------------------------------------------------------------------------------------------


def _weight(tensor: TensorProto) -> Weight:
    external = tensor.data_location == TensorProto.EXTERNAL
    return Weight(as_text(tensor.name), type_name(tensor.data_type), tuple(tensor.dims), _nbytes(tensor), external)


def _nbytes(tensor: TensorProto) -> int:
    """The number of bytes: of raw_data or external data, else of type and shape, or of the texts of strings."""
    if tensor.raw_data is not None:
        return nbytes(tensor.raw_data)
    if tensor.data_location == TensorProto.EXTERNAL:
        try:
            length = entries(tensor).length
        except ExternalDataError:
            return 0
        if length is not None:
            return length
    row = DTYPES.get(tensor.data_type or 0)
    if row is None or not row.bits:
        return sum(map(len, tensor.string_data))
    return row.nbytes(element_count(tensor.dims))


def duplicates(path: str | os.PathLike[str]) -> list[tuple[list[str], int]]:
    """(names, bytes of one) of tensors with the same type, shape and content, the largest waste first.

    Reads the weights that could be equal by size and by a sample. Tensors that lie in the same bytes of a data file in
    part are not compared. Raises ExternalDataError if data is missing.
    """
    alike: dict[object, list[TensorProto]] = defaultdict(list)
    found = [tensor for tensor in tensors(ps.load(path)) if _nbytes(tensor) > 64]
    for tensor in found:
        alike[f"{tensor.data_type} {tensor.dims} {_nbytes(tensor)}"].append(tensor)  # tuples can share one hash
    places = _Places(found)
    for look in (places.sample, places.digest):
        finer: dict[object, list[TensorProto]] = defaultdict(list)
        for key, group in alike.items():
            if len(group) > 1:
                for tensor in group:
                    finer[key, look(tensor)].append(tensor)
        alike = finer
    groups = [
        ([as_text(tensor.name) for tensor in group], _nbytes(group[0])) for group in alike.values() if len(group) > 1
    ]
    return sorted(groups, key=lambda item: -item[1] * (len(item[0]) - 1))


class _Places:
    """The content of tensors as bytes to compare: of each range of a data file once.

    Ranges that share bytes without being equal are never alike: what they share is stored once, and a file could have
    very many of them.
    """

    def __init__(self, found: list[TensorProto]) -> None:
        self._digests: dict[str, bytes] = {}
        self._overlapping: set[str] = set()
        by_file: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for tensor in found:
            if tensor.data_location == TensorProto.EXTERNAL:
                entry = entries(tensor)
                by_file[entry.location].add((entry.offset, stop_of(tensor, entry)))
        for location, ranges in by_file.items():
            end, last = -1, ""
            for start, stop in sorted(ranges):
                name = f"{start} {stop} {location}"
                if start < end:
                    self._overlapping |= {last, name}
                if stop > end:
                    end, last = stop, name

    def sample(self, tensor: TensorProto) -> bytes:
        """The first bytes."""
        data = payload_of(tensor)
        return b"" if data is None else bytes(next(chunks(data, _SAMPLE), b""))

    def digest(self, tensor: TensorProto) -> bytes:
        """What differs if the content does."""
        if tensor.data_location != TensorProto.EXTERNAL:
            return _digest(tensor)
        entry = entries(tensor)
        place = f"{entry.offset} {stop_of(tensor, entry)} {entry.location}"
        if place in self._overlapping:
            return place.encode(errors="surrogatepass")
        if place not in self._digests:
            self._digests[place] = _digest(tensor)
        return self._digests[place]


def _digest(tensor: TensorProto) -> bytes:
    data = payload_of(tensor)
    if data is None:
        return _nameless(tensor)
    digest = hashlib.blake2b()
    for chunk in chunks(data):
        digest.update(chunk)
    return digest.digest()


def _nameless(tensor: TensorProto) -> bytes:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = None
    return copy.SerializeToString()


# External data --------------------------------------------------------------------------------------------------------


def audit(model: ModelProto, folder: str) -> tuple[list[DataFile], list[str]]:
    """(the data files that a model names, what is wrong with tensors' entries). Opens no file."""
    by_file: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    problems = []
    for tensor in tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        try:
            entry = entries(tensor)
        except ExternalDataError as error:
            problems.append(str(error))
            continue
        by_file[entry.location].append((entry.offset, stop_of(tensor, entry), as_text(tensor.name)))
    return [_audited(name, sorted(ranges), folder) for name, ranges in sorted(by_file.items())], problems


def stop_of(tensor: TensorProto, entry: Entries) -> int:
    """Where the range of a tensor ends in its data file: by its length, else by type and shape."""
    return entry.offset + (entry.length if entry.length is not None else _nbytes(tensor))


def _size(folder: str, name: str) -> int | None:
    """The size of a data file, None where there is none."""
    if is_address(folder):
        return size_at(joined(folder, name))
    path = os.path.join(folder, *name.split("/"))
    return os.path.getsize(path) if os.path.isfile(path) else None


def _audited(name: str, ranges: list[tuple[int, int, str]], folder: str) -> DataFile:
    found = DataFile(name, _size(folder, name), len(ranges))
    at = 0
    last = (-1, -1)
    for start, stop, tensor in ranges:
        if (start, stop) == last:  # tied weights
            continue
        if start < at and stop > start:
            found.overlaps.append(tensor)
        found.gaps += max(0, start - at)
        found.covered += max(0, stop - max(start, at))
        if found.size is not None and stop > found.size:
            found.beyond.append(tensor)
        at, last = max(at, stop), (start, stop)
    found.tail = max(0, (found.size or 0) - at)
    return found
