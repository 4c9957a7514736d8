"""The operator that computes what an in-place operator or one with ``out=`` writes.

torch names most of them alike (``add_`` and ``add``); the others are rows here.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.aten.graph import Call
from purexport.aten.schema import Signature, signature
from purexport.errors import ExportError

# In-place names whose pure form has another name.
_PURE = {
    "aten::normal_": "aten::normal_functional",
    "aten::bernoulli_.float": "aten::bernoulli.p",
    "aten::__iand__": "aten::__and__",
    "aten::__ior__": "aten::__or__",
    "aten::__ixor__": "aten::__xor__",
    "aten::__ilshift__": "aten::__lshift__",
    "aten::__irshift__": "aten::__rshift__",
    "aten::_index_put_impl_": "aten::index_put",
    "aten::pow_.Scalar": "aten::pow.Tensor_Scalar",  # the overloads of pow are named otherwise
    "aten::pow_.Tensor": "aten::pow.Tensor_Tensor",
    "aten::float_power_.Scalar": "aten::float_power.Tensor_Scalar",
    "aten::float_power_.Tensor": "aten::float_power.Tensor_Tensor",
}


def renamed(args: dict[str, Any], found: Signature, pure: Signature, written: str) -> dict[str, Any]:
    """Arguments under the pure operator's names, which may differ (``dropout_(self)``, ``dropout(input)``)."""
    values = [args[parameter.name] for parameter in found.parameters if parameter.name != "out" or written != "out"]
    return {parameter.name: value for parameter, value in zip(pure.parameters, values, strict=False)}


def _strip(target: str) -> str:
    """``aten::add_.Tensor`` becomes ``aten::add.Tensor``."""
    base, dot, overload = target.partition(".")
    return base.removesuffix("_") + dot + overload


def pure_target(call: Call, found: Signature) -> str:
    """The operator that computes what ``call`` writes."""
    base, dot, overload = call.target.partition(".")
    if found.writes == ("out",):
        return _without_out(call, found)
    candidates = [_PURE.get(call.target), (_PURE[base] + dot + overload) if base in _PURE else None]
    for target in (*candidates, _strip(call.target), "aten::" + base.removeprefix("aten::").strip("_")):
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
    """The overload with the same parameters but ``out``."""
    names = [parameter.name for parameter in found.parameters if parameter.name != "out"]
    for overload in torch._C._jit_get_operation(call.base)[1]:
        target = call.base + (f".{overload}" if overload else "")
        if pure_exists(target) and [parameter.name for parameter in signature(target).parameters] == names:
            return target
    raise ExportError(
        f"{call.target} at {call.source} has an out= argument, and torch has no form of it without one",
        code="no-pure-form",
    )
