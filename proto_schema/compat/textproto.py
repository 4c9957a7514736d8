"""Reads protobuf's text format into core messages; `proto_schema.text.text_format` writes it.

A list of tokens, and a descent over the field rows. The grammar is that of
https://protobuf.dev/reference/protobuf/textformat-spec/, without extensions and Any, which ONNX does not have. Errors
name line and column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn

from proto_schema.compat.assigning import check_of
from proto_schema.compat.foreign import text_error
from proto_schema.wire import MAX_DEPTH
from proto_schema.wire.fields import BYTES, DOUBLE, ENUM, FLOAT, MESSAGE, PAYLOAD, STRING, Field, Message, message_class

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\n\r\f\v]+|\#[^\n]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>-?[ \t]*(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?))
      | (?P<name>-?[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})|u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8})|(?P<one>.))"
)
_PLAIN = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "?": 63, "\\": 92, "'": 39, '"': 34}
_CLOSING = {"{": "}", "<": ">"}


@dataclass(slots=True)
class _Token:
    kind: str
    text: str
    at: int


def merge_text(text: str, message: Message) -> None:
    """Adds what the text says to the message. Raises TextError, a ValueError."""
    reader = _Reader(text)
    reader.message(message, "", MAX_DEPTH)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._split(text))
        self.place = 0

    def _split(self, text: str) -> Any:
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                self.fail(f"{text[at]!r} begins nothing", at)
            if found.lastgroup != "blank":
                yield _Token(str(found.lastgroup), found.group(), at)
            at = found.end()
        yield _Token("end", "", at)

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        at = self.tokens[self.place].at if at is None else at
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        raise text_error(f"{line}:{column}: {what}", "text_format")

    def took(self, *texts: str) -> bool:
        """Whether the next token is one of these signs, which is taken then."""
        token = self.tokens[self.place]
        if token.kind == "sign" and token.text in texts:
            self.place += 1
            return True
        return False

    def message(self, message: Message, closing: str, depth: int) -> None:
        """The fields up to the closing sign, or the end of the text."""
        if depth < 0:
            self.fail(f"more than {MAX_DEPTH} nested messages")
        fields = {field.name: field for field in type(message).FIELDS}
        seen: set[str] = set()
        while True:
            token = self.tokens[self.place]
            if token.kind == "end" and not closing:
                return
            if closing and self.took(closing):
                return
            if token.kind != "name":
                wanted = f"a field or {closing}" if closing else "a field"
                self.fail(f"{wanted} is expected, not {token.text or 'the end'!r}")
            field = fields.get(token.text)
            if field is None:
                self.fail(f'message type "{type(message).__qualname__}" has no field named "{token.text}"')
            if not field.repeated and field.name in seen:
                self.fail(f"the field {field.name} is there twice")
            seen.add(field.name)
            self.place += 1
            self.field(message, field, depth)
            self.took(",", ";")

    def field(self, message: Message, field: Field, depth: int) -> None:
        colon = self.took(":")
        if not colon and field.kind is not MESSAGE:
            self.fail(f"':' is expected after {field.name}")
        if field.repeated and self.took("["):
            while not self.took("]"):
                self.value(message, field, depth)
                if not self.took(",") and self.tokens[self.place].text != "]":
                    self.fail("',' or ']' is expected")
            return
        self.value(message, field, depth)

    def value(self, message: Message, field: Field, depth: int) -> None:
        if field.kind is MESSAGE:
            opening = self.tokens[self.place].text
            if not self.took("{", "<"):
                self.fail(f"'{{' is expected after {field.name}, not {opening or 'the end'!r}")
            made = message_class(type(message), field)()
            self.message(made, _CLOSING[opening], depth - 1)
            self._store(message, field, made)
            return
        at = self.tokens[self.place].at
        try:
            self._store(message, field, check_of(field)(self.scalar(field)))
        except (TypeError, OverflowError) as error:
            self.fail(f"{field.name}: {error}", at)
        except ValueError as error:
            if isinstance(error, type(text_error("", "text_format"))):
                raise
            self.fail(f"{field.name}: {error}", at)

    def _store(self, message: Message, field: Field, value: Any) -> None:
        if field.repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)

    def scalar(self, field: Field) -> Any:
        token = self.tokens[self.place]
        if field.kind in (STRING, BYTES, PAYLOAD):
            pieces = []
            while self.tokens[self.place].kind == "text":
                pieces.append(_unescaped(self.tokens[self.place].text[1:-1]))
                self.place += 1
            if not pieces:
                self.fail(f"{field.name}: a text in quotes is expected, not {token.text or 'the end'!r}")
            return b"".join(pieces)
        self.place += 1
        if token.kind == "name" and field.kind is ENUM:
            return token.text
        if token.kind == "name" and field.kind in (FLOAT, DOUBLE) and token.text.lower() in _SPECIAL:
            return float(token.text)
        if token.kind != "number":
            self.place -= 1
            self.fail(f"{field.name}: a number is expected, not {token.text or 'the end'!r}")
        text = re.sub(r"\s", "", token.text)
        if field.kind in (FLOAT, DOUBLE):
            return float(int(text, 16)) if "x" in text.lower() else float(text.rstrip("fF"))
        digits = text.lstrip("-")
        octal = digits.startswith("0") and digits.isdigit() and len(digits) > 1
        return int(text, 8 if octal else 0)


_SPECIAL = {"inf", "-inf", "nan", "-nan", "infinity", "-infinity"}


def _unescaped(body: str) -> bytes:
    out, at = [], 0
    for found in _ESCAPE.finditer(body):
        out.append(body[at : found.start()].encode())
        at = found.end()
        if found["octal"]:
            out.append(bytes((int(found["octal"], 8) & 255,)))
        elif found["hex"]:
            out.append(bytes((int(found["hex"], 16),)))
        elif found["u4"] or found["u8"]:
            out.append(chr(int(found["u4"] or found["u8"], 16)).encode())
        elif found["one"] in _PLAIN:
            out.append(bytes((_PLAIN[found["one"]],)))
        else:
            raise ValueError(f"unknown escape {found.group()!r}")
    return b"".join([*out, body[at:].encode()])
