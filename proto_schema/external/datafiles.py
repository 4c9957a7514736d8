"""External data, written: which tensors leave the model, where their bytes go, and what the model then says.

The model is never changed: `without_data` gives a copy of just the messages on the way to the tensors that leave.
Layout: tensors in the order of encoding, each at a multiple of `alignment`, zeros between; the mark of the model at the
end (`marks.py`), without padding; bytes from one source (the same buffer, the same payload) are stored once. So the
same model gives the same files under the same name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field
from functools import cache
from typing import TypeAlias, TypeVar, cast

from proto_schema.external import entries, origin, set_entries
from proto_schema.external.payload import BytesLike, Payload, address, byte_view, nbytes
from proto_schema.files.marks import mark, size_of_data
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES, element_count
from proto_schema.wire.fields import Field, Message, fields_to
from proto_schema.wire.lists import each
from proto_schema.wire.records import dataclass

M = TypeVar("M", bound=Message)
Change: TypeAlias = Callable[[TensorProto], TensorProto]
Place: TypeAlias = "tuple[str, int, int]"  # location, offset, length
ZEROS = bytes(1 << 16)


def with_gaps(payloads: Iterable[tuple[int, BytesLike]], at: int, end: int) -> Iterator[tuple[int, BytesLike]]:
    """The payloads with their offsets, and zeros where none lies, from position `at` to `end` of a file."""
    for offset, data in (*payloads, (end, b"")):
        while at < offset:
            zeros = ZEROS[: offset - at]
            yield at, zeros
            at += len(zeros)
        if nbytes(data):
            yield offset, data
            at += nbytes(data)


@dataclass
class DataFile:
    """One data file: its payloads with their offsets, ascending, their size with the gaps, and the mark behind them."""

    payloads: list[tuple[int, BytesLike]] = field(default_factory=list)
    size: int = 0
    mark: bytes = b""

    @property
    def whole_size(self) -> int:
        """The size of the file."""
        return self.size + len(self.mark)

    def add(self, data: BytesLike, alignment: int) -> int:
        """Appends a payload and returns its offset."""
        offset = -(-self.size // alignment) * alignment
        self.payloads.append((offset, data))
        self.size = offset + nbytes(data)
        return offset

    def parts(self) -> Iterator[BytesLike]:
        """The content in order, gaps filled with zeros."""
        for _, data in with_gaps(self.payloads, 0, self.size):
            yield data
        if self.mark:
            yield self.mark


@dataclass
class Plan:
    """The data files, and for each tensor that leaves (by id): which file, offset, length."""

    files: list[DataFile]
    places: dict[int, tuple[int, int, int]]

    def mark(self, names: Sequence[str], *models: str) -> None:
        """Marks the files, which are to have these names, as those of the models in files of those names."""
        for name, file in zip(names, self.files, strict=True):
            file.mark = mark(name, models, file.size)


def payload_of(tensor: TensorProto) -> BytesLike | None:
    """The bytes of a tensor that could lie in a data file: raw_data, or the external data it was loaded with."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return tensor.raw_data
    folder = origin(tensor)
    return None if folder is None else folder.payload(tensor, expected_size(tensor))


def expected_size(tensor: TensorProto) -> int | None:
    """The size that type and dims ask for; None where the type is not known, and the entries decide."""
    row = DTYPES.get(tensor.data_type or 0)
    return row.nbytes(element_count(tensor.dims)) if row and row.bits else None


def plan(found: Iterable[tuple[TensorProto, BytesLike]], threshold: int, alignment: int, shard: int | None) -> Plan:
    """Lays out the tensors whose data has at least `threshold` bytes, in files of about `shard` bytes if given.

    A file passes `shard` only where a single tensor does.
    """
    result = Plan([], {})
    stored: dict[object, tuple[int, int, int]] = {}
    for tensor, data in found:
        size = nbytes(data)
        if size < max(threshold, 1):
            continue
        key = identity(data)
        if key not in stored:
            full = shard is not None and result.files and result.files[-1].size + size > shard
            if full or not result.files:
                result.files.append(DataFile())
            stored[key] = (len(result.files) - 1, result.files[-1].add(data, alignment), size)
        result.places[id(tensor)] = stored[key]
    return result


def lies_already(layout: Plan, found: Iterable[tuple[TensorProto, BytesLike]], folder: str, names: list[str]) -> bool:
    """Whether the data files of these names hold just what the plan would write: the model alone is to be written then.

    Each tensor of the plan was loaded from its very place in them, they are unchanged since, and hold nothing more but
    perhaps a mark, of whichever model.
    """
    path = os.path.abspath(folder or ".")
    if not layout.files:
        return False
    for tensor, _ in found:
        place = layout.places.get(id(tensor))
        if place is None:
            continue
        here = origin(tensor)
        if tensor.data_location != TensorProto.EXTERNAL or here is None or here.path != path:
            return False
        entry = entries(tensor)
        if (entry.location, entry.offset, entry.length) != (names[place[0]], *place[1:]):
            return False
        if not here.is_current(entry.location):
            return False
    sizes = zip(names, layout.files, strict=True)
    return all(size_of_data(os.path.join(path, name)) == content.size for name, content in sizes)


def identity(data: BytesLike) -> object:
    """A key that two payloads share only if they are the same bytes. The payloads stay alive as long as it is used."""
    if isinstance(data, Payload):
        return id(data) if data.identity is None else (type(data), data.identity)
    view = byte_view(data)
    return (address(view), len(view))


def with_data(message: M, external: Mapping[int, BytesLike]) -> M:
    """The message with external tensors (by id) holding their bytes; only what changes is copied."""

    def inlined(tensor: TensorProto) -> TensorProto:
        data = external.get(id(tensor))
        if data is None:
            return tensor
        changed = copy(tensor)
        changed.external_data, changed.data_location, changed.raw_data = [], None, data
        return changed

    return rewritten(message, inlined)


def without_data(message: M, places: Mapping[int, Place]) -> M:
    """The message with the tensors in `places` (by id) referring to files; only what changes is copied."""

    def moved(tensor: TensorProto) -> TensorProto:
        place = places.get(id(tensor))
        if place is None:
            return tensor
        changed = copy(tensor)
        set_entries(changed, *place)
        return changed

    return rewritten(message, moved)


@cache
def _tensor_fields(cls: type[Message]) -> list[Field]:
    return fields_to(cls, TensorProto)


def rewritten(message: M, change: Change) -> M:
    """The message with every tensor in it changed; only what changes is copied."""
    if isinstance(message, TensorProto):
        return cast("M", change(message))
    result = message
    for row in _tensor_fields(type(message)):
        value = getattr(message, row.slot)
        if not value or value.__class__ is str:  # a list that nobody has read has no tensors
            continue
        if row.repeated:
            made, changed = _each_rewritten(value, change)
        else:
            made = rewritten(value, change)
            changed = made is not value
        if changed:
            result = copy(message) if result is message else result
            object.__setattr__(result, row.slot, made)
    return result


def _each_rewritten(items: list[Message], change: Change) -> tuple[list[Message], bool]:
    """(the messages, whether any is another); nodes that nobody has read have no tensors."""
    changed = False

    def inside(child: Message) -> Message:
        nonlocal changed
        made = rewritten(child, change)
        changed = changed or made is not child
        return made

    return each(items, inside), changed
