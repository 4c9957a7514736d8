"""Constants, attributes of modules, objects that the script makes, and members of enums."""

from __future__ import annotations

from typing import Any

from purexport.aten.schema import is_wrapped_number
from purexport.errors import ExportError
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import Handlers, ScriptNode
from purexport.frontends.script.values import Module, ScriptObject, Uninitialized, imported

handles = Handlers()


@handles("prim::Constant")
def _constant(machine: Machine, node: ScriptNode) -> Any:
    output = node.torch.output()
    if output.type().kind() != "TensorType" or not node.torch.hasAttribute("value"):
        return imported(output.toIValue())
    tensor = node.torch.t("value")
    with machine.shapes.outside():
        number = tensor.item() if is_wrapped_number(tensor) else None
    return machine.constant(tensor) if number is None else number


@handles("prim::GetAttr")
def _get_attribute(machine: Machine, node: ScriptNode, owner: Any) -> Any:
    name = node.torch.s("name")
    if isinstance(owner, ScriptObject):
        return owner[name]
    if not isinstance(owner, Module):
        raise ExportError(
            f"the script reads {name!r} of an object at {node.source}; only modules and objects that the script "
            "makes itself work",
            code="script-object",
        )
    return machine.attributes.read(owner, name)


@handles("prim::SetAttr")
def _set_attribute(machine: Machine, node: ScriptNode, owner: Any, item: Any) -> None:
    name = node.torch.s("name")
    if isinstance(owner, ScriptObject):
        machine.touch(owner, node.source)
        owner[name] = item
    else:
        machine.attributes.assign(owner, name, item, node.source)


@handles("prim::CreateObject")
def _object(machine: Machine, node: ScriptNode) -> Any:
    # attributes that __init__ has not set yet are not read, but a body may set them
    return machine.own(ScriptObject())


@handles("prim::Uninitialized")
def _uninitialized(machine: Machine, node: ScriptNode) -> Any:
    return Uninitialized()


@handles("prim::EnumName")
def _enum_name(machine: Machine, node: ScriptNode, member: Any) -> Any:
    return member.name


@handles("prim::EnumValue")
def _enum_value(machine: Machine, node: ScriptNode, member: Any) -> Any:
    return member.value
