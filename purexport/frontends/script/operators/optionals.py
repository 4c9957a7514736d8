"""Items that are None on one path (`Maybe`): tests for None, and uses where the script knows that one is present."""

from __future__ import annotations

from typing import Any

from purexport.aten.graph import AtenValue, ScalarType, TensorType
from purexport.errors import ExportError
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import OPTIONAL, Handlers, ScriptNode
from purexport.frontends.script.values import Maybe, Raised, ScriptList

handles = Handlers()


@handles("aten::__is__", "aten::__isnot__", on=OPTIONAL)
def _is_none(machine: Machine, node: ScriptNode, one: Any, other: Any) -> Any:
    """`x is None` and `x is not None` for an item that is None on one path, by its flag."""
    if one is not None and other is not None:
        return NotImplemented
    maybe = other if one is None else one
    if node.kind == "aten::__isnot__":
        return maybe.present
    return machine.record("aten::__not__", {"self": maybe.present}, node.source, bool)


@handles("prim::unchecked_cast", "prim::unchecked_unwrap_optional", "aten::_unwrap_optional")
def _unwrapped(machine: Machine, node: ScriptNode, item: Any) -> Any:
    if item is None:
        raise Raised(node.source, "a value is None, and is used as if it were not")
    if not isinstance(item, Maybe):
        return item
    if "Optional" in str(node.torch.output().type()) and node.kind == "prim::unchecked_cast":
        return item
    return item.item


@handles("prim::isinstance")
def _is_instance(machine: Machine, node: ScriptNode, item: Any) -> Any:
    kinds = list(node.torch.tys("types"))
    if not isinstance(item, Maybe):
        return any(_matches(item, kind, node) for kind in kinds)
    here = any(_matches(item.item, kind, node) for kind in kinds)
    none = any(_matches(None, kind, node) for kind in kinds)
    if here == none:
        return here
    return item.present if here else machine.record("aten::__not__", {"self": item.present}, node.source, bool)


_PLAIN = {"IntType": int, "FloatType": float, "BoolType": bool, "StringType": str, "NoneType": type(None)}
_ANY = {"AnyListType": list, "AnyTupleType": tuple}


def _matches(item: Any, kind: Any, node: ScriptNode) -> bool:
    """Whether an operand is of a type of TorchScript.  Raises ExportError for types that are not followed."""
    name = kind.kind()
    if name == "TensorType":
        return isinstance(item, AtenValue) and isinstance(item.type, TensorType)
    if name in _PLAIN:
        of = item.type.kind if isinstance(item, AtenValue) and isinstance(item.type, ScalarType) else type(item)
        return of is _PLAIN[name]
    if name in _ANY:
        return isinstance(item, _ANY[name])
    if name == "OptionalType":
        return item is None or _matches(item, kind.getElementType(), node)
    if name == "ListType":
        of = kind.getElementType()
        if isinstance(item, ScriptList) and (item.value is not None or not item):
            return item.kind == str(of)
        return isinstance(item, list) and all(_matches(part, of, node) for part in item)
    if name == "TupleType":
        parts = kind.elements()
        same_size = isinstance(item, tuple) and len(item) == len(parts)
        return same_size and all(_matches(part, of, node) for part, of in zip(item, parts, strict=True))
    if name == "DictType" and (item or not isinstance(item, dict)):
        key, of = kind.getKeyType(), kind.getValueType()
        pairs = item.items() if isinstance(item, dict) else ()
        return isinstance(item, dict) and all(_matches(k, key, node) and _matches(v, of, node) for k, v in pairs)
    raise ExportError(
        f"the script asks at {node.source} whether a value is of the type {kind}, which is not followed; use one type "
        "for the variable",
        code="script-operator",
    )
