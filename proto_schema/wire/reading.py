"""Readers of plain messages, and the decoding of long lists of messages into what is read on demand.

A reader is straight-line code: what `plain` has accepted has each field in its place and nothing else, so nothing has
to be checked again. Of a list of messages on demand (nodes, values) the lists in these messages are on demand, too:
such a list is the text of its bytes, as the encoder writes it, until somebody asks for it. Who asks for the same field
of many messages gets it for all that were read together, since Python's collector would walk lists that are made one
by one again and again. Text is one character a byte: its slices cost less than those of bytes.

    read        (raw, text, pos, end) -> m
    frames      (raw, text, siblings) -> [m]
    values      (text) -> [value]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import groupby, pairwise
from typing import Any, cast

from proto_schema.errors import DecodeError
from proto_schema.external.payload import went_past
from proto_schema.wire import (
    LEN,
    MAX_LENGTH,
    VARINT,
    generate,
    lists,
    read_length,
    read_varint,
    scalars,
    varint,
    varint_size,
)
from proto_schema.wire.fields import BYTES, MESSAGE, STRING, Field, Message, message_class
from proto_schema.wire.generate import FIXED, Lines, MalformedError, indent
from proto_schema.wire.interpret import Allowance
from proto_schema.wire.lists import FieldKind, Frames, Unread
from proto_schema.wire.plain import LEVELS, PADDING, fields_of, lengths, plain
from proto_schema.wire.slots import list_type

_WINDOW = 1 << 20  # bytes that are looked at together
_LONGEST_HEADER = 6  # bytes of a tag and a length


@cache
def kind(owner: type[Message], field: Field, shortest: int = lists.SHORTEST) -> FieldKind:
    """The kind of a repeated field of messages. Lists of fewer than `shortest` bytes are read as a whole."""
    child = message_class(owner, field)
    unread: Any = list_type(owner, field.name, unread=True)
    unread.KIND = FieldKind(list_type(owner, field.name), unread, shortest, partial(reader, child, field.tag))
    return cast("FieldKind", unread.KIND)


# ---- readers


@cache
def reader(cls: type[Message], tag: int | None = None) -> Callable[..., Any]:
    """The function that makes a message of plain bytes, or a list of messages of frames that begin with this tag."""
    space: dict[str, Any] = {"new": cls.__new__, "cls": cls, "put": object.__setattr__, "decoded": decoded}
    space["read_varint"] = read_varint
    name = generate.ident(cls)
    if tag is not None and cls.ALIKE:
        return _frames(cls, tag, _alike(cls, space), space)
    body = [*generate.fresh(cls), *(["m._siblings = siblings"] if cls.ON_DEMAND else [])]
    body += [*([] if tag is None else ["add(m)"]), _NEXT]
    for at, field in enumerate(fields_of(cls)):
        body += _read_field(cls, field, space)
        if at % 3 == 2:
            body += ["if not tag:", "    return m" if tag is None else "    continue"]
    if tag is None:
        return generate.function(cls, "read", f"read_{name}(raw, text, pos, end)", [*body, "return m"], space)
    return _frames(cls, tag, body, space)


def _frames(cls: type[Message], tag: int, body: Lines, space: dict[str, Any]) -> Callable[..., Any]:
    loop = [*_length(varint_size(tag)), "end = pos + n", *body]
    lines = ["out = []", "add = out.append", "pos, last = 0, len(raw)", "while pos < last:", *indent(loop)]
    lines.append("return out")
    return generate.function(cls, "frames", f"frames_{generate.ident(cls)}(raw, text, siblings)", lines, space)


@cache
def values(cls: type[Message], field: Field) -> Callable[[str], list[Any]]:
    """The function that makes the list of a repeated field of its frames as Latin-1 text."""
    if field.kind is MESSAGE:
        read = reader(message_class(cls, field), field.tag)
        return lambda text: cast("list[Any]", read(text.encode("latin-1"), text, None))
    space: dict[str, Any] = {"decoded": decoded, "read_varint": read_varint}
    loop = [*_read_value(cls, field, varint_size(field.tag), space), "add(v)"]
    lines = ["raw, out = text.encode('latin-1'), []", "add = out.append", "pos, end = 0, len(raw)"]
    lines += ["while pos < end:", *indent(loop), "return out"]
    return generate.function(cls, f"values {field.name}", f"values_{field.name}(text)", lines, space)


def decoded(text: str) -> str | bytes:
    """The value of a text field whose bytes, one a character, are not all ASCII."""
    data = text.encode("latin-1")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _read_field(cls: type[Message], field: Field, space: dict[str, Any]) -> Lines:
    """The lines that run where the next tag is that of the field; of a repeated one the text of its frames is kept."""
    tag = varint(field.tag)
    there = f"tag == {tag[0]}" if len(tag) == 1 else f"tag == {tag[0]} and raw[pos + 1] == {tag[1]}"
    if field.repeated and cls.ON_DEMAND:
        past = [*_past_value(field, len(tag)), _NEXT]
        made = [generate.put(cls, field.slot, "text[start:pos]")]
        return [f"if {there}:", "    start = pos", f"    while {there}:", *indent(past, 2), *indent(made)]
    value = _read_value(cls, field, len(tag), space)
    if field.repeated:
        lines = [*value, "some.append(v)", _NEXT]
        made = [generate.put(cls, field.slot, "some")]
        return [f"if {there}:", "    some = []", f"    while {there}:", *indent(lines, 2), *indent(made)]
    return [f"if {there}:", *indent([*value, generate.put(cls, field.slot, "v"), _NEXT])]


_NEXT = "tag = raw[pos] if pos < end else 0"


def _length(tag: int) -> Lines:
    """Goes to the first byte behind a tag of so many bytes and the length `n`."""
    return [
        f"n = raw[pos + {tag}]",
        f"pos += {tag + 1}",
        "if n > 127:",
        "    n += (raw[pos] << 7) - 128",
        "    pos += 1",
    ]


def _past_value(field: Field, tag: int) -> Lines:
    """Goes past a value behind a tag of so many bytes."""
    if field.kind.wire_type == LEN:
        short = f"n + {tag + 1} if n < 128"
        return [f"n = raw[pos + {tag}]", f"pos += {short} else n + (raw[pos + {tag + 1}] << 7) - {126 - tag}"]
    if field.kind.wire_type == VARINT:
        return [f"pos += {tag}", "while raw[pos] > 127:", "    pos += 1", "pos += 1"]
    return [f"pos += {tag + FIXED[field.kind.name][0]}"]


def _read_value(cls: type[Message], field: Field, tag: int, space: dict[str, Any]) -> Lines:
    kind = field.kind
    if kind is MESSAGE:
        child = message_class(cls, field)
        name = f"read_{generate.ident(child)}"
        generate.bind(space, name, partial(reader, child))
        return [*_length(tag), "stop = pos + n", f"v = {name}(raw, text, pos, stop)", "pos = stop"]
    if kind is STRING:
        piece = ["v = text[pos:stop]", "if not v.isascii():", "    v = decoded(v)"]
        return [*_length(tag), "stop = pos + n", *piece, "pos = stop"]
    if kind is BYTES:
        return [*_length(tag), "stop = pos + n", "v = raw[pos:stop]", "pos = stop"]
    if kind.wire_type != VARINT:
        space["read_" + kind.name] = scalars.READ_FLOAT[kind.name]
        width = FIXED[kind.name][0]
        return [f"v = read_{kind.name}(raw[pos + {tag}:pos + {tag + width}])", f"pos += {tag + width}"]
    space["signed_" + kind.name] = partial(scalars.from_varint, kind)
    wide = ["if v > 127:", "    v, pos = read_varint(raw, pos - 1, end)", f"    v = signed_{kind.name}(v)"]
    return [f"v = raw[pos + {tag}]", f"pos += {tag + 1}", *wide]


def _alike(cls: type[Message], space: dict[str, Any]) -> Lines:
    """As the decoder has it: short bytes that were there before. What is remembered is in no list."""
    space |= {"seen": {}, "twin": generate.twin(cls), "plenty": Allowance(1 << 62)}
    read = f"read_{generate.ident(cls)}"
    generate.bind(space, read, partial(reader, cls))
    return [
        f"k = text[pos:end] if n <= {generate.SHORT} else None",
        "m = seen.get(k)",
        "if m is not None:",
        "    m = twin(m, plenty)",
        "else:",
        f"    m = {read}(raw, text, pos, end)",
        f"    if k and {generate.is_simple(cls, 'm')} and len(seen) < {generate.SEEN}:",
        "        seen[k] = twin(m, plenty)",
        "add(m)",
        "pos = end",
    ]


@cache
def filler(cls: type[Message], field: Field) -> Callable[[list[Message]], None]:
    """The function that makes the list of a field in all of these messages that have it as text yet.

    Nobody can assign one between the last look and the assignment: there Python gives no other thread its turn.
    """
    make = values(cls, field)
    space = {"values": make, "listed": list_type(cls, field.name) if field.kind is MESSAGE else list, "cls": cls}
    lines = [
        "for m in messages:",
        f"    text = m.{field.slot} if m.__class__ is cls else None",
        "    if text.__class__ is str:",
        f"        made = {'listed(values(text))' if field.kind is MESSAGE else 'values(text)'}",
        f"        if m.{field.slot} is text:",
        f"            m.{field.slot} = made",
    ]
    return generate.function(cls, f"fill {field.name}", f"fill_{field.name}(messages)", lines, space)


# ---- decoding


def begun(
    kind: FieldKind,
    field: Field,
    child: type[Message],
    view: Any,
    buf: Any,
    start: int,
    end: int,
    base: int,
    budget: Any,
    depth: int,
) -> tuple[Unread, int] | None:
    """The messages of a repeated field whose first tag is at `start`, and the position after them.

    None where there is nothing to gain. Raises anything where the decoder would.
    """
    if depth <= LEVELS:
        return None
    decode = generate.decoder(child, False, kind.shortest)
    tag = field.tag
    end = min(end, len(buf))
    parts: list[Any] = []
    at = start
    while at < end and buf[at] == tag:
        window = bytes(buf[at : min(at + _WINDOW, end)])
        places = _borders(window, tag)
        if len(places) > 1:
            _add_window(parts, child, window, places, decode, view, base + at, budget, depth)
            at += places[-1]
            if isinstance(buf, memoryview):
                went_past(buf, places[-1])
            continue
        try:  # one that is longer than the window, or cut off
            size, body = read_length(buf, at + 1, end)
        except DecodeError:
            break  # the decoder will say so
        one = decode if isinstance(buf, bytes) else generate.decoder(child, True, kind.shortest)
        parts.append(one(view, buf, body, body + size, base, budget, depth - 1))
        at = body + size
    return (Unread(kind, tuple(_together(parts))), at) if parts else None


def _together(parts: list[Any]) -> Iterator[Any]:
    """Frames of several windows that follow each other as one."""
    import numpy as np

    for frames, group in groupby(parts, lambda part: part.__class__ is Frames):
        some = list(group)
        if not frames or len(some) == 1:
            yield from some
            continue
        begins = np.cumsum([0] + [len(part.data) for part in some])
        places = [part.places[:-1] + begin for part, begin in zip(some, begins, strict=False)]
        yield Frames(b"".join([part.data for part in some]), np.concatenate([*places, begins[-1:]]))


def _borders(window: bytes, tag: int) -> list[int]:
    """Where each whole message with its tag and length begins, and where the last one ends."""
    found = [0]
    at, end = 0, len(window)
    last = end - _LONGEST_HEADER
    while at < last and window[at] == tag:
        size = window[at + 1]
        if size < 128:
            at += size + 2
        elif window[at + 2] < 128:
            at += size + (window[at + 2] << 7) - 125
        else:
            try:
                at = sum(read_length(window, at + 1, MAX_LENGTH + end))
            except DecodeError:
                break  # the decoder will say so
        found.append(at)
    if found[-1] > end:
        found.pop()
    return found


def _add_window(
    parts: list[Any],
    child: type[Message],
    window: bytes,
    places: list[int],
    decode: Callable[..., Any],
    view: Any,
    base: int,
    budget: Any,
    depth: int,
) -> None:
    """Adds the messages of a window to the parts: frames as bytes, the others decoded."""
    import numpy as np

    octets = np.frombuffer(window + bytes(PADDING), np.uint8)
    frames = np.array(places)
    _, sizes, odd = lengths(octets, frames[:-1] + 1)
    good, costs = plain(child, octets, frames[:-1] + 1 + sizes, frames[1:])
    good &= ~odd
    changes = [0, *(np.flatnonzero(good[1:] != good[:-1]) + 1).tolist(), good.size]
    for first, stop in pairwise(changes):
        if good[first]:
            budget.left -= int(costs[first:stop].sum())
            if budget.left < 0:
                raise MalformedError
            parts.append(Frames(window[places[first] : places[stop]], frames[first : stop + 1] - frames[first]))
            continue
        for place in places[first:stop]:
            size, body = read_length(window, place + 1, len(window))
            parts.append(decode(view, window, body, body + size, base, budget, depth - 1))


__all__ = ["begun", "kind", "reader"]
