"""Where readers of a file disagree, and where its bytes are not the ones that a writer would choose.

Strategy: one row per form, judged on elements. The verdicts of readers were measured with onnx 1.23.2 (whose Python
side is upb, and whose checker is the C++ parser) and onnxruntime 1.31.1.
Invariant: a file without findings is canonical, equal to its own encoding to the byte. `canonicalize` writes such
files, except that groups in unknown fields stay as they are, whatever readers make of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import proto_schema as ps
from proto_schema.external import tensors
from proto_schema.files.commit import replacing
from proto_schema.files.owned import files_of
from proto_schema.onnx import TensorProto
from proto_schema.wire import (
    EGROUP,
    I32,
    I64,
    LEN,
    MASK64,
    SGROUP,
    VARINT,
    read_tag,
    read_varint,
    skip,
    varint,
    varint_size,
)
from proto_schema.wire.codec import encode_parts
from proto_schema.wire.fields import Field
from proto_schema.wire.runs import packed
from proto_schema.wire.scalars import enum_values, from_varint, pack, unpack
from purexport.inspect.elements import Bytes, Element, accepts

REFUSED, DISAGREE, FORM = "refused", "disagree", "form"

# the beginning of a problem's text, for the outermost message; what readers do with it
_OUTER = {
    "field number 0": "onnx's C++ checker stops here and takes what is before",
    "end of group": "onnx's C++ checker stops here and takes what is before",
    "the field number is above": "onnx's C++ checker stops here and takes what is before",
}
_OTHERS_REFUSE = "onnx.load and ONNX Runtime refuse the file"


@dataclass(frozen=True)
class Finding:
    """`kind`: every reader refuses the file, readers disagree, or all agree but the form is not the usual one."""

    kind: str
    offset: int
    path: str
    text: str


def findings(source: Bytes) -> Iterator[Finding]:
    """What is unusual about a file, message by message. Weights in raw_data are not read, typed lists are."""
    todo = [source.whole()]
    while todo:
        children = list(source.children(todo.pop()))
        for child in children:
            yield from _of_element(source, child)
        yield from _of_order(source, children)
        todo += [child for child in reversed(children) if child.message is not None]


def canonicalize(path: str | os.PathLike[str], target: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Writes the model at `path` to `target` in canonical form, and returns the number of bytes.

    `target` may be the same file. External data stays where it is. Raises ValueError if `target` is in another folder
    than that data, DecodeError and OSError as load and save do; `overwrite` is that of save.
    """
    name, place = os.fspath(path), os.fspath(target)
    in_place = os.path.abspath(name) == os.path.abspath(place)
    inputs = [] if in_place else files_of(name)
    with replacing(place, inputs=inputs, overwrite=overwrite) as file:
        model = ps.load(name)
        if any(tensor.data_location == TensorProto.EXTERNAL for tensor in tensors(model)):
            folders = [os.path.realpath(os.path.dirname(path) or ".") for path in (name, place)]
            if folders[0] != folders[1]:
                raise ValueError(f"{place}: the model has external data, write it to the same folder: {folders[0]}")
        parts, size = encode_parts(model)
        file.write(parts, size)
    return size


def _of_element(source: Bytes, element: Element) -> Iterator[Finding]:
    if element.problem:
        yield _of_problem(element)
        return
    known = _is_known(source, element)
    if element.wire_type == SGROUP and (zero := _field_zero(source, element)) is not None:
        text = "field number 0 in an unknown group: onnx.load takes it; onnx's C++ checker and ONNX Runtime refuse"
        yield Finding(DISAGREE, zero, element.path, text)
    if not known:
        return
    least = varint_size(element.number << 3 | element.wire_type)
    least += varint_size(element.payload) if element.wire_type == LEN else 0
    if element.header > least:
        text = f"tag and length take {element.header} bytes where {least} would do"
        yield Finding(FORM, element.start, element.path, text)
    yield from _of_value(source, element, element.field)


def _of_problem(element: Element) -> Finding:
    verdict = next((text for start, text in _OUTER.items() if element.problem.startswith(start)), None)
    if element.depth == 1 and verdict is not None:
        return Finding(DISAGREE, element.start, element.path, f"{element.problem}: {verdict}; {_OTHERS_REFUSE}")
    return Finding(REFUSED, element.bad, element.path, element.problem)


def _of_value(source: Bytes, element: Element, field: Field | None) -> Iterator[Finding]:
    if field is None or element.wire_type in (I32, I64):
        return
    data = source.view[element.body : element.stop]
    if element.wire_type == VARINT:
        value = from_varint(field.kind, read_varint(source.view, element.body, element.stop)[0])
        if varint(value & MASK64) != bytes(data):
            yield Finding(FORM, element.body, element.path, f"the number {value} is not in its shortest form")
        if field.packed:
            yield Finding(FORM, element.start, element.path, "one number by itself in a field that is packed")
    elif element.packed and not field.packed:
        yield Finding(FORM, element.start, element.path, "packed numbers in a field that is not packed")
    elif element.packed and not element.payload:
        yield Finding(FORM, element.start, element.path, "an empty packed list: readers drop it")
    elif element.packed and field.kind.name not in ("float", "double"):
        try:
            short = field.form is not None and packed(field.form, data, 0, len(data)) is not None
            same = short or pack(field, unpack(field.kind, bytes(data), element.body)) == data
        except ps.DecodeError as error:
            yield Finding(REFUSED, error.offset or element.body, element.path, error.reason)
            return
        if not same:
            yield Finding(FORM, element.body, element.path, "a number in a packed list is not in its shortest form")


def _of_order(source: Bytes, children: list[Element]) -> Iterator[Finding]:
    """Checks the order: ascending numbers, a single field once, a oneof with one member, unknown fields last."""
    highest, unknown = 0, False
    seen: dict[str, Element] = {}
    for child in children:
        if not _is_known(source, child) or child.field is None:
            unknown = unknown or not child.problem
            continue
        field = child.field
        if unknown or field.number < highest:
            reason = "after an unknown field" if unknown else f"after field {highest}"
            yield Finding(FORM, child.start, child.path, f"field {field.number} {reason}: not in ascending order")
        highest = max(highest, field.number)
        key = field.oneof or field.name
        if key in seen and (not field.repeated or child.packed):
            yield Finding(FORM, child.start, child.path, _again(field, seen[key]))
        seen[key] = child


def _again(field: Field, earlier: Element) -> str:
    if earlier.field is not None and earlier.field.name != field.name:
        return f"takes the place of {earlier.step}: of these only one counts"
    if field.repeated:
        return "packed numbers in several pieces: readers join them"
    return "is there again: readers " + ("merge the two" if field.message else "take the last")


def _is_known(source: Bytes, element: Element) -> bool:
    """Whether readers take it for the field of its number; otherwise they keep or drop it as an unknown field."""
    field = element.field
    if field is None or not accepts(field, element.wire_type):
        return False
    if field.enum is None or element.problem:
        return True
    value = from_varint(field.kind, read_varint(source.view, element.body, element.stop)[0])
    return value in enum_values(field.enum)


def _field_zero(source: Bytes, element: Element) -> int | None:
    at = element.body
    while at < element.stop:
        tag, body = read_tag(source.view, at, element.stop)
        if tag < 8:
            return at
        at = body if tag & 7 in (SGROUP, EGROUP) else skip(source.view, body, element.stop, tag)
    return None


__all__ = ["DISAGREE", "FORM", "REFUSED", "Finding", "canonicalize", "findings"]
