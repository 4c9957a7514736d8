"""What torch assumed of sizes, tried on sizes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import sympy
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Min, Mod, ModularIndexing, PythonMod

from purexport.shapes import guards
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


# with each operation that torch writes; the last has no row of ours, so that sympy is asked
EVALUATED: list[Any] = [
    sympy.Eq(FloorDiv(A + 1, 4) * 4, A),
    sympy.Ne(PythonMod(-A, 7), PythonMod(B, 7)),
    sympy.Lt(Mod(A, 7), B / 2),
    sympy.Gt(Max(A, B) - Min(A, 3), 2),
    sympy.Ge(A**2 / B + sympy.Rational(1, 3), B**-1 + 2),
    sympy.Or(sympy.Le(A, 3), sympy.And(sympy.Not(sympy.Eq(A, B)), sympy.Gt(B, 5))),
    sympy.Eq(CleanDiv(4 * A, 2), 2 * B),
    sympy.Eq(FloorDiv(A, B - 3), 2),
    sympy.Eq(ModularIndexing(A, 2, 3), 1),
]


@pytest.mark.parametrize("assumption", EVALUATED, ids=str)
def test_what_holds_is_what_sympy_says(assumption: Any) -> None:
    sizes = (1, 2, 3, 4, 6, 7, 12, 30)
    found = {(a, b): holds_at(assumption, {A: a, B: b}) for a, b in itertools.product(sizes, sizes)}
    assert found == {(a, b): guards._holds_by_sympy(assumption, {A: a, B: b}) for a, b in found}
    assert {*found.values()} == {True, False}
