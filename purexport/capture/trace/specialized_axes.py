"""Specialized axes of a trace: a constant was computed from the size of a dynamic axis (`math.sqrt(x.shape[0])`).

The tracer warns wherever Python asks for a number, also where the number never changes.  So the model is traced once
more for each dynamic axis, with that axis twice as long.  Where the two graphs have different constants or different
calls, a constant depends on the axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from purexport.aten.axes import Axes, Specialised
from purexport.aten.graph import AtenGraph, Value
from purexport.errors import ExportError


def specialized_axes(
    graph: AtenGraph,
    again: Callable[[list[torch.Tensor]], AtenGraph],
    tensors: Sequence[torch.Tensor],
    names: Sequence[str],
    axes: Mapping[str, Axes],
) -> list[Specialised]:
    """The axes that `graph` specializes.  `again` traces the model on other tensors.

    If the model does not run with an axis twice as long, nothing is said about that axis.
    """
    found = []
    for label in dict.fromkeys(label for named in axes.values() for label in named.values()):
        longer, size = list(tensors), 0
        for position, name in enumerate(names):
            for axis in [axis for axis, other in axes.get(name, {}).items() if other == label]:
                size = tensors[position].shape[axis]
                longer[position] = torch.cat([longer[position], longer[position]], axis)
        try:
            other = again(longer)
        except ExportError:  # the model does not run on that size
            continue
        place = _difference(graph, other) if size else None
        if place is not None:
            found.append(Specialised(label, size, place))
    return found


def _difference(one: AtenGraph, other: AtenGraph) -> str | None:
    """The place of the first call that differs; None when both graphs are the same."""
    constants = [_constants(one), _constants(other)]
    before = "the model"
    for mine, theirs in zip(one.calls, other.calls, strict=False):
        same = mine.target == theirs.target and _same(list(mine.args.values()), list(theirs.args.values()), constants)
        if not same:  # a further element of a list comes from the call that made the list
            return before if theirs.target == "prim::getitem" else str(mine.source)
        before = before if mine.target == "prim::getitem" else str(mine.source)
    if len(one.calls) != len(other.calls):
        return str((one.calls or other.calls)[-1].source)
    return None if _same(one.outputs, other.outputs, constants) else "the model's results"


def _constants(graph: AtenGraph) -> dict[Value, torch.Tensor]:
    return {item.value: item.tensor for item in graph.inputs if item.kind == "constant" and item.tensor is not None}


def _same(one: Any, other: Any, constants: Sequence[Mapping[Value, torch.Tensor]]) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_same(mine, theirs, constants) for mine, theirs in pairs)
    if isinstance(one, Value) and isinstance(other, Value):
        mine, theirs = constants[0].get(one), constants[1].get(other)
        if mine is None or theirs is None:
            return mine is theirs
        return mine.dtype == theirs.dtype and torch.equal(mine, theirs)
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)
