"""What can be kept of a damaged model: every whole node, tensor and field before the damage, and after it.

Strategy: the model, its graph and its functions are built again from those of their fields that decode. Any other field
is kept whole or dropped whole, because half a node is another node. After damage the reader goes on where the length
says. If nothing sensible follows there, it goes on at the next place from which several fields in a row decode.
A file that merely ends too early has nothing behind its last field, so nothing is looked for there (`cut_short`).
Only places with the first byte of a known tag are looked at, and first only at their tags and lengths.
What a model then lacks to be valid is added (`completed`).
Invariants: what is written decodes, and what is kept is unchanged. The work is in proportion to the file: what is
decoded in vain counts, and after too much of it the rest is dropped.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

import proto_schema as ps
from proto_schema.errors import CheckError, DecodeError
from proto_schema.external.payload import BytesLike, nbytes
from proto_schema.files.commit import replacing
from proto_schema.files.owned import files_of
from proto_schema.files.sniff import what_it_is
from proto_schema.files.transfers import as_text
from proto_schema.onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)
from proto_schema.wire import I32, I64, LEN, VARINT, read_tag, varint
from proto_schema.wire.codec import decode, encode
from proto_schema.wire.fields import Message
from proto_schema.wire.runs import packed
from proto_schema.wire.scalars import unpack
from purexport.inspect.cut_short import announced_stop, is_cut_short, tensor_header
from purexport.inspect.elements import Bytes, Element, accepts

if TYPE_CHECKING:
    from purexport.inspect.completed import Additions

_CONTAINERS = (ModelProto, GraphProto, FunctionProto)
_IN_A_ROW = 3  # fields that must decode one after the other for a place to count as a beginning
_EFFORT = 16  # bytes that are decoded in vain at most, for each byte of the file
_LOOK = 4  # bytes that a look at a place counts as
_TENSOR = 2  # the depth of an initializer of the model's graph
_CODES = TensorProto.DataType._value2member_map_

_Tree = list[tuple[Element, "_Tree | None"]]
"""Fields in the order of the file; a container has its own fields beside it."""


@dataclass
class Salvage:
    """`first_bad` (-1: nothing is wrong) with its `path` and `reason`; `cause`, a guess; what was kept, what was not.

    `kept` counts fields of models, graphs and functions by name; `dropped` are (offset, number of bytes, path);
    `added` says what was added so that the model is valid, and `invalid` why it is not; `restored` says that the
    damage, that of a transfer as text, was undone.
    """

    first_bad: int = -1
    path: str = ""
    reason: str = ""
    cause: str = ""
    kept: Counter[str] = field(default_factory=Counter)
    dropped: list[tuple[int, int, str]] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    invalid: str = ""
    restored: bool = False

    @property
    def lost(self) -> bool:
        """Whether the new file may lack something: bytes that were dropped, or that a cut-off file announces."""
        return bool(self.dropped) or (self.first_bad >= 0 and not self.restored)


def salvage(path: str | os.PathLike[str], target: str | os.PathLike[str], *, overwrite: bool = False) -> Salvage:
    """Writes what can be kept of the model at `path` to `target`, another file, and returns what that is.

    Raises ValueError if nothing of a model is in the file, OSError if it cannot be read or `target` cannot be written;
    `overwrite` is that of save.
    """
    source = Bytes(path)
    with replacing(os.fspath(target), inputs=files_of(os.fspath(path)), overwrite=overwrite) as file:
        found, parts = _kept(source)
        file.write(parts, sum(map(nbytes, parts)))
    if os.path.isfile(target):
        found.invalid = _rule_broken(target)
    return found


def _kept(source: Bytes) -> tuple[Salvage, list[BytesLike]]:
    found = diagnosis(source)
    transfer = as_text(source.view) if found.first_bad >= 0 else None
    if transfer is not None and transfer.restored is not None:
        found.restored = True
        source, found.cause = Bytes(transfer.restored), f"{transfer.what}; this is undone"
    keeper = _Keeper(source, found)
    tree = keeper.kept(source.whole())
    if not set(found.kept) - {"unknown fields"}:
        raise ValueError(f"{source.name}: nothing of a model can be kept{what_it_is(source.view, None)}")
    made = None
    if found.lost:
        from purexport.inspect.completed import additions  # it loads numpy

        made = additions(_sketch(source, tree, keeper.cut_off))
        found.added = made.notes
    return found, _flat(source, tree, made)


def _sketch(source: Bytes, tree: _Tree, cut_off: list[ValueInfoProto]) -> ModelProto:
    """What is kept as messages, whose payloads are views of the file; a tensor that is cut off is a declared value."""
    model = ModelProto()
    for child, inner in tree:
        if child.message is GraphProto and inner is not None:
            model.graph = model.graph or GraphProto()
            for below, _ in inner:
                _take(source, below, model.graph)
        elif child.message is None or child.message is FunctionProto or child.path.startswith("opset_import"):
            _take(source, child, model)
    if model.graph is not None:
        model.graph.value_info += cut_off
    return model


def _take(source: Bytes, child: Element, message: Message) -> None:
    """Read a field of a file into a message."""
    read = decode(type(message), source.view[child.start : child.stop])
    if child.field is not None:
        value = getattr(read, child.field.name)
        if child.field.repeated:
            getattr(message, child.field.name).extend(value)
        else:
            setattr(message, child.field.name, value)


def _flat(source: Bytes, tree: _Tree, made: Additions | None) -> list[BytesLike]:
    """The bytes of the kept fields, with what is added to the model and to its graph at their ends."""
    flat: list[BytesLike] = []
    for child, inner in tree:
        if inner is None:
            flat.append(source.view[child.start : child.stop])
            continue
        if child.message is GraphProto and child.depth == 1:
            kept = [below for below, _ in inner if not _is_left_out(source, below, made)]
            parts: list[BytesLike] = [source.view[below.start : below.stop] for below in kept]
            parts += [encode(made.graph)] if made is not None else []
        else:
            parts = _flat(source, inner, None)
        flat += [varint(child.number << 3 | LEN) + varint(sum(map(nbytes, parts))), *parts]
    return [*flat, encode(made.model)] if made is not None else flat


def _shape(dims: Sequence[int]) -> TensorShapeProto:
    return TensorShapeProto(dim=[TensorShapeProto.Dimension(dim_value=size) for size in dims])


def _is_left_out(source: Bytes, child: Element, made: Additions | None) -> bool:
    if made is None or not made.left_out or not child.path.startswith("graph.output["):
        return False
    return decode(ValueInfoProto, source.view[child.body : child.stop]).name in made.left_out


def _rule_broken(target: str | os.PathLike[str]) -> str:
    """The first rule that the written model breaks; empty where it is valid."""
    try:
        ps.checker.check_model(target)
    except (CheckError, DecodeError) as error:
        return str(error)
    return ""


def diagnosis(source: Bytes) -> Salvage:
    """The first damage, with its likely cause; nothing is kept or dropped yet."""
    try:
        decode(ModelProto, source.view)
    except DecodeError as error:
        bad = [element for element in source.walk() if element.problem]
        first = min(bad, key=lambda element: (element.bad, -element.depth), default=None)
        if first is None:
            return Salvage(error.offset or 0, error.path, error.reason, likely_cause(source, bad))
        return Salvage(first.bad, first.path, first.problem, likely_cause(source, bad))
    return Salvage()


def likely_cause(source: Bytes, problems: list[Element]) -> str:
    """What the file seems to be. It counts as cut off where its outermost field is: inner ones may have bad lengths."""
    outer = [element.problem for element in problems if element.depth == 1]
    cut = any(problem.startswith(("cut off", "truncated")) for problem in outer)
    return what_it_is(source.view, DecodeError("truncated" if cut else "damaged")).removeprefix("; ")


def _numbered(child: Element, count: int) -> Element:
    """The element, read as if it were the first of its message, and named by its place among those of its field."""
    if child.field is None or not child.field.repeated:
        return child
    prefix = child.path.removesuffix(child.step)
    step = f"{child.field.name}[{count}]"
    return replace(child, step=step, path=prefix + step)


class _Keeper:
    """One pass over a file, which notes in `found` what it keeps and drops."""

    def __init__(self, source: Bytes, found: Salvage) -> None:
        self.source = source
        self.found = found
        self.left = _EFFORT * source.size
        self.cut_off: list[ValueInfoProto] = []

    def kept(self, parent: Element) -> _Tree:
        """The fields of a container that can be kept; of a container among them its own."""
        tree: _Tree = []
        for child in self._readable(parent):
            name = child.field.name if child.field is not None else "unknown fields"
            tree.append((child, self.kept(child) if child.message in _CONTAINERS else None))
            self.found.kept[name] += 1
        return tree

    def _readable(self, parent: Element) -> Iterator[Element]:
        """The children that are containers or decode; after damage those from where reading can go on."""
        at = parent.body
        seen: Counter[int] = Counter()
        while at < parent.stop:
            child = self._at(parent, at)
            if child is not None:
                child = _numbered(child, seen[child.number])
                seen[child.number] += 1
            if child is not None and child.message in _CONTAINERS:
                yield child
                at = child.stop
                continue
            if child is not None and self._sound(child):
                yield child
                at = child.stop
                continue
            self.left -= child.payload if child is not None and not child.problem else 0
            after = self._resume(parent, at, child)
            path = child.path if child is not None else f"{parent.path}.?".lstrip(".")
            if child is not None and child.message is TensorProto and child.depth == _TENSOR:
                self._note_tensor(child)
            self.found.dropped.append((at, after - at, path))
            at = after

    def _note_tensor(self, child: Element) -> None:
        """What a damaged weight says of itself before the damage, if that is its name, type and sizes."""
        told = tensor_header(self.source, child)
        if told.name and told.data_type in _CODES:
            kind = TypeProto(tensor_type=TypeProto.Tensor(elem_type=told.data_type, shape=_shape(told.dims)))
            self.cut_off.append(ValueInfoProto(name=told.name, type=kind))

    def _at(self, parent: Element, at: int) -> Element | None:
        """The field of `parent` that begins at a byte, if one does."""
        assumed = Element(
            parent.step, parent.path, parent.owner, None, parent.message, 0, LEN, at, at, parent.stop, parent.depth
        )
        child = next(self.source.children(assumed), None)
        if child is None or child.wire_name:
            return child
        self.left -= parent.stop - at if child.problem.endswith("is not closed") else max(0, child.bad - at)
        return None

    def _resume(self, parent: Element, at: int, child: Element | None) -> int:
        """Where to go on after bytes that cannot be kept: behind them, at the first promising place, or nowhere."""
        if child is not None and not child.problem and self._promising(parent, child.stop):
            return child.stop
        if child is not None and is_cut_short(self.source, child, self._limit(parent)):
            return parent.stop
        for match in _beginnings(parent.message or ModelProto).finditer(self.source.view, at + 1, parent.stop):
            self.left -= _LOOK
            if self.left < 0:
                break
            if self._promising(parent, match.start()):
                return match.start()
        return parent.stop

    def _limit(self, parent: Element) -> int | None:
        """Where the container ends by its own length; the file itself announces none."""
        return announced_stop(self.source, parent) if parent.depth else None

    def _promising(self, parent: Element, at: int) -> bool:
        """Whether fields that the schema knows follow each other from here, or the end does."""
        fields: list[Element] = []
        while len(fields) < _IN_A_ROW and at != parent.stop:
            child = self._at(parent, at) if self._is_known(parent, at) else None
            if child is None or child.problem:
                return False
            fields.append(child)
            at = child.stop
        if all(map(self._sound, fields)):
            return True
        self.left -= sum(field.payload for field in fields)
        return False

    def _is_known(self, parent: Element, at: int) -> bool:
        """Whether the tag of a known field is there, which costs less to find out than where an unknown one ends."""
        try:
            tag = read_tag(self.source.view, at, parent.stop)[0]
        except DecodeError:
            return False
        return any(row.number == tag >> 3 and accepts(row, tag & 7) for row in (parent.message or Message).FIELDS)

    def _sound(self, child: Element) -> bool:
        """Whether a decoder takes the field; in a damaged file also whether the schema knows all fields in it."""
        if child.problem or self.left < 0:
            return False
        try:
            if child.message is not None:
                decode(child.message, self.source.view[child.body : child.stop])
                whole = self.found.first_bad < 0
                return whole or all(inner.field is not None for inner in self.source.children(child))
            if child.field is not None and child.packed:
                data = self.source.view[child.body : child.stop]
                if child.field.form is None or packed(child.field.form, data, 0, len(data)) is None:
                    unpack(child.field.kind, bytes(data), child.body)
        except DecodeError:
            return False
        return True


@cache
def _beginnings(cls: type[Message]) -> re.Pattern[bytes]:
    """The first byte of a tag of each field, in each form in which it may come."""
    kinds = {LEN: (LEN,), VARINT: (VARINT, LEN), I32: (I32, LEN), I64: (I64, LEN)}
    tags = {varint(row.number << 3 | form)[:1] for row in cls.FIELDS for form in kinds[row.kind.wire_type]}
    return re.compile(b"[" + b"".join(map(re.escape, sorted(tags))) + b"]", re.DOTALL)
