"""Numbers of bytes for people."""

from __future__ import annotations


def size_text(count: int) -> str:
    """`97.8 MB`: decimal units, three digits."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{count} B" if unit == "B" else f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:.0f} {unit}"


def counted(count: int, one: str, several: str = "") -> str:
    """`1 node`, `8 nodes`, `1,234 entries`: a number and its noun, whose plural has an s if none is given."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
