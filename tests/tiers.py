"""The three tiers of tests, and how the rows of a table are dealt to them.

    pytest            what a person waits for: every rule, verb and reader, and every row of a table at least once
    pytest -m full    the rest that CI runs: further opsets, routes and sizes of the same rows, and stress
    pytest -m sweep   hours: everything

A test has one marker at most, which `tests/conftest.py` checks.  A file whose tests are all of one tier says so at its
top (`pytestmark = pytest.mark.full`); otherwise the mark stands in the row.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

DEFAULT = "not full and not sweep"
MARKERS = ("full", "sweep")
TIERS = {DEFAULT: ("default",), "full": ("full",), "sweep": ("sweep",), "not sweep": ("default", "full")}


class Asked:
    """Which tiers the run asks for, so that long tables are not made for the others."""

    tiers: tuple[str, ...] = ("default", *MARKERS)

    @classmethod
    def by(cls, expression: str) -> None:
        """Take the tiers of an expression of `-m`: all, where it is none of the usual ones."""
        cls.tiers = TIERS.get(expression, ("default", *MARKERS))


def dealt(rows: Iterable[Any], every: int, ids: Sequence[str] | None = None) -> list[Any]:
    """The rows as parameters: about one of `every` runs by default, the others with `-m full`.

    Which ones follows from the id alone (by default the text of the row), so that a new row moves no other.  A row
    that has a mark keeps it.  Use it where many rows ask the same question; where each asks its own, each runs.
    """
    found = []
    for place, row in enumerate(rows):
        is_param = hasattr(row, "values") and hasattr(row, "marks")
        values = row.values if is_param else row if isinstance(row, tuple) else (row,)
        name = (row.id if is_param else None) or (ids[place] if ids is not None else str(values))
        marks = tuple(row.marks) if is_param else ()
        if not marks and zlib.crc32(name.encode()) % every:
            marks = (pytest.mark.full,)
        given = (row.id if is_param else None) or (ids[place] if ids is not None else None)
        found.append(pytest.param(*values, marks=marks, id=given))
    return found


def in_turn(rows: Iterable[str], others: Sequence[Any]) -> list[Any]:
    """Names of rows with each of the others, such as opsets, as parameters: by default a row runs with one of them.

    Which one follows from the name alone.  Use it where a row asks the same question with each.
    """
    return [
        pytest.param(row, other, id=f"{row}-{other}", marks=() if place == first else pytest.mark.full)
        for row in rows
        for first in (zlib.crc32(row.encode()) % len(others),)
        for place, other in enumerate(others)
    ]


def tiers_of(item: pytest.Item) -> list[str]:
    """The tiers that the markers of a test name."""
    return [mark.name for mark in item.iter_markers() if mark.name in MARKERS]
