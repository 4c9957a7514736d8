"""Older forms of operators on windows: the windows are gathered by position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import count, times, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import dims_of

_SMALL = (dtypes.INT8, dtypes.UINT8)


def max_pool(
    op: Emitter,
    X: Value,  # noqa: N803  the names of ONNX
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    **others: Any,
) -> tuple[Value, Value] | None:
    """MaxPool with dilations (opset 10), and of small integers (opset 12).

    The place of a maximum is the first in its window that is not padding.
    """
    if any(others.values()) or X.shape is None:
        return None
    rank = len(kernel_shape)
    steps, gaps = (list(given or [1] * rank) for given in (strides, dilations))
    edges = list(pads or [0] * 2 * rank)
    if X.dtype in _SMALL:
        named: dict[str, Any] = {"kernel_shape": list(kernel_shape), "strides": steps, "pads": edges, "dilations": gaps}
        found, places = op.multi("MaxPool", op.cast(X, dtypes.FLOAT), outputs=2, **named)
        return op.cast(found, X.dtype), places
    sizes = dims_of(op, X)
    spread = [0, 0, *edges[:rank], 0, 0, *edges[rank:]]
    padded = op.Pad(X, spread, constant_value=op.like(-math.inf, X), mode="constant") if any(edges) else X
    flat, inside = op.const(0), op.const(True, dtypes.BOOL)
    for axis, (size, wide) in enumerate(zip(sizes[2:], dims_of(op, padded)[2:], strict=True)):
        reach = op.Sub(value_of(op, wide), op.const(gaps[axis] * (kernel_shape[axis] - 1)))
        starts = op.Unsqueeze(op.Range(op.const(0), reach, op.const(steps[axis])), [1])
        at = op.Add(starts, op.const(torch.arange(kernel_shape[axis]).reshape(1, -1) * gaps[axis]))
        padded = op.Gather(padded, at, axis=2 + 2 * axis)
        # [o, k] among the axes [o, o, ..., k, k, ...]
        own = op.Unsqueeze(op.Sub(at, op.const(edges[axis])), _others(rank, axis))
        last = op.Sub(value_of(op, size), op.const(1))
        flat = op.Add(flat, op.Mul(own, value_of(op, times(op, *sizes[axis + 3 :]))))
        inside = op.And(inside, op.Not(op.Or(op.Less(own, op.const(0)), op.Less(last, own))))
    outer, inner = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
    values = op.Transpose(padded, perm=[0, 1, *outer, *inner])
    taken = op.Reshape(values, [*[0] * (2 + rank), -1])
    found = op.ReduceMax(taken, axes=[2 + rank], keepdims=1)
    flat, inside = (op.Reshape(item, [*[0] * rank, -1]) for item in (flat, inside))
    best = op.ArgMax(op.cast(op.And(op.Equal(taken, found), inside), dtypes.INT32), axis=2 + rank, keepdims=1)
    everywhere = op.Expand(flat, op.Shape(taken))
    planes = op.Mul(
        op.Reshape(count(op, times(op, *sizes[:2])), op.ints([*sizes[:2], *[1] * rank])),
        value_of(op, times(op, *sizes[2:])),
    )
    places = op.Squeeze(op.GatherElements(everywhere, best, axis=2 + rank), [2 + rank])
    return op.Squeeze(found, [2 + rank]), op.Add(places, planes)


def _others(rank: int, axis: int) -> list[int]:
    return [place for place in range(2 * rank) if place not in (axis, rank + axis)]
