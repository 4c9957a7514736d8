"""What is None on one path (`Maybe`): tests of it, and its use where the script knows that it is there."""

from __future__ import annotations

from typing import Any

from purexport.aten.graph import TensorType, Value
from purexport.capture.script.machine import Machine
from purexport.capture.script.registry import OPTIONAL, Handlers, Node
from purexport.capture.script.values import Maybe, Raised, ScriptList

handles = Handlers()


@handles("aten::__is__", "aten::__isnot__", on=OPTIONAL)
def _is_none(machine: Machine, node: Node, one: Any, other: Any) -> Any:
    """``x is None`` of what is None on one path: its flag."""
    if one is not None and other is not None:
        return NotImplemented
    maybe = other if one is None else one
    if node.kind == "aten::__isnot__":
        return maybe.present
    return machine.record("aten::__not__", {"self": maybe.present}, node.source, bool)


@handles("prim::unchecked_cast", "prim::unchecked_unwrap_optional", "aten::_unwrap_optional")
def _unwrapped(machine: Machine, node: Node, item: Any) -> Any:
    if item is None:
        raise Raised(node.source, "a value is None, and is used as if it were not")
    if not isinstance(item, Maybe):
        return item
    if "Optional" in str(node.torch.output().type()) and node.kind == "prim::unchecked_cast":
        return item
    return item.item


@handles("prim::isinstance")
def _is_instance(machine: Machine, node: Node, item: Any) -> Any:
    kinds = [str(type_) for type_ in node.torch.tys("types")]
    if not isinstance(item, Maybe):
        return any(_matches(item, kind) for kind in kinds)
    here = any(_matches(item.item, kind) for kind in kinds)
    none = "NoneType" in kinds
    if here == none:
        return here
    return item.present if here else machine.record("aten::__not__", {"self": item.present}, node.source, bool)


_SIMPLE = {"int": int, "float": float, "bool": bool, "str": str, "NoneType": type(None)}


def _matches(item: Any, kind: str) -> bool:
    """Whether an operand is of a TorchScript type, by the type's text."""
    if isinstance(item, Value):
        name = "Tensor" if isinstance(item.type, TensorType) else getattr(item.type, "kind", type(None)).__name__
        return kind in (name, f"Optional[{name}]")
    if kind.startswith("Optional["):
        return item is None or _matches(item, kind[9:-1])
    if kind in _SIMPLE:
        return type(item) is _SIMPLE[kind]
    if kind.startswith("List["):
        if isinstance(item, ScriptList) and (item.value is not None or not item):
            return item.kind == kind[5:-1]
        return isinstance(item, list) and all(_matches(part, kind[5:-1]) for part in item)
    if kind.startswith("Tuple["):
        return isinstance(item, tuple)
    return kind.startswith("Dict[") and isinstance(item, dict)
