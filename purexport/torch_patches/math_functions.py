"""Lets a capture record `math.sqrt(x.shape[1])`: functions of Python's `math` on numbers that follow from sizes.

These functions are written in C and make a number of whatever they get.  So the names in the module stand for others
for a while, in the whole process; what is no number of ours goes to the original.  Code that is told that it is traced
gives sizes to functions of torch too, such as `torch.ceil`, because there they would be tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

_OF_TORCH = ("ceil", "floor", "round", "sqrt")


def functions_of_math() -> Any:
    """What the functions of `math`, and those of torch with their names, are at the moment."""
    return dict(vars(math)), [getattr(torch, name) for name in _OF_TORCH]


@contextmanager
def math_recorded(
    forms: Mapping[str, Callable[..., Any]], of_torch: Mapping[str, Callable[..., Any]] | None = None
) -> Iterator[None]:
    """Inside, `math.name(...)` is what the form called `name` gives; where that is None, the original decides.

    `of_torch` are the forms of functions of torch.
    """
    places = [(math, name, form) for name, form in forms.items()]
    places += [(torch, name, form) for name, form in (of_torch or {}).items()]
    originals = [(module, name, getattr(module, name)) for module, name, _ in places]
    for (module, name, form), (_, _, original) in zip(places, originals, strict=True):
        setattr(module, name, _other(original, form))
    try:
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)


def _other(original: Callable[..., Any], form: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        found = form(*args) if not kwargs else None
        return original(*args, **kwargs) if found is None else found

    return function
