"""Construction and unpacking of lists, tuples and dicts."""

from __future__ import annotations

from typing import Any

from purexport.aten.graph import AtenValue
from purexport.errors import ExportError
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import PYTHON, Handlers, ScriptNode
from purexport.frontends.script.values import Raised, ScriptList

handles = Handlers()


@handles("prim::ListConstruct")
def _list(machine: Machine, node: ScriptNode, *items: Any) -> Any:
    return machine.own(ScriptList(items, str(node.torch.output().type().getElementType())))


@handles("prim::TupleConstruct")
def _tuple(machine: Machine, node: ScriptNode, *items: Any) -> Any:
    return items


@handles("prim::DictConstruct")
def _dict(machine: Machine, node: ScriptNode, *operands: Any) -> Any:
    for key in operands[::2]:
        if isinstance(key, AtenValue):  # the node itself has no line
            made = machine.producers[key].source if key in machine.producers else node.source
            raise ExportError(
                f"the script makes a dict with a key that depends on data, computed at {made}", code="data-dependent"
            )
    return dict(zip(operands[::2], operands[1::2], strict=True))


@handles("prim::ListUnpack", "prim::TupleUnpack", on=PYTHON)
def _unpack(machine: Machine, node: ScriptNode, items: Any) -> Any:
    count = node.torch.outputsSize()
    if len(items) != count:
        raise Raised(node.source, f"a list of {len(items)} elements is unpacked to {count} names")
    return node.packed(list(items))


@handles("prim::TupleIndex")
def _tuple_index(machine: Machine, node: ScriptNode, items: Any, index: int) -> Any:
    return items[index]


@handles("prim::TupleSlice")
def _tuple_slice(machine: Machine, node: ScriptNode, items: Any) -> Any:
    return items[node.torch.i("beg") : node.torch.i("end")]
