"""Softmax and attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.common import axis_of, permute, swap_last
from purexport.lowering.emitter import Emitter
from purexport.lowering.registry import lower


@lower("aten::softmax.int", "aten::_softmax")
def softmax(op: Emitter, self: Value, dim: int, dtype: Any = None, half_to_float: bool = False) -> Value:
    return _along(op, "Softmax", op.cast(self, op.result_dtype), dim)


@lower("aten::log_softmax.int", "aten::_log_softmax")
def log_softmax(op: Emitter, self: Value, dim: int, dtype: Any = None, half_to_float: bool = False) -> Value:
    return _along(op, "LogSoftmax", op.cast(self, op.result_dtype), dim)


def _along(op: Emitter, op_type: str, value: Value, dim: int) -> Value:
    axis, last = axis_of(dim, value.rank), value.rank - 1
    if value.rank == 0:
        return op.Squeeze(op.emit(op_type, op.Unsqueeze(value, [0]), axis=0), [0])
    if op.means_today(op_type) or axis == last:
        return op.emit(op_type, value, axis=axis)
    # older versions normalize over all axes from ``axis`` on: only the last one means the same
    order = list(range(value.rank))
    order[axis], order[last] = order[last], order[axis]
    return permute(op, op.emit(op_type, permute(op, value, order), axis=last), order)


@lower("aten::scaled_dot_product_attention")
def scaled_dot_product_attention(
    op: Emitter,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Value:
    if dropout_p or enable_gqa:
        raise UnsupportedForm("with dropout or grouped queries has no rule yet")
    width = op.dim(query, -1)
    if scale is None and not isinstance(width, int):
        raise UnsupportedForm("with a dynamic width has no rule yet")
    factor = 1 / math.sqrt(width) if scale is None and isinstance(width, int) else scale
    # half of the factor on either side keeps the product in range for float16, as torch does
    half = op.like(math.sqrt(factor), query)
    scores = op.MatMul(op.Mul(query, half), op.Mul(swap_last(op, key), half))
    if is_causal:
        scores = op.Where(_causal(op, query, key), scores, op.like(-math.inf, scores))
    if attn_mask is not None and attn_mask.dtype == dtypes.BOOL:
        scores = op.Where(attn_mask, scores, op.like(-math.inf, scores))
    elif attn_mask is not None:
        scores = op.Add(scores, op.cast(attn_mask, scores.dtype))
    return op.MatMul(op.Softmax(scores, axis=query.rank - 1), value)


def _causal(op: Emitter, query: Value, key: Value) -> Value:
    """[L, S]: position i sees positions up to i."""
    rows, columns = op.dim(query, -2), op.dim(key, -2)
    if not isinstance(rows, int) or not isinstance(columns, int):
        steps = [op.Range(op.const(0), size, op.const(1)) for size in (rows, columns)]
        later = op.Greater(op.Unsqueeze(steps[1], [0]), op.Unsqueeze(steps[0], [1]))
        return op.Not(later)
    return op.const(torch.ones(rows, columns, dtype=torch.bool).tril())
