"""The types that one node or function makes of given ones, without a model around it.

Either becomes a model of one node, which is inferred as any other. A size that follows from nothing has no name in the
result, as nobody outside could know what the name means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from proto_schema.checking.context import Context, NameScope
from proto_schema.checking.graphs import check_node
from proto_schema.checking.place import Problem
from proto_schema.inference.walk import Walk
from proto_schema.onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    SparseTensorProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    Version,
)
from proto_schema.operators import canonical
from proto_schema.wire.fields import MESSAGE, Message, present

__all__ = ["infer_function_output_types", "infer_node_outputs"]

_NEWEST = int(Version.IR_VERSION)
_FRESH = re.compile(r"\bunk__\d+\b")


def infer_node_outputs(
    schema: Any,
    node: NodeProto,
    input_types: Mapping[str, TypeProto],
    input_data: Mapping[str, TensorProto] | None = None,
    input_sparse_data: Mapping[str, SparseTensorProto] | None = None,
    opset_imports: Sequence[OperatorSetIdProto] | None = None,
    ir_version: int = _NEWEST,
) -> dict[str, TypeProto]:
    """The types of a node's outputs by name, as far as something is known of them.

    `schema` names the operator's version (`domain`, `since_version`) where `opset_imports` do not. `input_types` are
    those of the node's inputs, and of values that graphs in its attributes use; `input_data` are inputs that are known.
    Raises KeyError for an input without a type, CheckError where the node breaks a rule of its operator, InferenceError
    where the types contradict it.
    """
    for name in node.input:
        if name and name not in input_types:
            raise KeyError(name)
    versions = {canonical(item.domain or ""): item.version or 0 for item in opset_imports or ()}
    versions.setdefault(canonical(schema.domain), schema.since_version)
    try:
        check_node(node, Context(ir_version, versions, in_function=True), NameScope())
    except Problem as problem:
        raise problem.as_error() from problem.__cause__
    graph = GraphProto(
        name="alone",
        node=[node],
        input=[ValueInfoProto(name=name, type=found) for name, found in input_types.items()],
        initializer=_named(input_data),
        sparse_initializer=list((input_sparse_data or {}).values()),
        output=[ValueInfoProto(name=name) for name in node.output if name],
    )
    imports = [OperatorSetIdProto(domain=domain, version=version) for domain, version in versions.items()]
    found = _inferred(ModelProto(ir_version=ir_version, graph=graph, opset_import=imports), input_types.values())
    return {name: kind for name, kind in found.items() if kind is not None}


def infer_function_output_types(
    function: FunctionProto, input_types: Sequence[TypeProto], attributes: Sequence[AttributeProto]
) -> list[TypeProto]:
    """The types of a function's outputs, for inputs of these types and a call with these attributes.

    A type that nothing is known of has no field. Raises InferenceError where the body contradicts itself.
    """
    inputs = [name if place < len(input_types) else "" for place, name in enumerate(function.input)]
    given = [
        (f"given_{place}", kind) for place, kind in enumerate(input_types) if next(present(kind), None) is not None
    ]
    there = dict(given)
    call = NodeProto(
        op_type=function.name,
        domain=function.domain,
        overload=function.overload,
        input=[f"given_{place}" if f"given_{place}" in there else "" for place in range(len(inputs))],
        output=[f"made_{place}" for place in range(len(function.output))],
        attribute=list(attributes),
    )
    graph = GraphProto(
        name="alone",
        node=[call],
        input=[ValueInfoProto(name=name, type=kind) for name, kind in given],
        output=[ValueInfoProto(name=name) for name in call.output],
    )
    imports = [*function.opset_import, OperatorSetIdProto(domain=function.domain, version=1)]
    model = ModelProto(ir_version=_NEWEST, graph=graph, opset_import=imports, functions=[function])
    found = _inferred(model, input_types)
    return [found.get(name) or TypeProto() for name in call.output]


def _named(tensors: Mapping[str, TensorProto] | None) -> list[TensorProto]:
    found = []
    for name, tensor in (tensors or {}).items():
        made = tensor.__copy__()
        made.name = name
        found.append(made)
    return found


def _inferred(model: ModelProto, given: Any) -> dict[str, TypeProto | None]:
    walk = Walk(model, strict=True, check=True, propagate=True, defaults=True)
    walk.run()
    known = {label for kind in given for label in _labels(kind)}
    found: dict[str, TypeProto | None] = {}
    for item in model.graph.output:
        if item.type is not None:
            _unnamed(item.type, known)
        found[item.name or ""] = item.type
    return found


def _dimensions(message: Message) -> list[TensorShapeProto.Dimension]:
    if isinstance(message, TensorShapeProto.Dimension):
        return [message]
    found = []
    for field, value in present(message):
        if field.kind is MESSAGE:
            for item in value if field.repeated else (value,):
                found += _dimensions(item)
    return found


def _labels(kind: TypeProto) -> set[str]:
    return {item.dim_param for item in _dimensions(kind) if item.dim_param}


def _unnamed(kind: TypeProto, known: set[str]) -> None:
    for item in _dimensions(kind):
        if item.dim_param and any(name not in known for name in _FRESH.findall(item.dim_param)):
            item.dim_param = None
