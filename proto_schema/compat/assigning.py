"""What may be assigned to a field, and what an absent one reads as: the manners of protobuf's Python messages.

One row a kind of field. A check returns the value as the message keeps it, or raises as protobuf does: TypeError for a
value of another type, ValueError for a number out of range, an enum's number without a name, or text that is no UTF-8.
https://protobuf.dev/reference/python/python-generated/#fields
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float
from functools import partial
from operator import index
from typing import Any

from proto_schema.external.payload import contiguous
from proto_schema.wire.fields import BYTES, DOUBLE, ENUM, FLOAT, INT32, INT64, PAYLOAD, STRING, UINT64, Field, FieldType

Check = Callable[[Any], Any]

_RANGES: dict[FieldType, tuple[int, int]] = {
    INT32: (-(1 << 31), (1 << 31) - 1),
    INT64: (-(1 << 63), (1 << 63) - 1),
    UINT64: (0, (1 << 64) - 1),
}
_DEFAULTS: dict[FieldType, Any] = {FLOAT: 0.0, DOUBLE: 0.0, STRING: "", BYTES: b"", PAYLOAD: b""}


def check_of(field: Field) -> Check:
    """The check for one value of a field that holds no messages."""
    if field.kind is ENUM:
        return partial(_enum, field)
    if field.kind in _RANGES:
        return partial(_integer, field.name, *_RANGES[field.kind])
    return {FLOAT: _single, DOUBLE: _double, STRING: _text, BYTES: _bytes, PAYLOAD: _bytes}[field.kind]


def default_of(field: Field) -> Any:
    """What the field reads as where it is absent: for an enum, the value that is declared first."""
    if field.kind is ENUM and field.enum is not None:
        return int(next(iter(field.enum)))
    return _DEFAULTS.get(field.kind, 0)


def shown(field: Field, value: Any) -> Any:
    """A value that is there, as a reader gets it: numbers of enums as plain ints, payloads as bytes."""
    if field.kind is PAYLOAD:
        return value if value.__class__ is bytes else bytes(contiguous(value))
    return int(value) if field.kind is ENUM else value


def _integer(name: str, lowest: int, highest: int, value: Any) -> int:
    if isinstance(value, (bool, float, str, bytes)):
        raise TypeError(f"field {name}: {value!r} has type {type(value).__name__}, but an integer is expected")
    number = index(value)
    if not lowest <= number <= highest:
        raise ValueError(f"field {name}: value out of range: {number}")
    return number


def _single(value: Any) -> float:
    return c_float(_double(value)).value


def _double(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} has type {type(value).__name__}, but a number is expected")
    return float(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"bad argument type for built-in operation: {value!r} is neither str nor bytes")
    value.encode()  # a lone surrogate has no encoding
    return str(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, {type(value).__name__} found")
    return bytes(value)


def _enum(field: Field, value: Any) -> int:
    names = {} if field.enum is None else field.enum.__members__
    if isinstance(value, str):
        if value not in names:
            raise ValueError(f"field {field.name}: unknown enum label {value!r}")
        return int(names[value])
    number = _integer(field.name, *_RANGES[INT32], value)
    if number not in set(map(int, names.values())):
        raise ValueError(f"field {field.name}: invalid enumerator {number}")
    return number
