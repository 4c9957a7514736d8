"""Graphs to messages. What did not change is the message that was read; all else shares what it can with that."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from proto_schema.inference.types import to_proto
from proto_schema.ir.functions import Function
from proto_schema.ir.graph import Annotation, Graph, Node, Value
from proto_schema.ir.naming import assign_names
from proto_schema.onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    OperatorSetIdProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorAnnotation,
    TensorProto,
    ValueInfoProto,
)


def write_graph(graph: Graph) -> GraphProto:
    """The message of a graph, whose values get the names that they lack."""
    assign_names(graph)
    return _graph(graph)


def write_function(function: Function) -> FunctionProto:
    """The message of a function, whose values get the names that they lack."""
    assign_names(function)
    made: Any = FunctionProto() if function.message is None else copy.copy(function.message)
    _put(made, "name", function.name)
    _put(made, "domain", function.domain)
    _put(made, "overload", function.overload)
    made.opset_import = with_opsets(made.opset_import, function.opsets)
    made.input = [value.name for value in function.inputs]
    made.output = [value.name for value in function.outputs]
    made.node = [_node(node) for node in function.nodes]
    made.value_info = _declared(function)
    return made  # type: ignore[no-any-return]


def with_opsets(before: Iterable[OperatorSetIdProto], opsets: dict[str, int]) -> list[OperatorSetIdProto]:
    """The imports of a model or function, which say these versions."""
    imports, left = [], dict(opsets)
    for item in before:
        version = opsets.get(item.domain or "")
        left.pop(item.domain or "", None)
        if version is not None and version != (item.version or 0):
            item = copy.copy(item)  # noqa: PLW2901
            item.version = version
        if version is not None:
            imports.append(item)
    return [*imports, *(OperatorSetIdProto(domain=domain, version=version) for domain, version in left.items())]


def _graph(graph: Graph) -> GraphProto:
    made: Any = GraphProto() if graph.message is None else copy.copy(graph.message)
    _put(made, "name", graph.name)
    made.input = [_info(value, value.declared) for value in graph.inputs]
    tensors = [_tensor(value) for value in graph.initializers]
    made.initializer = [item for item in tensors if isinstance(item, TensorProto)]
    made.sparse_initializer = [item for item in tensors if isinstance(item, SparseTensorProto)]
    made.node = [_node(node) for node in graph.nodes]
    made.output = [
        _info(value, said or value.declared) for value, said in zip(graph.outputs, graph._declared_outputs, strict=True)
    ]
    made.value_info = _declared(graph)
    made.quantization_annotation = [_annotation(item) for item in graph.annotations if _is_there(item)]
    return made  # type: ignore[no-any-return]


def _put(made: Any, field: str, value: str) -> None:
    if (getattr(made, field) or "") != value:
        setattr(made, field, value)


def _info(value: Value, said: ValueInfoProto | None) -> ValueInfoProto:
    if said is not None and (said.name or "") == value.name:
        return said
    made = ValueInfoProto(type=to_proto(value.type)) if said is None else copy.copy(said)
    made.name = value.name
    return made


def _tensor(value: Value) -> TensorProto | SparseTensorProto | None:
    tensor = value.tensor
    if isinstance(tensor, TensorProto) and (tensor.name or "") != value.name:
        tensor = copy.copy(tensor)
        tensor.name = value.name
    elif isinstance(tensor, SparseTensorProto) and tensor.values and (tensor.values.name or "") != value.name:
        elements = copy.copy(tensor.values)
        elements.name = value.name
        tensor = copy.copy(tensor)
        tensor.values = elements
    return tensor


def _declared(graph: Graph) -> list[ValueInfoProto]:
    """What the graph says of values inside of it: the entries of the file in their order, and then new ones."""
    made, said = [], set()
    for item in graph._declared:
        if isinstance(item, ValueInfoProto):
            made.append(item)
        elif item.declared is not None and item.graph is graph:
            made.append(_info(item, item.declared))
            said.add(item)
    for node in graph.nodes:
        for value in node.outputs:
            if value and value.declared and not value._outputs and value not in said:
                made.append(_info(value, value.declared))
    return made


def _is_there(annotation: Annotation) -> bool:
    values = (annotation.value, *annotation.parameters.values())
    return all(value is None or value.graph is not None for value in values)


def _annotation(annotation: Annotation) -> TensorAnnotation:
    message = annotation.message
    names = {key: value.name for key, value in annotation.parameters.items()}
    entries = [
        entry
        if names.get(entry.key or "", entry.value or "") == (entry.value or "")
        else StringStringEntryProto(key=entry.key, value=names[entry.key or ""])
        for entry in message.quant_parameter_tensor_names
    ]
    made = copy.copy(message)
    made.quant_parameter_tensor_names = entries
    if annotation.value is not None:
        _put(made, "tensor_name", annotation.value.name)
    return made


def _node(node: Node) -> NodeProto:
    reads = [value.name if value is not None else "" for value in node._reads]
    writes = [value.name if value is not None else "" for value in node.outputs]
    before: Any = node.message
    attributes = node._attributes
    if before is None or not before.input:
        while reads and not reads[-1]:
            reads.pop()
    if before is None:
        made = NodeProto()
    elif (
        (before.input if before._input else []) == reads
        and (before.output if before._output else []) == writes
        and (before.op_type or "") == node.op_type
        and (before.domain or "") == node.domain
        and (before.name or "") == node.name
        and (before.overload or "") == node.overload
        and (attributes is None or not (attributes.is_changed or attributes._bodies))
    ):
        return before  # type: ignore[no-any-return]
    else:
        made = copy.copy(before)
        if before.device_configurations:
            names = dict(zip((*before.input, *before.output), (*reads, *writes), strict=False))
            made.device_configurations = [_renamed(item, names) for item in before.device_configurations]
    for field in ("op_type", "domain", "name", "overload"):
        _put(made, field, getattr(node, field))
    made.input, made.output = reads, writes
    if attributes is not None:
        made.attribute = [_attribute(name, row, attributes._bodies) for name, row in attributes._rows.items()]
    return made


def _renamed(configuration: Any, names: dict[str, str]) -> Any:
    made = copy.copy(configuration)
    made.sharding_spec = [copy.copy(item) for item in configuration.sharding_spec]
    for item in made.sharding_spec:
        if item.tensor_name:
            item.tensor_name = names.get(item.tensor_name, item.tensor_name)
    return made


def _attribute(name: str, row: AttributeProto, bodies: dict[str, list[Graph]]) -> AttributeProto:
    if name not in bodies:
        return row
    made = copy.copy(row)
    if row.g is not None or row.type == AttributeProto.GRAPH:
        made.g = _graph(bodies[name][0])
    else:
        made.graphs = [_graph(body) for body in bodies[name]]
    return made
