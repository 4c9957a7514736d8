"""Windows along an axis, of a size, a step and a dilation that may be computed: their positions are gathered.

ONNX's pooling operators take known numbers only.
"""

from __future__ import annotations

from typing import Any

from proto_schema.legalization.sizes import numbers_below, value_of
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import permute


def windows(op: Emitter, value: Value, axis: int, size: Any, step: Any, dilation: Any = 1) -> Value:
    """The windows of `value` along `axis`, one after the other on it; a new last axis is the position in the window."""
    rank = value.rank
    span = op.Mul(op.Sub(value_of(op, size), op.const(1)), value_of(op, dilation))
    rest = op.Sub(value_of(op, op.dim(value, axis)), op.Add(span, op.const(1)))
    count = op.Add(op.Div(rest, value_of(op, step)), op.const(1))
    starts = op.Mul(numbers_below(op, count), value_of(op, step))
    inside = op.Mul(numbers_below(op, size), value_of(op, dilation))
    found = op.Gather(value, op.Add(op.Unsqueeze(starts, [1]), op.Unsqueeze(inside, [0])), axis=axis)
    return permute(op, found, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])
