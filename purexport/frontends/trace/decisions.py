"""What Python asked about numbers, how it was answered, and what that means for the user.

A comparison of sizes has the answer that ranges and equations give.  Where they give none, it has the example's, and
that is noted with its line.  What a note means:

| asked                                     | answered | what is said                                             |
|-------------------------------------------|----------|----------------------------------------------------------|
| comparison that all sizes answer alike    | by sizes | nothing                                                  |
| comparison of Python code that an axis of | by sizes | nothing where the model does the same for both answers   |
| no or one element answers otherwise       |          | (it runs again); else a remark with the line             |
| `==` of two sizes, true in the example    | example  | they are one size from here on; an axis that is equal to |
|                                           |          | a number becomes static, with the line                   |
| the same of a size that is not declared   | example  | a remark with the line too, where Python code asks: the  |
| (computed otherwise, or of the data)      |          | file goes this way                                       |
| comparison of a size of the data with 0   | example  | nothing where the model does the same for both answers   |
| or 1, by Python code                      |          | (it runs again); else as any other                       |
| any other comparison of sizes             | example  | a remark with the line: the file goes this way           |
| a number as a Python number (`range(n)`)  | example  | the axes in it become static, with the line; a number of |
|                                           |          | the arguments becomes a constant, with the line          |
| the same, where it is the same for sizes  | example  | a remark with the line                                   |
| up to several times the example's         |          |                                                          |
| a number for a text (`str(n)`)            | example  | a remark with the line: the file has that of the example |
| a number or truth that the data decides   | data     | a remark with the line: the file has that of the example |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from proto_schema.sizes import ContradictionError, Dim, Size
from proto_schema.sizes.equations import Equations
from proto_schema.wire.records import dataclass
from purexport.aten.axes import Axes, Specialised
from purexport.errors import ExportError
from purexport.frontends.trace.numbers import ARGUMENT, Number, text_of

_MOST = 4
"""Paths that the remark names."""

_NEARBY = 8
"""Times the example, for the sizes up to which a number of steps stays the same."""


LEAST = 2
"""The size from which on a declared axis is captured: for 0 and 1 operators broadcast and squeeze in other ways."""


@dataclass
class Path:
    """A comparison with its answer, and the line that asks; `learnt` where all sizes have the answer from then on.

    `of_few` is whether Python asks about no or one element.
    """

    number: Number
    holds: bool
    line: str
    learnt: bool = False
    of_few: bool = False

    def __str__(self) -> str:
        text = text_of(self.number)
        return f"{text if self.holds else f'not {text}'} at {self.line}"


class Decisions:
    """All that was asked in one capture; `axes` are the names of the declared axes.

    `required` are the sizes that Python took as numbers.  Where `stays_open`, no axis becomes static by that.  `least`
    are the sizes of axes that are captured as if they were larger, as the `enlarged` ones are in the example.
    `of_least` are the comparisons that have another answer for such a size of an axis, and that for the axis and size
    `small` have this answer.  `taken` are the numbers among the arguments that Python took, with the line.  What Python
    asks about no or one element on the line `turned` has the other answer than in the example.
    """

    def __init__(
        self,
        axes: Collection[str],
        stays_open: bool,
        small: tuple[str, int] | None,
        least: Mapping[str, range],
        enlarged: Collection[str],
        turned: str | None = None,
    ) -> None:
        self.axes = set(axes)
        self.turned = turned
        self.stays_open = stays_open
        self.least = least
        self.small = small
        self.of_least: dict[tuple[str, int], list[Path]] = {}
        self.taken: dict[str, str] = {}
        self._usual = {name: Size.symbol(name, LEAST) for name in enlarged}
        self.required: dict[Size, None] = {}
        self.behind: dict[str, frozenset[str]] = {}  # of a symbol, the declared axes that it follows from
        self.equations = Equations()
        self.places: dict[str, str] = {}
        self.paths: dict[str, Path] = {}
        self.of_data: dict[str, None] = {}
        self.checks: list[str] = []

    # -- answers

    def provable(self, number: Number, sizes: Mapping[str, Dim] | None = None) -> bool | None:
        """The answer that holds for all sizes, or for those that `sizes` says; None where there is none."""
        if number.origin is None:
            return bool(number.example)
        target, operands = number.origin
        if not isinstance(target, str):
            return None
        if target in _JOINED:
            found = [self.provable(item, sizes) if isinstance(item, Number) else bool(item) for item in operands]
            settles = target == "aten::__or__.bool"
            if settles in found:
                return settles
            return None if None in found else not settles
        if target == "aten::__not__":
            inner = self.provable(operands[0], sizes)
            return None if inner is None else not inner
        if target not in _RELATIONS:
            return None
        one, other = (item.size if isinstance(item, Number) else item for item in operands)
        if one is None or other is None or isinstance(one, float) or isinstance(other, float):
            return None
        if sizes:
            one, other = (
                resolved.replaced(sizes) if isinstance(resolved, Size) else resolved
                for resolved in map(self.equations.resolved, (one, other))
            )
        return self._compared(target, one, other)

    def _compared(self, target: str, one: Dim, other: Dim) -> bool | None:
        equations = self.equations
        if target in ("aten::eq.int", "aten::ne.int"):
            found = equations.equals(one, other)
        elif target in ("aten::lt.int", "aten::ge.int"):
            found = equations.less(one, other)
        else:
            found = equations.less(other, one)
        return found if found is None or target in _PLAIN else not found

    def answer(self, number: Number, line: str, by_python: bool = False) -> bool:
        """The answer to a question that decides how Python, or else torch, goes on."""
        found = self._usually(number, line) if by_python else None
        found = self.provable(number) if found is None else found
        if found is not None:
            return found
        holds = bool(number.example)
        target = number.origin[0]
        if (target, holds) in _EQUATIONS:
            one, other = (item.size if isinstance(item, Number) else item for item in number.origin[1])
            if self.stays_open and self._is_number_of_steps(one, other):
                return holds
            if one is not None and other is not None:
                names = self.learn(one, other, line)
                if by_python and not (names and all(map(self._is_said, names))):
                    self.paths.setdefault(text_of(number), Path(number, holds, line, learnt=True))
                if names or self.provable(number) is not None:
                    return holds
        of_few = by_python and _is_of_few(number)
        path = self.paths.setdefault(text_of(number), Path(number, holds, line, of_few=of_few))
        if len(self.paths) > _MOST_PATHS and (self.small or self.turned):
            raise ExportError(
                "the other answers lead nowhere", code="trace-cannot-record"
            )  # a loop that they never end
        if len(self.paths) <= _MOST_PATHS:
            self._count_steps(number, line)
        return holds is not (path.of_few and path.line == self.turned)

    def _count_steps(self, number: Number, line: str) -> None:
        """If what a line asks holds for the example's size of an axis alone, it counts steps, as `while i < n` does.

        Then Python takes the size as a number, and the questions are none.
        """
        names = _symbols(number)
        paths = [path for path in self.paths.values() if path.line == line and _symbols(path.number) == names]
        answers = [(path.number, path.holds) for path in paths]
        for path in (path for asked in self.of_least.values() for path in asked):
            if path.line == line and _symbols(path.number) == names:  # answered as for larger sizes
                answers.append((path.number, not path.holds))
        if len(names) != 1 or not names <= self.axes or len(answers) < _QUESTIONS:
            return
        (name,) = names
        example = number.owner.example_of(name)  # type: ignore[attr-defined]
        for other in (example - 1, example + 1):
            if all(self.provable(asked, {name: other}) is holds for asked, holds in answers):
                return
        self.paths = {text: path for text, path in self.paths.items() if path not in paths}
        self.of_least = {
            key: kept for key, asked in self.of_least.items() if (kept := [path for path in asked if path.line != line])
        }
        size = number.owner.symbol(name)  # type: ignore[attr-defined]
        if isinstance(size, Size):
            self.required.setdefault(size)
        if not self.stays_open:
            self.learn(size, example, line)

    def of_full_row(self, number: Number, line: str) -> bool | None:
        """The answer to what a step over one of all rows asks about a number of the data, where it is not zero.

        None where that does not say it.  In a step for which nothing was chosen the file does what the others do.
        """
        some = {name: Size.symbol(name, 1) for name in _symbols(number) - self.axes}
        found = self.provable(number, some) if some else None
        if found is not None:
            self.of_data.setdefault(
                f"the model tests at {line} whether a result is empty; the file has the branch for a full one"
            )
        return found

    def lines_of_few(self) -> list[str]:
        """The lines on which Python asks about no or one element of what the data decides."""
        return list(dict.fromkeys(path.line for path in self.paths.values() if path.of_few))

    def forget(self, line: str) -> None:
        """What Python asks about no or one element on this line changes nothing."""
        self.paths = {text: path for text, path in self.paths.items() if not (path.of_few and path.line == line)}

    def takes_no_more_than(self, other: Decisions) -> bool:
        """Whether no more axes become static, and no more numbers of the data are those of the example."""
        static = {item.axis for item in self.specialised()} - {item.axis for item in other.specialised()}
        return not static and not self.of_data.keys() - other.of_data.keys()

    def forget_both(self, asked: Collection[str], answered: Collection[str]) -> None:
        """Say nothing of questions of which both ways are in the file; a question may be asked more than once."""
        left = list(asked)
        for said in answered:
            left.remove(said)
        for said in set(answered).difference(left):
            self.of_data.pop(said, None)
            self.paths.pop(said, None)

    def is_positive_by_path(self, size: Dim) -> bool:
        """Whether a size is positive on the path that was taken."""
        for path in self.paths.values():
            target, operands = path.number.origin
            one, other = _sizes(operands) if target in _RELATIONS else (None, None)
            if one is None or other is None:
                continue
            sign = _GREATER.get((target, path.holds))
            equals = self.equations.equals
            if sign is not None and equals(sign * (one - other), size):
                return True
            differs = (target, path.holds) in _UNEQUAL and (equals(one - other, size) or equals(other - one, size))
            if differs and self.equations.less(size, 0) is False:
                return True
        return False

    def _usually(self, number: Number, line: str) -> bool | None:
        """The answer for all sizes that are captured, where it is another one for the least size of an axis."""
        found = self.provable(number, self._usual)
        if found is None:
            return None
        answer = found
        for name in sorted(_symbols(number) & self.least.keys()):
            for size in reversed(self.least[name]):
                if size == 0 and number.owner.is_asked_by_torch():  # whose functions take no elements or raise
                    continue
                if self.provable(number, {**self._usual, name: size}) is not found:
                    self.of_least.setdefault((name, size), []).append(Path(number, not found, line))
                    answer = answer if (name, size) != self.small else not found
        return answer

    def _is_said(self, name: str) -> bool:
        """Whether the user learns otherwise what the symbol is: a declared axis that is a number or another one."""
        found = self.equations.replacements[name]
        return name in self.axes and (isinstance(found, int) or found.name in self.axes)

    def _is_number_of_steps(self, one: Dim | None, other: Dim | None) -> bool:
        """Whether a size that was required is compared with what may be the length of a list of steps."""
        return (isinstance(other, int) and one in self.required) or (isinstance(one, int) and other in self.required)

    def assume(self, number: Number, line: str) -> bool:
        """Note what the model says of its sizes; whether it holds for the example."""
        if not number.example:
            return False
        if number.origin and number.origin[0] == "aten::eq.int":
            one, other = (item.size if isinstance(item, Number) else item for item in number.origin[1])
            if one is not None and other is not None:
                self.learn(one, other, line)
        return True

    def axes_of(self, number: Number) -> frozenset[str] | None:
        """The declared axes that a number follows from; None where data decides it too."""
        found: set[str] = set()
        for name in _symbols(number):
            axes = frozenset([name]) if name in self.axes else self.behind.get(name)
            if axes is None:
                return None
            found |= axes
        return frozenset(found)

    def require(self, number: Number, line: str, number_of_data: str) -> None:
        """Python takes the number of the example as it is."""
        arguments = arguments_in(number)
        for name in arguments:
            self.taken.setdefault(name, line)
        symbols = _symbols(number)
        if isinstance(number.size, Size) and symbols <= self.axes:
            if self._is_the_same_nearby(number):
                value = number.wrap_int(number.example)
                self.paths.setdefault(f"{number.size} == {number.example}", Path(number.eq(value), True, line))  # type: ignore[attr-defined]
                return
            self.required.setdefault(number.size)
            if self.stays_open:
                return
        axes = self.axes_of(number)
        for name in sorted(symbols & self.axes if axes is None else axes):
            self.learn(number.owner.symbol(name), number.owner.example_of(name), line)  # type: ignore[attr-defined]
        if axes is None and not arguments:
            self.of_data.setdefault(number_of_data)

    def _is_the_same_nearby(self, number: Number) -> bool:
        """Whether a number is the example's for all sizes up to several times the example's: a count of blocks, say."""
        size = number.size
        assert isinstance(size, Size)
        sizes = {name: number.owner.example_of(name) for name in size.symbols}  # type: ignore[attr-defined]
        return all(
            size.at({**sizes, name: other}) == number.example
            for name, example in sizes.items()
            for other in (LEAST, example + 1, 2 * example, _NEARBY * example)
        )

    def learn(self, one: Dim, other: Dim, line: str) -> set[str]:
        """From now on the two are one size; the names of the symbols of which that says what they are."""
        before = set(self.equations.replacements)
        try:
            self.equations.learn(one, other, lambda name: 0 if name in self.axes else 1)
        except ContradictionError:
            return set()
        new = set(self.equations.replacements) - before
        for name in new:
            self.places.setdefault(name, line)
        return new

    # -- what is forgotten

    def kept(self) -> tuple[Any, ...]:
        """What was asked so far."""
        return dict(self.paths), dict(self.of_data), dict(self.taken), dict(self.required)

    def forget_since(self, kept: tuple[Any, ...]) -> None:
        """What was asked since then is asked no more."""
        self.paths, self.of_data, self.taken, self.required = kept

    # -- what is said

    def said(self) -> tuple[Any, ...]:
        """What is equal for captures that took the same way."""
        paths = {
            text: path.holds for text, path in self.paths.items() if path.learnt or self.provable(path.number) is None
        }
        return paths, dict(self.equations.replacements), [*self.of_data], [*self.checks]

    def specialised(self) -> list[Specialised]:
        """The declared axes that an equation makes a number."""
        found = []
        for name in sorted(self.axes):
            size = self.equations.replacements.get(name)
            if isinstance(size, int):
                found.append(Specialised(name, size, self.places.get(name, "the model")))
        return found

    def remarks(self) -> list[str]:
        """One sentence for the paths that were taken, and one for each number of the data."""
        found = [*self.checks, *self.of_data]
        static = {item.axis for item in self.specialised()}
        paths = [
            item
            for item in self.paths.values()
            if (item.learnt or self.provable(item.number) is None) and not self._is_of(static, item.number)
        ]
        if paths:
            said = map(str, paths[:_MOST])
            more = f" and {len(paths) - _MOST} more" if len(paths) > _MOST else ""
            found.append(
                f"the file goes the way of the example, for which {'; '.join(said)}{more}; for sizes where that does "
                "not hold, it may compute something else"
            )
        return found

    def _is_of(self, static: Collection[str], number: Number) -> bool:
        """Whether a number follows from axes that are static, and from nothing else."""
        axes = self.axes_of(number)
        return bool(axes) and static >= axes  # type: ignore[operator]


_MOST_PATHS = 200  # that a run with other answers than those of the example may take
_QUESTIONS = 3  # on one line that are taken for those of a loop
_RELATIONS = frozenset(f"aten::{name}.int" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_PLAIN = frozenset(["aten::eq.int", "aten::lt.int", "aten::gt.int"])
_JOINED = frozenset(["aten::__and__.bool", "aten::__or__.bool"])
_EQUATIONS = frozenset([("aten::eq.int", True), ("aten::ne.int", False)])
_UNEQUAL = frozenset([("aten::eq.int", False), ("aten::ne.int", True)])
# comparisons that say that the first number is greater, or the second one
_GREATER = {("aten::gt.int", True): 1, ("aten::le.int", False): 1}
_GREATER |= {("aten::lt.int", True): -1, ("aten::ge.int", False): -1}


def _sizes(operands: Sequence[Any]) -> tuple[Dim | None, Dim | None]:
    one, other = (item.size if isinstance(item, Number) else item for item in operands)
    return one, other


def _is_of_few(number: Number) -> bool:
    """Whether a comparison is one with 0 or 1."""
    target, operands = number.origin
    return target in _RELATIONS and any(size in (0, 1) for size in _sizes(operands) if isinstance(size, int))


def of_least_size(name: str, size: int, paths: Sequence[Path]) -> str:
    """The remark for an axis with this size, for which the model does something else than for larger ones."""
    said = "; ".join(dict.fromkeys(map(str, paths[:_MOST])))
    return (
        f"axis {name!r} is taken to have {LEAST} elements or more: for {size} the model goes another way ({said}), and "
        "the file may compute something else"
    )


def arguments_in(number: Number) -> set[str]:
    """The names of the arguments that are numbers, of those that the number follows from."""
    target, operands = number.origin if isinstance(number.origin, tuple) else ("", ())
    if target == ARGUMENT:
        return set(operands)
    if not isinstance(target, str):  # a size
        return set()
    return set().union(*(arguments_in(item) for item in operands if isinstance(item, Number)))


def _symbols(number: Number) -> set[str]:
    """The symbols in a number."""
    if number.size is not None:
        return set(number.size.symbols) if isinstance(number.size, Size) else set()
    if number.origin is None:
        return set()
    if not isinstance(number.origin, tuple) or not isinstance(number.origin[0], str):
        return {"data"}
    found: set[str] = set()
    for item in number.origin[1]:
        if isinstance(item, Number):
            found |= _symbols(item)
        elif not isinstance(item, (int, float)):  # a tensor
            found.add("data")
    return found


def without(axes: Mapping[str, Axes], static: Collection[str]) -> dict[str, Axes]:
    """The axes without those that are static."""
    left = {name: {axis: label for axis, label in named.items() if label not in static} for name, named in axes.items()}
    return {name: named for name, named in left.items() if named}


def sizes_below(names: Collection[str], bounds: Mapping[str, tuple[int, int | None]]) -> dict[str, range]:
    """The sizes below those that axes are captured with, by axis."""
    return {name: range(min(bounds.get(name, (0, None))[0], LEAST), LEAST) for name in names}
