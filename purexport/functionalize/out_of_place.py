"""The pure operator that computes what an in-place operator or an operator with `out=` writes.

torch derives most names from each other (`add_` and `add`); the facts declare the others.
"""

from __future__ import annotations

from typing import Any

from purexport.aten.graph import Call
from purexport.aten.names import OperatorName, overloads_of, parsed, without_underscore
from purexport.aten.schema import Signature, signature
from purexport.errors import ExportError
from purexport.facts.table import declared_pure_form


def renamed(args: dict[str, Any], found: Signature, pure: Signature, written: str) -> dict[str, Any]:
    """The arguments by the pure operator's parameter names, which may differ: `dropout_(self)`, `dropout(input)`."""
    values = [args[parameter.name] for parameter in found.parameters if parameter.name != "out" or written != "out"]
    return {parameter.name: value for parameter, value in zip(pure.parameters, values, strict=False)}


def pure_target(call: Call, found: Signature) -> str:
    """The pure operator that computes what `call` writes."""
    if found.writes == ("out",):
        return _without_out(call, found)
    name = parsed(call.target)
    plain = str(OperatorName("aten", name.name.strip("_"))) if name.namespace == "aten" else None
    for target in (declared_pure_form(call.target), without_underscore(call.target), plain):
        if target is not None and target != call.target and pure_exists(target):
            return target
    raise ExportError(
        f"{call.target} at {call.source} writes in place, and torch has no pure form of it", code="no-pure-form"
    )


def pure_exists(target: str) -> bool:
    """True for an operator that torch has and that writes nothing."""
    try:
        return not signature(target).writes
    except LookupError:
        return False


def _without_out(call: Call, found: Signature) -> str:
    """The overload with the same parameters except `out`."""
    names = [parameter.name for parameter in found.parameters if parameter.name != "out"]
    for target in overloads_of(call.base):
        if pure_exists(target) and [parameter.name for parameter in signature(target).parameters] == names:
            return target
    raise ExportError(
        f"{call.target} at {call.source} has an out= argument, and torch has no form of it without one",
        code="no-pure-form",
    )
