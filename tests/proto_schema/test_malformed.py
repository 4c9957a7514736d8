"""The malformed-input categories of protobuf's conformance suite, over every field of every message class.

`test_wire` has the decoding table's rows, one field each; here the questions are put to all fields there are, so the
rows are made from the field table. The official runtime (upb) judges each; where the category says what must come out,
that is a column too, so that a row cannot hold by both sides being wrong. Routes: generated code for small input, for
mapped files, and the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest

import proto_schema as ps
from fuzz.differential import rewritten
from fuzz.harness import CLASSES, difference
from proto_schema.wire import EGROUP, I32, I64, LEN, MAX_DEPTH, SGROUP, VARINT, interpret, varint
from proto_schema.wire.fields import (
    BYTES,
    ENUM,
    INT32,
    INT64,
    MESSAGE,
    PAYLOAD,
    STRING,
    UINT64,
    Field,
    Message,
    message_class,
)
from proto_schema.wire.generate import decoder
from proto_schema.wire.scalars import enum_values

REFUSED, SAME = "refused", "as it came"
NODE, ATTRIBUTE, TENSOR, TYPE = ps.NodeProto, ps.AttributeProto, ps.TensorProto, ps.TypeProto

# (what it shows, class, input, what must come out: SAME, REFUSED, bytes, or None where only upb is asked)
Row = tuple[str, type[Message], bytes, "bytes | str | None"]


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def delimited(number: int, body: bytes) -> bytes:
    return tag(number, LEN) + varint(len(body)) + body


def group(number: int, body: bytes) -> bytes:
    return tag(number, SGROUP) + body + tag(number, EGROUP)


def overlong(number: int, size: int) -> bytes:
    """A varint of `size` bytes."""
    shortest = varint(number)
    padding = size - len(shortest)
    if not padding:
        return shortest
    return shortest[:-1] + bytes([shortest[-1] | 128]) + b"\x80" * (padding - 1) + b"\0"


# a value of each wire type, behind its tag; every proper prefix of it is cut off
VALUES = {VARINT: b"\x96\x01", I64: b"12345678", LEN: b"\x03abc", SGROUP: b"", I32: b"1234"}


def known(field: Field) -> bytes:
    """The field with a value, as the encoder writes it."""
    if field.kind is MESSAGE:
        return delimited(field.number, b"")
    if field.packed:
        return delimited(field.number, VALUES[field.kind.wire_type])
    value = b"\x01" if field.kind is ENUM else VALUES[field.kind.wire_type]
    return tag(field.number, field.kind.wire_type) + value


def free_number(cls: type[Message]) -> int:
    """The lowest field number that the class does not have."""
    numbers = {field.number for field in cls.FIELDS}
    return next(number for number in range(1, 100) if number not in numbers)


def unknown(number: int, wire_type: int) -> bytes:
    """A field of that number and wire type, with a value."""
    if wire_type == SGROUP:
        return group(number, tag(1, VARINT) + b"\x05")
    return tag(number, wire_type) + VALUES[wire_type]


def name_of(cls: type[Message], field: Field) -> str:
    return f"{cls.__qualname__}.{field.name}"


def every_field() -> Iterator[tuple[type[Message], Field]]:
    for cls in CLASSES:
        yield from ((cls, field) for field in cls.FIELDS)


def cut_known_fields() -> Iterator[Row]:
    """Premature EOF: behind the tag, inside the length or the value; whole, behind another, before another."""
    for cls, field in every_field():
        whole = known(field)
        for size in range(1, len(whole)):
            yield f"{name_of(cls, field)} cut to {size}", cls, whole[:size], REFUSED
        yield f"{name_of(cls, field)} and again, cut", cls, whole + whole[:-1], REFUSED
        yield f"{name_of(cls, field)} whole", cls, whole, SAME


def cut_other_wire_types() -> Iterator[Row]:
    """Premature EOF in a known field that comes with each other wire type, so as an unknown one or packed."""
    for (cls, field), wire_type in product(every_field(), VALUES):
        whole = unknown(field.number, wire_type)
        for size in range(1, len(whole)):
            yield f"{name_of(cls, field)} as wire type {wire_type} cut to {size}", cls, whole[:size], REFUSED
        yield f"{name_of(cls, field)} as wire type {wire_type}", cls, whole, None


def cut_inside_messages() -> Iterator[Row]:
    """A submessage whose bytes end inside each of its own fields, while its parent goes on."""
    for cls, field in every_field():
        if field.kind is MESSAGE:
            for inner in message_class(cls, field).FIELDS:
                short = delimited(field.number, known(inner)[:-1])
                follows = known(cls.FIELDS[0])
                yield f"{name_of(cls, field)}.{inner.name} cut by its message", cls, short + follows, REFUSED


def cut_packed_lists() -> Iterator[Row]:
    """Packed and not: a list's bytes that end inside an element, for each number of elements before it."""
    for cls, field in every_field():
        if field.repeated and field.kind.wire_type != LEN:
            value = VALUES[field.kind.wire_type]
            for before, size in product((0, 1, 2, 70), range(1, len(value))):
                body = value * before + value[:size]
                name = f"{name_of(cls, field)} packed, {before} elements and {size} bytes"
                yield name, cls, delimited(field.number, body), REFUSED
                yield f"{name}, then more", cls, delimited(field.number, body) + known(cls.FIELDS[0]), REFUSED


def unknown_fields() -> Iterator[Row]:
    """Every wire type under numbers of one to five tag bytes: kept byte for byte; each prefix refused."""
    for cls, wire_type in product((NODE, TENSOR, TYPE, ps.ModelProto), VALUES):
        for number in (free_number(cls), 99, 2047, 2048, 2**18, 2**25, 2**29 - 1):
            whole = unknown(number, wire_type)
            name = f"{cls.__qualname__}: unknown {number} of wire type {wire_type}"
            yield name, cls, whole, SAME
            yield f"{name}, between known fields", cls, known(cls.FIELDS[0]) * 2 + whole, None
            for size in range(1, len(whole)):
                yield f"{name} cut to {size}", cls, whole[:size], REFUSED


def odd_varints() -> Iterator[Row]:
    """Overlong tags, lengths and values of every size, around the limits of five and ten bytes."""
    for size in range(1, 13):
        fits = SAME if size == 1 else REFUSED if size > 5 else b"\x1a\x01a"
        yield f"tag of {size} bytes", NODE, overlong(0x1A, size) + b"\x01a", fits
        yield f"length of {size} bytes", NODE, b"\x1a" + overlong(1, size) + b"a", fits
        number = SAME if size == 1 else REFUSED if size > 10 else b"\x18\x05"
        yield f"value of {size} bytes", ATTRIBUTE, b"\x18" + overlong(5, size), number
        yield (
            f"packed value of {size} bytes",
            TENSOR,
            delimited(5, overlong(5, size)),
            (REFUSED if size > 10 else delimited(5, b"\x05")),
        )
        kept = REFUSED if size > 10 else SAME
        yield f"unknown value of {size} bytes", NODE, tag(99, VARINT) + overlong(5, size), kept
        yield (
            f"unknown tag of {size} bytes",
            NODE,
            overlong(0xFA << 3, max(size, 2)) + b"\1",
            (REFUSED if size > 5 else SAME),
        )
        yield (
            f"length of {size} bytes of an unknown field",
            NODE,
            tag(99, LEN) + overlong(1, size) + b"a",
            (REFUSED if size > 5 else SAME),
        )
        yield (
            f"tag of {size} bytes in a group",
            NODE,
            group(99, overlong(8, size) + b"\1"),
            (REFUSED if size > 5 else SAME),
        )
        end = tag(99, SGROUP) + overlong(99 << 3 | EGROUP, max(size, 2))
        yield f"end of a group of {max(size, 2)} bytes", NODE, end, REFUSED if size > 5 else SAME


def odd_numbers() -> Iterator[Row]:
    """Field numbers 0 and beyond the largest, with every wire type, outside and inside a group and a message."""
    for wire_type in (*VALUES, EGROUP, 6, 7):
        value = VALUES.get(wire_type, b"")
        for number, fits in ((0, False), (2**29 - 1, True), (2**29, False), (2**32, False), (2**60, False)):
            whole = tag(number, wire_type) + value + (tag(number, EGROUP) if wire_type == SGROUP else b"")
            good = fits and wire_type in VALUES
            name = f"field number {number} of wire type {wire_type}"
            yield name, NODE, whole, SAME if good else REFUSED
            yield f"{name} behind a field", NODE, b"\x1a\x01a" + whole, None if good else REFUSED
            yield f"{name} in a message", NODE, delimited(5, whole), SAME if good else REFUSED
            lenient = (fits or number == 0) and wire_type in VALUES
            yield f"{name} in a group", NODE, group(99, whole), SAME if lenient else REFUSED


def groups() -> Iterator[Row]:
    """Unmatched, crossed, nested, of known and unknown numbers."""
    for number in (1, 3, 5, 11, 99, 2**29 - 1):
        start, end, other = tag(number, SGROUP), tag(number, EGROUP), tag(number % 7 + 1, EGROUP)
        yield f"{number}: a start", NODE, start, REFUSED
        yield f"{number}: an end", NODE, end, REFUSED
        yield f"{number}: an end, overlong", NODE, overlong(number << 3 | EGROUP, 5), REFUSED
        yield f"{number}: end before start", NODE, end + start, REFUSED
        yield f"{number}: another end", NODE, start + other, REFUSED
        yield f"{number}: two ends", NODE, start + end + end, REFUSED
        yield f"{number}: two starts", NODE, start + start + end, REFUSED
        yield f"{number}: an end in a message", NODE, delimited(5, end), REFUSED
        yield f"{number}: an end in a message in a group", NODE, group(99, delimited(5, end)), SAME
        yield f"{number}: a start in a message, its end outside", NODE, delimited(5, start) + end, REFUSED
        yield f"{number}: empty", NODE, start + end, SAME
        yield f"{number}: in itself", NODE, start + start + end + end, SAME
        yield f"{number}: twice", NODE, (start + end) * 2, SAME
        yield f"{number}: with fields of all wire types", NODE, group(number, everything(number)), SAME
        yield f"{number}: with a field 0", NODE, group(number, b"\x00\x01"), SAME
        yield f"{number}: with a group 0", NODE, group(number, b"\x03\x04"), SAME
        yield f"{number}: with a group 0, crossed", NODE, start + b"\x03" + end + b"\x04", REFUSED
        yield f"{number}: with an end 0", NODE, group(number, b"\x04"), REFUSED
        yield f"{number}: with a field 0 in a nested group", NODE, group(number, group(7, b"\x02\x01a")), SAME


def everything(number: int) -> bytes:
    return b"".join(unknown(number, wire_type) for wire_type in VALUES)


def merges() -> Iterator[Row]:
    """Each singular message twice with each pair of its fields: merged; a oneof's members in all orders of three."""
    for cls, field in every_field():
        if field.kind is MESSAGE and not field.repeated:
            child = message_class(cls, field)
            for first, second in product(child.FIELDS, repeat=2):
                bodies = known(first), known(second)
                data = b"".join(delimited(field.number, body) for body in bodies)
                merged = child.FromString(b"".join(bodies)).SerializeToString()
                name = f"{name_of(cls, field)} with {first.name}, then with {second.name}"
                yield name, cls, data, delimited(field.number, merged)
            twice = delimited(field.number, unknown(99, VARINT)) + delimited(field.number, unknown(98, I32))
            both = delimited(field.number, unknown(99, VARINT) + unknown(98, I32))
            yield f"{name_of(cls, field)} twice with unknown fields", cls, twice, both
    for cls in CLASSES:
        members = [field for field in cls.FIELDS if field.oneof]
        for order in product(members, repeat=3):
            filled = [_filled(cls, field, at) for at, field in enumerate(order)]
            name = f"{cls.__qualname__}: {', '.join(field.name for field in order)}"
            yield name, cls, b"".join(filled), None


def _filled(cls: type[Message], field: Field, at: int) -> bytes:
    """A oneof's member; a message with a field or an unknown one, so that merging and replacing differ."""
    if field.kind is not MESSAGE:
        return known(field)
    fields = message_class(cls, field).FIELDS
    return delimited(field.number, known(fields[at % len(fields)]) + unknown(90 + at, VARINT))


def repeated_scalars() -> Iterator[Row]:
    """A singular scalar twice: the last wins. A list packed, unpacked and in turn: all of it, in order."""
    for cls, field in every_field():
        if field.kind is MESSAGE:
            continue
        value = b"\x01" if field.kind is ENUM else VALUES[field.kind.wire_type]
        other = b"\x00" if field.kind.wire_type in (VARINT, LEN) else bytes(len(value))
        head = tag(field.number, field.kind.wire_type)
        name = name_of(cls, field)
        if not field.repeated:
            yield f"{name} twice", cls, head + value + head + other, head + other
        elif field.kind.wire_type != LEN:
            written = delimited(field.number, value + other + value) if field.packed else None
            written = written or (head + value + head + other + head + value)
            yield f"{name} unpacked", cls, head + value + head + other + head + value, written
            yield f"{name} packed", cls, delimited(field.number, value + other + value), written
            yield f"{name} mixed", cls, head + value + delimited(field.number, other) + head + value, written
            empty = delimited(field.number, b"")
            yield (
                f"{name} mixed with empty ones",
                cls,
                empty + head + value + empty + delimited(field.number, other + value),
                written,
            )


def enums() -> Iterator[Row]:
    """Unknown values of closed enums: kept byte for byte as unknown fields, in whatever form they came."""
    for cls, field in every_field():
        if field.enum is None:
            continue
        head, tag_number = tag(field.number, VARINT), field.number << 3 | VARINT
        name = name_of(cls, field)
        for number in sorted(enum_values(field.enum)):
            yield f"{name} = {number}", cls, head + varint(number), SAME
        beyond = max(enum_values(field.enum)) + 1
        for number in (beyond, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**32 + beyond, 2**63 + beyond, 2**64 - 1):
            yield f"{name} = {number}", cls, head + varint(number), SAME
            yield f"{name} = {number}, overlong", cls, overlong(tag_number, 5) + overlong(number, 10), SAME
            yield (
                f"{name} = {number}, then 1",
                cls,
                head + varint(number) + head + b"\x01",
                (head + b"\x01" + head + varint(number)),
            )
        yield f"{name} = 2**32 + 1", cls, head + varint(2**32 + 1), head + b"\x01"
        yield f"{name} = {beyond}, length-delimited", cls, delimited(field.number, varint(beyond)), SAME


def widths() -> Iterator[Row]:
    """Numbers on both sides of each step of a varint's size, and lengths on both sides of the first two."""
    steps = [*(1 << bits for bits in range(7, 64, 7)), 1 << 31, 1 << 32, 1 << 63]
    numbers = sorted({0, *steps, *(step - 1 for step in steps), 2**64 - 1})
    lengths = [0, 1, 126, 127, 128, 1023, 1024, 1025, 16383, 16384]
    for cls, field in every_field():
        name, head = name_of(cls, field), tag(field.number, field.kind.wire_type)
        if field.kind in (INT32, INT64, UINT64):
            for number in numbers:
                yield f"{name} = {number}", cls, head + varint(number), None
        elif field.kind in (STRING, BYTES, PAYLOAD):
            yield from ((f"{name} of {n} bytes", cls, delimited(field.number, b"a" * n), SAME) for n in lengths)
        elif field.kind is MESSAGE:
            for n in (2, 126, 127, 128, 129, 16383, 16384):
                body = tag(free_number(message_class(cls, field)), LEN)
                body += varint(n) + b"a" * n
                yield f"{name} with {n} bytes", cls, delimited(field.number, body), SAME
        if field.packed:
            value = b"\x01" if field.kind.wire_type == VARINT else VALUES[field.kind.wire_type]
            for count in (1, 15, 16, 31, 32, 63, 64, 65, 127, 128, 129):
                yield f"{name} of {count}", cls, delimited(field.number, value * count), SAME


CATEGORIES: list[tuple[Callable[[], Iterator[Row]], int]] = [  # and at least how many rows that makes
    (cut_known_fields, 700),
    (cut_other_wire_types, 3500),
    (cut_inside_messages, 400),
    (cut_packed_lists, 150),
    (unknown_fields, 900),
    (odd_varints, 100),
    (odd_numbers, 150),
    (groups, 100),
    (merges, 900),
    (repeated_scalars, 120),
    (enums, 90),
    (widths, 1500),
]


def raw(cls: type[Message], data: bytes, wide: bool) -> Message | None:
    """What a generated decoder makes of it."""
    view = memoryview(data)
    budget = interpret.Allowance(1 << 30)
    try:
        message: Message = decoder(cls, wide)(view, view if wide else data, 0, len(data), 0, budget, MAX_DEPTH)
        budget.settle()
    except Exception:  # generated code may raise anything
        return None
    return message


def complaint(row: Row) -> str:
    """What is wrong with our answer to a row, or ""."""
    _, cls, data, expected = row
    official = rewritten(cls, data)
    wanted = {SAME: data, REFUSED: None}.get(expected) if isinstance(expected, str) else expected
    if expected is not None and official != wanted:
        return f"the row is wrong: upb gives {official and official.hex()}"
    generated = [raw(cls, data, wide) for wide in (False, True)]
    try:
        message = interpret.decode(cls, memoryview(data), 0, len(data), interpret.Allowance(1 << 30))
    except ps.DecodeError as error:
        if official is not None:
            return f"refused: {error}"
        return f"generated code accepts it; interpreted: {error}" if any(generated) else _located(cls, data, error)
    if official is None:
        return "accepted"
    if message.ByteSize() != len(official):
        return f"ByteSize says {message.ByteSize()}, it is {len(official)}"
    if any(made is None or difference(message, made) for made in generated):
        return "generated code does not give the interpreter's message"
    written = {message.SerializeToString(), interpret.encode(message)}
    return "" if written == {official} else f"written back as {', '.join(one.hex() for one in written)}"


def _located(cls: type[Message], data: bytes, expected: ps.DecodeError) -> str:
    """The error that users see has the interpreter's words, and a place within the input."""
    try:
        cls.FromString(data)
    except ps.DecodeError as error:
        inside = error.offset is not None and 0 <= error.offset <= len(data)
        return "" if inside and str(error) == str(expected) else f"an error without its place: {error}"
    return "FromString accepts it"


@pytest.mark.parametrize(("make", "count"), CATEGORIES, ids=[make.__name__ for make, _ in CATEGORIES])
def test_category(make: Callable[[], Iterator[Row]], count: int) -> None:
    rows = list(make())
    assert len(rows) >= count
    assert [(row[0], row[2].hex(), text) for row in rows if (text := complaint(row))] == []
