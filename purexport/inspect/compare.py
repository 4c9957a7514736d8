"""What differs between two models: structure first, then fields, then the values of tensors, then bytes.

Strategy: lists of messages are aligned by their names or keys, and those with the same key in their order. Nodes that
are left over (renamed ones, for instance) are aligned by their operators (`align`). Values of tensors are compared
chunk by chunk, however they are stored. A tensor that lies in the same place of the same file is not read, and two
places of data files are compared once, whichever tensors lie there. Where tensors on both sides share parts of their
bytes so often that comparing them would take longer in no proportion to the files, a difference says so.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import proto_schema as ps
from proto_schema.external import entries, origin
from proto_schema.external.datafiles import payload_of
from proto_schema.external.payload import BytesLike, chunks, nbytes, went_past
from proto_schema.graphs.names import as_text
from proto_schema.onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from proto_schema.tensors.dtypes import DTYPES, element_count, type_name
from proto_schema.wire.fields import MESSAGE, Field, Message, slot_value
from proto_schema.wire.runs import Run
from purexport.inspect.align import aligned
from purexport.inspect.data_ranges import Readings, place_of
from purexport.inspect.elements import Bytes
from purexport.inspect.locate import locate

IGNORABLE = {
    "metadata": frozenset({"metadata_props", "producer_name", "producer_version", "model_version"}),
    "doc_string": frozenset({"doc_string"}),
    "names": frozenset[str](),
    "storage": frozenset[str](),
}
"""What may be ignored: the fields it stands for, or a treatment of its own."""

_KEYS = ("name", "key", "domain", "tensor_name", "configuration_id")
_DATA = {row.field for row in DTYPES.values()} | {"raw_data", "external_data", "data_location"}
_TIMES = 4  # the size of a data file, read of both sides
_NOT_COMPARED = f"not compared: it shares bytes with other tensors, read {_TIMES} times over already"
_CHUNK = 3 << 20  # a multiple of the bytes of 128-bit values and of 6-bit values


@dataclass(frozen=True)
class Difference:
    """`kind`: only in a, only in b, value, order, tensor, storage, bytes.

    `path` names elements by their keys; `at_a` and `at_b` are the same by number, as `inspect` takes them, each in its
    file. One is empty where the file has no such element.
    """

    path: str
    kind: str
    text: str
    at_a: str = ""
    at_b: str = ""


def compare_files(a: str, b: str, ignore: frozenset[str] = frozenset()) -> list[Difference]:
    """The differences between two files, in the order of `a`; if nothing is ignored, down to the bytes.

    Raises DecodeError, OSError or ExternalDataError if one cannot be read, ValueError for what cannot be ignored.
    """
    found = compare(ps.load(a), ps.load(b), ignore)
    if found or ignore:
        return found
    return list(_bytes(Bytes(a), Bytes(b)))


def compare(a: ModelProto, b: ModelProto, ignore: frozenset[str] = frozenset()) -> list[Difference]:
    """The differences between two models. `ignore`: any of IGNORABLE; ValueError for another."""
    unknown = sorted(ignore - set(IGNORABLE))
    if unknown:
        raise ValueError(f"cannot ignore {', '.join(unknown)}; known are {', '.join(IGNORABLE)}")
    if "names" in ignore:
        a, b = _renamed(a), _renamed(b)
    skipped = frozenset().union(*(IGNORABLE[name] for name in ignore))
    return list(_Comparison(skipped, "storage" in ignore).messages(a, b, ("", "", "")))


@dataclass
class _Comparison:
    skipped: frozenset[str]
    any_storage: bool
    readings: Readings = field(default_factory=lambda: Readings(_TIMES))
    compared: dict[tuple[object, ...], str] = field(default_factory=dict)  # texts by two places, type and size

    def messages(self, a: Message, b: Message, at: _Paths) -> Iterator[Difference]:
        if isinstance(a, TensorProto) and isinstance(b, TensorProto):
            yield from self._tensors(a, b, at)
        for row in type(a).FIELDS:
            if row.name in self.skipped or (isinstance(a, TensorProto) and row.name in _DATA):
                continue
            mine, theirs = slot_value(a, row), slot_value(b, row)
            if row.kind is MESSAGE and row.repeated:
                if mine or theirs:
                    yield from self._lists(mine or [], theirs or [], _within(at, row.name))
            elif row.kind is MESSAGE and mine is not None and theirs is not None:
                yield from self.messages(mine, theirs, _within(at, row.name))
            elif not _equal(row, mine, theirs):
                yield _difference(_within(at, row.name), "value", f"{_shown(mine)} -> {_shown(theirs)}")
        if a.unknown_fields != b.unknown_fields:
            yield _difference(at, "value", "unknown fields differ")

    def _lists(self, a: Sequence[Message], b: Sequence[Message], at: _Paths) -> Iterator[Difference]:
        path, at_a, at_b = at
        pairs, in_order = _aligned(a, b)
        for left, right in pairs:
            if left is not None and right is not None:
                inner = f"{path}[{_label(a[left], left)}]", f"{at_a}[{left}]", f"{at_b}[{right}]"
                yield from self.messages(a[left], b[right], inner)
            elif left is not None:
                label = f"{path}[{_label(a[left], left)}]"
                yield Difference(label, "only in a", _summary(a[left]), at_a=f"{at_a}[{left}]")
            elif right is not None:
                label = f"{path}[{_label(b[right], right)}]"
                yield Difference(label, "only in b", _summary(b[right]), at_b=f"{at_b}[{right}]")
        if not in_order:
            yield _difference(at, "order", "the same elements in another order")

    def _tensors(self, a: TensorProto, b: TensorProto, at: _Paths) -> Iterator[Difference]:
        if a.data_type != b.data_type or a.dims != b.dims or _same_place(a, b):
            return  # the fields already say it
        left, right = payload_of(a), payload_of(b)
        if left is not None and right is not None and nbytes(left) == nbytes(right):
            text = self._values(a, b, left, right)
        else:
            text = _typed_text(a, b)
        if text:
            yield _difference(at, "tensor", text)
        elif not self.any_storage and _storage(a) != _storage(b):
            yield _difference(at, "storage", f"the same values, stored in {_storage(a)} -> {_storage(b)}")

    def _values(self, a: TensorProto, b: TensorProto, left: BytesLike, right: BytesLike) -> str:
        """`_values_text`, which is made once for two places of data files."""
        key = (place_of(a), place_of(b), a.data_type, element_count(a.dims))
        if None in key[:2]:
            return _values_text(a, left, right)
        if key not in self.compared:
            often = [self.readings.too_many(tensor) for tensor in (a, b)]
            self.compared[key] = _NOT_COMPARED if all(often) else _values_text(a, left, right)
        return self.compared[key]


_Paths = tuple[str, str, str]  # of an element: by keys, and by number in each file


def _within(at: _Paths, name: str) -> _Paths:
    path, at_a, at_b = at
    return (f"{path}.{name}", f"{at_a}.{name}", f"{at_b}.{name}") if path else (name, name, name)


def _difference(at: _Paths, kind: str, text: str) -> Difference:
    return Difference(at[0], kind, text, at[1], at[2])


# Alignment ------------------------------------------------------------------------------------------------------------


def _aligned(a: Sequence[Message], b: Sequence[Message]) -> tuple[list[tuple[int | None, int | None]], bool]:
    """(pairs of indices in the order of `a`, then what only `b` has; whether pairs by key are in the same order)."""
    left, right = _by_key(a), _by_key(b)
    partner = {at: right[key] for key, at in left.items() if key in right}
    taken = set(partner.values())
    rest_a = [at for at in range(len(a)) if at not in partner]
    rest_b = [at for at in range(len(b)) if at not in taken]
    keyed = [partner[at] for at in sorted(partner)]
    partner.update(_by_structure(a, b, rest_a, rest_b))
    taken = set(partner.values())
    pairs: list[tuple[int | None, int | None]] = [(at, partner.get(at)) for at in range(len(a))]
    pairs += [(None, at) for at in rest_b if at not in taken]
    return pairs, keyed == sorted(keyed)


def _by_key(messages: Sequence[Message]) -> dict[object, int]:
    """Indices by key and by the count of that key before it; of nodes only those whose key occurs once."""
    found: dict[object, int] = {}
    counts = Counter[object]()
    for at, message in enumerate(messages):
        key = _key(message)
        found[key, counts[key]] = at
        counts[key] += 1
    if messages and isinstance(messages[0], NodeProto):
        return {(key, 0): found[key, 0] for key, count in counts.items() if count == 1 and key is not None}
    return found


def _key(message: Message) -> str | None:
    if isinstance(message, FunctionProto):
        return f"{message.domain}.{message.name}.{message.overload or ''}"
    names = {row.name for row in type(message).FIELDS}
    name = next((name for name in _KEYS if name in names), None)
    key = as_text(getattr(message, name)) if name else ""
    if not key and isinstance(message, NodeProto) and message.output:
        return f"-> {as_text(message.output[0])}"
    return key if key or name == "domain" else None


def _by_structure(
    a: Sequence[Message], b: Sequence[Message], rest_a: list[int], rest_b: list[int]
) -> Iterator[tuple[int, int]]:
    """Pairs of nodes that have no partner by key: the same operators in the same order."""
    if not rest_a or not rest_b or not isinstance(a[0], NodeProto):
        return
    kinds = [[str(getattr(nodes[at], "op_type", "")) for at in rest] for nodes, rest in ((a, rest_a), (b, rest_b))]
    yield from ((rest_a[left], rest_b[right]) for left, right in aligned(*kinds))


def _renamed(model: ModelProto) -> ModelProto:
    """A copy in which values are named by the order of their first use, and nodes and graphs have no names."""
    model = deepcopy(model)
    names: dict[str, str] = {"": ""}
    if model.graph is not None:
        _rename(model.graph, names)
    for function in model.functions:
        _rename(function, names)
    return model


def _rename(holder: GraphProto | FunctionProto, names: dict[str, str]) -> None:
    def new(name: str | None) -> str:
        return names.setdefault(name or "", f"v{len(names)}")

    if isinstance(holder, GraphProto):
        holder.name = None
        outer = [*holder.input, *holder.output]
        for value in outer:
            value.name = new(value.name)
    else:
        holder.input, holder.output = list(map(new, holder.input)), list(map(new, holder.output))
    for node in holder.node:
        node.name = None
        node.input, node.output = list(map(new, node.input)), list(map(new, node.output))
        for attribute in node.attribute:
            for graph in [*([attribute.g] if attribute.g is not None else []), *attribute.graphs]:
                _rename(graph, names)
    for value in holder.value_info:
        value.name = new(value.name)
    if isinstance(holder, GraphProto):
        for tensor in holder.initializer:
            tensor.name = new(tensor.name)


# Values ---------------------------------------------------------------------------------------------------------------


def _same_place(a: TensorProto, b: TensorProto) -> bool:
    """Whether both lie at the same place of the same file of external data."""
    folders = origin(a), origin(b)
    if a.data_location != TensorProto.EXTERNAL or folders[0] is None or folders[1] is None:
        return False
    if b.data_location != TensorProto.EXTERNAL:
        return False
    mine, theirs = entries(a), entries(b)
    if (mine.offset, mine.length) != (theirs.offset, theirs.length):
        return False
    files = folders[0].file(mine.location), folders[1].file(theirs.location)
    return all(map(os.path.isfile, files)) and os.path.samefile(*files)


def _values_text(tensor: TensorProto, a: BytesLike, b: BytesLike) -> str:
    """How much the values of two payloads of one size differ; empty for equal bytes."""
    row = DTYPES.get(tensor.data_type or 0)
    count, largest, relative, odd, same = 0, 0.0, 0.0, 0, True
    left = element_count(tensor.dims)
    for mine, theirs in zip(chunks(a, _CHUNK), chunks(b, _CHUNK), strict=True):
        here = min(left, _CHUNK * 8 // row.bits) if row is not None and row.bits else 0
        left -= here
        if _alike(mine, theirs):
            continue
        if not here:
            return "the bytes differ"
        same = False
        found = _apart(*(_array(tensor, chunk, here) for chunk in (mine, theirs)))
        count, odd = count + found[0], odd + found[3]
        largest, relative = max(largest, found[1]), max(relative, found[2])
    return "" if same else _apart_text(count, element_count(tensor.dims), largest, relative, odd)


def _alike(a: memoryview, b: memoryview) -> bool:
    """Whether the bytes are equal: numpy compares eight bytes at a time, a memoryview one."""
    import numpy as np

    if len(a) != len(b):
        return False
    words = len(a) // 8 * 8
    left, right = (np.frombuffer(view[:words], np.uint64) for view in (a, b))
    return bool(np.array_equal(left, right)) and a[words:] == b[words:]


def _array(tensor: TensorProto, chunk: memoryview, count: int) -> Any:
    return ps.numpy_helper.to_array(TensorProto(data_type=tensor.data_type, dims=[count], raw_data=chunk))


def _typed_text(a: TensorProto, b: TensorProto) -> str:
    if a.data_type not in DTYPES:
        return "" if all(getattr(a, name) == getattr(b, name) for name in _DATA) else "the data differ"
    if all(tensor.data_type == TensorProto.STRING for tensor in (a, b)):
        count = sum(x != y for x, y in zip_longest(a.string_data, b.string_data))
        return f"{count} strings differ" if count else ""
    mine, theirs = (ps.numpy_helper.to_array(tensor) for tensor in (a, b))
    if mine.tobytes() == theirs.tobytes():
        return ""
    found = _apart(mine.reshape(-1), theirs.reshape(-1))
    return _apart_text(found[0], mine.size, *found[1:])


def _apart(a: Any, b: Any) -> tuple[int, float, float, int]:
    """(values that differ, largest difference, largest relative one, values that are NaN or infinite in only one)."""
    import numpy as np

    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    differ = np.flatnonzero(a != b)
    x, y = a[differ].astype(wide), b[differ].astype(wide)
    both_nan = np.isnan(x) & np.isnan(y)
    x, y = x[~both_nan], y[~both_nan]
    finite = np.isfinite(x) & np.isfinite(y)
    gaps = np.abs(x[finite] - y[finite])
    scale = np.maximum(np.abs(x[finite]), np.abs(y[finite]))
    if not gaps.size:
        return x.size, 0.0, 0.0, int((~finite).sum())
    largest = float(gaps.max())
    return x.size, largest, float((gaps / scale).max()), int((~finite).sum())


def _apart_text(count: int, total: int, largest: float, relative: float, odd: int) -> str:
    if not count:
        return "bits of zeros or NaNs differ, no value does"
    text = f"{count:,} of {total:,} values differ, at most by {largest:.3g} (relative {relative:.2g})"
    return text + (f"; {odd:,} are NaN or infinite in one" if odd else "")


def _storage(tensor: TensorProto) -> str:
    if tensor.data_location == TensorProto.EXTERNAL:
        entry = entries(tensor)
        return f"{entry.location} at {entry.offset}"
    if tensor.raw_data is not None:
        return "raw_data"
    return next((row.field for row in DTYPES.values() if getattr(tensor, row.field)), "nothing")


# Text and bytes -------------------------------------------------------------------------------------------------------


def _equal(row: Field, a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return bool(a == b or (row.repeated and not a and not b))


def _label(message: Message, at: int) -> str:
    key = _key(message)
    return f'"{key.removeprefix("-> ")}"' if key else str(at)


def _summary(message: Message) -> str:
    if isinstance(message, NodeProto):
        inputs, outputs = (", ".join(map(as_text, names)) for names in (message.input, message.output))
        return f"{as_text(message.op_type)}({inputs}) -> {outputs}"
    if isinstance(message, TensorProto):
        return f"{type_name(message.data_type)}{list(message.dims)}"
    return _shown(message)


_MOST = 60  # characters of a value


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "nothing"
    text = ascii(value.first(_MOST) if isinstance(value, Run) else value)
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def _bytes(a: Bytes, b: Bytes) -> Iterator[Difference]:
    """The first byte that differs, with its field in `a`."""
    import numpy as np

    for start in range(0, max(a.size, b.size), _CHUNK):
        mine, theirs = (source.view[start : start + _CHUNK] for source in (a, b))
        if _alike(mine, theirs):
            went_past(a.view, len(mine))
            went_past(b.view, len(theirs))
            continue
        same = min(len(mine), len(theirs))
        octets = [np.frombuffer(view[:same], np.uint8) for view in (mine, theirs)]
        apart = np.flatnonzero(octets[0] != octets[1])
        at = start + (int(apart[0]) if apart.size else same)
        path = locate(a, at).chain[-1].path if at < a.size else ""
        yield Difference(path, "bytes", f"the same content in other bytes, first at {at:#x}", path)
        return
