"""Pages out of `page/`: a template, its scripts and its style, and a block of data that the page decodes itself.

The block is base64 of a deflated stream: the facts as JSON, then the bytes of the structure of each model.
"""

from __future__ import annotations

import base64
import hashlib
import html as markup
import json
import struct
import zlib
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any

from proto_schema.onnx import GraphProto, TensorProto
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.wire.fields import ENUM, MESSAGE, PAYLOAD, STRING, Message, message_class, reachable
from purexport.inspect.elements import Bytes, Element

_LONG, _LONG_TEXT = 256, 1 << 16  # bytes up to which a value of data, or any other field, is there whole
_HEAD, _TAIL = 64, 16  # bytes of a longer one that are there

_PAGE = Path(__file__).parent / "page"

DRAWING = (
    "bytes.js",
    "model.js",
    "families.js",
    "modules.js",
    "frames.js",
    "layout.js",
    "lists.js",
    "drawing.js",
    "pointing.js",
    "graph.js",
    "inflate.js",
    "opening.js",
)
"""The scripts that read a model and draw its graph."""


class Structure:
    """The ranges of the file that the page carries, and the tensors found on the way, by where they begin."""

    def __init__(self, source: Bytes) -> None:
        self.source = source
        self.ranges: list[tuple[int, int]] = []
        self.tensors: dict[int, Element] = {}

    def take(self, parent: Element) -> None:
        """Takes small fields whole, goes into large messages and graphs, and takes only the ends of a large value.

        Tensors in small nodes are not looked for: a node has many fields, and there are many nodes.
        """
        for child in self.source.children(parent):
            if child.message is TensorProto:
                self.tensors[child.start] = child
            if child.message is not None and (child.payload > _LONG or child.message is GraphProto):
                self._add(child.start, child.body)
                self.take(child)
            elif child.payload > _limit(child):
                self._add(child.start, child.body + _HEAD)
                self._add(child.stop - _TAIL, child.stop)
            else:
                self._add(child.start, child.stop)

    def facts(self) -> dict[str, Any]:
        """What the page needs to find them."""
        ranges = [number for start, stop in self.ranges for number in (start, stop - start)]
        return {"size": self.source.size, "ranges": ranges}

    def _add(self, start: int, stop: int) -> None:
        if self.ranges and self.ranges[-1][1] == start:
            start = self.ranges.pop()[0]
        if stop > start:
            self.ranges.append((start, stop))


def _limit(element: Element) -> int:
    row = element.field
    is_data = element.owner is TensorProto and row is not None and row.name.endswith("_data")
    return _LONG if is_data or (row is not None and row.kind is PAYLOAD) else _LONG_TEXT


def parts(template: str, scripts: Iterable[str], title: str, data: str) -> list[bytes]:
    """A page, piece by piece; the policy names script and style by their hashes."""
    style = _read("style.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_read, scripts)) + "})();\n"
    sources = f"script-src {_hash(script)}; style-src {_hash(style)}"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    filled = {
        "title": markup.escape(ascii(title)[1:-1]),
        "policy": policy,
        "style": style,
        "script": script,
        "data": data,
    }
    pieces = enumerate(_read(template).split("@@"))
    return [(filled[piece] if number % 2 else piece).encode() for number, piece in pieces]


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="ascii")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def packed(facts: dict[str, Any], structures: Iterable[Structure]) -> str:
    """The number of bytes of the JSON, the JSON, the ranges one after the other; deflated, as base64."""
    head = json.dumps(facts, separators=(",", ":")).encode()
    deflate = zlib.compressobj(6)
    data = bytearray(deflate.compress(struct.pack("<I", len(head)) + head))
    for structure in structures:
        for start, stop in structure.ranges:
            data += deflate.compress(structure.source.view[start:stop])
    data += deflate.flush()
    return base64.b64encode(data).decode()


def schema(root: type[Message]) -> dict[str, Any]:
    """The field table of every message below the root, by name, the enums, and the data types."""
    enums: dict[str, type[IntEnum]] = {}
    messages = {}
    for cls in sorted(reachable(root), key=lambda cls: cls.__qualname__):
        rows = []
        for row in cls.FIELDS:
            kind: str = row.kind.name
            if row.kind is MESSAGE:
                kind = message_class(cls, row).__qualname__
            elif row.kind is ENUM and row.enum is not None:
                kind = row.enum.__qualname__
                enums[kind] = row.enum
            rows.append([row.number, row.name, kind, row.kind.wire_type, int(row.repeated), int(row.kind is STRING)])
        messages[cls.__qualname__] = rows
    return {
        "root": root.__qualname__,
        "messages": messages,
        "enums": {name: {int(member): member.name for member in enum} for name, enum in enums.items()},
        "dtypes": {code: [row.name, row.bits] for code, row in DTYPES.items()},
    }
