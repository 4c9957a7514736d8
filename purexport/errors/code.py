"""A row of the table of codes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """One cause: its name, what it means and why that is an error, what to do, and the text of such an error."""

    name: str
    meaning: str
    remedy: str
    example: str


Family = tuple[str, tuple[Code, ...]]
