"""What language models are recorded with beside torch's operators (`aten/own_operators.py`), in standard operators.

A query from which the mask hides every key, as padding has, sees all keys alike, as in transformers: its result is of
no use, and it is no NaN, which would spread to other tokens.
"""

from __future__ import annotations

import torch

from proto_schema.legalization.sizes import minus, numbers_below, plus
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.nn.attention import each_for_queries, scores_of
from purexport.lowering.support.common import INT64_MAX, dims_of
from purexport.lowering.tensor.slices import slice_axis


@lower("purexport_llm::visible")
def visible(op: Emitter, mask: Value, padding: Value | None = None, pattern: str = "", width: int = 0) -> Value:
    """purexport_llm::visible(Tensor mask, Tensor? padding, str pattern, int width) -> Tensor

    The mask, whatever it says of itself.
    """
    return mask


@lower("purexport_llm::attention")
def attention(
    op: Emitter,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    bias: Value | None = None,
    sinks: Value | None = None,
    scale: float = 1.0,
    softcap: float = 0.0,
    causal: bool = False,
) -> Value:
    """purexport_llm::attention(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor? bias, Tensor? sinks,
    float scale, float softcap, bool causal) -> Tensor

    ONNX Attention (opset 23), unless there are sinks; before it matrix products and a softmax.
    """
    if _takes_attention(op, query, sinks, causal):
        mask = mask if bias is None else _both(op, query, op.dim(key, 2), bias, mask)
        return op.Attention(query, key, value, attn_mask=mask, scale=scale, softcap=softcap or None)
    key, value = (each_for_queries(op, item, query) for item in (key, value))
    scores = scores_of(op, query, key, scale)
    if softcap:
        scores = op.Mul(op.Tanh(op.Div(scores, op.like(softcap, scores))), op.like(softcap, scores))
    if bias is not None:
        scores = op.Add(scores, op.cast(bias, scores.dtype))
    least = op.like(torch.finfo(dtypes.torch_dtype(scores.dtype or dtypes.FLOAT)).min, scores)
    if causal:
        scores = op.Where(_at_or_before(op, query, key), scores, least)
    if mask is not None:
        shown = mask.dtype == dtypes.BOOL
        scores = op.Where(mask, scores, least) if shown else op.Add(scores, op.cast(mask, scores.dtype))
    if sinks is None:
        return op.MatMul(op.Softmax(scores, axis=3), value)
    batch, heads, queries, _ = dims_of(op, scores)
    column = op.Expand(op.Reshape(op.cast(sinks, scores.dtype), [1, -1, 1, 1]), op.ints([batch, heads, queries, 1]))
    weights = op.Softmax(op.Concat(scores, column, axis=3), axis=3)
    return op.MatMul(slice_axis(op, weights, 3, 0, -1), value)


@lower("purexport_llm::attention_with_past")
def attention_with_past(
    op: Emitter,
    query: Value,
    key: Value,
    value: Value,
    past_key: Value,
    past_value: Value,
    mask: Value | None = None,
    bias: Value | None = None,
    sinks: Value | None = None,
    scale: float = 1.0,
    softcap: float = 0.0,
    causal: bool = False,
) -> tuple[Value, ...]:
    """purexport_llm::attention_with_past(Tensor query, Tensor key, Tensor value, Tensor past_key, Tensor past_value,
    Tensor? mask, Tensor? bias, Tensor? sinks, float scale, float softcap, bool causal) -> (Tensor, Tensor, Tensor)

    Attention to the keys and values of the past and the new ones behind them, and both together.

    ONNX Attention (opset 23) with its past and present; before it they are joined first.
    """
    if not _takes_attention(op, query, sinks, causal):
        keys, values = op.Concat(past_key, key, axis=2), op.Concat(past_value, value, axis=2)
        return attention(op, query, keys, values, mask, bias, sinks, scale, softcap, causal), keys, values
    if bias is not None:
        mask = _both(op, query, plus(op, op.dim(past_key, 2), op.dim(key, 2)), bias, mask)
    inputs = [query, key, value, mask, past_key, past_value]
    return tuple(op.multi("Attention", *inputs, outputs=3, scale=scale, softcap=softcap or None))


def _takes_attention(op: Emitter, query: Value, sinks: Value | None, causal: bool) -> bool:
    return op.has("Attention") and sinks is None and query.dtype != dtypes.DOUBLE and not causal


def _both(op: Emitter, query: Value, keys: int | Value, bias: Value, mask: Value | None) -> Value:
    """[batch or 1, heads or 1, queries, keys]: a bias and a mask as one, which has both last axes in full."""
    whole = op.cast(bias, query.dtype)
    if mask is not None and mask.dtype == dtypes.BOOL:
        whole = op.Where(mask, whole, op.like(torch.finfo(dtypes.torch_dtype(query.dtype or dtypes.FLOAT)).min, whole))
    elif mask is not None:
        whole = op.Add(whole, op.cast(mask, whole.dtype))
    return op.Expand(whole, op.ints([1, 1, op.dim(query, 2), keys]))


def _at_or_before(op: Emitter, query: Value, key: Value) -> Value:
    """[queries, keys]: true for the keys up to the one that has as many behind it as the query has."""
    queries, keys = op.dim(query, -2), op.dim(key, -2)
    rows = op.Add(numbers_below(op, queries), minus(op, keys, queries))
    return op.Not(op.Greater(op.Unsqueeze(numbers_below(op, keys), [0]), op.Unsqueeze(rows, [1])))


@lower("purexport_llm::rotary")
def rotary(op: Emitter, x: Value, cos: Value, sin: Value, interleaved: bool = False) -> Value:
    """purexport_llm::rotary(Tensor x, Tensor cos, Tensor sin, bool interleaved) -> Tensor

    [batch, heads, length, size] with angles [batch or 1, 1, length, pairs], or with both axes exchanged.

    ONNX RotaryEmbedding (opset 23), which wants angles for each row of the batch, and heads first; otherwise slices and
    products.
    """
    last = 3
    pairs = op.dim(cos, last)
    assert isinstance(pairs, int)
    heads_first = op.dim(cos, 1) == 1 and op.dim(cos, 2) == op.dim(x, 2)
    if op.has("RotaryEmbedding") and heads_first and x.dtype == cos.dtype != dtypes.DOUBLE:
        angles = [op.Squeeze(item, [1]) for item in (cos, sin)]
        batch, length = op.dim(x, 0), op.dim(cos, 2)
        if op.dim(cos, 0) != batch:
            angles = [op.Expand(item, op.ints([batch, length, pairs])) for item in angles]
        part = 0 if op.dim(x, last) == 2 * pairs else 2 * pairs
        return op.RotaryEmbedding(x, *angles, interleaved=int(interleaved), rotary_embedding_dim=part)
    turned, rest = slice_axis(op, x, last, 0, 2 * pairs), slice_axis(op, x, last, 2 * pairs, INT64_MAX)
    if interleaved:
        first, second = (slice_axis(op, turned, last, start, INT64_MAX, 2) for start in (0, 1))
    else:
        first, second = slice_axis(op, turned, last, 0, pairs), slice_axis(op, turned, last, pairs, INT64_MAX)
    one = op.Sub(op.Mul(first, cos), op.Mul(second, sin))
    two = op.Add(op.Mul(second, cos), op.Mul(first, sin))
    if interleaved:
        joined = op.Reshape(op.Concat(op.Unsqueeze(one, [4]), op.Unsqueeze(two, [4]), axis=4), op.shape(turned))
    else:
        joined = op.Concat(one, two, axis=last)
    return joined if op.dim(x, last) == 2 * pairs else op.Concat(joined, rest, axis=last)


@lower("purexport_llm::swiglu")
def swiglu(op: Emitter, gate: Value, up: Value) -> Value:
    """purexport_llm::swiglu(Tensor gate, Tensor up) -> Tensor

    ONNX SwiGLU (opset 28).
    """
    return op.SwiGLU(gate, up)


@lower("purexport_llm::written")
def written(op: Emitter, cache: Value, new: Value, place: Value) -> Value:
    """purexport_llm::written(Tensor cache, Tensor new, Tensor place) -> Tensor

    ONNX TensorScatter (opset 24), whose older form has sizes as fixed as those of the cache.
    """
    return op.TensorScatter(cache, new, op.Expand(place, op.ints([op.dim(cache, 0)])), axis=2)
