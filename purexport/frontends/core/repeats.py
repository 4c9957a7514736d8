"""Where a row of keys repeats itself at a distance, in a number of steps that grows with the row as a line.

`Repeats` says it for one position after the other.  `Largest` answers for stretches of positions, so that a candidate
is judged without a walk over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

ALONE = -1
"""The key of what is equal to nothing."""

_TRIED = 24  # distances at which the next step may begin, and candidates that are tried in one stretch


class Repeats:
    """Where calls repeat, asked for one position after the other.

    Each stretch of calls that are equal to those at a distance is measured once, so no call is compared more often than
    there are distances.
    """

    def __init__(self, keys: Sequence[int], least: int) -> None:
        self.keys = keys
        self.least = least
        self.next = _next_equal(keys)
        self.ends: dict[int, int] = {}  # by distance: where the stretch ends that was measured last
        self.failed: dict[int, range] = {}  # by distance: where another step of a loop that is none begins
        self.tries: dict[tuple[int, int], int] = {}  # by distance and end: the loops that were none in a stretch

    def at(self, at: int) -> Iterator[tuple[int, int]]:
        """The distances at which the calls from `at` on repeat, the smallest first, and how often they do.

        Distances are left out at which there is no loop.
        """
        other, last = self.next[at], at + (len(self.keys) - at) // self.least
        for _ in range(_TRIED):
            if not at < other <= last:
                return
            period = other - at
            other = self.next[other]
            if at in self.failed.get(period, ()):
                continue
            end = self._end(at, period)
            count = (end - at) // period + 1
            if count >= self.least and self.tries.get((period, end), 0) < _TRIED:
                yield period, count

    def _end(self, at: int, period: int) -> int:
        """Where the calls from a position on are no longer those at the distance."""
        found = self.ends.get(period, 0)
        if found <= at:
            found = at
            while found + period < len(self.keys) and _are_same(self.keys, found, found + period):
                found += 1
            self.ends[period] = found
        return found

    def note_failure(self, at: int, period: int, count: int, was_tried: bool = False) -> None:
        """Note that there is no loop, so that others in the stretch are tried in a limited number only."""
        self.failed.setdefault(period, range(at + period, at + period * count))
        if was_tried:
            stretch = period, self.ends[period]
            self.tries[stretch] = self.tries.get(stretch, 0) + 1


def _next_equal(keys: Sequence[int]) -> list[int]:
    """For each position the next one with the same key; 0 where there is none."""
    found, seen = [0] * len(keys), dict[int, int]()
    for at in range(len(keys) - 1, -1, -1):
        if keys[at] != ALONE:
            found[at] = seen.get(keys[at], 0)
            seen[keys[at]] = at
    return found


def _are_same(keys: Sequence[int], one: int, other: int) -> bool:
    return keys[one] == keys[other] != ALONE


class Largest:
    """The largest of the numbers from one position to another, in as many steps whatever the positions are."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.levels = [list(numbers)]
        width = 1
        while 2 * width <= len(numbers):
            last = self.levels[-1]
            self.levels.append([max(last[at], last[at + width]) for at in range(len(last) - width)])
            width *= 2

    def between(self, start: int, end: int) -> int:
        level = (end - start).bit_length() - 1
        row = self.levels[level]
        return max(row[start], row[end - (1 << level)])
