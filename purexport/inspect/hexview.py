"""Bytes for people: hexadecimal on the left, their meaning on the right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from purexport.inspect.elements import Bytes, Element
from purexport.inspect.values import text_of

WIDTH = 12
"""Bytes a line: leaves half of a line of 100 columns for the meaning."""

SHOWN = 4 * WIDTH
"""Bytes of one value that are shown."""


def annotated(source: Bytes, elements: Iterable[Element]) -> Iterator[str]:
    """Lines for the headers of messages and for whole leaves, each with its field and value."""
    for element in elements:
        stop = element.body if element.message is not None else element.stop
        indent = "  " * (element.depth - 1)
        meaning = text_of(source, element)
        sign = "  " if element.message is not None or not meaning else " = "
        note = f"  <- {element.problem}" if element.problem else ""
        yield from hex_lines(source, element.start, stop, f"{indent}{element.step}{sign}{meaning}".rstrip() + note)


def hex_lines(source: Bytes, start: int, stop: int, meaning: str) -> Iterator[str]:
    """Lines of bytes, the first with the meaning; bytes after the first `SHOWN` are only counted."""
    shown = min(stop, start + SHOWN) if stop - start > SHOWN + WIDTH else stop
    for at in range(start, shown, WIDTH) or [start]:
        octets = bytes(source.view[at : min(shown, at + WIDTH)]).hex(" ")
        yield f"{at:08x}  {octets:<{WIDTH * 3 - 1}}  {meaning if at == start else ''}".rstrip()
    if shown < stop:
        yield f"{shown:08x}  ... {stop - shown:,} more bytes"


def around(source: Bytes, offset: int, lines: int = 2) -> Iterator[str]:
    """The bytes around an offset with their ASCII, 16 per line, and a mark below the byte at the offset."""
    first = max(0, offset - offset % 16 - 16 * lines)
    for at in range(first, min(source.size, first + 16 * (2 * lines + 1)), 16):
        octets = bytes(source.view[at : at + 16])
        text = "".join(chr(octet) if 32 <= octet < 127 else "." for octet in octets)
        yield f"{at:08x}  {octets.hex(' '):<47}  {text}"
        if at <= offset < at + 16:
            yield " " * (10 + 3 * (offset - at)) + "^^"
