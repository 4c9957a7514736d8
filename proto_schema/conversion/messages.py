"""What a conversion does to messages: attributes of values, names of what a row wrote, constants that nobody reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proto_schema.attributes import get_attribute_value, make_attribute
from proto_schema.onnx import AttributeProto, GraphProto, NodeProto
from proto_schema.operators import OpSchema


def plain_value(value: Any) -> Any:
    """The value of an attribute, as inference takes it."""
    if isinstance(value, AttributeProto):
        return get_attribute_value(value)
    return value.encode() if isinstance(value, str) else value


def attribute_of(name: str, value: Any, schema: OpSchema) -> AttributeProto:
    """The message of an attribute, of the type that the operator declares."""
    if isinstance(value, AttributeProto):
        return value
    declared = schema.attributes.get(name)
    code = declared.type if declared is not None else None
    if code == AttributeProto.FLOAT:
        value = float(value)
    elif code == AttributeProto.FLOATS:
        value = [float(item) for item in value]
    elif code == AttributeProto.INT:
        value = int(value)
    elif code == AttributeProto.INTS:
        value = [int(item) for item in value]
    elif isinstance(value, str):
        value = value.encode()
    return make_attribute(name, value, attr_type=code)


def rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename values in a node that a row wrote, and in the graphs inside of it."""
    node.input = [names.get(name, name) for name in node.input]
    node.output = [names.get(name, name) for name in node.output]
    for item in node.attribute:
        if item.g is not None:
            for inner in item.g.node:
                rename(inner, names)
            for output in item.g.output:
                output.name = names.get(output.name or "", output.name)


def note_uses(graph: GraphProto, used: set[str]) -> None:
    """Add the names that a graph reads, and those that it gives."""
    used.update(item.name or "" for item in graph.output)
    for node in graph.node:
        note_uses_of(node, used)


def note_uses_of(node: NodeProto, used: set[str]) -> None:
    """Add the names that a node reads, in the graphs inside of it, too."""
    used.update(node.input)
    for item in node.attribute:
        if item.g is not None:
            note_uses(item.g, used)


def remove(graph: GraphProto, gone: set[str]) -> None:
    """Take constants of these names out of a graph and of those inside of its nodes."""
    inputs = {item.name for item in graph.input}
    graph.initializer = [item for item in graph.initializer if item.name not in gone or item.name in inputs]
    graph.node = [node for node in graph.node if node.op_type != "Constant" or not gone.issuperset(node.output)]
    there = {name for node in graph.node for name in node.output}
    graph.value_info = [item for item in graph.value_info if item.name not in gone or item.name in there]
    for node in graph.node:
        for item in node.attribute:
            if item.g is not None:
                remove(item.g, gone)
