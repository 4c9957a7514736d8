"""Readers of plain messages, and the decoding of long lists of messages into what is read on demand.

A reader is straight-line code: what `plain` has accepted has each field in its place and nothing else, so nothing has
to be checked again.

    read        (raw, pos, end) -> m
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any, cast

from proto_schema.errors import DecodeError
from proto_schema.external.payload import went_past
from proto_schema.wire import MAX_LENGTH, VARINT, generate, lists, read_length, read_varint, scalars, varint
from proto_schema.wire.fields import BYTES, MESSAGE, STRING, Field, Message, list_type, message_class
from proto_schema.wire.generate import FIXED, Lines, MalformedError, indent
from proto_schema.wire.interpret import Allowance
from proto_schema.wire.lists import FieldKind, Unread
from proto_schema.wire.plain import LEVELS, PADDING, fields_of, lengths, plain

_WINDOW = 1 << 20  # bytes that are looked at together
_LONGEST_HEADER = 6  # bytes of a tag and a length


@cache
def kind(owner: type[Message], field: Field, shortest: int = lists.SHORTEST) -> FieldKind:
    """The kind of a repeated field of messages. Lists of fewer than `shortest` bytes are read as a whole."""
    child = message_class(owner, field)
    unread: Any = list_type(owner, field.name, unread=True)
    unread.KIND = FieldKind(list_type(owner, field.name), unread, shortest, partial(reader, child, True))
    return cast("FieldKind", unread.KIND)


# ---- readers


@cache
def reader(cls: type[Message], framed: bool = False) -> Callable[..., Any]:
    """The function that makes a message of plain bytes, or of bytes behind a tag and a length."""
    space: dict[str, Any] = {"new": cls.__new__, "cls": cls, "put": object.__setattr__, "read_varint": read_varint}
    body = ["pos, end = 2 if raw[1] < 128 else 3, len(raw)"] if framed else []
    body += [*generate.fresh(cls), _NEXT]
    for at, field in enumerate(fields_of(cls)):
        body += _read_field(cls, field, space)
        if at % 3 == 2:
            body += ["if not tag:", "    return m"]
    head = f"frame_{generate.ident(cls)}(raw)" if framed else f"read_{generate.ident(cls)}(raw, pos, end)"
    return generate.function(cls, head.partition("_")[0], head, [*body, "return m"], space)


def _read_field(cls: type[Message], field: Field, space: dict[str, Any]) -> Lines:
    """The lines that run where the next tag is that of the field."""
    tag = varint(field.number << 3 | field.kind.wire_type)
    there = f"tag == {tag[0]}" if len(tag) == 1 else f"tag == {tag[0]} and raw[pos + 1] == {tag[1]}"
    value = _read_value(cls, field, len(tag), space)
    if field.repeated:
        lines = [*value, "held.append(v)", _NEXT]
        made = [generate.put(cls, field.slot, "held")]
        return [f"if {there}:", "    held = []", f"    while {there}:", *indent(lines, 2), *indent(made)]
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


def _read_value(cls: type[Message], field: Field, tag: int, space: dict[str, Any]) -> Lines:
    kind = field.kind
    if kind is MESSAGE:
        child = message_class(cls, field)
        name = f"read_{generate.ident(child)}"
        generate.bind(space, name, partial(reader, child))
        read = f"{name}(raw, pos, stop)"
        made = _read_alike(child, read, space) if field.repeated and child.ALIKE else [f"v = {read}"]
        return [*_length(tag), "stop = pos + n", *made, "pos = stop"]
    if kind in (STRING, BYTES):
        text = ["try:", "    v = v.decode()", "except UnicodeDecodeError:", "    pass"] if kind is STRING else []
        return [*_length(tag), "stop = pos + n", "v = raw[pos:stop]", "pos = stop", *text]
    if kind.wire_type != VARINT:
        space["read_" + kind.name] = scalars.READ_FLOAT[kind.name]
        width = FIXED[kind.name][0]
        return [f"v = read_{kind.name}(raw[pos + {tag}:pos + {tag + width}])", f"pos += {tag + width}"]
    space["signed_" + kind.name] = partial(scalars.from_varint, kind)
    wide = ["if v > 127:", "    v, pos = read_varint(raw, pos - 1, end)", f"    v = signed_{kind.name}(v)"]
    return [f"v = raw[pos + {tag}]", f"pos += {tag + 1}", *wide]


def _read_alike(child: type[Message], read: str, space: dict[str, Any]) -> Lines:
    """As the decoder has it: short bytes that were there before. What is remembered is in no list."""
    space |= {"seen": {}, "twin": generate.twin(child), "plenty": Allowance(1 << 62)}
    return [
        f"k = raw[pos:stop] if n <= {generate.SHORT} else None",
        "v = seen.get(k)",
        "if v is not None:",
        "    v = twin(v, plenty)",
        "else:",
        f"    v = {read}",
        f"    if k and {generate.is_simple(child, 'v')} and len(seen) < {generate.SEEN}:",
        "        seen[k] = twin(v, plenty)",
    ]


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
    return (Unread(kind, tuple(parts)), at) if parts else None


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
            parts.append(window[places[first] : places[stop]])
            continue
        for place in places[first:stop]:
            size, body = read_length(window, place + 1, len(window))
            parts.append(decode(view, window, body, body + size, base, budget, depth - 1))


__all__ = ["begun", "kind", "reader"]
