"""The codec as a plain interpreter of the field table: slow, short, and the reference for the generated one.

It is the oracle of the differential tests, and it reruns what the generated code refused, to say exactly where:
positions are those of the whole input, and each level adds its step to the error's path.
"""

from __future__ import annotations

from typing import Any, TypeVar

from proto_schema.errors import DecodeError, EncodeError
from proto_schema.external.payload import chunks
from proto_schema.wire import LEN, MASK64, MAX_DEPTH, VARINT, read_length, read_tag, read_varint, skip, varint
from proto_schema.wire.fields import BYTES, ENUM, MESSAGE, PAYLOAD, STRING, Field, Message, message_class
from proto_schema.wire.scalars import (
    READ_FLOAT,
    WRITE_FLOAT,
    checked_int,
    enum_values,
    from_varint,
    pack,
    payload_piece,
    text_to_bytes,
    unpack,
)

M = TypeVar("M", bound=Message)


def footprint(cls: type[Message]) -> int:
    """About how many bytes of memory a message takes: its slots, and a list of its own that holds it."""
    return 144 + 8 * len(cls.FIELDS)


class Allowance:
    """Of one decoding: the bytes of memory that objects may still take, and what is known only at its end.

    `noted` holds the messages that can carry notes, `unknown` the unknown fields of messages by their identity, and
    `seen` short messages of which there may be more, by their bytes.
    """

    __slots__ = ("left", "noted", "seen", "unknown")

    def __init__(self, left: int) -> None:
        self.left = left
        self.noted: list[Message] = []
        self.seen: dict[bytes, Message] = {}
        self.unknown: dict[int, tuple[Message, list[bytes]]] = {}

    def keep(self, message: Message, pieces: list[bytes]) -> None:
        """Unknown fields of a message, which may be merged again: they are joined once, by `settle`."""
        self.unknown.setdefault(id(message), (message, []))[1].extend(pieces)

    def settle(self) -> None:
        """Gives each message the unknown fields that were kept for it."""
        for message, pieces in self.unknown.values():
            object.__setattr__(message, "unknown_fields", b"".join(pieces))

    def spend(self, cls: type[Message], offset: int) -> None:
        self.left -= footprint(cls)
        if self.left < 0:
            raise DecodeError("the memory for messages is spent: hostile, or no model at all", offset)


def decode(cls: type[M], view: memoryview, pos: int, end: int, budget: Allowance) -> M:
    """The message in view[pos:end]. DecodeError says where it is malformed."""
    message = _decode(cls, view, pos, end, budget, MAX_DEPTH, None)
    budget.settle()
    return message


def _decode(cls: type[M], view: memoryview, pos: int, end: int, budget: Allowance, depth: int, into: M | None) -> M:
    """The message in view[pos:end], merged into `into` if given."""
    if into is None:
        budget.spend(cls, pos)
    message = cls() if into is None else into
    table = {field.number: field for field in cls.FIELDS}
    unknown = []
    while pos < end:
        start = pos
        tag, pos = read_tag(view, pos, end)
        if tag < 8:
            raise DecodeError("field number 0", start)
        field = table.get(tag >> 3)
        known = field is not None and _accepts(field, tag & 7)
        stop = skip(view, pos, end, tag, depth)
        if field is None or not known or not _store(message, field, view, pos, stop, tag & 7, budget, depth):
            unknown.append(bytes(view[start:stop]))
        pos = stop
    if unknown:
        budget.keep(message, unknown)
    return message


def _accepts(field: Field, wire_type: int) -> bool:
    return wire_type == field.kind.wire_type or (field.repeated and wire_type == LEN)


def _store(
    message: Message, field: Field, view: memoryview, pos: int, stop: int, wire_type: int, budget: Allowance, depth: int
) -> bool:
    """Puts the value in view[pos:stop] into its field; False for a number that a closed enum does not have."""
    if wire_type == LEN:
        pos = read_length(view, pos, stop)[1]
    if field.kind is MESSAGE:
        _store_message(message, field, view, pos, stop, budget, depth)
        return True
    if wire_type == LEN and field.kind.wire_type != LEN:
        try:
            getattr(message, field.name).extend(unpack(field.kind, bytes(view[pos:stop]), pos))
        except DecodeError as error:
            raise error.inside(field.name) from None
        return True
    value = _value(field, view, pos, stop)
    if field.enum is not None and value not in enum_values(field.enum):
        return False
    if field.repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)
    return True


def _store_message(
    message: Message, field: Field, view: memoryview, pos: int, stop: int, budget: Allowance, depth: int
) -> None:
    held = getattr(message, field.name)
    step = f"{field.name}[{len(held)}]" if field.repeated else field.name
    if depth == 0:
        raise DecodeError(f"more than {MAX_DEPTH} nested messages and groups", pos, step)
    child = message_class(type(message), field)
    try:
        value = _decode(child, view, pos, stop, budget, depth - 1, None if field.repeated else held)
    except DecodeError as error:
        raise error.inside(step) from None
    if field.repeated:
        held.append(value)
    else:
        setattr(message, field.name, value)


def _value(field: Field, view: memoryview, pos: int, stop: int) -> Any:
    kind = field.kind
    if kind.wire_type == VARINT:
        return from_varint(kind, read_varint(view, pos, stop)[0])
    if kind is PAYLOAD:
        return view[pos:stop]
    data = bytes(view[pos:stop])
    if kind is STRING:
        try:
            return data.decode()
        except UnicodeDecodeError:  # proto2 does not check; the bytes are kept
            return data
    return data if kind is BYTES else READ_FLOAT[kind.name](data)


def encode(message: Message, depth: int = MAX_DEPTH, dry: bool = False) -> bytes:
    """The encoding in one piece. EncodeError says which field holds what it must not. `dry` leaves payloads out."""
    if depth < 0:
        raise EncodeError(f"more than {MAX_DEPTH} nested messages")
    out = [_encode_field(message, field, depth, dry) for field in type(message).FIELDS]
    return b"".join(out) + message.unknown_fields


def _encode_field(message: Message, field: Field, depth: int, dry: bool) -> bytes:
    value = getattr(message, field.name)
    if value is None and not field.repeated:
        return b""
    tag = varint(field.tag)
    try:
        if field.packed:
            return _prefixed(tag, pack(field, value)) if value else b""
        items = value if field.repeated else [value]
        return b"".join([_encode_item(message, field, at, item, tag, depth, dry) for at, item in enumerate(items)])
    except EncodeError:
        raise
    except Exception as error:  # whatever a foreign object raises
        raise EncodeError(f"{_short(value)}: {error}", field.name) from error


def _encode_item(message: Message, field: Field, at: int, item: Any, tag: bytes, depth: int, dry: bool) -> bytes:
    step = f"{field.name}[{at}]" if field.repeated else field.name
    try:
        if field.kind is MESSAGE:
            child = message_class(type(message), field)
            if type(item) is not child:
                raise TypeError(f"expected {child.__qualname__}, not {type(item).__qualname__}")
            return _prefixed(tag, encode(item, depth - 1, dry))
        return _encode_scalar(field, item, tag, dry)
    except EncodeError as error:
        raise error.inside(step) from None
    except Exception as error:  # whatever a foreign object raises
        raise EncodeError(f"{_short(item)}: {error}", step) from error


def _encode_scalar(field: Field, item: Any, tag: bytes, dry: bool) -> bytes:
    kind = field.kind
    if kind is STRING:
        return _prefixed(tag, text_to_bytes(item))
    if kind in (BYTES, PAYLOAD):
        piece = payload_piece(item)[1]
        return b"" if dry else _prefixed(tag, b"".join(chunks(piece)))
    if kind is ENUM or kind.wire_type == VARINT:
        return tag + varint(checked_int(field, item) & MASK64)
    return tag + WRITE_FLOAT[kind.name](item)


def _prefixed(tag: bytes, body: bytes) -> bytes:
    return tag + varint(len(body)) + body


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
