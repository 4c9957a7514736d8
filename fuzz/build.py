"""Messages made from a stream of choices: every field of every class, with the values at which codecs go wrong.

Invariant: a stream that has run out chooses 0 for ever, and 0 means absent or empty, so that building always ends.
"""

from __future__ import annotations

import struct
from typing import Any

from proto_schema.wire.fields import (
    BYTES,
    ENUM,
    FLOAT,
    MESSAGE,
    PAYLOAD,
    STRING,
    Field,
    Message,
    message_class,
    present,
)
from proto_schema.wire.scalars import RANGES, enum_values, float_from_bytes

DEEPEST = 12
INTEGERS = (0, 1, 127, 128, 300, 2**14, 2**21, 2**31 - 1, 2**31, 2**32, 2**56, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = ("", "a", "x" * 127, "y" * 128, "\0", "\u65e5\u672c", "\U0001f600", "\u00e9" * 64, "z" * 5000)
NO_TEXTS = (b"\xff", b"a\xc0\x80", b"\xed\xa0\x80", b"\x80" * 200)  # no UTF-8: kept as bytes
UNKNOWN = tuple(
    bytes.fromhex(row)
    for row in ("a0bb0107", "a1bb01" + "07" * 8, "a2bb0103616263", "a3bb010807a4bb01", "a5bb0101020304")
)
WRONG_NUMBERS = ("1", 2**70, -(2**70), None)
WRONG_TEXTS = (3, "\ud800", None, 1.5)


class Choices:
    """Bytes as decisions."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1 (limit up to 256)."""
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1] % limit

    def bytes(self, count: int) -> bytes:
        """That many bytes; zeros behind the end."""
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken.ljust(count, b"\0")

    def one_of(self, values: Any) -> Any:
        return values[self.below(len(values))]


def build(cls: type[Message], choices: Choices, depth: int = DEEPEST) -> Message:
    """A message of right values. `choices` says for each field whether and how it is there."""
    message = cls()
    for field in cls.FIELDS:
        how = choices.below(8)
        if how < 4:
            continue
        if not field.repeated:
            setattr(message, field.name, _value(cls, field, choices, depth))
            continue
        values = [_value(cls, field, choices, depth) for _ in range(how - 3)]
        long = how == 7 and field.kind is not MESSAGE and choices.below(8) == 7
        setattr(message, field.name, values * 30 if long else values)  # past where packed lists go through numpy
    if choices.below(8) == 7:
        message.unknown_fields = choices.one_of(UNKNOWN) * (1 + choices.below(2))
    return message


def _value(cls: type[Message], field: Field, choices: Choices, depth: int) -> Any:
    kind = field.kind
    if kind is MESSAGE:
        child = message_class(cls, field)
        return build(child, choices, depth - 1) if depth else child()
    if kind is STRING:
        return choices.one_of(TEXTS + NO_TEXTS)
    if kind in (BYTES, PAYLOAD):
        data = choices.bytes(choices.one_of((0, 1, 5, 127, 128, 5000)))
        return memoryview(data) if kind is PAYLOAD else data
    if kind is ENUM:
        return choices.one_of(sorted(enum_values(field.enum)))
    if kind.name in RANGES:
        return _integer(kind.name, choices)
    data = choices.bytes(4 if kind is FLOAT else 8)
    return float_from_bytes(data) if kind is FLOAT else struct.unpack("<d", data)[0]


def _integer(name: str, choices: Choices) -> int:
    lowest, highest = RANGES[name]
    number: int = choices.one_of(INTEGERS)
    if choices.below(2):
        number = -number - choices.below(2)
    return number if lowest <= number <= highest else lowest if number < lowest else highest


def spoil(message: Message, choices: Choices) -> bool:
    """Puts a value that has no encoding into a field that is there, perhaps far inside; False where none is there."""
    fields = list(present(message))
    if not fields:
        return False
    field, value = choices.one_of(fields[:256])
    inner = value[-1] if field.repeated else value
    if field.kind is MESSAGE and spoil(inner, choices):
        return True
    bad: Any = choices.one_of(WRONG_TEXTS if field.kind in (STRING, BYTES, PAYLOAD) else WRONG_NUMBERS)
    if field.kind is MESSAGE:
        bad = "no message"
    elif field.kind.name in ("float", "double") and isinstance(bad, int):
        bad = "1.5"
    if bad is None and not field.repeated:
        bad = []
    if field.repeated:
        value[-1] = bad
    else:
        object.__setattr__(message, field.name, bad)
    return True
