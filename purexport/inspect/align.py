"""Which elements of two sequences belong together: the same keys in the same order, as in the `diff` of text files.

Strategy: what is equal at both ends is paired first. The rest is compared by the greedy algorithm of Myers ("An O(ND)
difference algorithm and its variations", 1986) as long as few keys differ. Otherwise runs of keys that occur once in
each sequence divide it (as in a patience diff), shorter runs where longer ones find nothing. What is left then has no
order that could be found cheaply: the first element of a key is paired with the first of that key, and so on.
Invariant: the work is in proportion to the lengths, whatever the keys are, but for the sorting of the runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence

_MOST_EDITS = 32  # keys that differ: each of them costs a pass over what is compared
_RUNS = (16, 4, 1)  # lengths of runs, one after the other


def aligned(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pairs of places of equal keys, each place at most once."""
    todo = [(0, len(a), 0, len(b), 0)]
    while todo:
        low_a, high_a, low_b, high_b, level = todo.pop()
        while low_a < high_a and low_b < high_b and a[low_a] == b[low_b]:
            yield low_a, low_b
            low_a, low_b = low_a + 1, low_b + 1
        while low_a < high_a and low_b < high_b and a[high_a - 1] == b[high_b - 1]:
            high_a, high_b = high_a - 1, high_b - 1
            yield high_a, high_b
        if low_a == high_a or low_b == high_b:
            continue
        part_a, part_b = a[low_a:high_a], b[low_b:high_b]
        found = _few_edits(part_a, part_b)
        if found is not None:
            yield from ((low_a + left, low_b + right) for left, right in found)
        elif level < len(_RUNS):
            last = (low_a, low_b)
            for left, right in _anchors(part_a, part_b, _RUNS[level]):
                place = (low_a + left, low_b + right)
                if place[0] >= last[0] and place[1] >= last[1]:
                    yield place
                    todo.append((last[0], place[0], last[1], place[1], level + 1))
                    last = (place[0] + 1, place[1] + 1)
            todo.append((last[0], high_a, last[1], high_b, level + 1))
        else:
            yield from ((low_a + left, low_b + right) for left, right in _by_count(part_a, part_b))


def _few_edits(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]] | None:
    """The pairs of a shortest edit script; None if it needs more than `_MOST_EDITS` steps.

    `reached[k]` is the farthest place in `a` on the diagonal `k` (place in `a` less place in `b`) after so many steps.
    """
    if abs(len(a) - len(b)) > _MOST_EDITS:
        return None
    reached = {1: 0}
    history: list[dict[int, int]] = []
    for steps in range(_MOST_EDITS + 1):
        history.append(dict(reached))
        for k in range(-steps, steps + 1, 2):
            down = k == -steps or (k != steps and reached[k - 1] < reached[k + 1])
            x = reached[k + 1] if down else reached[k - 1] + 1
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            reached[k] = x
            if x >= len(a) and x - k >= len(b):
                return _way_back(history, len(a), len(a) - len(b))
    return None


def _way_back(history: list[dict[int, int]], x: int, k: int) -> list[tuple[int, int]]:
    pairs = []
    for steps in range(len(history) - 1, -1, -1):
        reached = history[steps]
        down = k == -steps or (k != steps and reached[k - 1] < reached[k + 1])
        before = k + 1 if down else k - 1
        start = reached[before] + (0 if down else 1)
        pairs += [(at, at - k) for at in range(start, x)]
        x, k = reached[before], before
    return pairs


def _anchors(a: Sequence[str], b: Sequence[str], size: int) -> list[tuple[int, int]]:
    """Places of keys in the middle of runs that occur once in each, ascending in both."""
    places = [_once(keys, size) for keys in (a, b)]
    middle = size // 2
    found = [(at + middle, places[1][run] + middle) for run, at in places[0].items() if run in places[1]]
    return _longest_ascending(found)


def _once(keys: Sequence[str], size: int) -> dict[tuple[str, ...], int]:
    """Where each run begins that occurs once, in order."""
    found: dict[tuple[str, ...], int] = {}
    for at in range(len(keys) - size + 1):
        run = tuple(keys[at : at + size])
        found[run] = -1 if run in found else at
    return {run: at for run, at in found.items() if at >= 0}


def _longest_ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of the pairs, which ascend on the left, that ascends on the right too."""
    ends: list[int] = []  # the lowest right side at which a part of each length ends
    at_end: list[int] = []
    before: list[int] = []
    for at, (_, right) in enumerate(pairs):
        length = bisect_left(ends, right)
        before.append(at_end[length - 1] if length else -1)
        if length == len(ends):
            ends.append(right)
            at_end.append(at)
        else:
            ends[length], at_end[length] = right, at
    chosen = []
    at = at_end[-1] if at_end else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = before[at]
    return chosen[::-1]


def _by_count(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The first of each key with the first of that key, the second with the second."""
    places: dict[str, list[int]] = defaultdict(list)
    for at, key in enumerate(b):
        places[key].append(at)
    waiting = {key: iter(found) for key, found in places.items()}
    for at, key in enumerate(a):
        other = next(waiting.get(key, iter(())), None)
        if other is not None:
            yield at, other


__all__ = ["aligned"]
