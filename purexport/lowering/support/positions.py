"""Positions along an axis: counting them, and replacing the elements at them.

A replacement is one Gather from the tensor concatenated with the new slices: where nothing is replaced, position i
stays i; where new slice k goes, it is size + k. With known positions the index is a constant, and this works at every
opset.
"""

from __future__ import annotations

import torch

from proto_schema.legalization.sizes import numbers_below, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import reshape


def scatter_add_along(op: Emitter, value: Value, axis: int, positions: Value, parts: Value) -> Value:
    """`value` with the slices `parts` added at `positions` (as many, none negative) along `axis`; at equal positions
    they add up.
    """
    if value.dtype == dtypes.FLOAT16:  # ONNX Runtime (1.31) has no kernel
        wide = [op.cast(item, dtypes.FLOAT) for item in (value, parts)]
        return op.cast(scatter_add_along(op, wide[0], axis, positions, wide[1]), dtypes.FLOAT16)
    result: Value = op.ScatterElements(value, positions, parts, axis=axis, reduction="add")
    return result


def replace_along(
    op: Emitter, value: Value, axis: int, positions: Value, parts: Value, *, same_part: bool = False
) -> Value:
    """`value` with the slices `parts` at `positions` (one axis, none negative) of `axis`.

    With `same_part`, `parts` has size 1 on the axis and goes to each position.
    """
    size = op.dim(value, axis)
    order: Value
    if positions.const is not None and isinstance(size, int):
        places = torch.arange(size)
        places[positions.const] = size if same_part else size + torch.arange(positions.const.numel())
        order = op.const(places)
    else:
        count = op.Gather(op.Shape(positions), op.const(0), axis=0) if positions.shape is None else op.dim(positions, 0)
        first = reshape(op, value_of(op, size), [1])
        new = op.Expand(first, op.Shape(positions)) if same_part else op.Add(numbers_below(op, count), first)
        order = op.ScatterElements(numbers_below(op, size), positions, new, axis=0)
    return op.Gather(op.Concat(value, op.cast(parts, value.dtype), axis=axis), order, axis=axis)
