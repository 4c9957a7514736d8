"""The form of a declaration: `Fact("aten::one_hot", data_dependent=True, shapes=_one_hot)`.

A fact says of one operator, all its overloads together, what torch's schema and alias annotations leave unsaid.  The
declarations stand in the files beside this one, by theme, and `table` looks them up.  A column is filled only where
the plain answer would be wrong, so an operator without a declaration is an ordinary one: its result is as its schema
says, its shape function is torch's, and its pure form has its name without the underscore.

A column that differs between overloads maps the overload's name (an empty text for the default one) to what holds.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from purexport.aten.graph import Call, Value
from purexport.aten.names import parsed


class UnknownInverse(LookupError):  # noqa: N818  caught by the functionalization, never by users
    """There is no way to say what a write through this view does, or not for these arguments.

    `code` is that of the error which users see.
    """

    def __init__(self, reason: str, *, code: str = "view-without-inverse") -> None:
        self.code = code
        super().__init__(reason)


Inverse = Callable[[Call, Value, Value], tuple[str, dict[str, Any]]]
ShapeFunction = Callable[..., Any]


class Aliases(enum.Enum):
    """Whether a result shares memory with an argument, where the annotations of the schema do not tell."""

    ALWAYS = "a view without an annotation"
    MAYBE = "a view where it can be one and else a copy, or the other way round: sizes and strides decide"
    UNTOLD = "what was recorded does not tell whether it was a view or a copy"
    NEVER = "a composite operator that always computes; to ask torch of each call would take long"


class ResultDtype(enum.Enum):
    """Which dtype a result has, where it is not that of the operands."""

    ALWAYS = "another one for every operand: of comparisons bool"
    INTEGERS = "a wider one for integers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A view that returns a list: how its pieces are put together again.

    `axis` is the axis of a call whose schema has no `dim`, by the base's rank; `join` the operator that joins the
    pieces; `size` the size of each along the axis, of the axis's own size and the arguments, where the arguments do
    not list them.
    """

    axis: Callable[[int | None], int] | None = None
    join: str = "aten::cat"
    size: Callable[[int, Mapping[str, Any]], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Normalisation that writes running statistics, which its schema does not say.

    `switch` is the argument that says that the input's own statistics are used, `momentum` that which says how much
    of them goes into the running ones, and `by_instance` that they are averaged over the batch.
    """

    switch: str = "training"
    momentum: str = "momentum"
    by_instance: bool = False


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Fact:
    """One row, of the operator `namespace::name`.  Raises ValueError for a name with an overload.

    - `aliases`: which memory a result shares, beyond the annotations.
    - `returns_itself`: whether a result may be the very argument, and no other name for its memory.
    - `inverse`: what a write through the view does to its base: given the view's call, the base before the write and
      the view's new content, the target and the arguments of a call that gives the base after it.  It may raise
      UnknownInverse.
    - `pieces`: the same for a view that returns a list.
    - `reinterprets`: overloads that show the same bytes as other numbers; no inverse serves these.
    - `becomes`: for an operator that changes in place what a name shows and not the bytes, the view that it is.
    - `untraceable`: an operator in place whose effect on other names cannot be followed.
    - `out_of_place`: the operator that computes what this one writes, where it has another name.
    - `statistics`: running statistics that are written.
    - `data_dependent`: whether sizes of a result follow from the content of a tensor.
    - `shapes`: shape functions of ours: on fake tensors, by the names of the arguments.
    - `shape_of_call`: the same, where the shape function depends on what was recorded of the call.
    - `broadcasts`: whether operands are broadcast, where torch has no tag that says so.
    - `result_dtype`: which dtype a result has.
    - `makes_constant`: whether it makes a tensor of numbers alone, whose content is worth keeping while it is small.
    - `reads_number`: whether it gives a tensor's number as one of Python.
    """

    operator: str
    _: KW_ONLY
    aliases: Aliases | None = None
    returns_itself: bool | Callable[[Call], bool] = False
    inverse: Inverse | None = None
    pieces: Pieces | None = None
    reinterprets: frozenset[str] = frozenset()
    becomes: Mapping[str, str] = field(default_factory=_empty)
    untraceable: bool = False
    out_of_place: str | Mapping[str, str] = field(default_factory=_empty)
    statistics: Statistics | None = None
    data_dependent: bool | Callable[[Call], bool] = False
    shapes: ShapeFunction | Mapping[str, ShapeFunction] = field(default_factory=_empty)
    shape_of_call: Callable[[Call], ShapeFunction] | None = None
    broadcasts: bool = False
    result_dtype: ResultDtype | None = None
    makes_constant: bool = False
    reads_number: bool = False

    def __post_init__(self) -> None:
        if parsed(self.operator).overload:
            raise ValueError(f"a fact is declared for all overloads together, and not for {self.operator!r}")


def alike(names: str, row: Fact) -> tuple[Fact, ...]:
    """The same row for several operators; `names` are those after the namespace, in one text."""
    namespace = parsed(row.operator).namespace
    return tuple(replace(row, operator=f"{namespace}::{name}") for name in names.split())
