"""Core messages as JSON and back, as protobuf maps them.

64-bit integers are texts, bytes are base64, enums are names, numbers that JSON lacks are "NaN" and "Infinity". Names
are those of the schema when written (as onnx does), and those or their camelCase forms when read.
https://protobuf.dev/programming-guides/json/
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from ctypes import c_float
from typing import Any

from proto_schema.compat.assigning import check_of, shown
from proto_schema.compat.descriptors import descriptor_of
from proto_schema.compat.foreign import text_error
from proto_schema.wire.fields import (
    BYTES,
    DOUBLE,
    ENUM,
    FLOAT,
    INT64,
    MESSAGE,
    PAYLOAD,
    UINT64,
    Field,
    Message,
    present,
)
from proto_schema.wire.fields import message_class as class_of


def to_json(message: Message) -> str:
    """The message as JSON, with an indent of two blanks."""
    return json.dumps(_object(message), indent=2, ensure_ascii=True)


def _object(message: Message) -> dict[str, Any]:
    made = {}
    for field, value in present(message):
        made[field.name] = [_value(field, item) for item in value] if field.repeated else _value(field, value)
    return made


def _value(field: Field, value: Any) -> Any:
    if field.kind is MESSAGE:
        return _object(value)
    value = shown(field, value)
    if field.kind is ENUM and field.enum is not None:
        return field.enum(value).name
    if field.kind in (BYTES, PAYLOAD):
        return base64.b64encode(value).decode()
    if field.kind in (INT64, UINT64):
        return str(value)
    if field.kind in (FLOAT, DOUBLE):
        return _float(field, value)
    return value


def _float(field: Field, value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if field.kind is FLOAT:  # the shortest text that reads back as the same float32
        value = next(near for digits in range(6, 10) if c_float(near := float(f"{value:.{digits}g}")).value == value)
    return value


def merge_json(text: str, message: Message) -> None:
    """Adds what the JSON says to the message. Raises TextError, a ValueError."""
    try:
        loaded = json.loads(text)
    except ValueError as error:
        raise text_error(f"this is not JSON: {error}", "json_format") from None
    _merge(loaded, message, "")


def _merge(loaded: Any, message: Message, path: str) -> None:
    if not isinstance(loaded, dict):
        raise text_error(f"{path or 'the message'}: an object is expected, not {loaded!r:.60}", "json_format")
    described = descriptor_of(type(message))
    camel = described.fields_by_camelcase_name
    for name, value in loaded.items():
        place = f"{path}.{name}" if path else name
        row = described.fields_by_name.get(name) or camel.get(name)
        if row is None:
            raise text_error(f'{place}: message type "{described.full_name}" has no such field', "json_format")
        if value is None:
            continue
        if row.is_repeated and not isinstance(value, list):
            raise text_error(f"{place}: a list is expected, not {value!r:.60}", "json_format")
        if not row.is_repeated:
            setattr(message, row.name, _read(row.field, value, message, place))
            continue
        held = getattr(message, row.name)
        held += [_read(row.field, item, message, f"{place}[{at}]") for at, item in enumerate(value)]


def _read(field: Field, value: Any, owner: Message, place: str) -> Any:
    if field.kind is MESSAGE:
        held = None if field.repeated else getattr(owner, field.name)
        made = class_of(type(owner), field)() if held is None else held
        _merge(value, made, place)
        return made
    try:
        return check_of(field)(_scalar(field, value))
    except (ValueError, TypeError, binascii.Error, OverflowError) as error:
        raise text_error(f"{place}: {error}", "json_format") from None


def _scalar(field: Field, value: Any) -> Any:
    if field.kind in (BYTES, PAYLOAD):
        padded = value + "=" * (-len(value) % 4)
        return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    if field.kind in (FLOAT, DOUBLE):
        return float(value)
    if field.kind.wire_type == 0 and field.kind is not ENUM:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return int(value) if isinstance(value, str) else value
    return value
