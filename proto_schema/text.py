"""The printed forms: the graph as onnx.helper prints it (2018 on), and protobuf's text format for any message.

`printable_graph` shows a graph as people know it from torch.onnx's `verbose=True`; `text_format` shows every field of
a message, as `str()` of a protobuf message does. The textual syntax of onnx.printer is in `printer`. Lines are equal to
those of the official package, character by character (the tests compare them). Printing never changes a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import c_double, c_float
from typing import Any, Literal, overload

from proto_schema.external.payload import contiguous
from proto_schema.onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)
from proto_schema.printer import readable, to_text
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.wire.fields import BYTES, DOUBLE, ENUM, FLOAT, MESSAGE, PAYLOAD, STRING, Field, Message, present

__all__ = [
    "printable_attribute",
    "printable_dim",
    "printable_graph",
    "printable_node",
    "printable_tensor_proto",
    "printable_type",
    "printable_value_info",
    "text_format",
    "to_text",
]

LONGEST_STRING = 64
"""Strings of attributes are cut after so many characters."""


# -- the form of onnx.helper -------------------------------------------------------------------------------------------


def printable_graph(graph: GraphProto, prefix: str = "") -> str:
    """The graph, one line per node, each line after `prefix`; subgraphs follow it.

    `graph name (` inputs `) initializers (` those that are no inputs `) {` nodes `return %outputs }`.
    """
    lines: list[str] = []
    header = ["graph", readable(graph.name)]
    initializers = {tensor.name for tensor in graph.initializer}
    if graph.input:
        inputs = {value.name for value in graph.input}
        required = [printable_value_info(value) for value in graph.input if value.name not in initializers]
        defaulted = [printable_value_info(value) for value in graph.input if value.name in initializers]
        header.append("(")
        if required:
            header = _section(lines, header, required, prefix)
        header.append(")")
        if defaulted:
            header.append("optional inputs with matching initializers (")
            header = [*_section(lines, header, defaulted, prefix), ")"]
        if len(defaulted) < len(initializers):
            header.append("initializers (")
            plain = [printable_tensor_proto(tensor) for tensor in graph.initializer if tensor.name not in inputs]
            header = [*_section(lines, header, plain, prefix), ")"]
    lines.append(prefix + " ".join([*header, "{"]))
    subgraphs: list[GraphProto] = []
    for node in graph.node:
        line, inner = printable_node(node, prefix + "  ", subgraphs=True)
        lines.append(line)
        subgraphs.extend(inner)
    returned = ["return", _values(value.name for value in graph.output)] if graph.output else ["return"]
    lines.append(prefix + "  " + " ".join(returned))
    lines.append(prefix + "}")
    lines.extend("\n" + printable_graph(inner) for inner in subgraphs)
    return "\n".join(lines)


def _section(lines: list[str], header: list[str], items: list[str], prefix: str) -> list[str]:
    """Closes the header line, adds one line an item, and returns the next, empty header."""
    lines.append(prefix + " ".join(header))
    lines.extend(prefix + "  " + item for item in items)
    return []


@overload
def printable_node(node: NodeProto, prefix: str = "", subgraphs: Literal[False] = False) -> str: ...
@overload
def printable_node(node: NodeProto, prefix: str = "", *, subgraphs: Literal[True]) -> tuple[str, list[GraphProto]]: ...


def printable_node(node: NodeProto, prefix: str = "", subgraphs: bool = False) -> str | tuple[str, list[GraphProto]]:
    """`%out = Op[attribute = value](%in)`; with `subgraphs` also the graphs that its attributes hold."""
    printed = [printable_attribute(attribute, subgraphs=True) for attribute in node.attribute]
    attributes = f"[{', '.join(sorted(text for text, _ in printed))}]" if printed else ""
    call = f"{readable(node.op_type)}{attributes}({_values(node.input)})"
    line = f"{prefix}{_values(node.output)} = {call}" if node.output else prefix + call
    return (line, [graph for _, graphs in printed for graph in graphs]) if subgraphs else line


@overload
def printable_attribute(attr: AttributeProto, subgraphs: Literal[False] = False) -> str: ...
@overload
def printable_attribute(attr: AttributeProto, subgraphs: Literal[True]) -> tuple[str, list[GraphProto]]: ...


def printable_attribute(attr: AttributeProto, subgraphs: bool = False) -> str | tuple[str, list[GraphProto]]:
    """`name = value`, from the value field that is there, whatever `type` says; tensors and graphs are named only."""
    field = next((name for name in _ATTRIBUTE_FIELDS if _there(getattr(attr, name))), None)
    text = "<Unknown>" if field is None else _ATTRIBUTE_FIELDS[field](getattr(attr, field))
    graphs = [*([attr.g] if field == "g" and attr.g else []), *(attr.graphs if field == "graphs" else [])]
    line = f"{readable(attr.name)} = {text}"
    return (line, graphs) if subgraphs else line


def printable_value_info(v: ValueInfoProto) -> str:
    """`%name[type]`."""
    return f"%{readable(v.name)}[{printable_type(v.type or TypeProto())}]"


def printable_type(t: TypeProto) -> str:
    """`FLOAT, 1x3xN` for a tensor, `FLOAT, scalar` for one of rank 0, `FLOAT` where the rank is unknown."""
    which = t.WhichOneof("value")
    if t.tensor_type is None:
        return f"Unknown type {which}" if which else ""
    name = _dtype_name(t.tensor_type.elem_type)
    shape = t.tensor_type.shape
    return name if shape is None else f"{name}, {'x'.join(map(printable_dim, shape.dim)) or 'scalar'}"


def printable_dim(dim: TensorShapeProto.Dimension) -> str:
    """The size, the name, or `?`."""
    if dim.dim_value is not None:
        return str(dim.dim_value)
    return "?" if dim.dim_param is None else readable(dim.dim_param)


def printable_tensor_proto(t: TensorProto) -> str:
    """`%name[FLOAT, 2x3]`."""
    return f"%{readable(t.name)}[{_dtype_name(t.data_type)}, {'x'.join(map(str, t.dims)) or 'scalar'}]"


def _values(names: Iterable[str | None]) -> str:
    return ", ".join(f"%{readable(name)}" for name in names)


def _there(value: Any) -> bool:
    return bool(value) if isinstance(value, list) else value is not None


def _dtype_name(code: int | None) -> str:
    known = TensorProto.DataType._value2member_map_
    return TensorProto.DataType(code or 0).name if (code or 0) in known else str(code)


def _cut(value: str | bytes) -> str:
    text = value if isinstance(value, str) else bytes(value).decode(errors="ignore")
    left = len(text) - LONGEST_STRING
    return text if left < 0 else f"{text[:LONGEST_STRING]}...<+len={left}>"


def _number(value: float) -> str:
    return f"{value:.15g}"


def _listed(items: list[Any], show: Callable[[Any], str] = str) -> str:
    return f"[{', '.join(map(show, items))}]"


def _spaced(items: list[Any], show: Callable[[Any], str]) -> str:
    last = len(items) - 1
    return " ".join(["[", *(show(item) + ("," if place != last else "") for place, item in enumerate(items)), "]"])


def _tensor(tensor: TensorProto) -> str:
    if tensor.dims:
        return "<Tensor>"
    row = DTYPES.get(tensor.data_type or 0)
    return f"<Scalar Tensor {getattr(tensor, row.field) if row else []}>"


def _graph(graph: GraphProto) -> str:
    return f"<graph {readable(graph.name)}>"


def _type(type_proto: TypeProto) -> str:
    return f"<Type Proto {text_format(type_proto)}>"


_ATTRIBUTE_FIELDS: dict[str, Callable[[Any], str]] = {  # asked in this order
    "f": _number,
    "i": str,
    "s": lambda value: repr(_cut(value)),
    "t": _tensor,
    "g": _graph,
    "tp": _type,
    "sparse_tensor": lambda _: "<Sparse Tensor>",
    "floats": lambda items: _listed(items, _number),
    "ints": _listed,
    "strings": lambda items: str(list(map(_cut, items))),
    "tensors": lambda _: "[<Tensor>, ...]",
    "sparse_tensors": lambda _: "[<Sparse Tensor>, ...]",
    "type_protos": lambda items: _spaced(items, _type),
    "graphs": lambda items: _spaced(items, _graph),
}


# -- protobuf's text format --------------------------------------------------------------------------------------------


def text_format(message: Message) -> str:
    """Every field that is there, by ascending number, as protobuf's text format: `name: value` and `name {` ... `}`.

    Unknown fields are left out. Weights are printed too: this is for small messages.
    """
    return "".join(f"{line}\n" for line in _field_lines(message))


def _field_lines(message: Message) -> list[str]:
    lines: list[str] = []
    for field, value in present(message):
        for item in value if field.repeated else (value,):
            if field.kind is MESSAGE:
                lines += [f"{field.name} {{", *(f"  {line}" for line in _field_lines(item)), "}"]
            else:
                lines.append(f"{field.name}: {_scalar(field, item)}")
    return lines


def _scalar(field: Field, value: Any) -> str:
    if field.kind in (STRING, BYTES, PAYLOAD):
        return f'"{_escaped(value)}"'
    if field.kind is ENUM and field.enum is not None:
        return field.enum(value).name
    if field.kind is FLOAT:
        return _shortest(value, 6, 9)
    return _shortest(value, 15, 17) if field.kind is DOUBLE else str(value)


def _shortest(value: float, fewest: int, most: int) -> str:
    """The number with `fewest` digits where they read back the same in its width, otherwise with `most`."""
    width = c_float if most == 9 else c_double
    text = f"{value:.{fewest}g}"
    return text if width(float(text)).value == width(value).value else f"{value:.{most}g}"


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def _escaped(value: Any) -> str:
    """A str keeps its letters; of bytes, all that is not printable ASCII becomes three octal digits."""
    if isinstance(value, str):
        return "".join(_ESCAPES.get(c) or (c if c >= " " and c != "\x7f" else f"\\{ord(c):03o}") for c in value)
    return "".join(_ESCAPES.get(chr(b)) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in contiguous(value))
