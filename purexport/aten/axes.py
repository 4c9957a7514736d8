"""Dynamic axes: their names, and specialized axes, which the model makes static."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from proto_schema.wire.records import dataclass

_OWN = re.compile(r".+_dim_\d+(_\d+)?", re.DOTALL)
Axes = dict[int, str]
Derived = Mapping[str, tuple[str, Callable[[Any], Any]]]
"""Names of axes whose sizes follow from that of another name: that name, and the function of its size."""


def own_name(name: str, axis: int) -> str:
    """The name of an axis of the input `name` by its place, until `graph/passes/size_names.py` finds a better one."""
    return f"{name}_dim_{axis}"


def is_own_name(name: str) -> bool:
    """Whether a name is one that `own_name` gives, with a number behind it where it was taken."""
    return _OWN.fullmatch(name) is not None


@dataclass(frozen=True)
class Specialised:
    """An axis that was declared dynamic and that the model makes static."""

    axis: str
    size: int
    place: str

    def __str__(self) -> str:
        return (
            f"axis {self.axis!r} was declared dynamic, but the model fixes it at {self.size} at {self.place}; "
            "the file takes only that size"
        )
