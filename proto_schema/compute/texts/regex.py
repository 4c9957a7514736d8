"""Whether a whole text matches a pattern, in time proportional to both, as RE2 does it.

Python's `re` goes back where a choice was wrong, so that `(a+)+$` takes twice as long for each further letter. Here the
pattern becomes instructions, and all choices are followed at once: the states after each character are a set. Whether
a repetition is greedy makes no difference for a whole text. Python parses the pattern; what RE2 does not know is
refused (looking ahead or behind, references to groups, possessive repetitions), and so are patterns of more than
`MOST` instructions. Classes are ASCII, and `$` is the end of the text, as in RE2 (https://github.com/google/re2,
doc/syntax.txt).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

__all__ = ["MOST", "Pattern", "PatternError"]

MOST = 10_000
_DEEPEST = 100  # groups inside of one another

_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_CATEGORIES: dict[str, frozenset[str]] = {
    "DIGIT": frozenset("0123456789"),
    "SPACE": frozenset(" \t\n\r\f"),
    "WORD": _WORD,
}
_ONE, _SPLIT, _AT, _MATCH = range(4)
Test = Callable[[str], bool]


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


class Pattern:
    """A pattern, ready to be matched."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        if text.count("(") > _DEEPEST:
            self._check_depth(text)
        try:
            tree = _parser().parse(text, re.ASCII)
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternError(str(error)) from None
        # (kind, test or place, targets) of each instruction
        self.code: list[tuple[int, Any, tuple[int, ...]]] = []
        self._sequence(tree, int(tree.state.flags))
        self._add(_MATCH, None)

    @staticmethod
    def _check_depth(text: str) -> None:
        depth = deepest = 0
        for character in text:
            depth += (character == "(") - (character == ")")
            deepest = max(deepest, depth)
        if deepest > _DEEPEST:
            raise PatternError(f"groups are nested more than {_DEEPEST} levels deep")

    # -- instructions

    def _add(self, kind: int, detail: Any, *targets: int) -> int:
        if len(self.code) >= MOST:
            raise PatternError(f"it needs more than {MOST} states")
        self.code.append((kind, detail, targets or (len(self.code) + 1,)))
        return len(self.code) - 1

    def _sequence(self, items: Iterable[Any], flags: int) -> None:
        for operation, detail in items:
            self._item(str(operation), detail, flags)

    def _item(self, name: str, detail: Any, flags: int) -> None:
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            self._add(_ONE, _test(name, detail, flags))
        elif name == "AT":
            self._add(_AT, (str(detail), bool(flags & re.MULTILINE)))
        elif name == "SUBPATTERN":
            _, added, removed, inner = detail
            self._sequence(inner, (flags | added) & ~removed)
        elif name == "BRANCH":
            self._branches(detail[1], flags)
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = detail
            self._repeated(least, most, inner, flags)
        else:
            raise PatternError("it looks ahead or behind or refers to a group, which RE2 does not know")

    def _branches(self, branches: Sequence[Any], flags: int) -> None:
        split = self._add(_SPLIT, None)
        starts, ends = [], []
        for branch in branches:
            starts.append(len(self.code))
            self._sequence(branch, flags)
            ends.append(self._add(_SPLIT, None))
        self.code[split] = (_SPLIT, None, tuple(starts))
        for end in ends:
            self.code[end] = (_SPLIT, None, (len(self.code),))

    def _repeated(self, least: int, most: Any, inner: Any, flags: int) -> None:
        for _ in range(least):
            start = len(self.code)
            self._sequence(inner, flags)
            if len(self.code) == start:  # nothing, so often as one likes
                return
        if str(most) == "MAXREPEAT":
            split = self._add(_SPLIT, None)
            self._sequence(inner, flags)
            self._add(_SPLIT, None, split)
            self.code[split] = (_SPLIT, None, (split + 1, len(self.code)))
            return
        splits = []
        for _ in range(int(most) - least):
            splits.append(self._add(_SPLIT, None))
            self._sequence(inner, flags)
        for split in splits:
            self.code[split] = (_SPLIT, None, (split + 1, len(self.code)))

    # -- matching

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        states = self._reached([0], text, 0)
        for place, character in enumerate(text):
            after = []
            for state in states:
                kind, detail, targets = self.code[state]
                if kind == _ONE and detail(character):
                    after.append(targets[0])
            if not after:
                return False
            states = self._reached(after, text, place + 1)
        return any(self.code[state][0] == _MATCH for state in states)

    def _reached(self, states: list[int], text: str, place: int) -> list[int]:
        """All states that need no further character."""
        found: dict[int, None] = {}
        waiting = states
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found[state] = None
            kind, detail, targets = self.code[state]
            if kind == _SPLIT or (kind == _AT and _holds(detail, text, place)):
                waiting.extend(targets)
        return list(found)


def _parser() -> Any:
    """The parser of Python's patterns, which was a module of its own before 3.11."""
    try:
        return import_module("re._parser")
    except ImportError:
        return import_module("sre_parse")


def _holds(detail: tuple[str, bool], text: str, place: int) -> bool:
    name, multiline = detail
    if name == "AT_BEGINNING_STRING" or (name == "AT_BEGINNING" and not multiline):
        return place == 0
    if name == "AT_END_STRING" or (name == "AT_END" and not multiline):
        return place == len(text)
    if name == "AT_BEGINNING":
        return place == 0 or text[place - 1] == "\n"
    if name == "AT_END":
        return place == len(text) or text[place] == "\n"
    before = place > 0 and text[place - 1] in _WORD
    after = place < len(text) and text[place] in _WORD
    return (before != after) == (name == "AT_BOUNDARY")


def _test(name: str, detail: Any, flags: int) -> Test:
    if name == "ANY":
        return (lambda _: True) if flags & re.DOTALL else (lambda character: character != "\n")
    items = detail if name == "IN" else [("LITERAL", detail)]
    plain = _member([(str(kind), value) for kind, value in items])
    if not flags & re.IGNORECASE:
        found = plain
    else:

        def found(character: str) -> bool:
            return plain(character) or plain(character.lower()) or plain(character.upper())

    return (lambda character: not found(character)) if name == "NOT_LITERAL" else found


def _member(items: list[tuple[str, Any]]) -> Test:
    """Whether a character is in a class."""
    negated = bool(items) and items[0][0] == "NEGATE"
    ranges = [(value, value) if kind == "LITERAL" else value for kind, value in items if kind in ("LITERAL", "RANGE")]
    categories = []
    for kind, value in items:
        if kind == "CATEGORY":
            name = str(value).removeprefix("CATEGORY_")
            categories.append((_CATEGORIES[name.removeprefix("NOT_")], not name.startswith("NOT_")))

    def member(character: str) -> bool:
        code = ord(character[0]) if character else -1
        found = any(low <= code <= high for low, high in ranges)
        found = found or any((character in known) is wanted for known, wanted in categories)
        return found is not negated

    return member
