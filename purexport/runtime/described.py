"""A program in one line and as tables of a notebook: inputs, outputs, operators, size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape

import proto_schema as ps
from proto_schema.dtypes import DTYPES
from proto_schema.graphs.dims import known_size
from proto_schema.units import size_text

_MOST = 8  # inputs or outputs in one line


def as_line(model: ps.ModelProto) -> str:
    """`x: float32[batch, 4] -> y: float32[batch, 2]; 1 node, opset 20, 97.8 MB`."""
    inputs, outputs = _interface(model)
    count = len(model.graph.node)
    facts = f"{count} node{'' if count == 1 else 's'}, opset {_opset(model)}, {size_text(model.ByteSize())}"
    return f"{_listed(inputs)} -> {_listed(outputs)}; {facts}"


def as_html(model: ps.ModelProto, report: str) -> str:
    """The same as tables, with the operators and the report."""
    inputs, outputs = _interface(model)
    operators = Counter(node.op_type or "" for node in model.graph.node).most_common()
    weights = len(model.graph.initializer)
    rows = [
        *(("input", *pair) for pair in inputs),
        *(("output", *pair) for pair in outputs),
        ("nodes", str(len(model.graph.node)), ", ".join(f"{kind} {count}" for kind, count in operators)),
        ("weights", str(weights), size_text(model.ByteSize())),
        ("opset", str(_opset(model)), ""),
    ]
    cells = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    said = f"<details><summary>report</summary><pre>{escape(report)}</pre></details>"
    return f"<b>ONNXProgram</b> {escape(model.graph.name or '')}<table>{cells}</table>{said}"


def _interface(model: ps.ModelProto) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    held = {item.name for item in model.graph.initializer}
    inputs = [(item.name or "", _type(item.type)) for item in model.graph.input if item.name not in held]
    return inputs, [(item.name or "", _type(item.type)) for item in model.graph.output]


def _listed(pairs: Iterable[tuple[str, str]]) -> str:
    found = [f"{name}: {kind}" for name, kind in pairs]
    more = [f"{len(found) - _MOST} more"] if len(found) > _MOST else []
    return ", ".join([*found[:_MOST], *more]) or "nothing"


def _type(kind: ps.TypeProto | None) -> str:
    if kind is not None and kind.sequence_type is not None:
        return f"list of {_type(kind.sequence_type.elem_type)}"
    if kind is None or kind.tensor_type is None:
        return "?"
    row = DTYPES.get(kind.tensor_type.elem_type or 0)
    dims = kind.tensor_type.shape.dim if kind.tensor_type.shape is not None else None
    sizes = "..." if dims is None else ", ".join(map(_dim, dims))
    return f"{(row.torch or row.text) if row else '?'}[{sizes}]"


def _dim(dim: ps.TensorShapeProto.Dimension) -> str:
    size = known_size(dim)
    return dim.dim_param or "?" if size is None else str(size)


def _opset(model: ps.ModelProto) -> int | str:
    return next((item.version or 0 for item in model.opset_import if not item.domain), "?")
