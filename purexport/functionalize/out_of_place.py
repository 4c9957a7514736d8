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

# what a tensor is made as, which `out` says
_MAKING = ["dtype", "layout", "device", "pin_memory"]


def renamed(args: dict[str, Any], found: Signature, pure: Signature, written: str) -> dict[str, Any]:
    """The arguments by the pure operator's parameter names, which may differ: `dropout_(self)`, `dropout(input)`.

    An operator with `out=` that makes a tensor takes no dtype: its own is that of `out`.
    """
    names = [parameter.name for parameter in found.parameters if parameter.name not in found.writes]
    if written in found.writes and all(parameter.kwarg_only for parameter in found.parameters if parameter.writes):
        own = {parameter.name: parameter.default for parameter in pure.parameters}
        dtype = {"dtype": args[written].tensor.dtype} if "dtype" in own and "dtype" not in names else {}
        return {**own, **{name: args[name] for name in names}, **dtype}
    values = [args[parameter.name] for parameter in found.parameters if parameter.name != "out" or written != "out"]
    return {parameter.name: value for parameter, value in zip(pure.parameters, values, strict=False)}


def pure_target(call: Call, found: Signature) -> str:
    """The pure operator that computes what `call` writes."""
    if gives_what_it_writes(found):
        return _without_out(call, found)
    name = parsed(call.target)
    plain = str(OperatorName("aten", name.name.strip("_"))) if name.namespace == "aten" else None
    for target in (declared_pure_form(call.target), without_underscore(call.target), plain):
        if target is not None and target != call.target and pure_exists(target):
            return target
    raise ExportError(
        f"{call.target} at {call.source} writes in place, and torch has no pure form of it", code="no-pure-form"
    )


def gives_what_it_writes(found: Signature) -> bool:
    """Whether what is written are the results, in tensors that are given for them (`out=`)."""
    written = [parameter for parameter in found.parameters if parameter.writes]
    letters = [parameter.alias for parameter in written]
    return bool(written) and all(item.kwarg_only for item in written) and list(found.returns) == letters


def pure_exists(target: str) -> bool:
    """True for an operator that torch has and that writes nothing."""
    try:
        return not signature(target).writes
    except LookupError:
        return False


def _without_out(call: Call, found: Signature) -> str:
    """The overload with the same parameters except those for the results; a pure one also says what it makes."""
    names = [parameter.name for parameter in found.parameters if parameter.name not in found.writes]
    pure = [target for target in overloads_of(call.base) if pure_exists(target)]
    for more in ([], _MAKING):
        for target in pure:
            own = [parameter.name for parameter in signature(target).parameters]
            if [name for name in own if name not in more] == [name for name in names if name not in more]:
                return target
    raise ExportError(
        f"{call.target} at {call.source} has an out= argument, and torch has no form of it without one",
        code="no-pure-form",
    )
