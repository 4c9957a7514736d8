"""The content of a model, as plain data for JSON and as text for people.  Reads structure only, never a weight.

A file may hold text that is no UTF-8.  A message has it as bytes, and here it is shown with backslashes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import proto_schema as ps
from proto_schema.external import entries
from proto_schema.external.addresses import is_address, joined, name_of, parent, size_at
from proto_schema.graphs.dims import known_size
from proto_schema.graphs.names import as_text
from proto_schema.tensors.dtypes import DTYPES, element_count
from proto_schema.units import counted
from proto_schema.wire.fields import listed

_LONGEST_VALUE = 60


def interface(model: ps.ModelProto) -> dict[str, Any]:
    """Versions, inputs and outputs of a model: what there is to say without a look at its nodes."""
    graph = model.graph or ps.GraphProto()
    initialized = {tensor.name for tensor in graph.initializer}
    return {
        "ir_version": model.ir_version,
        "opset_import": {as_text(entry.domain) or "ai.onnx": entry.version for entry in model.opset_import},
        "inputs": [_value(value) for value in graph.input if value.name not in initialized],
        "outputs": [_value(value) for value in graph.output],
    }


def describe(model: ps.ModelProto) -> dict[str, Any]:
    """Inputs, outputs, opsets, weights, operator counts and nodes of a model."""
    graph = model.graph or ps.GraphProto()
    weights = list(graph.initializer)
    known = interface(model)
    types: dict[str | bytes | None, str] = {
        value.name: type_text(value.type) for value in (*graph.value_info, *graph.output)
    }
    nodes = [_node(node, types) for node in graph.node]
    return {
        "ir_version": known["ir_version"],
        "opset_import": known["opset_import"],
        "producer": " ".join(filter(None, map(as_text, [model.producer_name, model.producer_version]))),
        "graph": as_text(graph.name),
        "inputs": known["inputs"],
        "outputs": known["outputs"],
        "weights": {
            "tensors": len(weights),
            "values": sum(_elements(tensor) for tensor in weights),
            "external": sum(1 for tensor in weights if tensor.external_data),
        },
        "operators": dict(Counter(node["op_type"] for node in nodes).most_common()),
        "nodes": nodes,
        "functions": [as_text(function.name) for function in model.functions],
        "metadata": {as_text(entry.key): as_text(entry.value) for entry in model.metadata_props},
    }


def file_sizes(path: str | os.PathLike[str], model: ps.ModelProto) -> dict[str, int]:
    """{file name: bytes} of the model and the data files beside it that it names (a missing one counts 0)."""
    names = set()
    for tensor in model.graph.initializer if model.graph else ():
        if tensor.data_location == ps.TensorProto.EXTERNAL:
            with suppress(ps.ExternalDataError):
                names.add(entries(tensor).location)
    place = os.fspath(path)
    files = [place, *(joined(parent(place), name) for name in sorted(names))]
    return {name_of(file): _size(file) for file in files}


def _size(file: str) -> int:
    if is_address(file):
        return size_at(file) or 0
    return os.path.getsize(file) if os.path.isfile(file) else 0


def type_text(kind: ps.TypeProto | None) -> str:
    """`float32[batch, 3, 224, 224]`; `?` stands for a part that the file does not say."""
    if kind is None:
        return "?"
    if kind.tensor_type is not None:
        return f"{_dtype(kind.tensor_type.elem_type)}{_shape(kind.tensor_type.shape)}"
    if kind.sparse_tensor_type is not None:
        return f"sparse {_dtype(kind.sparse_tensor_type.elem_type)}{_shape(kind.sparse_tensor_type.shape)}"
    if kind.sequence_type is not None:
        return f"sequence of {type_text(kind.sequence_type.elem_type)}"
    if kind.optional_type is not None:
        return f"optional {type_text(kind.optional_type.elem_type)}"
    if kind.map_type is not None:
        return f"map of {_dtype(kind.map_type.key_type)} to {type_text(kind.map_type.value_type)}"
    return "?"


def attribute_text(attribute: ps.AttributeProto) -> str:
    """`kernel_shape=[3, 3]`; long values are cut, tensors and graphs are named by their kind."""
    return f"{as_text(attribute.name)}={_cut(_attribute_value(attribute))}"


def _value(value: ps.ValueInfoProto) -> dict[str, str]:
    return {"name": as_text(value.name), "type": type_text(value.type)}


def _node(node: ps.NodeProto, types: Mapping[str | bytes | None, str]) -> dict[str, Any]:
    outputs = listed(node, "output")
    return {
        "name": as_text(node.name),
        "op_type": as_text(node.op_type),
        "domain": as_text(node.domain),
        "inputs": list(map(as_text, listed(node, "input"))),
        "outputs": list(map(as_text, outputs)),
        "types": [types.get(name, "?") for name in outputs],
        "attributes": [attribute_text(attribute) for attribute in listed(node, "attribute")],
    }


def _attribute_value(attribute: ps.AttributeProto) -> str:
    if attribute.ref_attr_name:
        return f"@{as_text(attribute.ref_attr_name)}"
    if attribute.t is not None:
        return f"<{_dtype(attribute.t.data_type)}{list(attribute.t.dims)}>"
    if attribute.g is not None:
        return f"<graph of {counted(len(attribute.g.node), 'node')}>"
    if attribute.i is not None or attribute.f is not None:
        return _number(attribute.i if attribute.i is not None else attribute.f)
    if attribute.s is not None:
        return _text(attribute.s)
    for several in (attribute.ints, attribute.floats):
        if several:
            return f"[{', '.join(map(_number, several))}]"
    if attribute.strings:
        return f"[{', '.join(map(_text, attribute.strings))}]"
    counts = {"tensors": len(attribute.tensors), "graphs": len(attribute.graphs)}
    return next((f"<{count} {kind}>" for kind, count in counts.items() if count), "[]")


def _number(value: float | None) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _text(data: bytes | str) -> str:
    """As Python would write it: text in quotes, and what is no UTF-8 as bytes."""
    try:
        return ascii(data if isinstance(data, str) else data.decode())
    except UnicodeDecodeError:
        return repr(data)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _dtype(code: int | None) -> str:
    row = DTYPES.get(code or 0)
    if row is not None:
        return row.array if row.native and row.bits else row.text
    return "undefined" if not code else f"dtype {code}"


def _shape(shape: ps.TensorShapeProto | None) -> str:
    if shape is None:
        return "[...]"
    sizes = (as_text(dim.dim_param) or "?" if (size := known_size(dim)) is None else str(size) for dim in shape.dim)
    return f"[{', '.join(sizes)}]"


def _elements(tensor: ps.TensorProto) -> int:
    return element_count(tensor.dims)
