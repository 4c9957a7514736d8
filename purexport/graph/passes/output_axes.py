"""Labels that the caller gives to axes of outputs:  `y: [past + seq]`  ->  `y: [total]`.

Labels of inputs are symbols of the whole file, so an axis of an output gets none of these by what the caller says, but
by what its size is.  Any other label names the size: one that nobody knows before the file runs, or an expression.
A label that stands for different expressions is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proto_schema.sizes import Size
from purexport.aten.graph import Dim
from purexport.graph.ir import Graph, Value


def name_output_axes(graph: Graph, dynamic_axes: Mapping[str, Any]) -> None:
    """Name the axes of outputs in place; `dynamic_axes` as the caller gave it.  A fixed size stays a number."""
    inputs = {name for value in graph.inputs for size in value.shape or () for name in _symbols(size)}
    places: dict[str, list[tuple[Value, int, Dim]]] = {}
    for value in graph.outputs:
        named = dynamic_axes.get(value.name)
        shape = value.shape or ()
        for axis, label in named.items() if isinstance(named, Mapping) else ():
            size = shape[axis] if isinstance(axis, int) and -len(shape) <= axis < len(shape) else 0
            if not isinstance(size, int) and str(label) not in inputs:
                places.setdefault(str(label), []).append((value, axis % len(shape), size))
    for label, found in places.items():
        if len({size for _, _, size in found if _symbols(size) & inputs}) > 1:
            continue
        for value, axis, _ in found:
            shape = value.shape or ()
            value.sized = (*shape[:axis], Size.symbol(label), *shape[axis + 1 :])


def _symbols(size: Dim) -> frozenset[str]:
    return size.symbols if isinstance(size, Size) else frozenset()
