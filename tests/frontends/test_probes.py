"""Other sizes for dynamic axes: sums stay sums, sizes are otherwise independent, the largest grow least."""

from __future__ import annotations

import pytest

from purexport.frontends.trace import probes
from purexport.frontends.trace.probes import Sizes

CACHE = {"batch": 2, "seq": 3, "past": 6, "total": 9}

# name -> (sizes, with classes, new sizes)
TOGETHER: dict[str, tuple[Sizes, bool, Sizes]] = {
    "one": ({"n": 3}, False, {"n": 6}),
    "the larger grows less": ({"n": 3, "m": 40}, False, {"n": 9, "m": 80}),
    "a sum": (CACHE, False, {"batch": 8, "seq": 9, "past": 12, "total": 21}),
    "a sum of equal parts": ({"a": 4, "b": 4, "sum": 8}, False, {"a": 8, "b": 12, "sum": 20}),
    "equal sizes alone": ({"a": 4, "b": 4}, False, {"a": 8, "b": 12}),
    "equal sizes together": ({"a": 4, "b": 4, "c": 3}, True, {"a": 8, "b": 8, "c": 9}),
    "a sum of a sum": ({"a": 2, "b": 3, "c": 5, "d": 8}, False, {"a": 6, "b": 6, "c": 12, "d": 18}),
    "an empty one": ({"past": 0, "seq": 4, "total": 4}, True, {"past": 0, "seq": 8, "total": 8}),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str) -> None:
    sizes, classes, wanted = TOGETHER[name]
    assert probes.together(sizes, classes) == wanted
    assert list(probes.together(sizes, classes)) == list(sizes)


def test_doubled() -> None:
    alone, summed = probes.doubled(CACHE, "seq", classes=False)
    assert alone == {**CACHE, "seq": 6}
    assert summed == {**CACHE, "seq": 6, "total": 12}
    assert list(probes.doubled({"a": 4, "b": 4}, "a", classes=False)) == [{"a": 8, "b": 4}, {"a": 8, "b": 8}]


def test_half() -> None:
    assert probes.half(CACHE | {"width": 64, "odd": 33}) == {
        "batch": 4,
        "seq": 6,
        "past": 12,
        "total": 18,
        "width": 32,
        "odd": 66,
    }


def test_smallest() -> None:
    assert probes.smallest(CACHE, CACHE) == {"batch": 1, "seq": 1, "past": 1, "total": 2}
    assert probes.smallest(CACHE, ["past"]) == {**CACHE, "past": 1, "total": 4}
    assert probes.smallest({"past": 0, "seq": 4}, ["past", "seq"]) == {"past": 0, "seq": 1}


def test_grown() -> None:
    found = list(probes.grown({"past": 0, "seq": 4, "total": 4}, "past"))
    assert found == [
        {"past": 2, "seq": 4, "total": 4},
        {"past": 2, "seq": 6, "total": 4},
        {"past": 2, "seq": 4, "total": 6},
    ]
