"""Softmax and attention.

`aten::scaled_dot_product_attention` becomes ONNX Attention (opset 23) where the operands have four axes, otherwise
matrix products and a softmax. torch gives zeros for a query that no key is visible to, where a plain softmax gives NaN.
So zeros are written after every mask, unless it is known to hide no query completely.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.nn.contrib import multi_head_attention
from purexport.lowering.nn.random import dropout
from purexport.lowering.support.common import axis_of, beside_product, dims_of, permute, reshape, swap_last


@lower("aten::softmax.int", "aten::_softmax", "aten::special_softmax")
def softmax(op: Emitter, self: Value, dim: int, dtype: Any = None, half_to_float: bool = False) -> Value:
    """aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor

    Before opset 13 ONNX Softmax normalizes over all axes from `axis` on, so another axis is moved to the end first.
    """
    return _along(op, "Softmax", op.cast(self, op.result_dtype), dim)


@lower("aten::log_softmax.int", "aten::_log_softmax", "aten::special_log_softmax")
def log_softmax(op: Emitter, self: Value, dim: int, dtype: Any = None, half_to_float: bool = False) -> Value:
    """aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor

    Before opset 13 ONNX LogSoftmax normalizes over all axes from `axis` on, so another axis is moved to the end first.
    """
    return _along(op, "LogSoftmax", op.cast(self, op.result_dtype), dim)


@lower("aten::_safe_softmax")
def safe_softmax(op: Emitter, self: Value, dim: int, dtype: Any = None) -> Value:
    """aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor

    Softmax, with zeros where all elements of the axis are -inf.
    """
    value = op.cast(self, op.result_dtype)
    hidden = op.Equal(_highest(op, value, axis_of(dim, self.rank)), op.like(-math.inf, value))
    return op.Where(hidden, op.like(0, value), _along(op, "Softmax", value, dim))


def _highest(op: Emitter, value: Value, axis: int) -> Value:
    return value if value.shape == () else op.ReduceMax(value, axes=[axis], keepdims=1)


def _along(op: Emitter, op_type: str, value: Value, dim: int) -> Value:
    axis, last = axis_of(dim, value.rank), value.rank - 1
    if value.rank == 0:
        return op.Squeeze(op.emit(op_type, op.Unsqueeze(value, [0]), axis=0), [0])
    if op.means_today(op_type) or axis == last:
        return op.emit(op_type, value, axis=axis)
    # versions before opset 13 normalize over all axes from `axis` on: for the last axis that is the same
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
    """aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None,
    float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor

    softmax(query @ key^T * scale + mask) @ value, with `scale` 1 / sqrt(E) by default. A boolean mask is true where a
    key is visible. With `is_causal` query i sees the keys up to i, counted from the first one. With `enable_gqa`
    several heads of the query use the same head of key and value.

    For ONNX Runtime com.microsoft MultiHeadAttention, which takes float32 and as many heads of each.
    """
    counts = [(item.shape or (None, None))[-2] for item in (key, value)]
    if all(isinstance(count, int) for count in counts) and counts[0] != counts[1]:
        raise UnsupportedForm(
            f"with {counts[0]} keys and {counts[1]} values has no ONNX form: one of torch's kernels takes them and "
            "reads the values of another head, and the others refuse them",
            code="no-onnx-form",
        )
    if dropout_p <= 0:
        found = multi_head_attention(op, query, key, value, attn_mask, is_causal, scale)
        if found is not None:
            return found if attn_mask is None else _without_hidden(op, found, attn_mask)
    # its factor is a float32
    named = op.has("Attention") and query.dtype != dtypes.DOUBLE
    if named and dropout_p <= 0 and _has_four_axes(query, key, value) and _is_full(attn_mask, query, key):
        mask = (
            op.cast(attn_mask, query.dtype) if attn_mask is not None and attn_mask.dtype != dtypes.BOOL else attn_mask
        )
        result = op.Attention(query, key, value, attn_mask=mask, is_causal=int(is_causal), scale=scale)
        return result if attn_mask is None else _without_hidden(op, result, attn_mask)
    # torch keeps what lies between in float32; rounded to the 8 bits of bfloat16, scores shift whole results
    given = query.dtype
    query, key, value = (op.cast(item, _between(item.dtype)) for item in (query, key, value))
    if enable_gqa:
        key, value = (each_for_queries(op, item, query) for item in (key, value))
    scores = scores_of(op, query, key, scale)
    if is_causal:
        scores = op.Where(_causal(op, query, key), scores, op.like(-math.inf, scores))
    weights = op.Softmax(_masked(op, scores, attn_mask), axis=query.rank - 1)
    result = op.MatMul(dropout(op, weights, dropout_p, True) if dropout_p > 0 else weights, value)
    result = op.cast(result, given)
    return result if attn_mask is None else _without_hidden(op, result, attn_mask)


def _between(dtype: int | None) -> int | None:
    return dtypes.FLOAT if dtype == dtypes.BFLOAT16 else dtype


def _has_four_axes(*operands: Value) -> bool:
    return all(item.rank == 4 for item in operands)


def _is_full(mask: Value | None, query: Value, key: Value) -> bool:
    """True when the mask has all queries and keys as axes: ONNX Runtime does not broadcast these axes."""
    shapes = [item.shape or () for item in (mask or query, query, key)]
    return mask is None or shapes[0][-2:] == (shapes[1][-2], shapes[2][-2])


def scores_of(op: Emitter, query: Value, key: Value, scale: Any) -> Value:
    """[..., L, S]: the products of queries and keys, scaled."""
    half = _root_of_scale(op, query, scale)
    if query.dtype == dtypes.DOUBLE and half.const is not None:
        half = beside_product(op, half, query)
        return op.MatMul(op.Mul(query, half), swap_last(op, op.Mul(key, half)))
    return op.MatMul(op.Mul(query, half), op.Mul(swap_last(op, key), half))


def _root_of_scale(op: Emitter, query: Value, scale: Any) -> Value:
    """The square root of the scale. Each operand is multiplied by it, which keeps the product in range for float16, as
    in torch.
    """
    if scale is not None:
        return op.like(math.sqrt(scale), query)
    width = op.dim(query, -1)
    if isinstance(width, int):
        return op.like(1 / math.sqrt(math.sqrt(width)), query)
    return op.Reciprocal(op.Sqrt(op.Sqrt(op.cast(width, query.dtype))))


def each_for_queries(op: Emitter, value: Value, query: Value) -> Value:
    """[..., heads, S, E] with each head repeated, next to itself, for each head of the query that uses it."""
    *batch, heads, length, width = dims_of(op, value)
    wanted = op.dim(query, -3)
    if not isinstance(wanted, int) or not isinstance(heads, int):
        times: Any = op.Div(*(op.const(item) if isinstance(item, int) else item for item in (wanted, heads)))
    elif wanted == heads:
        return value
    else:
        times = wanted // heads
    axis = value.rank - 2
    wide = op.Expand(op.Unsqueeze(value, [axis]), op.ints([1] * (axis - 1) + [1, times, 1, 1]))
    return reshape(op, wide, [*batch, wanted, length, width])


def _masked(op: Emitter, scores: Value, mask: Value | None) -> Value:
    if mask is None:
        return scores
    if mask.dtype == dtypes.BOOL:
        return op.Where(mask, scores, op.like(-math.inf, scores))
    return op.Add(scores, op.cast(mask, scores.dtype))


def _without_hidden(op: Emitter, result: Value, mask: Value) -> Value:
    """`result`, [..., queries, anything], with zeros for queries from which the mask hides every key."""
    is_bool = mask.dtype == dtypes.BOOL
    if mask.const is not None and bool((mask.const if is_bool else mask.const > -math.inf).any(-1).all()):
        return result
    seen = mask if is_bool else op.Greater(mask, op.like(-math.inf, mask))
    visible = op.cast(_highest(op, op.cast(seen, dtypes.INT32), mask.rank - 1), dtypes.BOOL)
    return op.Where(visible, result, op.like(0, result))


def _causal(op: Emitter, query: Value, key: Value) -> Value:
    """[L, S]: true where the key is at or before the position of the query."""
    rows, columns = op.dim(query, -2), op.dim(key, -2)
    if not isinstance(rows, int) or not isinstance(columns, int):
        ends = [op.const(size) if isinstance(size, int) else size for size in (rows, columns)]
        steps = [op.Range(op.const(0), end, op.const(1)) for end in ends]
        later = op.Greater(op.Unsqueeze(steps[1], [0]), op.Unsqueeze(steps[0], [1]))
        return op.Not(later)
    return op.const(torch.ones(rows, columns, dtype=torch.bool).tril())


@lower("aten::_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(
    op: Emitter,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Value | None = None,
    scale: Any = None,
) -> tuple[Value, Value]:
    """aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0.,
    bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)

    Decomposed programs contain it. The second result, for gradients, is the logarithm of the sum in the softmax.
    """
    result = scaled_dot_product_attention(op, query, key, value, attn_mask, dropout_p, is_causal, scale)
    scores = scores_of(op, query, key, scale)
    if is_causal:
        scores = op.Where(_causal(op, query, key), scores, op.like(-math.inf, scores))
    total = op.ReduceLogSumExp(_masked(op, scores, attn_mask), axes=[query.rank - 1], keepdims=0)
    return result, op.cast(total, dtypes.onnx_code(op.results[1].dtype) if op.results[1] else dtypes.FLOAT)
