"""Positions along an axis: counting them, making negative ones positive, replacing the elements at them.

A replacement is one Gather from the tensor concatenated with the new slices: where nothing is replaced, position i
stays i; where new slice k goes, it is size + k. With known positions the index is a constant, and this works at every
opset.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import reshape


def size_value(op: Emitter, size: Any) -> Value:
    """A size (an int or a computed value) as a zero-dim int64 value."""
    return size if isinstance(size, Value) else op.const(size)


def size_product(op: Emitter, *sizes: Any) -> Any:
    """The product of sizes, an int where all are ints."""
    product: Any = 1
    for size in map(op.known, sizes):
        if isinstance(size, int) and isinstance(product, int):
            product *= size
        elif product == 1 and isinstance(product, int):
            product = size
        elif size != 1 or not isinstance(size, int):
            product = op.Mul(size_value(op, product), size_value(op, size))
    return product


def int_range(op: Emitter, start: Any, end: Any) -> Value:
    """start, start + 1, ..., end - 1 as int64; a constant where both are known."""
    start, end = op.known(start), op.known(end)
    if isinstance(start, int) and isinstance(end, int):
        return op.const(torch.arange(start, max(end, start)))
    return op.Range(size_value(op, start), size_value(op, end), op.const(1))


def nonnegative(op: Emitter, positions: Value, size: Any) -> Value:
    """Positions as int64, with negative ones counted from the end. ONNX Gather does that itself since opset 11."""
    positions = op.cast(positions, dtypes.INT64)
    size = op.known(size)
    if positions.const is not None:
        known = positions.const
        if not bool((known < 0).any()):
            return positions
        if isinstance(size, int):
            return op.const(torch.where(known < 0, known + size, known))
    return op.Where(op.Less(positions, op.const(0)), op.Add(positions, size_value(op, size)), positions)


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
        first = reshape(op, size_value(op, size), [1])
        new = op.Expand(first, op.Shape(positions)) if same_part else op.Add(int_range(op, 0, count), first)
        order = op.ScatterElements(int_range(op, 0, size), positions, new, axis=0)
    return op.Gather(op.Concat(value, op.cast(parts, value.dtype), axis=axis), order, axis=axis)
