"""Models from one IR version to another.

Upwards nothing has to change: what an older version allows, a newer one allows too. Downwards, what the older version
does not have is written differently (functions are written out before 8, initializers are inputs as well before 4),
left out where it says nothing about results (metadata, device placements), or refused (data types).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Set

from proto_schema.conversion.errors import ConversionError
from proto_schema.graphs.calls import FunctionId
from proto_schema.inliner import inlined
from proto_schema.onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    Version,
)
from proto_schema.tensors.dtypes import DTYPES

OLDEST = 3


def convert_ir(model: ModelProto, version: int) -> ModelProto:
    """The model in another IR version; the given one is not changed.

    Raises ConversionError for what the version cannot say: data types that came later, and opsets that did.
    """
    newest = max(int(item) for item in Version)
    if not OLDEST <= version <= newest:
        raise ConversionError(f"IR version {version} is not one of {OLDEST} to {newest}, which can be converted to")
    before = model.ir_version or 0
    made = copy.copy(model)
    made.ir_version = version
    if version >= before:
        made.opset_import = imports_of(model)
        return made
    from proto_schema import operators

    for item in model.opset_import:
        domain = operators.canonical(item.domain or "")
        if domain in operators.domains() and operators.ir_version_for(item.version or 1, domain) > version:
            lowest = operators.ir_version_for(item.version or 1, domain)
            raise ConversionError(
                f"opset {item.version} of {domain or 'ai.onnx'} came with IR version {lowest}: convert the opset first"
            )
    for place, code in _dtypes(model):
        row = DTYPES.get(code)
        if row is not None and row.since > version:
            raise ConversionError(f"{place} is {row.name}, which came with IR version {row.since}")
    if version < 8 and made.functions:
        made = written_out(made)
    if version < 7:
        made.training_info = []
    if version < 11:
        made.configuration = []
    if made.graph is not None:
        made.graph = _graph(made.graph, version)
    functions = []
    for function in made.functions:
        kept = copy.copy(function)
        if version < 10:
            if function.overload:
                raise ConversionError(f"the function {function.name!r} has overloads, which came with IR version 10")
            kept.metadata_props = []
            kept.value_info = []
        if version < 9 and function.attribute_proto:
            raise ConversionError(
                f"the function {function.name!r} has default attributes, which came with IR version 9"
            )
        kept.node = [_node(node, version) for node in function.node]
        functions.append(kept)
    made.functions = functions
    return made


def written_out(model: ModelProto, wanted: Set[FunctionId] | None = None) -> ModelProto:
    """The model with these of its functions, or all, as nodes. Raises ConversionError where that is not possible."""
    try:
        return inlined(model, lambda name: wanted is None or name in wanted)
    except ValueError as error:
        raise ConversionError(f"its functions cannot be written out: {error}") from error


def imports_of(model: ModelProto) -> list[OperatorSetIdProto]:
    """The opsets that the model imports. Before IR version 3 a file named none, and its operators are the first."""
    if model.opset_import or not model.ir_version or model.ir_version >= OLDEST:
        return model.opset_import
    return [OperatorSetIdProto(domain="", version=1)]


def _graph(graph: GraphProto, version: int) -> GraphProto:
    made = copy.copy(graph)
    made.node = [_node(node, version) for node in graph.node]
    if version < 10:
        made.metadata_props = []
        for field in ("input", "output", "value_info"):
            setattr(made, field, [_plain(item) for item in getattr(graph, field)])
    if version < 4:
        there = {item.name for item in graph.input}
        added = [_info(item) for item in graph.initializer if item.name not in there]
        made.input = [*made.input, *added]
    return made


def _info(tensor: TensorProto) -> ValueInfoProto:
    from proto_schema.inference.types import Tensor, to_proto

    return ValueInfoProto(name=tensor.name, type=to_proto(Tensor(tensor.data_type or 0, tuple(tensor.dims))))


def _plain(item: ValueInfoProto) -> ValueInfoProto:
    if not item.metadata_props:
        return item
    made = copy.copy(item)
    made.metadata_props = []
    return made


def _node(node: NodeProto, version: int) -> NodeProto:
    made = copy.copy(node)
    if version < 10:
        if node.overload:
            raise ConversionError(f"node {node.name!r} calls an overload, which came with IR version 10")
        made.metadata_props = []
    if version < 11:
        made.device_configurations = []
    if any(item.g is not None for item in node.attribute):
        made.attribute = [copy.copy(item) for item in node.attribute]
        for item in made.attribute:
            if item.g is not None:
                item.g = _graph(item.g, max(version, 4))
    return made


def _dtypes(model: ModelProto) -> Iterator[tuple[str, int]]:
    """The data types of all tensors and declared values, with where they stand."""
    found: list[tuple[str, int]] = []

    def graph(item: GraphProto) -> None:
        for tensor in item.initializer:
            found.append((f"initializer {tensor.name!r}", tensor.data_type or 0))
        for info in (*item.input, *item.output, *item.value_info):
            found.extend((f"value {info.name!r}", code) for code in _codes(info.type))
        for node in item.node:
            one(node, graph)

    def one(node: NodeProto, inner: Callable[[GraphProto], None]) -> None:
        for attribute in node.attribute:
            if attribute.t is not None:
                found.append((f"a constant of node {node.name!r} ({node.op_type})", attribute.t.data_type or 0))
            if attribute.g is not None:
                inner(attribute.g)

    if model.graph is not None:
        graph(model.graph)
    for function in model.functions:
        for node in function.node:
            one(node, graph)
    return iter(found)


def _codes(type_: TypeProto | None) -> Iterator[int]:
    if type_ is None:
        return
    if type_.tensor_type is not None:
        yield type_.tensor_type.elem_type or 0
    for form in (type_.sequence_type, type_.optional_type):
        if form is not None:
            yield from _codes(form.elem_type)


__all__ = ["convert_ir"]
