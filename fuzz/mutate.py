"""Changes to an encoding: some know nothing of it, some keep the nesting whole and change one field far inside."""

from __future__ import annotations

from random import Random

from proto_schema import wire
from proto_schema.errors import DecodeError

BYTES_THAT_MATTER = (0, 1, 2, 3, 4, 5, 7, 8, 0x0A, 0x0B, 0x0C, 0x12, 0x7F, 0x80, 0xFE, 0xFF)
VARINTS = (0, 1, 2, 3, 99, 127, 128, 300, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1)


def mutated(data: bytes, other: bytes, rng: Random, longest: int, head: int = 0) -> bytes:
    """One to four changes behind the first `head` bytes, and now and then other ones there.

    `other` is an input to take pieces from.
    """
    if head:
        first = rng.randbytes(head) if rng.random() < 0.15 else data[:head]
        return first + mutated(data[head:], other[head:], rng, longest - head)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        data = _in_field(data, other, rng) if rng.random() < 0.6 else _anywhere(data, other, rng)
    return data[:longest]


def _anywhere(data: bytes, other: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(7):
        case 0:
            flipped = bytes([data[at] ^ 1 << rng.randrange(8)]) if at < len(data) else b""
            return data[:at] + flipped + data[at + 1 :]
        case 1:
            return data[:at] + bytes([rng.choice(BYTES_THAT_MATTER)]) + data[at + 1 :]
        case 2:
            return data[:at] + data[at + rng.choice((1, 1, 2, 8)) :]
        case 3:
            return data[:at] + bytes(rng.choices(BYTES_THAT_MATTER, k=rng.choice((1, 2, 3, 5, 10)))) + data[at:]
        case 4:
            return data[:at]
        case 5:
            return data[:at] + _piece(rng.choice((data, other)), rng) + data[at:]
        case _:
            return data[:at] + number(rng) + data[at + 1 :]


def _piece(data: bytes, rng: Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[start : start + rng.randrange(1, 64)]


def number(rng: Random) -> bytes:
    """A varint, sometimes with more bytes than it needs, or more than are allowed."""
    shortest = wire.varint(rng.choice(VARINTS))
    if rng.random() < 0.6:
        return shortest
    extra = rng.choice((1, 2, 4, 5, 9, 10))
    return (
        shortest[:-1] + bytes([shortest[-1] | 128]) + b"\x80" * (extra - 1) + rng.choice((b"\0", b"\0", b"\1", b"\x7f"))
    )


def fields(data: bytes) -> list[wire.Span]:
    """The fields up to the first malformed one."""
    found = []
    try:
        for span in wire.walk(data):
            found.append(span)
    except DecodeError:
        pass
    return found


def _in_field(data: bytes, other: bytes, rng: Random) -> bytes:
    spans = fields(data)
    if not spans:
        return _anywhere(data, other, rng)
    span = rng.choice(spans)
    before, after = data[: span.start], data[span.stop :]
    if span.wire_type == wire.LEN and rng.random() < 0.7:
        inner = _in_field(data[span.body : span.stop], other, rng)
        return before + wire.varint(span.number << 3 | wire.LEN) + wire.varint(len(inner)) + inner + after
    return before + _field(data, span, other, rng) + after


def _field(data: bytes, span: wire.Span, other: bytes, rng: Random) -> bytes:
    whole, body = data[span.start : span.stop], data[span.body : span.stop]
    match rng.randrange(8):
        case 0:
            return b""
        case 1:
            return whole * rng.choice((2, 3, 20))
        case 2:  # another wire type
            return wire.varint(span.number << 3 | rng.randrange(8)) + body
        case 3:  # another field
            return (
                wire.varint(rng.choice((0, 1, 2, 5, 7, 20, 99, 2**29 - 1)) << 3 | span.wire_type) + whole[-len(body) :]
            )
        case 4:  # another number, or a length that is wrong
            return wire.varint(span.number << 3 | span.wire_type % 6) + number(rng) + body
        case 5:  # into a group, or into a message
            return wire.varint(span.number << 3 | wire.SGROUP) + whole + wire.varint(span.number << 3 | wire.EGROUP)
        case 6:
            return wire.varint(span.number << 3 | wire.LEN) + wire.varint(len(whole)) + whole
        case _:
            spans = fields(other)
            taken = rng.choice(spans) if spans else None
            return whole + (other[taken.start : taken.stop] if taken else b"")
