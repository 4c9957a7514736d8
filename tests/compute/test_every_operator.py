"""Every operator of the official domains has a row of what it computes, or a reason in `NONE`."""

from __future__ import annotations

import pytest

from proto_schema import operators
from proto_schema.compute import rows

NONE: dict[tuple[str, str], str] = {}
"""Operator -> why nothing computes it."""

EVERY = {(domain, name) for domain in operators.domains() for name in operators._all_versions()[domain]}


def test_every_operator_has_a_row() -> None:
    assert EVERY - set(rows.table()) == set(NONE)


def test_every_row_is_of_an_operator() -> None:
    assert {key for key in rows.table() if key[0] != rows.MICROSOFT} <= EVERY  # test_microsoft.py has those rows


def test_a_second_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="Relu has two rows"):
        rows.table()
        rows.row("Relu")(lambda call, x: x)
