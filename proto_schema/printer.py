"""The textual syntax of ONNX (docs/Syntax.md), as onnx.printer.to_text writes it.

`<ir_version: 10, ...> name (float[N,3] x) => (float[N,3] y) <initializers> { y = Relu (x) }`. One generator a construct
yields pieces of text, and the whole is joined once. The text equals the official printer's, blanks included, but for
operators, domains and attributes whose names are no words: these are quoted here, so that `parser` reads them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from proto_schema.external.payload import contiguous
from proto_schema.onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    StringStringEntryProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)
from proto_schema.tensors.dtypes import DTYPES, element_count

__all__ = ["readable", "to_text"]

_INDENT = 3
_Attr = AttributeProto.AttributeType


def to_text(proto: ModelProto | FunctionProto | GraphProto | NodeProto) -> str:
    """The message in the textual syntax.

    Raises TypeError for any other message, InferenceError (a ValueError) for a tensor whose raw data does not have the
    size of its shape.
    """
    for kind, writer in _WRITERS:
        if isinstance(proto, kind):
            return "".join(writer(proto))
    raise TypeError(f"to_text takes a model, function, graph or node, not a {type(proto).__name__}")


# -- models, functions, graphs, nodes ----------------------------------------------------------------------------------


def _model(model: ModelProto) -> Iterator[str]:
    rows = [
        ("ir_version", str(model.ir_version or 0)),
        ("opset_import", _between("[", ", ", "]", map(_opset, model.opset_import))),
        ("producer_name", _quoted_or_none(model.producer_name)),
        ("producer_version", _quoted_or_none(model.producer_version)),
        ("domain", _quoted_or_none(model.domain)),
        ("model_version", None if model.model_version is None else str(model.model_version)),
        ("doc_string", _quoted_or_none(model.doc_string)),
        ("metadata_props", _entries(model.metadata_props) if model.metadata_props else None),
    ]
    shown = [f"{' ' * _INDENT}{key}: {value}" for key, value in rows if value is not None]
    yield "<\n" + ",\n".join(shown) + "\n>\n"
    yield from _graph(model.graph or GraphProto(), _INDENT)
    for function in model.functions:
        yield "\n"
        yield from _function(function)


def _function(function: FunctionProto) -> Iterator[str]:
    yield f"<\n  domain: {_quoted(function.domain)},\n"
    if function.overload:
        yield f"  overload: {_quoted(function.overload)},\n"
    yield f"  opset_import: {_between('[', ',', ']', map(_opset, function.opset_import))}\n>\n"
    yield f"{_name(function.name)} "
    # onnx prints only the names, and its parser reads both
    declared = [*map(readable, function.attribute), *(_attribute(item, _INDENT) for item in function.attribute_proto)]
    if declared:
        yield _between("<", ",", ">", declared)
    yield f"{_names('(', function.input, ')')} => {_names('(', function.output, ')')}\n"
    yield from _nodes(function.node, _INDENT)


def _graph(graph: GraphProto, indent: int) -> Iterator[str]:
    yield f"{_name(graph.name)} {_values(graph.input)} => {_values(graph.output)} "
    constants = [
        *(_tensor(tensor, is_initializer=True) for tensor in graph.initializer),
        *map(_value, graph.value_info),
    ]
    if constants:
        yield f"\n{' ' * indent}<{', '.join(constants)}>\n"
    yield from _nodes(graph.node, indent)


def _nodes(nodes: Iterable[NodeProto], indent: int) -> Iterator[str]:
    yield "{\n"
    for node in nodes:
        yield from _node(node, indent)
    if indent > _INDENT:
        yield " " * max(indent - _INDENT, _INDENT)
    yield "}"


def _node(node: NodeProto, indent: int = _INDENT) -> Iterator[str]:
    yield " " * indent
    if node.name is not None:
        yield f"[{_name(node.name)}] "
    yield _names("", node.output, " = ")
    if node.domain:
        yield f"{_dotted(node.domain)}."
    yield _name(node.op_type) if node.op_type else ""
    if node.overload:
        yield f":{_name(node.overload)}"
    attributes = _between(" <", ", ", ">", (_attribute(item, indent) for item in node.attribute))
    attributes = attributes if node.attribute else ""
    inputs = _names(" (", node.input, ")")
    holds_graphs = any(item.g is not None or item.graphs or item.type == _Attr.GRAPH for item in node.attribute)
    yield f"{inputs}{attributes}\n" if holds_graphs else f"{attributes}{inputs}\n"


def _attribute(attribute: AttributeProto, indent: int) -> str:
    code = attribute.type or 0
    kind = _Attr(code).name.lower()
    start = f"{_name(attribute.name)}: {kind} = "
    if attribute.ref_attr_name is not None:
        return f"{start}@{_name(attribute.ref_attr_name)}"
    if code in (_Attr.GRAPH, _Attr.GRAPHS):
        inner = [attribute.g or GraphProto()] if code == _Attr.GRAPH else attribute.graphs
        shown = ["".join(_graph(graph, indent + _INDENT)) for graph in inner]
        return start + (shown[0] if code == _Attr.GRAPH else _between("[", ", ", "]", shown))
    if code in _SINGLE:
        return start + _SINGLE[code](attribute)
    return start + (_between("[", ", ", "]", _ITEMS[code](attribute)) if code in _ITEMS else "")


_SINGLE: dict[int, Callable[[AttributeProto], str]] = {
    _Attr.INT: lambda attribute: str(attribute.i or 0),
    _Attr.FLOAT: lambda attribute: _float(np.float32(attribute.f or 0)),
    _Attr.STRING: lambda attribute: _quoted(attribute.s),
    _Attr.TENSOR: lambda attribute: _tensor(attribute.t or TensorProto()),
    _Attr.TYPE_PROTO: lambda attribute: _type(attribute.tp or TypeProto()),
}
_ITEMS: dict[int, Callable[[AttributeProto], Iterable[str]]] = {
    _Attr.INTS: lambda attribute: map(str, attribute.ints),
    _Attr.FLOATS: lambda attribute: map(_float, np.array(attribute.floats, dtype=np.float32)),
    _Attr.STRINGS: lambda attribute: map(_quoted, attribute.strings),
    _Attr.TENSORS: lambda attribute: map(_tensor, attribute.tensors),
    _Attr.TYPE_PROTOS: lambda attribute: map(_type, attribute.type_protos),
}


# -- values and types --------------------------------------------------------------------------------------------------


def _values(values: Iterable[ValueInfoProto]) -> str:
    return _between("(", ", ", ")", map(_value, values))


def _value(value: ValueInfoProto) -> str:
    return f"{_type(value.type or TypeProto())} {_name(value.name)}"


def _type(proto: TypeProto) -> str:
    if proto.tensor_type is not None:
        return _dtype(proto.tensor_type.elem_type) + _dims(proto.tensor_type.shape)
    if proto.sequence_type is not None:
        return f"seq({_type(proto.sequence_type.elem_type or TypeProto())})"
    if proto.map_type is not None:
        return f"map({_dtype(proto.map_type.key_type)}, {_type(proto.map_type.value_type or TypeProto())})"
    if proto.optional_type is not None:
        return f"optional({_type(proto.optional_type.elem_type or TypeProto())})"
    if proto.sparse_tensor_type is not None:
        sparse = proto.sparse_tensor_type
        return f"sparse_tensor({_dtype(sparse.elem_type)}{_dims(sparse.shape)})"
    if proto.opaque_type is not None:
        domain = f"{_dotted(proto.opaque_type.domain)}," if proto.opaque_type.domain else ""
        return f"opaque({domain}{_dotted(proto.opaque_type.name) if proto.opaque_type.name else ''})"
    return ""


def _dims(shape: TensorShapeProto | None) -> str:
    """`[]` where the rank is unknown, nothing for a scalar."""
    if shape is None:
        return "[]"
    return _between("[", ",", "]", map(_dim, shape.dim)) if shape.dim else ""


def _dim(dim: TensorShapeProto.Dimension) -> str:
    if dim.dim_value is not None:
        return str(dim.dim_value)
    return "?" if dim.dim_param is None else _name(dim.dim_param)


def _dtype(code: int | None) -> str:
    known = TensorProto.DataType._value2member_map_
    return TensorProto.DataType(code or 0).name.lower() if (code or 0) in known else "undefined"


def _tensor(tensor: TensorProto, is_initializer: bool = False) -> str:
    dims = _between("[", ",", "]", map(str, tensor.dims)) if tensor.dims else ""
    name = f" {_name(tensor.name)}" if tensor.name else ""
    return f"{_dtype(tensor.data_type)}{dims}{name}{' = ' if is_initializer else ''}{_elements(tensor)}"


def _elements(tensor: TensorProto) -> str:
    """Numbers, of the small floats the bit patterns; `...` for complex numbers and types below a byte."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return _entries(tensor.external_data)
    row = DTYPES.get(tensor.data_type or 0)
    if row is None or row.name.startswith("COMPLEX") or 0 < row.bits < 8:
        return "..."
    if row.bits == 0:
        strings = ", ".join(map(_quoted, tensor.string_data))
        return "..." if tensor.raw_data is not None else ("{" if strings else "") + strings + "}"
    if tensor.raw_data is not None:
        as_numbers = row.native and row.name not in ("FLOAT16", "BOOL")
        numbers = _raw_elements(tensor, np.dtype(row.numpy if as_numbers else row.codes))
    elif row.field in ("float_data", "double_data"):
        numbers = np.array(getattr(tensor, row.field), dtype=row.numpy)
    else:
        return _between(" {", ",", "}", map(str, getattr(tensor, row.field)))
    show: Callable[[Any], str] = _float if numbers.dtype.kind == "f" else str
    return _between(" {", ",", "}", map(show, numbers))


def _raw_elements(tensor: TensorProto, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    data = contiguous(tensor.raw_data or b"")
    expected = element_count(tensor.dims) * dtype.itemsize
    if len(data) != expected:
        from proto_schema.inference.walk import InferenceError  # the official printer's error, too

        found = f"raw_data has {len(data)} bytes, its shape {list(tensor.dims)} needs {expected}"
        raise InferenceError(f"Data size mismatch: tensor {tensor.name or ''!r}: {found}")
    return np.frombuffer(data, dtype=dtype)


# -- words -------------------------------------------------------------------------------------------------------------


def _opset(opset: OperatorSetIdProto) -> str:
    return f"{_quoted(opset.domain)} : {opset.version or 0}"


def _entries(entries: Iterable[StringStringEntryProto]) -> str:
    return _between("[", ", ", "]", (f"{_quoted(entry.key)}: {_quoted(entry.value)}" for entry in entries))


def _names(start: str, names: Iterable[str], end: str) -> str:
    return _between(start, ", ", end, map(_name, names))


def _between(start: str, separator: str, end: str, items: Iterable[str]) -> str:
    return f"{start}{separator.join(items)}{end}"


def _name(text: str | bytes | None) -> str:
    """An identifier as it is, anything else quoted."""
    return readable(text) if _plain(readable(text)) else _quoted(text)


def _dotted(text: str | bytes) -> str:
    """Identifiers with dots between as they are, anything else quoted."""
    return readable(text) if all(_plain(part) for part in readable(text).split(".")) else _quoted(text)


def _plain(text: str) -> bool:
    return text.isascii() and text.isidentifier()


def _quoted_or_none(text: str | None) -> str | None:
    return None if text is None else _quoted(text)


def _quoted(text: str | bytes | None) -> str:
    return '"' + readable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def readable(text: str | bytes | None) -> str:
    """A text field for people: empty where it is absent; bytes that are no UTF-8 lose what is not."""
    if text is None:
        return ""
    return text if isinstance(text, str) else bytes(text).decode(errors="replace")


def _float(value: Any) -> str:
    """The shortest digits that read back the same in the number's width, fixed or scientific, whichever is shorter."""
    if not np.isfinite(value):
        return f"{float(value):g}" if not (np.isnan(value) and np.signbit(value)) else "-nan"
    scientific = np.format_float_scientific(value, unique=True, trim="-")
    if abs(value) >= 2**24 and float(value).is_integer():
        fixed = str(int(value))
    else:
        fixed = np.format_float_positional(value, unique=True, trim="-")
    return fixed if len(fixed) <= len(scientific) else scientific


_WRITERS: tuple[tuple[type, Callable[[Any], Iterator[str]]], ...] = (
    (ModelProto, _model),
    (FunctionProto, _function),
    (GraphProto, lambda graph: _graph(graph, _INDENT)),
    (NodeProto, _node),
)
