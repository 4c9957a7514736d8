"""A place in a text, and the smallest things that are read there: marks, words, strings, literals.

Strategy: one regular expression a thing, matched at the place; nothing is read twice, so time is linear in the text.
Blanks and comments (`#` to the end of the line) may stand before each thing. The blanks are those of ASCII, and words
are ASCII too, as in docs/Syntax.md of ONNX; anything else is quoted. In a string a backslash stands before the
character that is meant, and has no other meaning: `\\n` is the letter n.
"""

from __future__ import annotations

import re
from typing import NoReturn

from proto_schema.errors import bounded
from proto_schema.wire import MAX_DEPTH

__all__ = ["Cursor", "ParseError"]

_BLANKS = re.compile(r"(?:[ \t\n\v\f\r]+|#[^\n]*)*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_LITERAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]*)?|[A-Za-z]+(?![A-Za-z0-9_]))")
_SHOWN = 60
"""Characters of a line that are shown on each side of the place."""


class ParseError(ValueError):
    """The text does not follow the syntax: `line` and `column` (both from 1) say where, `reason` what was expected.

    `offset` counts the characters before the place. The message shows the line, with a caret under the place.
    """

    code = "not-the-syntax"

    def __init__(self, reason: str, text: str, offset: int) -> None:
        self.reason = reason
        self.offset = offset
        start = text.rfind("\n", 0, offset) + 1
        self.line = text.count("\n", 0, offset) + 1
        self.column = offset - start + 1
        end = text.find("\n", offset)
        shown = text[start : len(text) if end < 0 else end].rstrip("\r")
        self._shown = _window(shown, offset - start)
        super().__init__(f"line {self.line}, column {self.column}: {bounded(reason)}\n{self._shown}")

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.args, self.__dict__)


def _again(args: tuple[object, ...], state: dict[str, object]) -> ParseError:
    error = ParseError.__new__(ParseError, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _window(line: str, at: int) -> str:
    """The part of the line around the place, and a caret below it."""
    first = max(0, at - _SHOWN)
    before = line[first:at].replace("\t", " ")
    after = line[at : at + _SHOWN].replace("\t", " ")
    cut = ("..." if first else "", "..." if len(line) > at + _SHOWN else "")
    return f"    {cut[0]}{before}{after}{cut[1]}\n    {' ' * (len(cut[0]) + len(before))}^"


class Cursor:
    """A text and a place in it. All methods skip blanks first."""

    __slots__ = ("at", "depth", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = MAX_DEPTH

    def fail(self, reason: str, at: int | None = None) -> NoReturn:
        """Raises ParseError at the place, or at `at`."""
        raise ParseError(reason, self.text, self.at if at is None else at)

    def expected(self, what: str) -> NoReturn:
        """Raises ParseError: something else stands where `what` is needed."""
        self.fail(f"expected {what}, found {self.found()}")

    def found(self) -> str:
        """What stands at the place, for messages."""
        self.blanks()
        if self.at >= len(self.text):
            return "the end of the text"
        word = _WORD.match(self.text, self.at)
        shown = word.group() if word else self.text[self.at]
        return repr(shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "...")

    def blanks(self) -> None:
        """Skip blanks and comments."""
        self.at = _BLANKS.match(self.text, self.at).end()  # type: ignore[union-attr]  # it matches nothing, too

    def peek(self) -> str:
        """The next character, empty at the end."""
        self.blanks()
        return self.text[self.at : self.at + 1]

    def take(self, mark: str) -> bool:
        """Whether the mark is next, which is then read."""
        self.blanks()
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark: str, what: str = "") -> None:
        """Read the mark. `what` says what it begins or ends."""
        if not self.take(mark):
            self.expected(f"{mark!r}{' ' if what else ''}{what}")

    def word(self) -> str:
        """The word that is next, which is read; empty where there is none."""
        self.blanks()
        match = _WORD.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match.group()

    def next_word(self) -> str:
        """The word that is next, which is not read."""
        self.blanks()
        match = _WORD.match(self.text, self.at)
        return match.group() if match else ""

    def name(self, what: str) -> str:
        """A name: a word, or any text in quotes."""
        return self.string(what) if self.peek() == '"' else self.word() or self.expected(what)

    def string(self, what: str) -> str:
        """A text in quotes."""
        if self.peek() != '"':
            self.expected(what)
        match = _STRING.match(self.text, self.at)
        if match is None:
            self.fail(f"expected {what}; the string that begins here has no closing quote")
        self.at = match.end()
        held: str = match.group(1)
        return _ESCAPE.sub(r"\1", held) if "\\" in held else held

    def number(self) -> str:
        """The literal of a number, `inf`, `infinity` and `nan` among them; empty where there is none."""
        self.blanks()
        match = _LITERAL.match(self.text, self.at)
        if match is None:
            return ""
        found = match.group()
        if found[-1].isalpha() and found[-2:] not in _EXPONENTS and found.lstrip("-").lower() not in _SPECIAL:
            return ""
        self.at = match.end()
        return found

    def inside(self, levels: int) -> None:
        """Go that many messages deeper. ParseError where no file could hold as many inside of each other."""
        self.depth -= levels
        if self.depth < 0:
            self.fail(f"graphs and types are nested too deeply: a file holds at most {MAX_DEPTH} messages in a message")


_SPECIAL = frozenset(("inf", "infinity", "nan"))
_EXPONENTS = frozenset(f"{digit}{e}" for digit in "0123456789." for e in "eE")
