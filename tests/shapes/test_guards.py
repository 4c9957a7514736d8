"""What torch assumed of sizes, tried on sizes."""

from __future__ import annotations

from typing import Any

import pytest
import sympy

from purexport.shapes.guards import holds_at, holds_but_for_the_smallest, share_of_sizes

A, B = sympy.symbols("a b", integer=True, positive=True)

# (assumption, all sizes but the smallest fulfil it, the share of sizes that do)
ROWS: list[tuple[Any, bool, float]] = [
    (sympy.Ne(A, 1), True, 1),
    (sympy.Ne(A, 3), True, 0.98),
    (sympy.Ne(A, 30), False, 0.98),
    (sympy.Le(A, 2**24), True, 0.99),
    (sympy.Eq(A, 12), False, 0.01),
    (sympy.Eq(A % 2, 0), False, 0.5),
    (sympy.Ge(A * B, 4), True, 0.99),
    (sympy.Eq(A, B), False, 0.99),
    (sympy.Ne(A, B), False, 0),
    (sympy.Le(A, B + 7), False, 0.99),
]


@pytest.mark.parametrize(("assumption", "harmless", "share"), ROWS, ids=[str(row[0]) for row in ROWS])
def test_assumption(assumption: Any, harmless: bool, share: float) -> None:
    assert holds_but_for_the_smallest(assumption) is harmless
    assert share_of_sizes(assumption, []) == pytest.approx(share, abs=0.011)


def test_what_follows_from_another_says_nothing() -> None:
    assert share_of_sizes(sympy.Ge(A, 8), []) < 1
    assert share_of_sizes(sympy.Ge(A, 8), [sympy.Ge(A, 9)]) == 1
    assert share_of_sizes(sympy.Ge(A, 8), [sympy.Ge(B, 9)]) < 1


def test_no_answer_is_no() -> None:
    assert not holds_at(sympy.Eq(A / B, 1), {A: 1})
