"""Per-message functions, written as source from the field table, compiled on first use and shown by tracebacks.

Strategy: one straight-line function per class and job. Children's functions are bound on their first call, so a
program pays only for the messages it meets. The generated code only says *that* something is wrong, by raising
anything; `codec` then lets the interpreter find out where. Both agree on every input (tests and fuzz/).

    construct   __init__(self, *, name=None, input=None)
    decode      (view, buf, pos, end, base, budget, depth, m=None) -> m
                  narrow: buf is bytes, a window of view that begins at base; strings are sliced from it
                  wide: buf is view itself and base 0; children of up to WINDOW bytes are decoded in windows of SPAN
                  payloads are always slices of view, so they point into the caller's bytes
    encode      (m, wholes, depth) -> text of one character a byte (Latin-1), which Python joins nearly three times as
                  fast as it makes and joins bytes; for large bytes, views and Payloads the text has the
                  character that `wholes` has. What is joined is still in the processor's cache
    size        (m) -> int
    find        (m, out) -> None; appends every message of one class to out
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from functools import cache, partial
from operator import index
from typing import Any

from proto_schema.wire import (
    LEN,
    MASK64,
    VARINT,
    lists,
    plain,
    read_length,
    read_tag,
    read_varint,
    runs,
    scalars,
    skip,
    varint,
    varint_size,
)
from proto_schema.wire.fields import (
    BYTES,
    ENUM,
    MESSAGE,
    PAYLOAD,
    STRING,
    Field,
    Message,
    fields_to,
    message_class,
)
from proto_schema.wire.interpret import footprint
from proto_schema.wire.slots import as_list

WINDOW, SPAN = 4096, 1 << 14
SHORT, SEEN = 64, 4096  # messages of so many bytes at most are remembered while a file is decoded, so many of them
SMALL = 1024  # bytes objects of up to this size are joined with what surrounds them
Lines = list[str]
FIXED = {"float": (4, "<f"), "double": (8, "<d")}


class MalformedError(Exception):
    """Raised by generated code: the interpreter will say what and where."""


# ---- what all of them share


def indent(lines: Lines, steps: int = 1) -> Lines:
    return [" " * 4 * steps + line for line in lines]


def function(cls: type[Message], job: str, head: str, body: Lines, space: dict[str, Any]) -> Callable[..., Any]:
    name = head.split("(", maxsplit=1)[0]
    lines = [f"def {head}:", *indent(body)]
    source = "\n".join(lines) + "\n"
    filename = f"<proto_schema {job} {cls.__qualname__}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), space)
    function: Callable[..., Any] = space[name]
    return function


def bind(space: dict[str, Any], name: str, make: Callable[[], Callable[..., Any]]) -> None:
    """Binds `name` to a stand-in that, when called, makes the real function and takes its place."""

    def first_call(*args: Any) -> Any:
        function = space[name] = make()
        return function(*args)

    space[name] = first_call


def ident(cls: type[Message]) -> str:
    return cls.__qualname__.replace(".", "_")


@cache
def heads(tag: int) -> tuple[str, ...]:
    """The tag followed by each one-byte varint (a length below 128, or the value itself), one character per byte."""
    return tuple((varint(tag) + bytes((small,))).decode("latin-1") for small in range(128))


def head(tag: str, number: int) -> str:
    """The tag followed by a varint of any size, one character per byte."""
    return tag + varint(number).decode("latin-1")


# ---- construct


@cache
def constructor(cls: type[Message]) -> Callable[..., None]:
    """__init__ with keyword arguments; a list is copied, everything else is stored as it is."""
    fields = cls.FIELDS
    # where there is a oneof, each assignment of an attribute looks for the others: `put` does not
    some = any(field.oneof for field in fields)
    body = [f"put(self, {f.slot!r}, {_initial(f)})" if some else f"self.{f.slot} = {_initial(f)}" for f in fields]
    body += _last_wins(cls) if some else []
    body += ["put(self, 'unknown_fields', b'')" if some else "self.unknown_fields = b''"]
    arguments = "".join(f", {field.name}=None" for field in fields)
    star = ", *" if fields else ""
    names = {"put": object.__setattr__, "as_list": as_list}
    return function(cls, "construct", f"__init__(self{star}{arguments})", body, names)


def _last_wins(cls: type[Message]) -> Lines:
    """Of several given members of a oneof the last one stays."""
    lines: Lines = []
    for oneof in dict.fromkeys(field.oneof for field in cls.FIELDS if field.oneof):
        members = [field.name for field in cls.FIELDS if field.oneof == oneof]
        lines.append(f"if {' + '.join(f'({name} is not None)' for name in members)} > 1:")
        lines += [f"    if {name} is not None: self.{name} = {name}" for name in members]
    return lines


def _initial(field: Field) -> str:
    name = field.name
    if not field.repeated:
        return name
    return f"None if {name} is None else [*{name}] if {name}.__class__ is list else as_list({name})"


# ---- decode


@cache
def decoder(cls: type[Message], wide: bool, shortest: int = lists.SHORTEST) -> Callable[..., Any]:
    """The decode function of a class, for a bytes window or (wide) straight on a memoryview.

    Lists of `shortest` bytes at least are read on demand.
    """
    space: dict[str, Any] = {
        "shortest": shortest,
        "new": cls.__new__,
        "cls": cls,
        "put": object.__setattr__,
        "Malformed": MalformedError,
        "read_tag": read_tag,
        "read_length": read_length,
        "read_varint": read_varint,
        "skip": skip,
    }
    cases = [case for field in cls.FIELDS for case in _decode_cases(cls, field, wide, space)]
    body = [
        *(["wbase = wstop = 0"] if wide else []),
        "if m is None:",
        f"    budget.left -= {footprint(cls)}",
        "    if budget.left < 0:",
        "        raise Malformed",
        *indent(fresh(cls)),
        "unknown = None",
        "while pos < end:",
        "    start = pos",
        "    tag = buf[pos]",
        "    pos += 1",
        "    if tag > 127:",
        "        tag, pos = read_tag(buf, start, end)",
        *indent(_dispatch(sorted(cases))),
        "    if tag < 8:",
        "        raise Malformed",
        "    pos = skip(buf, pos, end, tag, depth)",
        *indent(_KEEP),
        "if pos != end:",
        "    raise Malformed",
        "if unknown:",
        "    budget.keep(m, unknown)",
        "return m",
    ]
    arguments = "view, buf, pos, end, base, budget, depth, m=None"
    job = "decode wide" if wide else "decode"
    return function(cls, job, f"decode_{ident(cls)}({arguments})", body, space)


def fresh(cls: type[Message]) -> Lines:
    if any(field.oneof for field in cls.FIELDS):
        absent = [put(cls, field.slot, "None") for field in cls.FIELDS]
    else:
        absent = [" = ".join([f"m.{field.slot}" for field in cls.FIELDS] + ["None"])]
    noted = ["budget.noted.append(m)"] if cls.NOTES else []
    return ["m = new(cls)", *absent, put(cls, "unknown_fields", "b''"), *noted]


def put(cls: type[Message], name: str, value: str) -> str:
    """An assignment; in a class with a oneof it goes past the exclusive `__setattr__`."""
    if any(field.oneof for field in cls.FIELDS):
        return f"put(m, {name!r}, {value})"
    return f"m.{name} = {value}"


def _dispatch(cases: list[tuple[int, Lines]]) -> Lines:
    """A binary search over the tags; every case ends in `continue`."""
    if len(cases) <= 3:
        return [line for tag, body in cases for line in (f"if tag == {tag}:", *indent([*body, "continue"]))]
    middle = len(cases) // 2
    low, high = _dispatch(cases[:middle]), _dispatch(cases[middle:])
    return [f"if tag < {cases[middle][0]}:", *indent(low), "else:", *indent(high)]


def _unread(cls: type[Message], field: Field, space: dict[str, Any]) -> Lines:
    """Many messages from here on stay bytes, as far as they are plain."""
    child = message_class(cls, field)
    if not (field.repeated and child.ON_DEMAND):
        return []

    def begun(*args: Any) -> Any:
        from proto_schema.wire import reading

        return reading.begun(reading.kind(cls, field, space["shortest"]), field, child, *args)

    space["unread_" + field.name] = begun
    return [
        f"if m.{field.slot} is None and end - start >= shortest:",
        f"    v = unread_{field.name}(view, buf, start, end, base, budget, depth)",
        "    if v:",
        f"        m.{field.slot}, pos = v",
        "        continue",
    ]


def _decode_cases(cls: type[Message], field: Field, wide: bool, space: dict[str, Any]) -> Iterator[tuple[int, Lines]]:
    """(tag, lines) for each form in which the field may come."""
    number = field.number << 3
    if field.kind is MESSAGE:
        lines = [*_LENGTH, *_decode_message(cls, field, wide, space), "pos = stop"]
        yield number | LEN, [*_unread(cls, field, space), *lines]
    elif field.kind.wire_type == LEN:
        yield number | LEN, [*_begun(field, space), *_LENGTH, *_decode_bytes(cls, field, wide), "pos = stop"]
    else:
        yield number | field.kind.wire_type, [*_begun(field, space), *_decode_number(cls, field, space)]
        if field.repeated:
            space["unpack_" + field.name] = partial(scalars.unpack, field.kind)
            packed = f"m.{field.name}.extend(unpack_{field.name}(bytes(buf[pos:stop]), pos))"
            yield number | LEN, [*_LENGTH, *_packed(field, space), packed, "pos = stop"]


_LENGTH = [
    "n = buf[pos]",
    "pos += 1",
    "if n > 127:",
    "    n, pos = read_length(buf, pos - 1, end)",
    "stop = pos + n",  # a field that overruns `end` leaves pos after it, which is checked once, after the last field
]
_KEEP = ["if unknown is None:", "    unknown = []", "unknown.append(bytes(buf[start:pos]))"]


def _begun(field: Field, space: dict[str, Any]) -> Lines:
    """Many values from here on become a run. They come behind tags: of a packed field that is a rare form."""
    form = field.form
    if form is None or form.packed:
        return []
    space["begun_" + field.name] = partial(runs.begun, form)
    return [
        f"if m.{field.slot} is None and end - start >= {runs.SHORTEST}:",
        f"    v = begun_{field.name}(buf, start, end)",
        "    if v:",
        f"        m.{field.slot}, pos = v",
        "        continue",
    ]


def _packed(field: Field, space: dict[str, Any]) -> Lines:
    form = field.form
    if form is None:
        return []
    space["packed_" + field.name] = partial(runs.packed, form)
    return [
        f"if n >= {runs.SHORTEST_PACKED} and m.{field.slot} is None:",
        f"    v = packed_{field.name}(buf, pos, stop)",
        "    if v:",
        f"        m.{field.slot}, pos = v, stop",
        "        continue",
    ]


def _decode_message(cls: type[Message], field: Field, wide: bool, space: dict[str, Any]) -> Lines:
    child = message_class(cls, field)
    name = f"decode_{ident(child)}"
    bind(space, name, partial(decoder, child, False, space["shortest"]))
    held = "" if field.repeated else f", m.{field.name}"
    lines = ["if not depth:", "    raise Malformed"]
    if wide:
        bind(space, f"{name}_wide", partial(decoder, child, True, space["shortest"]))
        lines += [
            f"if n <= {WINDOW}:",
            "    if stop > wstop:",
            f"        win, wbase = bytes(buf[pos:pos + {SPAN}]), pos",
            "        wstop = pos + len(win)",
            f"    c = {name}(view, win, pos - wbase, stop - wbase, wbase, budget, depth - 1{held})",
            "else:",
            f"    c = {name}_wide(view, buf, pos, stop, 0, budget, depth - 1{held})",
        ]
        value = "c"
    elif field.repeated and child.ALIKE:
        lines += _decode_alike(child, f"{name}(view, buf, pos, stop, base, budget, depth - 1)", space)
        value = "c"
    else:
        value = f"{name}(view, buf, pos, stop, base, budget, depth - 1{held})"
    return lines + _assign(cls, field, value)


def _decode_alike(child: type[Message], decoded: str, space: dict[str, Any]) -> Lines:
    """Short bytes that were there before become another message with the same values.

    Not those with messages or unknown fields inside; nor with lists of floats, since each NaN is an object of its own.
    """
    space |= {"twin": twin(child), ident(child): child}
    return [
        f"k = buf[pos:stop] if n <= {SHORT} else None",
        "c = budget.seen.get(k)",
        f"if c.__class__ is {ident(child)}:",
        "    c = twin(c, budget)",
        "else:",
        f"    c = {decoded}",
        f"    if k and {is_simple(child, 'c')} and id(c) not in budget.unknown and len(budget.seen) < {SEEN}:",
        "        budget.seen[k] = c",
    ]


def is_simple(cls: type[Message], name: str) -> str:
    """The condition for a message to have twins: no messages and no lists of floats in it."""
    shared = [f for f in cls.FIELDS if f.kind is MESSAGE or (f.repeated and f.kind.name in FIXED)]
    return " is ".join([f"{name}.{f.slot}" for f in shared] + ["None"])


@cache
def twin(cls: type[Message]) -> Callable[..., Any]:
    """The function that makes a message of the same values as one without messages inside; lists are its own."""
    body = [f"budget.left -= {footprint(cls)}", "if budget.left < 0:", "    raise Malformed", "m = new(cls)"]
    for field in cls.FIELDS:
        value = "None" if field.kind is MESSAGE else f"c.{field.slot} and [*c.{field.slot}]"
        body.append(put(cls, field.slot, value if field.repeated or value == "None" else f"c.{field.slot}"))
    body += [put(cls, "unknown_fields", "b''"), "return m"]
    space = {"Malformed": MalformedError, "new": cls.__new__, "cls": cls, "put": object.__setattr__}
    return function(cls, "twin", f"twin_{ident(cls)}(c, budget)", body, space)


def _decode_bytes(cls: type[Message], field: Field, wide: bool) -> Lines:
    if field.kind is PAYLOAD:
        return _assign(cls, field, "view[base + pos:base + stop]")
    data = "bytes(buf[pos:stop])" if wide else "buf[pos:stop]"
    if field.kind is BYTES:
        return _assign(cls, field, data)
    text = ["try:", f"    v = {data}.decode()", "except UnicodeDecodeError:", f"    v = {data}"]
    return text + _assign(cls, field, "v")


def _decode_number(cls: type[Message], field: Field, space: dict[str, Any]) -> Lines:
    if field.kind.wire_type != VARINT:
        width, _ = FIXED[field.kind.name]
        space["read_" + field.kind.name] = scalars.READ_FLOAT[field.kind.name]
        value = f"read_{field.kind.name}(bytes(buf[pos:stop]))"
        return [f"stop = pos + {width}", *_assign(cls, field, value), "pos = stop"]
    space["signed_" + field.kind.name] = partial(scalars.from_varint, field.kind)
    lines = [
        "v = buf[pos]",
        "pos += 1",
        "if v > 127:",
        "    v, pos = read_varint(buf, pos - 1, end)",
        f"    v = signed_{field.kind.name}(v)",
    ]
    if field.enum is None:
        return lines + _assign(cls, field, "v")
    space["values_" + field.name] = scalars.enum_values(field.enum)
    unknown = ["else:", *indent(_KEEP)]
    return [*lines, f"if v in values_{field.name}:", *indent(_assign(cls, field, "v")), *unknown]


def _assign(cls: type[Message], field: Field, value: str) -> Lines:
    if field.repeated:
        held = f"m.{field.slot}"
        return [f"v = {value}", f"if {held} is None:", f"    {held} = [v]", "else:", f"    {held}.append(v)"]
    rivals = [f.name for f in cls.FIELDS if f.oneof and f.oneof == field.oneof and f is not field]
    return [put(cls, field.name, value), *[put(cls, rival, "None") for rival in rivals]]


# ---- encode


@cache
def encoder(cls: type[Message]) -> Callable[..., str]:
    """The encode function of a class."""
    space: dict[str, Any] = {"Malformed": MalformedError, "head": head, "latin": latin, "piece": scalars.payload_piece}
    body = ["if depth < 0:", "    raise Malformed", "s = ''"]
    for field in cls.FIELDS:
        name = f"_{field.number}"
        space["HEAD" + name] = heads(field.tag)
        space["TAG" + name] = varint(field.tag).decode("latin-1")
        space["FIELD" + name] = field
        form = field.form
        if form is not None:
            space |= {"FORM" + name: form, "run": runs.encoded, "pack": scalars.pack}
        if field.packed:
            made = f"v = run(FORM{name}, m.{field.slot}) or pack(FIELD{name}, m.{field.slot})"
            body += [f"if m.{field.slot}:", *indent([made, "n = len(v)", *_add_bytes(name)])]
        elif form is not None:
            body += [
                f"v = m.{field.slot}",
                "if v.__class__ is str:",
                "    s += v",
                "elif v:",
                f"    b = run(FORM{name}, v) if len(v) >= {runs.LEAST} else None",
                "    if b is None:",
                "        for v in v:",
                *indent(_encode_one(cls, field, name, space), 3),
                "    else:",
                "        s += wholes.take(b, len(b))",
            ]
        else:
            body += _each(field, _encode_one(cls, field, name, space), space, ["s += v"], _is_long(cls, field))
    body += ["if m.unknown_fields:", "    s += m.unknown_fields.decode('latin-1')", "return s"]
    return function(cls, "encode", f"encode_{ident(cls)}(m, wholes, depth)", body, space)


def _is_long(cls: type[Message], field: Field) -> bool:
    """Whether there may be so many messages in the list that they are joined once: not attributes."""
    return field.kind is MESSAGE and field.repeated and not message_class(cls, field).ALIKE


def _each(field: Field, lines: Lines, space: dict[str, Any], text: Lines, joined: bool = False) -> Lines:
    """Runs the lines on `v`, each value of the field that is there; messages may come as `Frames` of many.

    A list that is text yet is `v` of the lines `text`. If `joined`, what the lines add to `s` goes to a list.
    """
    if not field.repeated:
        return [f"v = m.{field.name}", "if v is not None:", *indent(lines)]
    space["stored"] = lists.stored
    items = "stored(v)" if field.kind is MESSAGE else "v"
    loop = [f"for v in {items}:", *indent(lines)]
    if joined:
        loop = ["some = []", "add = some.append", *[_to_list(line) for line in loop], "s += ''.join(some)"]
    lines = ["if v.__class__ is str:", *indent(text), "else:", *indent(loop)]
    return [f"v = m.{field.slot}", "if v:", *indent(lines)]


def _to_list(line: str) -> str:
    """The line with `add(x)` for `s += x`."""
    before, plus, value = line.partition("s += ")
    return f"{before}add({value})" if plus else line


def _add_bytes(name: str) -> Lines:
    """Adds the bytes-like or Payload `v` of `n` bytes: as text where it is small, else as the object it is."""
    small = f"if n <= {SMALL} and v.__class__ is bytes"
    return [
        f"s += HEAD{name}[n] if n < 128 else head(TAG{name}, n)",
        f"s += v.decode('latin-1') {small} else wholes.take(v, n)",
    ]


def _encode_one(cls: type[Message], field: Field, name: str, space: dict[str, Any]) -> Lines:
    kind = field.kind
    headed = f"s += HEAD{name}[n] + v if n < 128 else head(TAG{name}, n) + v"
    if kind is STRING:
        return ["if not (v.__class__ is str and v.isascii()):", "    v = latin(v)", "n = len(v)", headed]
    if kind in (BYTES, PAYLOAD):
        return ["n, v = piece(v)", *_add_bytes(name)]
    if kind is MESSAGE:
        child = message_class(cls, field)
        space |= {ident(child): child, "Frames": lists.Frames}
        bind(space, f"encode_{ident(child)}", partial(encoder, child))
        small = f"if len(v) <= {SMALL} else wholes.take(v, len(v))"
        copied = ["if v.__class__ is Frames:", "    v = v.data", f"    s += v.decode('latin-1') {small}"]
        copied.append("    continue")
        return [
            *(copied if field.repeated else []),
            f"if v.__class__ is not {ident(child)}:",
            "    raise Malformed",
            "before = wholes.extra",
            f"v = encode_{ident(child)}(v, wholes, depth - 1)",
            "n = len(v)",
            "if wholes.extra is not before:",
            "    n += wholes.extra - before",
            headed,
        ]
    if kind is ENUM and field.enum is not None:
        tag = varint(field.tag).decode("latin-1")
        space["VALUE" + name] = {v: head(tag, v & MASK64) for v in scalars.enum_values(field.enum)}
        return [f"s += VALUE{name}[v]"]
    if kind.wire_type == VARINT:
        space["checked"] = scalars.checked_int
        wide = f"head(TAG{name}, checked(FIELD{name}, v) & {MASK64:#x})"
        return [f"s += HEAD{name}[v] if 0 <= v < 128 else {wide}"]
    space["write_" + kind.name] = scalars.WRITE_FLOAT[kind.name]
    return [f"s += TAG{name} + write_{kind.name}(v).decode('latin-1')"]


def latin(value: Any) -> str:
    """The UTF-8 bytes of a text field's value, one character per byte."""
    return scalars.text_to_bytes(value).decode("latin-1")


# ---- size


@cache
def sizer(cls: type[Message]) -> Callable[..., int]:
    """The size function of a class."""
    space: dict[str, Any] = {"vs": varint_size, "text": scalars.text_to_bytes, "piece": scalars.payload_piece}
    body = ["size = len(m.unknown_fields)"]
    for field in cls.FIELDS:
        tag = varint_size(field.tag)
        if field.packed:
            space["pack"], space[f"FIELD_{field.number}"] = scalars.pack, field
            space |= {"run": runs.encoded, f"FORM_{field.number}": field.form}
            lines = [f"n = {_packed_size(field)}", f"size += n + {tag} + (1 if n < 128 else vs(n))"]
            body += [f"if m.{field.slot}:", *indent(lines)]
            continue
        lines = _each(field, _size_one(cls, field, tag, space), space, ["size += len(v)"])
        if field.form is not None:
            space["Run"] = runs.Run
            held = f"m.{field.slot}"
            lines = [f"if {held}.__class__ is Run and {held}.untouched:", f"    size += len({held}.data)", "else:"]
            lines += indent(_each(field, _size_one(cls, field, tag, space), space, ["size += len(v)"]))
        body += lines
    return function(cls, "size", f"size_{ident(cls)}(m)", [*body, "return size"], space)


def _packed_size(field: Field) -> str:
    if field.kind.name in FIXED:
        return f"{FIXED[field.kind.name][0]} * len(m.{field.slot})"
    held = f"m.{field.slot}"
    return f"len(run(FORM_{field.number}, {held}) or pack(FIELD_{field.number}, {held}))"


def _size_one(cls: type[Message], field: Field, tag: int, space: dict[str, Any]) -> Lines:
    kind = field.kind
    counted = f"size += n + {tag} + (1 if n < 128 else vs(n))"
    if kind is STRING:
        return ["n = len(v) if v.__class__ is str and v.isascii() else len(text(v))", counted]
    if kind in (BYTES, PAYLOAD):
        return ["n = piece(v)[0]", counted]
    if kind is MESSAGE:
        child = message_class(cls, field)
        space["Frames"] = lists.Frames
        bind(space, f"size_{ident(child)}", partial(sizer, child))
        copied = ["if v.__class__ is Frames:", "    size += len(v.data)", "    continue"] if field.repeated else []
        return [*copied, f"n = size_{ident(child)}(v)", counted]
    if kind.wire_type == VARINT:
        space["index"] = index
        return [f"size += {tag + 1} if 0 <= v < 128 else {tag} + vs(index(v) & {MASK64:#x})"]
    return [f"size += {tag + struct.calcsize(FIXED[kind.name][1])}"]


# ---- find


@cache
def finder(cls: type[Message], target: type[Message]) -> Callable[[Message, list[Any]], None]:
    """The function that appends each message of class `target` in a `cls` to a list; it does not look into those."""
    space: dict[str, Any] = {}
    body = ["out.append(m)"] if cls is target else []
    for field in [] if cls is target else fields_to(cls, target):
        child = message_class(cls, field)
        name = f"find_in_{ident(child)}"
        bind(space, name, partial(finder, child, target))
        if field.repeated and not plain.may_hold(child, target):
            space["Frames"] = lists.Frames
            body += _each(field, [f"if v.__class__ is not Frames: {name}(v, out)"], space, ["pass"])
        else:
            held = f"m.{field.name} if m._{field.name} else ()" if field.repeated else f"(m.{field.name},)"
            body += [f"for v in {held} or ():", f"    if v is not None: {name}(v, out)"]
    return function(cls, f"find {target.__qualname__}", f"find_in_{ident(cls)}(m, out)", body or ["pass"], space)


__all__ = ["MalformedError", "constructor", "decoder", "encoder", "finder", "sizer"]
