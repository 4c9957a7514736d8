"""Which field owns a byte, in the model's file or in a file of external data.

A byte of a weight is counted in the tensor's own terms: which value, at which index.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import proto_schema as ps
from proto_schema.external import entries, tensors
from proto_schema.graphs.names import as_text
from proto_schema.graphs.similar import similar
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES, element_count
from proto_schema.wire.fields import field_of
from purexport.inspect.elements import Bytes, Element
from purexport.inspect.values import keys_of, type_and_dims

_NAMED = ("initializer", "input", "output", "value_info", "node", "t")  # fields whose messages people know by name


@dataclass(frozen=True)
class Location:
    """The elements around a byte, outermost first, and its part of the innermost: tag, length or value.

    `detail` says which value of a tensor it belongs to.
    """

    offset: int
    chain: tuple[Element, ...]
    part: str
    detail: str = ""


@dataclass(frozen=True)
class Owner:
    """A tensor whose data holds a byte of an external file."""

    path: str
    offset: int
    length: int
    detail: str


def locate(source: Bytes, offset: int) -> Location:
    """The field that owns a byte. ValueError for an offset outside the file."""
    if not 0 <= offset < source.size:
        raise ValueError(f"offset {offset:#x} is outside the file, which has {source.size:,} bytes ({source.size:#x})")
    chain: list[Element] = []
    at = source.whole()
    while True:
        found = next((child for child in source.children(at) if child.start <= offset < child.stop), None)
        if found is None:
            break
        chain.append(found)
        at = found
        if offset < found.body:
            break
    return Location(offset, tuple(chain), _part(at, offset), _detail(source, chain, offset))


def is_path(source: Bytes, text: str) -> bool:
    """Whether a text begins as a path does, with a field of the message; otherwise it may be a name in the file."""
    first = re.match(r"\w*", text)
    return text[:1] in ("*", "?", "") or bool(first and field_of(source.root, first[0]))


def named(source: Bytes, name: str) -> list[Element]:
    """The tensors, values and nodes of this name, and the node whose result it is; below a tensor its fields.

    Raises ValueError where there is none; it names similar ones.
    """
    elements = [child for top in source.children(source.whole()) if top.step == "graph" for child in source.walk(top)]
    found: list[Element] = []
    known: set[str] = set()
    for element in elements:
        if element.field is None or element.field.name not in _NAMED or element.message is None:
            continue
        keys = [key for key in keys_of(source, element) if isinstance(key, str)]
        known.update(keys)
        if name in keys:
            found.append(element)
            found += source.children(element) if element.message is TensorProto else ()
    if not found:
        close = similar(name, known)
        near = f"; similar names are {', '.join(map(ascii, close))}" if close else ""
        raise ValueError(
            f"no path: {source.root.__qualname__} has no field {name!r}, and nothing in the file has this name{near}; "
            'write a path as in graph.initializer["fc.weight"].raw_data'
        )
    return found


def owners(model_path: str, data_name: str, offset: int) -> list[Owner]:
    """The tensors of a model whose external data holds byte `offset` of the file `data_name` (or its path).

    Several if they overlap, none in a gap. Raises ValueError if the model refers to no file of that name.
    """
    model = ps.load(model_path)
    found: list[Owner] = []
    beside = os.path.relpath(data_name, os.path.dirname(model_path) or ".").replace(os.sep, "/")
    names: set[str] = set()
    for tensor in tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entry = entries(tensor)
        names.add(entry.location)
        length = entry.length if entry.length is not None else _expected(model_path, tensor)
        if entry.location in (data_name, beside) and entry.offset <= offset < entry.offset + length:
            detail = value_place(tensor.data_type or 0, list(tensor.dims), offset - entry.offset)
            found.append(Owner(as_text(tensor.name), entry.offset, length, detail))
    if names.isdisjoint((data_name, beside)):
        there = ", ".join(sorted(names)) or "none"
        raise ValueError(f"{model_path}: no tensor lies in a file called {data_name!r}; the files it names: {there}")
    return found


def value_place(code: int, dims: list[int], at: int) -> str:
    """`value 17 (byte 2 of 4), index [0, 17] of FLOAT[10, 512]` for a byte of a tensor's raw data."""
    row = DTYPES.get(code)
    if row is None or not row.bits:
        return ""
    index = at * 8 // row.bits
    part = f" (byte {at % (row.bits // 8)} of {row.bits // 8})" if row.bits > 8 else ""
    place, left = [], index
    for size in reversed(dims):
        if size <= 0:
            return f"value {index}{part}"
        place.append(left % size)
        left //= size
    where = f", index {place[::-1]} of {row.name}{dims}" if dims and not left else ""
    return f"value {index}{part}{where}"


def _expected(model_path: str, tensor: TensorProto) -> int:
    """The bytes of data without a length: as type and shape say, else up to the end of the file."""
    row = DTYPES.get(tensor.data_type or 0)
    if row is not None and row.bits:
        return row.nbytes(element_count(tensor.dims))
    entry = entries(tensor)
    file = os.path.join(os.path.dirname(model_path), entry.location)
    return max(0, os.path.getsize(file) - entry.offset) if os.path.isfile(file) else 0


def _part(element: Element, offset: int) -> str:
    if not element.step:
        return "value"
    if offset >= element.body:
        return "value" if element.wire_name else "unreadable"
    return "length" if offset >= element.start + _tag_size(element) else "tag"


def _tag_size(element: Element) -> int:
    """The usual size of the tag; if a tag is longer than needed, its other bytes count as length."""
    return max(1, (element.number.bit_length() + 3 + 6) // 7)


def _detail(source: Bytes, chain: list[Element], offset: int) -> str:
    if len(chain) < 2 or chain[-1].owner is not TensorProto or chain[-1].step != "raw_data":
        return ""
    code, dims = type_and_dims(source, chain[-2])
    return value_place(code, dims, offset - chain[-1].body) if offset >= chain[-1].body else ""
