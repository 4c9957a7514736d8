"""The ONNX graph becomes messages: one function per message, and no decisions.

The type of an attribute comes from the operator's schema.  The IR version is the lowest one that belongs to the
requested opset, since a reader that knows the opset knows that version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

import proto_schema as ps
from proto_schema import operators
from purexport import dtypes
from purexport.aten.graph import Dim
from purexport.graph.ir import Graph, Node, Value
from purexport.graph.origins import Origins
from purexport.graph.payloads import payload
from purexport.version import VERSION


def build_model(
    graph: Graph,
    opset: int,
    name: str,
    custom_opsets: Mapping[str, int] | None = None,
    *,
    all_inputs: bool = False,
    origins: Origins | None = None,
) -> ps.ModelProto:
    """The model's message.  Its weights are views of the model's memory; with `all_inputs` they are defaults of inputs.

    A domain of custom operators has the version that its nodes want, 1 by default, unless `custom_opsets` gives one.
    `origins` knows which memory contains bytes of a checkpoint.
    """
    initializers = graph.initializers()
    more = initializers if all_inputs else ()
    imports = [ps.OperatorSetIdProto(domain="", version=opset)]
    domains = {**dict(sorted(_domains(graph).items())), **(custom_opsets or {})}
    imports += [ps.OperatorSetIdProto(domain=key, version=value) for key, value in domains.items()]
    return ps.ModelProto(
        ir_version=operators.ir_version_for(opset),
        opset_import=imports,
        producer_name="purexport",
        producer_version=VERSION,
        graph=_graph(graph, opset, name, [_tensor(value, origins) for value in initializers], more),
    )


def _domains(graph: Graph) -> dict[str, int]:
    """The domains of custom operators in use, each with the newest version that a node wants."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        wanted = [_domains(body) for body in node.subgraphs()] + [{node.domain: node.version}]
        for domain, version in (item for domains in wanted for item in domains.items()):
            found[domain] = max(found.get(domain, 1), version)
    found.pop("", None)
    return found


def _graph(
    graph: Graph, opset: int, name: str, initializers: Sequence[ps.TensorProto] = (), more_inputs: Sequence[Value] = ()
) -> ps.GraphProto:
    outputs = set(graph.outputs)
    return ps.GraphProto(
        name=name,
        node=[build_node(node, opset) for node in graph.nodes],
        initializer=list(initializers),
        input=[_value_info(value) for value in (*graph.inputs, *more_inputs)],
        output=[_value_info(value) for value in graph.outputs],
        value_info=[
            _value_info(value)
            for node in graph.nodes
            for value in node.outputs
            if value not in outputs and value.shape is not None and value.dtype is not None
        ],
    )


def build_node(node: Node, opset: int) -> ps.NodeProto:
    schema = None if node.domain else operators.schema(node.op_type, opset)
    known = schema.attributes if schema is not None else {}
    return ps.NodeProto(
        op_type=node.op_type,
        domain=node.domain or None,
        name=node.name,
        input=["" if value is None else value.name for value in node.inputs],
        output=[value.name for value in node.outputs],
        attribute=[
            _attribute(key, node.attributes[key], known[key].type if key in known else None, opset)
            for key in sorted(node.attributes)
        ],
    )


def _attribute(name: str, value: Any, kind: int | None, opset: int) -> ps.AttributeProto:
    kind = _guess(value) if kind is None else kind
    made = ps.AttributeProto(name=name, type=kind)
    kinds = ps.AttributeProto
    if kind == kinds.INT:
        made.i = int(value)
    elif kind == kinds.FLOAT:
        made.f = float(value)
    elif kind == kinds.STRING:
        made.s = value.encode() if isinstance(value, str) else value
    elif kind == kinds.TENSOR:
        made.t = raw_tensor(value)
    elif kind == kinds.GRAPH:
        made.g = _graph(value, opset, name)
    elif kind == kinds.INTS:
        made.ints = [int(item) for item in value]
    elif kind == kinds.FLOATS:
        made.floats = [float(item) for item in value]
    elif kind == kinds.STRINGS:
        made.strings = [item.encode() if isinstance(item, str) else item for item in value]
    else:
        raise TypeError(f"attribute {name!r} of type {kind} cannot be built")
    return made


def _guess(value: Any) -> int:
    """The attribute type for an argument of a custom operator, chosen by the Python type of its value."""
    kinds = ps.AttributeProto
    if isinstance(value, (list, tuple)):
        first = value[0] if value else 0
        plural = {int: kinds.INTS, bool: kinds.INTS, float: kinds.FLOATS, str: kinds.STRINGS, bytes: kinds.STRINGS}
        return plural[type(first)]
    if isinstance(value, torch.Tensor):
        return kinds.TENSOR
    if isinstance(value, Graph):
        return kinds.GRAPH
    return {int: kinds.INT, bool: kinds.INT, float: kinds.FLOAT, str: kinds.STRING, bytes: kinds.STRING}[type(value)]


def _tensor(value: Value, origins: Origins | None) -> ps.TensorProto:
    if value.const is None:
        return ps.TensorProto(dims=list(value.sizes), data_type=value.dtype, raw_data=value.stored, name=value.name)
    made = raw_tensor(value.const, origins)
    made.name = value.name
    return made


def raw_tensor(tensor: torch.Tensor, origins: Origins | None = None) -> ps.TensorProto:
    data = payload(tensor) if origins is None else origins.payload(tensor)
    return ps.TensorProto(dims=list(tensor.shape), data_type=dtypes.onnx_code(tensor.dtype), raw_data=data)


def _value_info(value: Value) -> ps.ValueInfoProto:
    if value.element is None:
        return ps.ValueInfoProto(name=value.name, type=_tensor_type(value.dtype, value.shape))
    sequence = ps.TypeProto.Sequence(elem_type=_tensor_type(*value.element))
    return ps.ValueInfoProto(name=value.name, type=ps.TypeProto(sequence_type=sequence))


def _tensor_type(dtype: int | None, shape: Sequence[Dim] | None) -> ps.TypeProto:
    tensor = ps.TypeProto.Tensor(elem_type=dtype)
    if shape is not None:
        tensor.shape = ps.TensorShapeProto(dim=[_dim(dim) for dim in shape])
    return ps.TypeProto(tensor_type=tensor)


def _dim(dim: Dim) -> ps.TensorShapeProto.Dimension:
    if isinstance(dim, int):
        return ps.TensorShapeProto.Dimension(dim_value=dim)
    return ps.TensorShapeProto.Dimension() if dim is None else ps.TensorShapeProto.Dimension(dim_param=str(dim))
