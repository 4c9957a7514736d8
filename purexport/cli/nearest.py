"""What was perhaps meant by a mistyped word: the nearest of the words, files or modules that there are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any

_LOOKED_AT = 2000  # names of a folder, at most: an error must not take long


def meant(word: str, known: Iterable[str]) -> str:
    """The nearest of the known words as a question; empty where none is near."""
    near = get_close_matches(word.strip("'"), list(known), 1, 0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def near_file(path: Any) -> str:
    """The same for a path that does not exist, among the files of its folder that end alike."""
    folder, name = os.path.split(os.fsdecode(path) if isinstance(path, (str, bytes)) else "")
    try:
        with os.scandir(folder or ".") as entries:
            there = [entry.name for entry in islice(entries, _LOOKED_AT)]
    except OSError:
        return ""
    stem, ending = os.path.splitext(name)
    alike = {os.path.splitext(other)[0]: other for other in there if os.path.splitext(other)[1] == ending}
    near = get_close_matches(stem, alike, 1, 0.6)
    if not near and ending:  # the ending may be what is mistyped
        alike = {other: other for other in there if os.path.splitext(other)[0] == stem}
        near = get_close_matches(name, alike, 1, 0.6)
    return f"; did you mean {os.path.join(folder, alike[near[0]])!r}?" if near else ""


def near_module(name: str) -> str:
    """The same for a module that cannot be imported, among the .py files of the current folder."""
    with os.scandir(".") as entries:
        there = [os.path.splitext(entry.name) for entry in islice(entries, _LOOKED_AT)]
    return meant(name, [stem for stem, ending in there if ending == ".py"])
