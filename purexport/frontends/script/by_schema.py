"""Operators without a handler: computed where all operands are known numbers, otherwise recorded by their schema."""

from __future__ import annotations

import functools
import re
from typing import Any

from purexport.aten import scalars
from purexport.aten.graph import AtenValue
from purexport.aten.names import base_of, overloads_of
from purexport.aten.schema import bind, signature, target_of
from purexport.errors import ExportError
from purexport.frontends.script.conversions import to_tensor
from purexport.frontends.script.kinds import NUMBERS, number_kind
from purexport.frontends.script.recorder import ScriptRecorder
from purexport.frontends.script.registry import ScriptNode
from purexport.frontends.script.values import Module, holds_value

_TENSORS = re.compile(r"\bTensor\b")
_NUMBER = re.compile(r"(Scalar|number|int|float|bool)\b")


def record_by_schema(machine: ScriptRecorder, node: ScriptNode, operands: list[Any]) -> Any:
    """The result of an operator in torch's registry: a number, or the values of a call.

    Raises ExportError for an operator outside ATen without an operand from the graph, and for one that does not run.
    """
    kind, schema = node.kind, node.torch.schema()
    if schema == "(no schema)" or any(isinstance(item, Module) for item in operands):
        raise ExportError(f"{kind} at {node.source} cannot be exported from a script yet", code="script-operator")
    target = target_of(schema)
    if operands and number_kind(operands[0]) is not None:
        target = scalars.without_write(target)
        kind = target.partition(".")[0]
    number = NUMBERS.get(node.type)
    if scalars.is_scalar_operator(kind) and not any(isinstance(item, AtenValue) for item in operands):
        found = scalars.evaluate(kind, {f"operand_{index}": operand for index, operand in enumerate(operands)})
        return float(found) if number is float else found  # 2 ** 2 is 4.0
    if not target.startswith("aten::") and not holds_value(operands):
        raise ExportError(f"{target} at {node.source} cannot be exported from a script yet", code="script-operator")
    return machine.record(target, bind(target, _as_tensors(machine, node, target, operands), {}), node.source, number)


def _as_tensors(machine: ScriptRecorder, node: ScriptNode, target: str, operands: list[Any]) -> list[Any]:
    """The operands, with a tensor for a number that no overload of the operator takes.

    A script whose argument has no annotation, and so is declared a tensor, may be exported with a number for it.
    """
    found = list(operands)
    if scalars.is_scalar_operator(base_of(target)) or base_of(target) == "aten::to":  # numbers stay numbers in these
        return found
    for place, (parameter, operand) in enumerate(zip(signature(target).parameters, operands, strict=False)):
        items = list(operand) if isinstance(operand, (list, tuple)) else [operand]
        if not _TENSORS.search(parameter.type) or not any(number_kind(item) is not None for item in items):
            continue
        if _takes_number(base_of(target), place):
            continue
        made = [to_tensor(machine, item, node.source) if number_kind(item) is not None else item for item in items]
        found[place] = made if isinstance(operand, (list, tuple)) else made[0]
    return found


@functools.cache
def _takes_number(base: str, place: int) -> bool:
    """Whether an overload of the operator has a number at this place; those of lists and texts are others."""
    parameters = [signature(name).parameters for name in overloads_of(base)]
    own = [found for found in parameters if not place or found[0].type == "Tensor"]
    return any(len(found) > place and _NUMBER.match(found[place].type) for found in own)
