"""The contents of a script's variables, besides values of the graph, plain numbers and strings.

Lists, dicts and class instances are objects that may have several names, as in the script: a change through one name
is visible through the others.  A list is known (a Python list of its elements), or it is a value of the graph, after a
loop or branch on data changed its length.  Invariant: every access to the latter as a Python list raises, so that it is
never mistaken for an empty list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from purexport.aten.graph import AtenValue, Source
from purexport.errors import ExportError


@dataclass(frozen=True)
class Module:
    """A script module and the path that leads to it."""

    module: Any
    path: str

    def join(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


@dataclass(frozen=True)
class ComputedText:
    """A string with numbers that are known only at run time; it can be used in messages only."""

    text: str


class Uninitialized:
    """The content of a variable on a path that never reads it."""


class Raised(ExportError):  # noqa: N818  it is raised where the script raises
    """The script always raises here, so a run that succeeds does not take this path."""

    def __init__(self, place: Source, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"the script raises at {place} on these args: {reason}", code="script-raises")


@dataclass(frozen=True)
class Maybe:
    """An optional item: None where `present` is false at run time (`item` is then a filler), otherwise `item`."""

    present: AtenValue
    item: Any
    source: Source


def split(item: Any) -> tuple[Any, Any]:
    """Whether an item is present, and the item."""
    if isinstance(item, Maybe):
        return item.present, item.item
    return (False, Uninitialized()) if item is None else (True, item)


@dataclass(frozen=True)
class FakeSequence:
    """The fake of a list of tensors.  `free` names the sizes of `element` in which elements may differ."""

    element: torch.Tensor
    free: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Columns:
    """A list of tuples whose length is known only at run time: one list for each position in the tuples."""

    lists: tuple[ScriptList, ...]


class ScriptList(list[Any]):
    """A list of the script: its elements, or `value` if its length is known only at run time.

    `value` is a sequence, a tensor of numbers, or a list of each for a list of tuples.
    `kind` is the element type as TorchScript writes it, empty where it is not known; `frozen` says why the list
    must not be changed, because other names may or may not be the same list.
    """

    __slots__ = ("frozen", "kind", "value")

    def __init__(self, items: Any = (), kind: str = "", value: AtenValue | Columns | None = None) -> None:
        super().__init__(items)
        self.kind = kind
        self.value = value
        self.frozen = ""

    def clone(self) -> ScriptList:
        """A new list with the same content."""
        return ScriptList(() if self.value is not None else self, self.kind, self.value)

    def become(self, other: ScriptList) -> None:
        """Take the content of `other`."""
        self.value = None
        self[:] = () if other.value is not None else list(other)
        self.value, self.kind = other.value, other.kind or self.kind

    def _known(self) -> None:
        if self.value is not None:
            raise ExportError(
                "the length of a list depends on data here, and this operation wants to know it",
                code="list-of-unknown-length",
            )

    def __iter__(self) -> Iterator[Any]:
        self._known()
        return super().__iter__()

    def __len__(self) -> int:
        self._known()
        return super().__len__()

    def __getitem__(self, index: Any) -> Any:
        self._known()
        return super().__getitem__(index)

    def __contains__(self, item: Any) -> bool:
        self._known()
        return super().__contains__(item)

    def __add__(self, other: Any) -> Any:
        self._known()
        return [*self, *other]

    def __repr__(self) -> str:
        return "a list of unknown length" if self.value is not None else super().__repr__()


class ScriptDict(dict[Any, Any]):
    """A dict of the script; its keys are always known."""

    frozen = ""

    def clone(self) -> ScriptDict:
        """A new dict with the same content."""
        return type(self)(self)

    def become(self, other: ScriptDict) -> None:
        """Take the content of `other`."""
        self.clear()
        self.update(other)


class ScriptObject(ScriptDict):
    """An instance of a scripted class: its attributes."""


Changeable = ScriptList | ScriptDict


def imported(item: Any) -> Any:
    """Python lists and dicts, nested ones included, as objects of the interpretation."""
    if isinstance(item, (ScriptList, ScriptDict)):
        return item
    if isinstance(item, list):
        return ScriptList(map(imported, item))
    if isinstance(item, tuple):
        items = [imported(part) for part in item]
        return type(item)(*items) if hasattr(item, "_fields") else tuple(items)
    if isinstance(item, dict):
        return ScriptDict({key: imported(part) for key, part in item.items()})
    return item


def returned(item: Any) -> Any:
    """A result as plain lists and dicts; a list of unknown length is its value.

    Raises ExportError for a result that cannot be an output.
    """
    if isinstance(item, Maybe):
        raise ExportError(
            f"the script returns what is None on one path at {item.source} and a value on the other, which no ONNX "
            "output can say; return a tensor on both paths, and a flag beside it",
            code="none-on-one-path",
        )
    if isinstance(item, ScriptObject):
        raise ExportError(
            "the script returns an instance of a class; return its attributes, as a tuple", code="script-object"
        )
    if isinstance(item, ScriptList) and isinstance(item.value, Columns):
        raise ExportError(
            "the script returns a list of tuples whose length depends on data; return a list for each part",
            code="list-of-unknown-length",
        )
    if isinstance(item, ScriptList):
        return item.value if item.value is not None else [returned(part) for part in item]
    if isinstance(item, dict):
        return {key: returned(part) for key, part in item.items()}
    if isinstance(item, tuple):
        return tuple(returned(part) for part in item)
    return item


def holds_value(item: Any) -> bool:
    """True when a value of the graph is in `item`."""
    if isinstance(item, ScriptList) and item.value is not None:
        return True
    if isinstance(item, (list, tuple)):
        return any(map(holds_value, item))
    return isinstance(item, AtenValue)


def is_plain(item: Any) -> bool:
    """True for what a TorchScript constant may be, besides tensors."""
    return item is None or isinstance(item, (bool, int, float, str, torch.device, torch.dtype))


def same(one: Any, other: Any) -> bool:
    """One object, or equal constants (0.0 and -0.0 are two)."""
    if one is other:
        return True
    if not is_plain(one) or type(one) is not type(other) or one != other:
        return False
    return not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other)
