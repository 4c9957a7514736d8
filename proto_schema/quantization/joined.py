"""Weights that a model puts behind each other become one weight: a `Concat` of rows, as of packed attention.

Q `[n, k]`, K `[m, k]`, V `[m, k]` -> Concat(axis=0) -> W: W becomes an initializer `[n + 2m, k]`, whose bytes are those
of its parts behind each other. They are still read from where they are, when they are written.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence

from proto_schema.derived.joined import JoinedPayload
from proto_schema.derived.source import source_of
from proto_schema.inlining.versions import all_nodes
from proto_schema.onnx import ModelProto, NodeProto, TensorProto
from proto_schema.quantization.candidates import STANDARD
from proto_schema.quantization.codes.elements import FLOATS
from proto_schema.quantization.scheme import Scheme
from proto_schema.tensors.attributes import get_attribute_value


def joined(model: ModelProto, scheme: Scheme) -> tuple[ModelProto, frozenset[str]]:
    """(the model with such weights as one each, the names of these); parts must be taken by the scheme, all of them."""
    graph = model.graph
    if graph is None:
        return model, frozenset()
    held = {item.name or "": item for item in graph.initializer}
    reads = Counter(name for node in all_nodes(graph.node) for name in node.input)
    fixed = {item.name for item in (*graph.input, *graph.output)}
    made: dict[str, TensorProto] = {}
    gone: set[str] = set()
    for node in graph.node:
        parts = [held[name] for name in node.input if name in held and reads[name] == 1 and name not in fixed]
        taken = all(scheme.takes(part.name or "") for part in parts) and not any(map(scheme.excludes, node.output))
        if taken and _joins(node, parts) and node.output[0] not in fixed:
            made[node.output[0]] = _one(node.output[0], parts)
            gone.update(node.input)
    if not made:
        return model, frozenset()
    result, inner = copy.copy(model), copy.copy(graph)
    inner.node = [node for node in graph.node if not node.output or node.output[0] not in made]
    inner.initializer = [item for item in graph.initializer if item.name not in gone] + list(made.values())
    inner.value_info = [item for item in graph.value_info if item.name not in made]
    result.graph = inner
    return result, frozenset(made)


def _joins(node: NodeProto, parts: Sequence[TensorProto]) -> bool:
    """Whether a node puts the rows of these float matrices behind each other, and nothing else."""
    if node.op_type != "Concat" or (node.domain or "") not in STANDARD or len(parts) != len(node.input) or not parts:
        return False
    axis = next((get_attribute_value(item) for item in node.attribute if item.name == "axis"), None)
    kinds = {(item.data_type, tuple(item.dims[1:])) for item in parts}
    matrices = all(len(item.dims) == 2 for item in parts)
    return axis in (0, -2) and matrices and len(kinds) == 1 and parts[0].data_type in FLOATS[:3]


def _one(name: str, parts: Sequence[TensorProto]) -> TensorProto:
    dims = [sum(item.dims[0] for item in parts), parts[0].dims[1]]
    payload = JoinedPayload([source_of(item) for item in parts])
    return TensorProto(name=name, data_type=parts[0].data_type, dims=dims, raw_data=payload)
