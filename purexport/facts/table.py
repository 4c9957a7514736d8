"""The facts of all operators, looked up by name.

`FILES` lists the files with declarations.  Invariant: an operator is declared once; a second row is an import error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from purexport.aten.graph import Call
from purexport.aten.names import base_of, parsed
from purexport.aten.schema import signature
from purexport.facts import (
    composites,
    in_place,
    linear_algebra,
    normalization,
    numbers,
    pieces,
    pools,
    promotion,
    quantized,
    recurrent,
    sizes,
    views,
)
from purexport.facts.fact import Fact, ShapeFunction

FILES = (
    views,
    pieces,
    in_place,
    composites,
    promotion,
    normalization,
    sizes,
    linear_algebra,
    recurrent,
    quantized,
    numbers,
    pools,
)


def collected(rows: Iterable[Fact]) -> Mapping[str, Fact]:
    """The rows by operator.  Raises ValueError for one that is declared twice."""
    found: dict[str, Fact] = {}
    for row in rows:
        if found.setdefault(row.operator, row) is not row:
            raise ValueError(f"{row.operator} is declared twice; say all that is known of it in one fact")
    return MappingProxyType(found)


FACTS = collected(row for file in FILES for row in file.FACTS)
_UNKNOWN = Fact(operator="")


def fact_of(target: str) -> Fact:
    """The fact of `namespace::name` or `namespace::name.overload`; an empty fact where nothing is declared."""
    return FACTS.get(base_of(target), _UNKNOWN)


def shape_function(call: Call) -> ShapeFunction | None:
    """Our shape function for a call; None where torch's own is used."""
    row = fact_of(call.target)
    return row.shape_of_call(call) if row.shape_of_call is not None else shape_function_of(call.target)


def shape_function_of(target: str) -> ShapeFunction | None:
    """Our shape function for an overload; None where torch's own is used.

    A function that is declared for all overloads is used for those that write nothing.
    """
    shapes = fact_of(target).shapes
    if isinstance(shapes, Mapping):
        return shapes.get(parsed(target).overload)
    return None if signature(target).writes else shapes


def has_data_dependent_size(call: Call) -> bool:
    """Whether a size of a result depends on the content of a tensor."""
    said = fact_of(call.target).data_dependent
    return said if isinstance(said, bool) else said(call)


def reinterprets(target: str) -> bool:
    """Whether an overload reads the bytes of its argument as other numbers."""
    return parsed(target).overload in fact_of(target).reinterprets


def may_return_itself(call: Call) -> bool:
    """Whether the result may be the argument object itself, and not only a view of its memory."""
    said = fact_of(call.target).returns_itself
    return said if isinstance(said, bool) else said(call)


def view_in_place(target: str) -> str | None:
    """The view that stands for an in-place operator which changes metadata and not the bytes; None for others."""
    return fact_of(target).becomes.get(parsed(target).overload)


def declared_pure_form(target: str) -> str | None:
    """The pure operator that computes what `target` writes, where a fact declares it."""
    said, name = fact_of(target).out_of_place, parsed(target)
    return str(parsed(said)._replace(overload=name.overload)) if isinstance(said, str) else said.get(name.overload)
