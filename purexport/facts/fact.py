"""The form of a declaration: `Fact("aten::one_hot", data_dependent=True, shapes=_one_hot)`.

A fact states what torch's schema and alias annotations leave out.  It covers one operator with all its overloads.  The
declarations are in the files beside this one, grouped by theme, and `table` looks them up.  A column is filled only
where the default would be wrong.  So an operator without a declaration is an ordinary one: its schema describes its
result, its shape function is torch's, and its pure form has its name without the underscore.

A column that differs between overloads is a mapping from the overload's name (an empty string for the default one).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, field, replace
from types import MappingProxyType
from typing import Any

from proto_schema.wire.records import dataclass
from purexport.aten.graph import AtenValue, Call
from purexport.aten.names import parsed


class UnknownInverse(LookupError):  # noqa: N818  caught by the functionalization, never by users
    """The effect of a write through this view, or through this view with these arguments, cannot be expressed.

    `code` is the code of the error that users see.
    """

    def __init__(self, reason: str, *, code: str = "view-without-inverse") -> None:
        self.code = code
        super().__init__(reason)


Inverse = Callable[[Call, AtenValue, AtenValue], tuple[str, dict[str, Any]]]
ShapeFunction = Callable[..., Any]


class Aliases(enum.Enum):
    """Whether a result aliases an argument, where the annotations of the schema do not tell."""

    ALWAYS = "a view without an annotation"
    MAYBE = "a view where it can be one and else a copy, or the other way round: sizes and strides decide"
    UNKNOWN = "what was recorded does not tell whether it was a view or a copy"
    NEVER = "a composite operator that always computes; to ask torch of each call would take long"


class ResultDtype(enum.Enum):
    """Which dtype a result has, where it differs from that of the operands."""

    ALWAYS = "another one for every operand: of comparisons bool"
    INTEGERS = "a wider one for integers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """How to join the results of a view that returns a list (`split`, `unbind`) into the base again.

    - `axis` gives the axis from the base's rank, for a call whose schema has no `dim`.
    - `join` is the operator that joins the parts: a concat or a stack.
    - `size` gives the size of each part along the axis from the axis's own size and the arguments.  It is needed where
      the arguments do not list the sizes.
    """

    axis: Callable[[int | None], int] | None = None
    join: str = "aten::cat"
    size: Callable[[int, Mapping[str, Any]], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Normalization that writes running statistics, although its schema does not say so.

    `switch` names the argument that selects the input's own statistics.  `momentum` names the argument that weighs them
    against the running ones.  With `by_instance` the statistics of the instances are averaged over the batch.
    """

    switch: str = "training"
    momentum: str = "momentum"
    by_instance: bool = False


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Fact:
    """The row of the operator `namespace::name`.  Raises ValueError for a name with an overload.

    - `aliases`: whether a result aliases an argument, where the annotations do not tell.
    - `returns_itself`: whether a result may be the argument object itself, and not only a view of its memory.
    - `inverse`: what a write through the view does to its base.  It takes the view's call, the base before the write
      and the view's new content.  It returns the target and the arguments of a call that computes the base after the
      write.  It may raise UnknownInverse.
    - `pieces`: the same for a view that returns a list.
    - `reinterprets`: overloads that read the same bytes as other numbers.  They have no inverse.
    - `becomes`: for an in-place operator that changes a tensor's metadata (its shape, say) and not its bytes, the view
      that shows the same.
    - `untraceable`: an in-place operator whose effect on other names of the tensor cannot be followed.
    - `out_of_place`: the operator that computes what this one writes, where the name is not the obvious one.
    - `statistics`: the running statistics that the operator writes.
    - `data_dependent`: whether a size of a result depends on the content of a tensor.
    - `shapes`: our own shape functions.  They run on fake tensors and take the arguments by name.
    - `shape_of_call`: the same, where the shape function depends on what was recorded of the call.
    - `broadcasts`: whether the operands are broadcast, where torch has no tag that says so.
    - `result_dtype`: which dtype a result has.
    - `makes_constant`: whether it makes a tensor from numbers alone; the content of a small one is kept.
    - `reads_number`: whether it returns the number in a tensor as a Python number.
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
    """The same row for several operators; `names` are their names without the namespace, separated by spaces."""
    namespace = parsed(row.operator).namespace
    return tuple(replace(row, operator=f"{namespace}::{name}") for name in names.split())
