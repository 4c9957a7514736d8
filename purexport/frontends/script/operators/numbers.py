"""Numbers, known or computed: conversions, and the lengths and elements of ranges."""

from __future__ import annotations

from typing import Any

from purexport.aten.graph import AtenValue
from purexport.errors import ExportError
from purexport.frontends.script.conversions import to_number
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import COMPUTED, DYNAMIC, Handlers, ScriptNode

handles = Handlers()
_CASTS: dict[str, Any] = {"aten::Int": int, "aten::Float": float, "aten::Bool": bool, "aten::item": None}
_CASTS |= {"aten::IntImplicit": int, "aten::FloatImplicit": float, "aten::ScalarImplicit": None}


@handles(*_CASTS, on=COMPUTED)
def _converted(machine: Machine, node: ScriptNode, item: Any) -> Any:
    return to_number(machine, _CASTS[node.kind], item, node.source)


@handles("aten::__is__", "aten::__isnot__", on=(DYNAMIC, COMPUTED))
def _identical(machine: Machine, node: ScriptNode, one: Any, other: Any) -> bool:
    return (one is other) == (node.kind == "aten::__is__")


@handles("aten::__range_length", on=COMPUTED)
def _range_length(machine: Machine, node: ScriptNode, start: Any, stop: Any, step: Any) -> Any:
    """The number of steps of `range(start, stop, step)`."""
    if not any(isinstance(item, AtenValue) for item in (start, stop, step)):
        return len(range(start, stop, step))
    if isinstance(step, AtenValue):
        raise ExportError(
            f"the step of a range at {node.source} depends on data; use a step that is known", code="data-dependent"
        )
    first, last = (start, stop) if step > 0 else (stop, start)
    distance = _on_ints(machine, node, "aten::sub.int", last, first)
    rounded = _on_ints(machine, node, "aten::add.int", distance, abs(step) - 1)
    return _on_ints(
        machine, node, "prim::max.int", _on_ints(machine, node, "aten::floordiv.int", rounded, abs(step)), 0
    )


@handles("aten::__derive_index", on=COMPUTED)
def _derive_index(machine: Machine, node: ScriptNode, index: Any, start: Any, step: Any) -> Any:
    if not any(isinstance(item, AtenValue) for item in (index, start, step)):
        return start + index * step
    return _on_ints(machine, node, "aten::add.int", start, _on_ints(machine, node, "aten::mul.int", index, step))


def _on_ints(machine: Machine, node: ScriptNode, target: str, a: Any, b: Any) -> Any:
    return machine.record(target, {"a": a, "b": b}, node.source, int)
