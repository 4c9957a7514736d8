"""The ``prim::`` nodes of a script: one function a node, from the operands to the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from purexport.aten.graph import TensorType, Value
from purexport.aten.schema import dtype_from_code, is_wrapped_number
from purexport.capture.script.lists import evaluate
from purexport.capture.script.scope import touch
from purexport.capture.script.values import (
    ComputedText,
    Maybe,
    Module,
    Raised,
    ScriptList,
    ScriptObject,
    Uninitialized,
    imported,
)
from purexport.errors import ExportError

if TYPE_CHECKING:
    from purexport.capture.script.interpreter import Interpreter


def _constant(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    output = node.output()
    if output.type().kind() != "TensorType" or not node.hasAttribute("value"):
        return imported(output.toIValue())
    tensor = node.t("value")
    with run.machine.outside():
        number = tensor.item() if is_wrapped_number(tensor) else None
    return run.constant(tensor) if number is None else number


def _get_attribute(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    owner, name = operands[0], node.s("name")
    if isinstance(owner, ScriptObject):
        return owner[name]
    if not isinstance(owner, Module):
        raise ExportError(
            f"the script reads {name!r} of an object at {run.source(node)}; only modules and objects that the script "
            "makes itself work",
            code="script-object",
        )
    return run.attribute(owner, name)["value"]


def _set_attribute(run: Interpreter, node: Any, operands: list[Any]) -> None:
    owner, item = operands
    name = node.s("name")
    if isinstance(owner, ScriptObject):
        touch(run, owner, run.source(node))
        owner[name] = item
        return
    run.assigned[owner.path, name] = run.source(node)
    cell = run.attribute(owner, name)
    touch(run, cell, run.source(node))
    cell["value"] = item


def _object(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    # attributes that __init__ has not set yet are not read, but a body may set them
    return run.own(ScriptObject())


def _list(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    return run.own(ScriptList(operands, str(node.output().type().getElementType())))


def _tuple(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    return tuple(operands)


def _dict(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    for key in operands[::2]:
        if isinstance(key, Value):  # the node itself has no line
            made = run.producers[key].source if key in run.producers else run.source(node)
            raise ExportError(
                f"the script makes a dict with a key that depends on data, computed at {made}", code="data-dependent"
            )
    return dict(zip(operands[::2], operands[1::2], strict=True))


def _unpack(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    items, count = operands[0], node.outputsSize()
    if isinstance(items, ScriptList) and items.value is not None:
        found = evaluate(run, "prim::ListUnpack", [items, count], run.source(node))
    elif len(items) != count:
        raise Raised(run.source(node), f"a list of {len(items)} elements is unpacked to {count} names")
    else:
        found = list(items)
    return found[0] if count == 1 else found


def _tuple_index(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    return operands[0][operands[1]]


def _tuple_slice(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    return operands[0][node.i("beg") : node.i("end")]


def _same(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    return operands[0]


def _unwrapped(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    if operands[0] is None:
        raise Raised(run.source(node), "a value is None, and is used as if it were not")
    if not isinstance(operands[0], Maybe):
        return operands[0]
    if "Optional" in str(node.output().type()) and node.kind() == "prim::unchecked_cast":
        return operands[0]
    return operands[0].item


def _uninitialized(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    return Uninitialized()


def _nothing(run: Interpreter, node: Any, operands: list[Any]) -> None:
    return None


def _raise(run: Interpreter, node: Any, operands: list[Any]) -> None:
    said = operands[0].text if isinstance(operands[0], ComputedText) else str(operands[0])
    raise Raised(run.source(node), said)


def _is_instance(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    kinds = [str(type_) for type_ in node.tys("types")]
    item = operands[0]
    if not isinstance(item, Maybe):
        return any(_matches(item, kind) for kind in kinds)
    here = any(_matches(item.item, kind) for kind in kinds)
    none = "NoneType" in kinds
    if here == none:
        return here
    return item.present if here else run.record("aten::__not__", {"self": item.present}, run.source(node), bool)


def _grad_enabled(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    # attention layers ask this to choose between a fused operator without another form, and the plain ones
    return True


def _requires_grad(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    return bool(run.owner(operands[0]))


def _property(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    """``prim::dtype`` and its like: what is known of a tensor without its data."""
    name = node.kind().removeprefix("prim::")
    if name in ("dtype", "is_quantized") and operands[0] in run.quantized:
        made = run.producers[operands[0]]
        raise ExportError(
            f"the script asks for {name} of what {made.target} gives at {made.source}, which may be quantized; "
            "export the module itself by trace",
            code="script-hides-effect",
        )
    of = run.fakes[operands[0]] if isinstance(operands[0], Value) else operands[0]
    return _dtype_code(of.dtype) if name == "dtype" else getattr(of, name)


def _context(run: Interpreter, node: Any, operands: list[Any]) -> None:
    """``with``: gradients are no part of a file; what another context does to the calls inside is not known."""
    entered = next(iter(node.inputs()))
    kind = str(entered.type()).removeprefix("__torch__.")
    if kind != "torch.autograd.grad_mode.no_grad":
        raise ExportError(
            f"the script enters {kind} at {run.source(entered.node())}, which a script does not show the effect of; "
            "export the module itself by trace",
            code="script-hides-effect",
        )


def _enum_name(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    return operands[0].name


def _enum_value(run: Interpreter, node: Any, operands: list[Any]) -> Any:
    return operands[0].value


def _dtype_code(dtype: torch.dtype) -> int:
    return next(code for code in range(64) if dtype_from_code(code) is dtype)


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


Handler = Callable[["Interpreter", Any, list[Any]], Any]
HANDLERS: dict[str, Handler] = {
    "prim::Constant": _constant,
    "prim::GetAttr": _get_attribute,
    "prim::SetAttr": _set_attribute,
    "prim::CreateObject": _object,
    "prim::ListConstruct": _list,
    "prim::TupleConstruct": _tuple,
    "prim::DictConstruct": _dict,
    "prim::ListUnpack": _unpack,
    "prim::TupleUnpack": _unpack,
    "prim::TupleIndex": _tuple_index,
    "prim::TupleSlice": _tuple_slice,
    "prim::RaiseException": _raise,
    "prim::Print": _nothing,
    "aten::warn": _nothing,
    "prim::unchecked_cast": _unwrapped,
    "prim::unchecked_unwrap_optional": _unwrapped,
    "aten::_unwrap_optional": _unwrapped,
    "prim::NumToTensor": _same,
    "prim::data": _same,
    "prim::Uninitialized": _uninitialized,
    "prim::Enter": _context,
    "prim::Exit": _nothing,
    "prim::isinstance": _is_instance,
    "prim::EnumName": _enum_name,
    "prim::EnumValue": _enum_value,
    "aten::is_grad_enabled": _grad_enabled,
    "prim::requires_grad": _requires_grad,
    **dict.fromkeys(
        (
            "prim::dtype",
            "prim::device",
            "prim::layout",
            "prim::is_cuda",
            "prim::is_mkldnn",
            "prim::is_quantized",
            "prim::is_sparse",
            "prim::ndim",
            "prim::type",
        ),
        _property,
    ),
}
