"""Which elements `diff` takes for the same: as many as a longest common subsequence, where few differ."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

import pytest

from purexport.inspect.align import aligned

LAYER = ["LN", "MatMul", "Add", "Reshape", "Transpose", "MatMul", "Mul", "Softmax", "MatMul", "Reshape", "Add", "Gelu"]

# what it is, two sequences, the pairs
ROWS: list[tuple[str, str, str, list[tuple[int, int]]]] = [
    ("nothing", "", "", []),
    ("one side only", "ab", "", []),
    ("equal", "aba", "aba", [(0, 0), (1, 1), (2, 2)]),
    ("one more", "ab", "axb", [(0, 0), (1, 2)]),
    ("one less", "aab", "ab", [(0, 0), (2, 1)]),
    ("another", "abc", "axc", [(0, 0), (2, 2)]),
    ("two ends", "xab", "aby", [(1, 0), (2, 1)]),
    ("nothing in common", "abc", "xyz", []),
]


@pytest.mark.parametrize(("name", "a", "b", "pairs"), ROWS, ids=[row[0] for row in ROWS])
def test_aligned(name: str, a: str, b: str, pairs: list[tuple[int, int]]) -> None:
    assert sorted(aligned(a, b)) == pairs


def longest(a: list[str], b: list[str]) -> int:
    @cache
    def of(x: int, y: int) -> int:
        if x == len(a) or y == len(b):
            return 0
        return 1 + of(x + 1, y + 1) if a[x] == b[y] else max(of(x + 1, y), of(x, y + 1))

    return of(0, 0)


def changed(keys: list[str], edits: int, rng: random.Random) -> list[str]:
    found = list(keys)
    for _ in range(edits):
        at = rng.randrange(len(found))
        found[at : at + rng.randrange(2)] = [rng.choice(keys)] * rng.randrange(2)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_few_edits_find_a_longest_common_subsequence(seed: int) -> None:
    rng = random.Random(seed)
    a = [rng.choice("ABC") for _ in range(40)]
    b = changed(a, 8, rng)
    pairs = sorted(aligned(a, b))
    assert len(pairs) == longest(a, b)
    assert all(left[0] < right[0] and left[1] < right[1] for left, right in pairwise(pairs))


def test_layers_with_many_edits() -> None:
    """Equal layers, with nodes put in and left out all over: nearly all others find their partners."""
    rng = random.Random(0)
    a = [kind for _ in range(200) for kind in LAYER]
    b = changed(a, 150, rng)
    pairs = list(aligned(a, b))
    assert len(pairs) > 0.97 * min(len(a), len(b))
    assert len({left for left, _ in pairs}) == len({right for _, right in pairs}) == len(pairs)
    assert all(a[left] == b[right] for left, right in pairs)


def test_no_common_order() -> None:
    """What has no order in common is paired all the same, by kind, and each element once."""
    rng = random.Random(0)
    a, b = ([rng.choice("AB") for _ in range(3000)] for _ in range(2))
    pairs = list(aligned(a, b))
    assert len(pairs) > 1000
    assert len({left for left, _ in pairs}) == len({right for _, right in pairs}) == len(pairs)
    assert all(a[left] == b[right] for left, right in pairs)
