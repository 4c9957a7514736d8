"""Operators without a handler: computed where all operands are known numbers, otherwise recorded by their schema."""

from __future__ import annotations

from typing import Any

from purexport.aten import scalars
from purexport.aten.graph import Value
from purexport.aten.schema import bind, target_of
from purexport.capture.script.kinds import NUMBERS, number_kind
from purexport.capture.script.recorder import Recorder
from purexport.capture.script.registry import Node
from purexport.capture.script.values import Module, holds_value
from purexport.errors import ExportError


def record_by_schema(machine: Recorder, node: Node, operands: list[Any]) -> Any:
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
    if scalars.is_scalar_operator(kind) and not any(isinstance(item, Value) for item in operands):
        found = scalars.evaluate(kind, {f"operand_{index}": operand for index, operand in enumerate(operands)})
        return float(found) if number is float else found  # 2 ** 2 is 4.0
    if not target.startswith("aten::") and not holds_value(operands):
        raise ExportError(f"{target} at {node.source} cannot be exported from a script yet", code="script-operator")
    return machine.record(target, bind(target, operands, {}), node.source, number)
