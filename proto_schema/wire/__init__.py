"""The protobuf wire format without a schema: varints, tags, skipping, walking.

Strategy: plain functions over anything that yields ints when indexed (bytes, memoryview, mmap), positions in,
positions out. `end` is exclusive and belongs to the enclosing message: nothing is read past it.

Every limit is upb's (the C runtime below protobuf's Python package), as its behaviour shows, not the specification's:
a varint has at most 10 bytes and bits past the 64th are dropped; a tag or a length has at most 5 bytes, must fit
32 and 31 bits, and may be overlong within them; groups are skipped, matched by number, and count as nesting.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from proto_schema.errors import DecodeError

VARINT, I64, LEN, SGROUP, EGROUP, I32 = range(6)
MAX_DEPTH = 100
MAX_LENGTH = 2**31 - 1
MASK64 = 2**64 - 1


class Buffer(Protocol):
    """What the decoder needs of its input; bytes, memoryview (format B) and mmap all have it."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...


class Span(NamedTuple):
    """One field as it lies in the bytes: `start` its tag, `body` its value, `stop` the first byte after it."""

    number: int
    wire_type: int
    start: int
    body: int
    stop: int


def varint(value: int) -> bytes:
    """The encoding of a non-negative integer."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_size(value: int) -> int:
    """The number of bytes that `varint(value)` has."""
    return (value.bit_length() + 6) // 7 or 1


def signed(value: int, bits: int) -> int:
    """The low `bits` bits of `value` as a two's complement number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def read_varint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """(value below 2**64, position after it); DecodeError where it is cut off or longer than 10 bytes."""
    return _read(buf, pos, end, 10, "varint")


def read_tag(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """(field number << 3 | wire type, position after it). The field number may be 0: the caller decides."""
    tag, after = _read(buf, pos, end, 5, "tag")
    if tag >> 32:
        raise DecodeError("the field number is above 2**29 - 1", pos)
    return tag, after


def read_length(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """(length, position of the first byte it counts); DecodeError where that many bytes are not there."""
    length, after = _read(buf, pos, end, 5, "length")
    if length > MAX_LENGTH:
        raise DecodeError(f"length {length} is above the limit of 2**31 - 1", pos)
    if length > end - after:
        raise DecodeError(f"truncated: a length of {length} bytes, but {end - after} are left here", pos)
    return length, after


def _read(buf: Buffer, pos: int, end: int, limit: int, what: str) -> tuple[int, int]:
    value = shift = 0
    for at in range(pos, min(end, pos + limit)):
        byte = buf[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & MASK64, at + 1
        shift += 7
    if end - pos < limit:
        raise DecodeError(f"truncated {what}", pos)
    raise DecodeError(f"{what} of more than {limit} bytes", pos)


def skip(buf: Buffer, pos: int, end: int, tag: int, depth: int = MAX_DEPTH) -> int:
    """The position after the value of a field whose tag ended at `pos`; a group is skipped to its own end."""
    wire_type = tag & 7
    if wire_type == VARINT:
        return read_varint(buf, pos, end)[1]
    if wire_type == LEN:
        length, pos = read_length(buf, pos, end)
        return pos + length
    if wire_type in (I32, I64):
        stop = pos + (4 if wire_type == I32 else 8)
        if stop > end:
            raise DecodeError(f"truncated fixed-width value: {end - pos} of {stop - pos} bytes", pos)
        return stop
    if wire_type == SGROUP:
        return _skip_group(buf, pos, end, tag >> 3, depth)
    if wire_type == EGROUP:
        raise DecodeError(f"end of group {tag >> 3}, which is not open here", pos)
    raise DecodeError(f"wire type {wire_type} does not exist", pos)


def _skip_group(buf: Buffer, pos: int, end: int, number: int, depth: int) -> int:
    """An explicit stack, so that nesting costs no recursion."""
    open_groups = [(number, pos)]
    while open_groups:
        if len(open_groups) > depth:
            raise DecodeError(f"more than {MAX_DEPTH} nested messages and groups", pos)
        if pos >= end:
            raise DecodeError(f"group {open_groups[-1][0]} is not closed", open_groups[-1][1])
        start = pos
        tag, pos = read_tag(buf, pos, end)
        if tag & 7 == SGROUP:
            open_groups.append((tag >> 3, pos))
        elif tag & 7 == EGROUP:
            if tag >> 3 != open_groups[-1][0]:
                raise DecodeError(f"end of group {tag >> 3} inside group {open_groups[-1][0]}", start)
            open_groups.pop()
        else:
            pos = skip(buf, pos, end, tag)
    return pos


def walk(buf: Buffer, pos: int = 0, end: int | None = None) -> Iterator[Span]:
    """The fields of one message in the order of its bytes, without a schema. DecodeError at the first bad one."""
    end = len(buf) if end is None else end
    while pos < end:
        tag, body = read_tag(buf, pos, end)
        if tag < 8:
            raise DecodeError("field number 0", pos)
        stop = skip(buf, body, end, tag)
        if tag & 7 == LEN:
            body = read_length(buf, body, end)[1]
        yield Span(tag >> 3, tag & 7, pos, body, stop)
        pos = stop
