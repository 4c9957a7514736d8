"""Weights that a model lays out anew for a mixture of experts become weights that lie so: the nodes before it go.

gate and up `[e, 2 n, k]` -> Reshape `[e, 2, n, k]` -> Transpose `[e, n, 2, k]` -> Reshape `[e, 2 n, k]` -> MoE: the
initializer has the bytes that MoE reads, and keeps its name. They are still read from where they are, when they are
written.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence

from proto_schema.derived.source import source_of
from proto_schema.derived.transposed import permuted
from proto_schema.external.payload import Payload
from proto_schema.inlining.versions import all_nodes
from proto_schema.onnx import ModelProto, NodeProto, TensorProto
from proto_schema.quantization.candidates import STANDARD, bytes_of
from proto_schema.quantization.codes.elements import FLOATS
from proto_schema.quantization.experts import PLACES, reads_experts
from proto_schema.quantization.joined import joined
from proto_schema.quantization.scheme import Scheme
from proto_schema.tensors.arrays import to_array
from proto_schema.tensors.attributes import get_attribute_value
from proto_schema.tensors.dtypes import DTYPES, element_count

_LONGEST = 8  # nodes between a weight and the experts
_MOST_AXES = 8


def prepared(model: ModelProto, scheme: Scheme) -> tuple[ModelProto, frozenset[str]]:
    """(the model whose weights are as they can be quantized, the names of those that patterns have let pass)."""
    together, names = joined(model, scheme)
    return arranged(together, scheme), names


def arranged(model: ModelProto, scheme: Scheme) -> ModelProto:
    """The model without such nodes; itself where there are none."""
    graph = model.graph
    if graph is None or not any(node.op_type == "MoE" for node in graph.node):
        return model
    held = {item.name or "": item for item in graph.initializer}
    reads = Counter(name for node in all_nodes(graph.node) for name in node.input)
    fixed = {item.name for item in (*graph.input, *graph.output)}
    makers = {node.output[0]: node for node in graph.node if len(node.output) == 1}
    made: dict[int, TensorProto] = {}  # by the initializer
    gone: set[int] = set()
    changed: dict[int, NodeProto] = {}
    for node in graph.node:
        for place in PLACES:
            if not reads_experts(node, place):
                continue
            between: list[NodeProto] = []
            name = node.input[place]
            while name in makers and len(between) < _LONGEST and reads[name] == 1 and name not in fixed:
                between.append(makers[name])
                name = between[-1].input[0] if between[-1].input else ""
            source = held.get(name)
            if not between or source is None or reads[name] != 1 or name in fixed or not scheme.takes(name):
                continue
            found = _laid_out(source, between[::-1], held)
            if found is not None:
                made[id(source)] = found
                gone.update(map(id, between))
                new = changed.setdefault(id(node), copy.copy(node))
                new.input = [*new.input[:place], name, *new.input[place + 1 :]]
    if not made:
        return model
    result, inner = copy.copy(model), copy.copy(graph)
    inner.node = [changed.get(id(node), node) for node in graph.node if id(node) not in gone]
    names = {item.name for item in made.values()}
    unread = {name for node in graph.node if id(node) in gone for name in node.input} - names - fixed
    unread = unread.difference(name for node in all_nodes(inner.node) for name in node.input)
    inner.initializer = [made.get(id(item), item) for item in graph.initializer if item.name not in unread]
    inner.value_info = [item for item in graph.value_info if item.name not in names]
    result.graph = inner
    return result


def _laid_out(tensor: TensorProto, nodes: Sequence[NodeProto], held: dict[str, TensorProto]) -> TensorProto | None:
    """What a chain of nodes makes of a float tensor; None for other nodes than Reshape and Transpose."""
    if tensor.data_type not in FLOATS[:3] or any((node.domain or "") not in STANDARD for node in nodes):
        return None
    payload: Payload = source_of(tensor)
    shape, width = tuple(tensor.dims), DTYPES[tensor.data_type].bits // 8
    if not element_count(shape) or payload.nbytes != bytes_of(tensor):
        return None
    for node in nodes:
        new = _reshaped(node, shape, held) if node.op_type == "Reshape" else None
        if new is not None:
            shape = new
            continue
        axes = _permutation(node, len(shape)) if node.op_type == "Transpose" else None
        if axes is None:
            return None
        payload = permuted(payload, width, shape, axes)
        shape = tuple(shape[axis] for axis in axes)
    return TensorProto(name=tensor.name, data_type=tensor.data_type, dims=list(shape), raw_data=payload)


def _reshaped(node: NodeProto, shape: tuple[int, ...], held: dict[str, TensorProto]) -> tuple[int, ...] | None:
    wanted = held.get(node.input[1]) if len(node.input) == 2 else None
    if wanted is None or node.attribute or wanted.data_type != TensorProto.INT64 or not _is_short(wanted):
        return None
    sizes = [int(size) for size in to_array(wanted).reshape(-1)]
    sizes = [shape[place] if not size and place < len(shape) else size for place, size in enumerate(sizes)]
    count, known = element_count(shape), 1
    for size in sizes:
        known *= 1 if size == -1 else size
    if known <= 0 or sizes.count(-1) > 1 or count % known:
        return None
    found = tuple(count // known if size == -1 else size for size in sizes)
    return found if element_count(found) == count else None


def _is_short(tensor: TensorProto) -> bool:
    return len(tensor.dims) == 1 and tensor.dims[0] <= _MOST_AXES


def _permutation(node: NodeProto, rank: int) -> tuple[int, ...] | None:
    given = next((get_attribute_value(item) for item in node.attribute if item.name == "perm"), None)
    axes = tuple(given) if isinstance(given, list) else tuple(reversed(range(rank)))
    return axes if sorted(axes) == list(range(rank)) else None
