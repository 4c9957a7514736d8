"""Models in one line, and messages as tables for notebooks: inputs, outputs, operators, size.

All text of a file is escaped before it stands in HTML.  A table names a few of many, and says how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from proto_schema.graphs.dims import known_size
from proto_schema.onnx import GraphProto, ModelProto, NodeProto, TensorShapeProto, TypeProto, ValueInfoProto
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.text import printable_attribute
from proto_schema.units import counted, size_text
from proto_schema.wire.fields import Message, present, short_text

__all__ = ["as_html", "as_line", "message_html", "table", "type_text"]

_MOST = 8  # inputs or outputs in one line
_MOST_ROWS = 20  # of a table
_CELL = 'style="text-align: left"'  # notebooks put numbers, and other text too, to the right


def as_line(model: ModelProto) -> str:
    """`x: float32[batch, 4] -> y: float32[batch, 2]; 1 node, opset 20, 97.8 MB`."""
    inputs, outputs = _inputs(model.graph), _named(model.graph.output)
    facts = f"{counted(len(model.graph.node), 'node')}, opset {_opset(model)}, {size_text(model.ByteSize())}"
    return f"{_listed(inputs)} -> {_listed(outputs)}; {facts}"


def as_html(model: ModelProto, title: str, more: str = "") -> str:
    """The same as a table, with the operators, below a title; `more` is HTML that follows it."""
    graph = model.graph
    rows = [*_graph_rows(graph), ("size", f"{size_text(model.ByteSize())}, opset {_opset(model)}")]
    return f"<b>{escape(title)}</b> {escape(graph.name or '')}{table(rows)}{more}"


def message_html(message: Message) -> str:
    """A message as a table: a model and a graph by what is in them, a node by what it takes, others by their fields."""
    if isinstance(message, ModelProto) and isinstance(message.graph, GraphProto):
        return as_html(message, "ModelProto")
    title = f"<b>{type(message).__qualname__}</b>"
    if isinstance(message, GraphProto):
        return f"{title} {escape(message.name or '')}{table(_graph_rows(message))}"
    if isinstance(message, NodeProto):
        return f"{title} {escape(message.op_type or '')}{table(_node_rows(message))}"
    if isinstance(message, ValueInfoProto):
        return f"{title}{table([(message.name or '', type_text(message.type))])}"
    return f"{title}{table(_field_rows(message))}"


def table(rows: Iterable[Sequence[str]]) -> str:
    """Rows of text as an HTML table; the first cell of a row is its title."""
    lines = []
    for title, *cells in rows:
        shown = "".join(f"<td {_CELL}>{escape(cell)}</td>" for cell in cells)
        lines.append(f"<tr><th {_CELL}>{escape(title)}</th>{shown}</tr>")
    return f"<table>{''.join(lines)}</table>"


def type_text(kind: TypeProto | None) -> str:
    """`float32[batch, 4]`, `list of int64[...]`, and `?` for what the file does not say."""
    if kind is not None and kind.sequence_type is not None:
        return f"list of {type_text(kind.sequence_type.elem_type)}"
    if kind is None or kind.tensor_type is None:
        return "?"
    row = DTYPES.get(kind.tensor_type.elem_type or 0)
    dims = kind.tensor_type.shape.dim if kind.tensor_type.shape is not None else None
    sizes = "..." if dims is None else ", ".join(map(_dim, dims))
    return f"{(row.torch or row.text) if row else '?'}[{sizes}]"


def _graph_rows(graph: GraphProto) -> list[tuple[str, str]]:
    operators = Counter(node.op_type or "" for node in graph.node).most_common()
    shown = [f"{kind} {count:,}" for kind, count in operators[:_MOST_ROWS]]
    more = [f"{len(operators) - _MOST_ROWS} more operators"] if len(operators) > _MOST_ROWS else []
    nodes = f"{len(graph.node):,}" + (f": {', '.join([*shown, *more])}" if shown else "")
    return [
        *_value_rows("input", _inputs(graph)),
        *_value_rows("output", _named(graph.output)),
        ("nodes", nodes),
        ("initializers", f"{len(graph.initializer):,}"),
    ]


def _value_rows(title: str, values: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    rows = [(title, f"{name}: {kind}") for name, kind in values[:_MOST_ROWS]]
    more = len(values) - _MOST_ROWS
    return [*rows, (f"{title}s", f"{more} more")] if more > 0 else rows


def _node_rows(node: NodeProto) -> list[tuple[str, str]]:
    found = [printable_attribute(attribute).partition(" = ")[::2] for attribute in node.attribute[:_MOST_ROWS]]
    rows = [("name", node.name or ""), ("inputs", _few(node.input)), ("outputs", _few(node.output)), *found]
    more = len(node.attribute) - _MOST_ROWS
    return [*rows, ("attributes", f"{more} more")] if more > 0 else rows


def _few(names: Sequence[str]) -> str:
    more = [f"{len(names) - _MOST_ROWS} more"] if len(names) > _MOST_ROWS else []
    return ", ".join([*names[:_MOST_ROWS], *more])


def _field_rows(message: Message) -> list[tuple[str, str]]:
    rows = [(field.name, short_text(field, value)) for field, value in present(message)]
    return [*rows, ("unknown fields", f"{len(message.unknown_fields)} bytes")] if message.unknown_fields else rows


def _inputs(graph: GraphProto) -> list[tuple[str, str]]:
    held = {item.name for item in graph.initializer}
    return _named(item for item in graph.input if item.name not in held)


def _named(values: Iterable[ValueInfoProto]) -> list[tuple[str, str]]:
    return [(item.name or "", type_text(item.type)) for item in values]


def _listed(pairs: Iterable[tuple[str, str]]) -> str:
    found = [f"{name}: {kind}" for name, kind in pairs]
    more = [f"{len(found) - _MOST} more"] if len(found) > _MOST else []
    return ", ".join([*found[:_MOST], *more]) or "nothing"


def _dim(dim: TensorShapeProto.Dimension) -> str:
    size = known_size(dim)
    return dim.dim_param or "?" if size is None else str(size)


def _opset(model: ModelProto) -> int | str:
    return next((item.version or 0 for item in model.opset_import if not item.domain), "?")
