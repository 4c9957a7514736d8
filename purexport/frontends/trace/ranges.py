"""Lists of whole numbers that count up to a size: `list(range(n))[::-1]`, as Python makes them for positions.

Such a list knows its first number, its step and its length, so that its slices, its length and its ends stay symbolic,
and `torch.tensor` of it is `arange`.  Whatever asks for all numbers gets those of the example, and then the size
becomes static as it does for `for i in range(n)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from purexport.frontends.trace.numbers import SYMBOLIC, plain

_WHOLE = (int, torch.SymInt)


class _Progression(NamedTuple):
    """So many numbers from `first` on, `step` apart."""

    first: Any
    step: int
    count: Any

    def at(self, index: Any) -> Any:
        return self.first + self.step * index

    def tensor(self, dtype: Any, device: Any) -> torch.Tensor:
        return torch.arange(self.first, self.at(self.count), self.step, dtype=dtype, device=device)

    def numbers(self) -> list[int]:
        """All of them, of which Python takes the count, so that it is a number of steps."""
        first = int(self.first)
        return [first + self.step * index for index in range(int(self.count))]


class CountedNumbers:
    """A sequence of numbers that a size counts: numbers of Python, then at most one run, then numbers again."""

    def __init__(self, before: list[Any], run: _Progression, behind: list[Any]) -> None:
        self.before = before
        self.run = run
        self.behind = behind

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())

    def __len__(self) -> int:
        return int(self.length())

    def __bool__(self) -> bool:
        return bool(self.length() > 0)

    def __eq__(self, other: object) -> bool:
        return self._all() == (other._all() if isinstance(other, CountedNumbers) else other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, list):
            return NotImplemented
        return CountedNumbers(self.before, self.run, [*self.behind, *other])

    def __radd__(self, other: Any) -> Any:
        if not isinstance(other, list):
            return NotImplemented
        return CountedNumbers([*other, *self.before], self.run, self.behind)

    def __getitem__(self, index: Any) -> Any:
        before, run, behind = self.before, self.run, self.behind
        if isinstance(index, slice):
            found = self._part(index.start, index.stop, index.step)
            return self._all()[index] if found is None else found
        count = plain(run.count)
        if type(index) is int and index >= 0:
            if index < len(before):
                return before[index]
            if index - len(before) < count:
                return run.at(index - len(before))
        elif type(index) is int:
            if -index <= len(behind):
                return behind[index]
            if -index - len(behind) <= count:
                return run.at(run.count + (index + len(behind)))
        return self._all()[index]

    def _part(self, start: Any, stop: Any, step: Any) -> Any:
        """A slice that is such a sequence again; None for any other."""
        if step == -1 and start is None and stop is None:
            run = self.run
            backward = _run(run.at(run.count - 1), -run.step, run.count)
            return CountedNumbers(self.behind[::-1], backward, self.before[::-1])
        if not all(item is None or type(item) is int for item in (start, stop, step)):
            return None
        skipped, dropped = start or 0, -(stop or 0)
        if skipped < 0 or dropped < 0 or (step or 1) < 1:
            return None
        before, run, behind = self.before, self.run, self.behind
        more, fewer = max(skipped - len(before), 0), max(dropped - len(behind), 0)
        if plain(run.count) < more + fewer:
            return None
        before, behind = before[skipped:], behind[: max(len(behind) - dropped, 0)]
        first, count = run.at(more), run.count - (more + fewer)
        if step in (None, 1):
            return CountedNumbers(before, _run(first, run.step, count), behind)
        if before or behind:
            return None
        return CountedNumbers([], _run(first, run.step * step, -(-count // step)), [])

    def length(self) -> Any:
        """How many numbers there are, which may be symbolic."""
        return self.run.count + (len(self.before) + len(self.behind))

    def as_tensor(self, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        """The numbers as a tensor."""
        dtype = dtype or torch.int64
        ends = [torch.tensor(item, dtype=dtype, device=device) for item in (self.before, self.behind)]
        parts = [ends[0], self.run.tensor(dtype, device), ends[1]]
        return torch.cat(parts) if self.before or self.behind else parts[1]

    def _all(self) -> list[Any]:
        return [*self.before, *self.run.numbers(), *self.behind]


def _run(first: Any, step: int, count: Any) -> _Progression:
    return _Progression(first, step, count)


def counted(*items: Any) -> CountedNumbers | None:
    """`range` of symbolic numbers; None where Python's own decides."""
    if not any(isinstance(item, SYMBOLIC) for item in items) or not all(type(item) in _WHOLE for item in items):
        return None
    start, stop, step = (0, items[0], 1) if len(items) == 1 else (*items, 1)[:3]
    if type(step) is not int or step == 0 or len(items) > 3:
        return None
    distance = stop - start
    count = -(-distance // step) if step > 0 else -(distance // -step)
    least: Any = torch.sym_max(count, 0)  # type: ignore[no-untyped-call]
    return CountedNumbers([], _Progression(start, step, least), [])


def as_list(items: Any = ()) -> CountedNumbers | None:
    """`list` of such a sequence; None where Python's own decides."""
    return items if isinstance(items, CountedNumbers) else None
