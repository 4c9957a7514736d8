"""Operators that read the elements of a list of known length that contains values of the graph."""

from __future__ import annotations

from functools import reduce
from typing import Any

from purexport.aten.graph import AtenValue, Source
from purexport.errors import ExportError
from purexport.frontends.script.kinds import number_kind
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import ELEMENTS, Handlers, ScriptNode
from purexport.frontends.script.values import same

handles = Handlers()
_FOLDS = {
    "prim::min": "prim::min.int",
    "prim::max": "prim::max.int",
    "aten::sum": "aten::add.int",
    "aten::any": "aten::__or__.bool",
    "aten::all": "aten::__and__.bool",
}


@handles(*_FOLDS, on=ELEMENTS)
def _folded(machine: Machine, node: ScriptNode, items: list[Any], *_: Any) -> Any:
    """Combine the elements one after the other, where all are numbers."""
    if not items or any(number_kind(item) is None for item in items):
        return NotImplemented
    number = next(cast for cast in (float, int, bool) if any(number_kind(item) is cast for item in items))
    target = _FOLDS[node.kind]
    return reduce(lambda one, other: machine.record(target, {"a": one, "b": other}, node.source, number), items)


@handles("aten::eq", "aten::ne", on=ELEMENTS)
def _compared(machine: Machine, node: ScriptNode, one: list[Any], other: Any) -> Any:
    if not isinstance(other, (list, tuple)):
        return NotImplemented
    equal = _equal(machine, one, other, node.source)
    if node.kind == "aten::eq":
        return equal
    if isinstance(equal, AtenValue):
        return machine.record("aten::__not__", {"self": equal}, node.source, bool)
    return not equal


def _equal(machine: Machine, one: Any, other: Any, source: Source) -> Any:
    """Equality of two lists with some elements that the graph computes."""
    if len(one) != len(other):
        return False
    pairs = [(mine, theirs) for mine, theirs in zip(one, other, strict=True) if not same(mine, theirs)]
    found: Any = True
    for mine, theirs in pairs:
        if number_kind(mine) is None or number_kind(theirs) is None:
            raise ExportError(
                f"the script compares lists of other things than numbers at {source}", code="script-operator"
            )
        equal = machine.record("aten::eq.int", {"a": mine, "b": theirs}, source, bool)
        if not isinstance(equal, AtenValue) and not equal:
            return False
        if isinstance(equal, AtenValue):
            found = (
                equal if found is True else machine.record("aten::__and__.bool", {"a": found, "b": equal}, source, bool)
            )
    return found
