"""The bytes of a message as elements: where each field lies, what it is called, and what is wrong with it.

Strategy: one level at a time, over a mapping, so that a path into a file of any size reads only the headers on the way.
Invariants: bad bytes raise nothing here, but become an element with a `problem`. The children of a message follow each
other without a gap and end where it ends. So headers of messages and whole leaves cover the file exactly once.
A length that passes the end of its container counts as cut off there, and the rest is read as far as it goes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from proto_schema.errors import DecodeError
from proto_schema.external.addresses import RemoteFile, is_address
from proto_schema.external.payload import FileMap, Stamp, went_past
from proto_schema.onnx import ModelProto
from proto_schema.wire import LEN, MAX_DEPTH, read_length, read_tag, read_varint, skip
from proto_schema.wire.fields import MESSAGE, Field, Message, message_class

WIRE_NAMES = ("varint", "i64", "len", "group", "egroup", "i32")
WIDTHS = {"float": 4, "double": 8}
UNREADABLE = "(unreadable)"


@dataclass(frozen=True)
class Element:
    """One field as it lies in the bytes: `start` its tag, `body` its value, `stop` the first byte after it.

    `step` is its name within `owner`, as in `node[3]`, `?77` for an unknown field 77, `graph#2` for the second one of a
    field that should occur once. `field` is None where the schema has none of this number and wire type, `message`
    is the class of a message. `problem` says what is wrong, at byte `bad`.
    """

    step: str
    path: str
    owner: type[Message]
    field: Field | None
    message: type[Message] | None
    number: int
    wire_type: int
    start: int
    body: int
    stop: int
    depth: int
    problem: str = ""
    bad: int = -1

    @property
    def header(self) -> int:
        """The number of bytes of tag and length."""
        return self.body - self.start

    @property
    def payload(self) -> int:
        """The number of bytes of the value."""
        return self.stop - self.body

    @property
    def wire_name(self) -> str:
        """`varint`, `i64`, `len`, `group`, `i32`; empty for bytes that are no field."""
        return WIRE_NAMES[self.wire_type] if 0 <= self.wire_type < len(WIRE_NAMES) else ""

    @property
    def packed(self) -> bool:
        """Whether it is several numbers in one length-delimited field."""
        return self.field is not None and self.wire_type == LEN and self.field.kind.wire_type != LEN


class Bytes:
    """A file's bytes: mapped if it is a regular file, otherwise read. `root` is the message that it encodes.

    Raises OSError if it cannot be read, DecodeError if it is empty: only a message may have no bytes.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes, root: type[Message] = ModelProto) -> None:
        self.root = root
        self.name = "" if isinstance(source, bytes) else os.fspath(source)
        self.view = memoryview(source if isinstance(source, bytes) else _contents(self.name))
        if self.name and not self.view:
            raise DecodeError("the file is empty: write or download it again", file=self.name)

    @property
    def size(self) -> int:
        return len(self.view)

    @property
    def stamp(self) -> Stamp | None:
        """Tells the mapped file from another, and from itself after a change; None if it was read."""
        return self.view.obj.stamp if isinstance(self.view.obj, FileMap) else None

    def whole(self) -> Element:
        """The outermost message as an element without a header and a path."""
        return Element("", "", self.root, None, self.root, 0, LEN, 0, 0, self.size, 0)

    def children(self, parent: Element) -> Iterator[Element]:
        """The fields of a message in the order of its bytes; nothing for other elements."""
        if parent.message is None or parent.depth > MAX_DEPTH:
            return
        table = {field.number: field for field in parent.message.FIELDS}
        counts: dict[int, int] = {}
        at = parent.body
        while at < parent.stop:
            found = self._element(parent, parent.message, table, counts, at)
            yield found
            at = found.stop
            if found.message is None:
                went_past(self.view, found.payload)

    def walk(self, parent: Element | None = None, depth: int | None = None) -> Iterator[Element]:
        """The elements below one, each before its children, down to `depth` levels (None: all)."""
        if depth is not None and depth <= 0:
            return
        for child in self.children(self.whole() if parent is None else parent):
            yield child
            if child.message is not None:
                yield from self.walk(child, None if depth is None else depth - 1)

    def _element(
        self, parent: Element, owner: type[Message], table: dict[int, Field], counts: dict[int, int], at: int
    ) -> Element:
        prefix = f"{parent.path}." if parent.path else ""
        try:
            tag, body, stop, problem = header(self.view, at, parent.stop)
        except DecodeError as error:
            bad = at if error.offset is None else error.offset
            path = f"{prefix}{UNREADABLE}"
            step, depth = UNREADABLE, parent.depth + 1
            return Element(step, path, owner, None, None, 0, -1, at, at, parent.stop, depth, error.reason, bad)
        field = table.get(tag >> 3)
        if field is not None and not accepts(field, tag & 7):
            field = None
        message = message_class(owner, field) if field is not None and field.kind is MESSAGE else None
        if message is not None and parent.depth >= MAX_DEPTH:
            message, problem = None, problem or f"more than {MAX_DEPTH} nested messages"
        problem = problem or _packing_problem(self.view, field, tag, body, stop)
        step, depth = _step(field, tag, counts), parent.depth + 1
        bad = stop if problem else -1
        path, number, kind = prefix + step, tag >> 3, tag & 7
        return Element(step, path, owner, field, message, number, kind, at, body, stop, depth, problem, bad)


def accepts(field: Field, wire_type: int) -> bool:
    """Whether a decoder takes the wire type for the field: numbers of a repeated field may be packed or not."""
    return wire_type == field.kind.wire_type or (field.repeated and field.kind.wire_type != LEN and wire_type == LEN)


def _contents(path: str) -> FileMap | bytes:
    if is_address(path):
        return RemoteFile(path).whole()
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size:
            return FileMap.of(file.fileno(), path)
        return file.read()


def header(view: memoryview, at: int, end: int) -> tuple[int, int, int, str]:
    """(tag, position of the value, position after it, problem). DecodeError if nothing after `at` makes sense."""
    tag, body = read_tag(view, at, end)
    if tag < 8:
        raise DecodeError("field number 0", at)
    if tag & 7 != LEN:
        return tag, body, skip(view, body, end, tag), ""
    try:
        length, body = read_length(view, body, end)
    except DecodeError as error:
        if not error.reason.startswith("truncated: "):  # the length itself cannot be read, or is not valid
            raise
        length, body = read_varint(view, body, end)
        return tag, body, end, f"cut off: {length} bytes announced, {end - body} are here"
    return tag, body, body + length, ""


def _packing_problem(view: memoryview, field: Field | None, tag: int, body: int, stop: int) -> str:
    """The problem that the size or the last byte of a packed field shows; the numbers before that are not read."""
    if field is None or tag & 7 != LEN or field.kind.wire_type == LEN or body == stop:
        return ""
    width = WIDTHS.get(field.kind.name)
    if width is None:
        return "the last number of a packed field is cut off" if view[stop - 1] > 127 else ""
    return f"a packed {field.kind.name} field whose size is not a multiple of {width}" if (stop - body) % width else ""


def _step(field: Field | None, tag: int, counts: dict[int, int]) -> str:
    key = tag if field is None else -field.number
    packed = field is not None and tag & 7 == LEN and field.kind.wire_type != LEN
    count = counts.get(key, 0)
    if not packed:
        counts[key] = count + 1
    if field is not None and field.repeated:
        return field.name if packed else f"{field.name}[{count}]"
    name = field.name if field is not None else f"?{tag >> 3}"
    return name if count == 0 else f"{name}#{count + 1}"


__all__ = ["UNREADABLE", "WIDTHS", "WIRE_NAMES", "Bytes", "Element", "accepts", "header"]
