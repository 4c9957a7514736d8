"""What a model lacks before it can be converted: values that nothing makes, or what operators require of their nodes.

Such a model means nothing, at no opset, and rows of changes read what their operators require. The order of the nodes
is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from proto_schema import operators
from proto_schema.conversion.errors import Refusal
from proto_schema.graphs.calls import FunctionId, callable_functions, callee
from proto_schema.inference.site import misform
from proto_schema.ir import Function, Graph, Model, Node, Value
from proto_schema.onnx import NodeProto
from proto_schema.tensors.attributes import get_attribute_value

_READ_BY_NOBODY = "consumed_inputs"  # required below opset 6, where files leave it out


def lacking(model: Model, domain: str) -> list[Refusal]:
    """What is missing, a row for each node or output. `domain`: the one whose operators are looked at."""
    functions = set(callable_functions(model.message.functions))
    found: list[Refusal] = []
    for graph in (*model.functions, model.graph):
        opsets = graph.opsets if isinstance(graph, Function) else model.opsets
        opset = next((version for name, version in opsets.items() if operators.canonical(name) == domain), 0)
        found += _lacking(graph, domain, opset, functions)
    return found


def _lacking(graph: Graph, domain: str, opset: int, functions: set[FunctionId]) -> Iterator[Refusal]:
    for node in graph.nodes:
        assert node.message is not None  # it was read from a file
        reason = _reason(node, node.message, domain, opset, functions)
        if reason:
            made = ", ".join(repr(value.name) for value in node.outputs if value is not None) or "nothing"
            title = f"node {node.name!r} ({node.op_type})" if node.name else f"the {node.op_type} that makes {made}"
            yield Refusal(title, reason)
        for body in node.bodies:
            yield from _lacking(body, domain, opset, functions)
    kind = "function" if isinstance(graph, Function) else "graph"
    for value in graph.outputs:
        if _nothing_makes(value):
            yield Refusal(f"the {kind} {graph.name!r}", f"nothing makes its output {value.name!r}")


def _nothing_makes(value: Value) -> bool:
    return value.producer is None and value.graph is None


def _reason(node: Node, message: NodeProto, domain: str, opset: int, functions: set[FunctionId]) -> str:
    for value in node.inputs:
        if value is not None and _nothing_makes(value):
            return f"nothing makes its input {value.name!r}"
    key = callee(message)
    if key in functions or operators.canonical(key[0]) != domain:
        return ""
    schema = operators.schema(key[1], opset, domain)
    if schema is None:
        return ""
    for place, formal in enumerate(schema.inputs[: schema.min_input]):
        if formal.option == "single" and node.input(place) is None:
            return f"its input {formal.name!r} is missing"
    if len(node.outputs) < schema.min_output:
        return f"it has {len(node.outputs)} outputs, and {key[1]} makes {schema.min_output} or more"
    named = {_READ_BY_NOBODY, *(item.name for item in message.attribute)}
    absent = next((name for name, row in schema.attributes.items() if row.required and name not in named), None)
    if absent is not None:
        return f"its attribute {absent!r} is missing"
    given = {item.name or "": get_attribute_value(item) for item in message.attribute if not item.ref_attr_name}
    return misform(schema, len(node.inputs), given)
