"""Output that a terminal gets and a pipe does not: colour, and columns if the package rich is installed.

Invariant: a pipe or a file gets plain text, the same on every machine. NO_COLOR (https://no-color.org) turns colours
off and keeps the columns.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}

Piece = tuple[str, str]
"""Text and its style: one of bold, dim, red, green, yellow, blue, cyan, or nothing."""


def looks(stream: TextIO) -> bool:
    """Whether a person looks at the stream: a terminal that can do more than write one line below another."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def coloured(stream: TextIO) -> bool:
    """Whether it may have colours."""
    return looks(stream) and not os.environ.get("NO_COLOR")


def console() -> Any:
    """A console of rich for stdout; None if stdout is no terminal, or if rich is not installed."""
    if not looks(sys.stdout):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    plain = not coloured(sys.stdout)
    return Console(
        file=sys.stdout,
        no_color=plain,
        color_system=None if plain else "auto",
        highlight=False,
        emoji=False,
        markup=False,
    )


def safe(text: str) -> str:
    """ASCII without control characters: a name in a file must not move the cursor."""
    return shown(text).encode("ascii", "backslashreplace").decode()


def safe_lines(text: str) -> str:
    """The same of a report, whose line breaks are the verb's own."""
    return "\n".join(map(safe, text.split("\n")))


def shown(text: str) -> str:
    """Text of any language, with escapes for what Python does not print.

    These are the controls, and in Unicode's terms the format characters (among them U+202E, which turns the following
    text around), surrogates, separators other than the space, and what is not assigned.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else char.encode("ascii", "backslashreplace").decode()


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text, in a style if the stream (default: stdout) may have colours."""
    if not style or not text or not coloured(stream or sys.stdout):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def titled(text: str) -> str:
    """A line as `line` makes it; a line break before it makes it a title, with an empty line above, and bold."""
    title = text.startswith("\n")
    return "\n" * title + line([(text[title:], "bold" if title else "")])


def line(pieces: Sequence[Piece]) -> str:
    """Pieces as one line: safe, painted, and cut to the width where a terminal looks."""
    left = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    shown = []
    for text, style in pieces:
        whole = safe(text)
        if len(whole) > left:
            shown.append(paint(whole[: max(0, left - 3)] + "..."[:left], style))
            break
        shown.append(paint(whole, style))
        left -= len(whole)
    return "".join(shown)
