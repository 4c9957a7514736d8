"""Lets a capture record `math.sqrt(x.shape[1])`: the functions of Python's `math` on numbers that follow from sizes.

These functions are written in C and make a number of whatever they get.  So the names in the module stand for others
for a while, in the whole process; what is no number of ours goes to the original.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def functions_of_math() -> Any:
    """What the functions of `math` are at the moment."""
    return dict(vars(math))


@contextmanager
def math_recorded(forms: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Inside, `math.name(...)` is what the form called `name` gives; where that is None, the original decides."""
    originals = {name: getattr(math, name) for name in forms}
    for name, form in forms.items():
        setattr(math, name, _other(originals[name], form))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(math, name, original)


def _other(original: Callable[..., Any], form: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        found = form(*args)
        return original(*args) if found is None else found

    return function
