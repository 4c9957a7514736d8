"""The meaning of an element's bytes: as a Python value, as a line for people, as plain data for JSON.

Invariant: at most `limit` bytes of a value are read, so that weights are shown by their size alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from ctypes import c_float
from typing import Any

from proto_schema.errors import DecodeError
from proto_schema.onnx import NodeProto, SparseTensorProto, TensorProto
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.wire import LEN, VARINT, read_varint
from proto_schema.wire.fields import BYTES, FLOAT, PAYLOAD, STRING, Message
from proto_schema.wire.runs import packed
from proto_schema.wire.scalars import READ_FLOAT, from_varint, unpack
from purexport.inspect.elements import WIDTHS, Bytes, Element

LIMIT = 64
"""Bytes of a value that are shown, unless asked otherwise."""

_TYPE_FIELDS = {"data_type", "elem_type", "key_type"}
_KEY_FIELDS = ("name", "key", "domain", "tensor_name", "configuration_id")


def value_of(source: Bytes, element: Element, limit: int | None = LIMIT) -> Any:
    """The value of a leaf: int, float, str, bytes (text that is no UTF-8, too), or a list of a packed field's numbers.

    None for messages, groups, and values of more than `limit` bytes. Raises DecodeError if a packed field is bad.
    """
    field = element.field
    if element.message is not None or element.wire_type not in (0, 1, 2, 5):
        return None
    if element.wire_type == LEN and limit is not None and element.payload > limit:
        return None
    if element.wire_type == VARINT:
        number = read_varint(source.view, element.body, element.stop)[0]
        return number if field is None else from_varint(field.kind, number)
    data = bytes(source.view[element.body : element.stop])
    if field is None or field.kind in (BYTES, PAYLOAD):
        return data
    if field.kind is STRING:
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data
    if element.wire_type != LEN:
        return READ_FLOAT[field.kind.name](data)
    run = None if field.form is None else packed(field.form, data, 0, len(data))
    return unpack(field.kind, data, element.body) if run is None else run.values()


def items(source: Bytes, element: Element) -> Iterator[Element]:
    """The numbers of a packed field as elements without headers. Raises DecodeError if one is malformed."""
    field = element.field
    if field is None or not element.packed:
        return
    at, width = element.body, WIDTHS.get(field.kind.name)
    while at < element.stop:
        stop = at + width if width else read_varint(source.view, at, element.stop)[1]
        if stop > element.stop:
            raise DecodeError("truncated value in a packed field", at, element.path)
        kind, depth = field.kind.wire_type, element.depth + 1
        name = element.path
        yield Element(element.step, name, element.owner, field, None, element.number, kind, at, at, stop, depth)
        at = stop


def text_of(source: Bytes, element: Element, limit: int = LIMIT) -> str:
    """One line for people: the value, the name of a message, or its size. ASCII."""
    if element.problem and element.message is None:
        return ""
    try:
        if element.message is not None:
            return summary(source, element)
        value = value_of(source, element, limit)
    except DecodeError as error:
        return f"malformed: {error}"
    if value is None:
        return _large(source, element, limit)
    field = element.field
    if isinstance(value, str):
        return ascii(value)
    if isinstance(value, bytes):
        return _octets(value, field is None or field.kind is PAYLOAD)
    if isinstance(value, list):
        return f"[{', '.join(_number(element, item) for item in value)}]"
    name = _enum_name(element, value)
    return f"{_number(element, value)} {name}".rstrip()


def json_of(source: Bytes, element: Element, limit: int | None = LIMIT) -> Any:
    """The value for JSON: text as text, other bytes as {"hex": ...}, NaN and infinities as text, None for the large."""
    try:
        value = value_of(source, element, limit)
    except DecodeError:
        return None
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _plain(value)


def summary(source: Bytes, element: Element) -> str:
    """The name of a message: operator and name of a node, type and name of a tensor, key and value of an entry."""
    if element.message is NodeProto:
        kind, name = text_field(source, element, "op_type"), text_field(source, element, "name")
        output = "" if name else text_field(source, element, "output")
        kind = ascii(kind)[1:-1] if kind else ""
        return " ".join(filter(None, [kind, ascii(name) if name else "", f"-> {output!a}" if output else ""]))
    if element.message is TensorProto:
        return tensor_summary(source, element)
    if element.message is SparseTensorProto:
        return "sparse"
    names = {field.name for field in (element.message or Message).FIELDS}
    key = next((name for name in _KEY_FIELDS if name in names), None)
    found = text_field(source, element, key) if key else None
    if found is None or key != "key":
        return ascii(found) if found else ""
    value = text_field(source, element, "value") or ""
    return f"{found!a} = {value!a}"


def tensor_summary(source: Bytes, element: Element) -> str:
    """`"fc.weight" FLOAT[10, 512]`."""
    code, dims = type_and_dims(source, element)
    name = text_field(source, element, "name")
    kind = f"{DTYPES[code].name if code in DTYPES else f'type {code}'}{dims}"
    return f"{name!a} {kind}" if name else kind


def type_and_dims(source: Bytes, tensor: Element) -> tuple[int, list[int]]:
    """The data type's number and the dims of a tensor, as far as they can be read."""
    code = 0
    dims: list[int] = []
    for child in source.children(tensor):
        if child.field is None or child.field.name not in ("dims", "data_type") or child.problem:
            continue
        try:
            value = value_of(source, child, 4096)
        except DecodeError:
            continue
        if child.field.name == "data_type":
            code = value
        else:
            dims += value if isinstance(value, list) else [value or 0]
    return code, dims


def text_field(source: Bytes, element: Element, name: str) -> str | None:
    """The text in a field of a message, cut if it is long; None if it is absent."""
    for child in source.children(element):
        if child.field is not None and child.field.name == name:
            return _cut(source, child)
    return None


def keys_of(source: Bytes, element: Element) -> set[str]:
    """What `["..."]` may call a message by: its name or key; of a node also its outputs."""
    if element.message is None:
        return set()
    wanted = {*_KEY_FIELDS, *(("output",) if element.message is NodeProto else ())}
    found = set()
    for child in source.children(element):
        if child.field is not None and child.field.name in wanted and child.field.kind is STRING:
            found.add(bytes(source.view[child.body : child.stop]).decode(errors="backslashreplace"))
    return found


def _cut(source: Bytes, element: Element) -> str:
    data = bytes(source.view[element.body : min(element.stop, element.body + LIMIT)])
    text = data.decode(errors="ignore" if element.payload > LIMIT else "backslashreplace")
    return f"{text}..." if element.payload > LIMIT else text


def _large(source: Bytes, element: Element, limit: int) -> str:
    field = element.field
    if field is not None and field.kind in (STRING, BYTES):
        return f"{_cut(source, element)!a} ({element.payload:,} bytes)"
    return f"<{element.payload:,} bytes>" if limit else ""


def _octets(data: bytes, always_hex: bool) -> str:
    if not always_hex and data.isascii() and data.decode().isprintable():
        return repr(data)
    return data.hex(" ") or "empty"


def _enum_name(element: Element, value: Any) -> str:
    field = element.field
    if field is None:
        return ""
    if field.enum is not None:
        known = value in field.enum._value2member_map_
        return field.enum(value).name if known else f"(no such {field.enum.__name__})"
    if field.name in _TYPE_FIELDS and value in DTYPES:
        return DTYPES[value].name
    return ""


def _number(element: Element, value: Any) -> str:
    single = element.field is not None and element.field.kind is FLOAT
    return _single(value) if single else str(value)


def _single(value: float) -> str:
    """The fewest digits that read back as the same float32, with an exponent where zeros would only fill."""
    texts = (f"{value:.{digits}g}" for digits in range(1, 9))
    text = next((text for text in texts if c_float(float(text)).value == value), f"{value:.9g}")
    return str(float(text)) if "e" not in text or 1e-4 <= abs(value) < 1 << 24 else text


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
