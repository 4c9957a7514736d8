"""Operators of ONNX Runtime's domain com.microsoft, for calls that a target's rows made (`fusion`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import plus
from purexport import dtypes
from purexport.aten.graph import Dim
from purexport.graph.ir import Node, Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower

DOMAIN = "com.microsoft"
UNDEFINED = 0  # the dtype of an output that is left out


@lower("purexport_llm::rotary_embedding")
def rotary_embedding(
    op: Emitter, x: Value, positions: Value, cos: Value, sin: Value, heads: int, interleaved: bool
) -> Value:
    """purexport_llm::rotary_embedding(Tensor x, Tensor positions, Tensor cos, Tensor sin, int heads, bool interleaved)
    -> Tensor

    [batch, length, heads * size], turned by the rows of tables that the positions name.
    """
    width, (_, pairs) = op.dim(x, 2), cos.sizes
    partial = 2 * pairs if isinstance(width, int) and 2 * pairs * heads < width else None
    return node(
        op,
        "RotaryEmbedding",
        [x, positions, op.cast(cos, x.dtype), op.cast(sin, x.dtype)],
        [(x.dtype, x.shape)],
        num_heads=heads,
        rotary_embedding_dim=partial,
        interleaved=int(interleaved),
    )[0]


@lower("purexport_llm::skip_norm")
def skip_norm(
    op: Emitter, x: Value, skip: Value, weight: Value, bias: Value | None, eps: float, centered: bool
) -> tuple[Value, ...]:
    """purexport_llm::skip_norm(Tensor x, Tensor skip, Tensor weight, Tensor? bias, float eps, bool centered)
    -> (Tensor, Tensor)

    The normalized sum of the first two, and the sum.  `centered` is a layer norm, otherwise it is a root mean square.
    """
    kind = "SkipLayerNormalization" if centered else "SkipSimplifiedLayerNormalization"
    type_, left_out = (x.dtype, x.shape), (UNDEFINED, None)
    results = [type_, left_out, left_out, type_]
    found = node(op, kind, [x, skip, weight, bias], results, epsilon=eps)
    return found[0], found[3]


@lower("purexport_llm::group_query_attention")
def group_query_attention(
    op: Emitter,
    query: Value,
    key: Value | None,
    value: Value | None,
    past_key: Value,
    past_value: Value,
    cos: Value | None,
    sin: Value | None,
    padding: Value | None,
    bias: Value | None,
    sinks: Value | None,
    heads: int,
    kv_heads: int,
    scale: float,
    softcap: float,
    window: int,
    interleaved: bool,
    lengths: bool,
) -> tuple[Value, ...]:
    """purexport_llm::group_query_attention(Tensor query, Tensor? key, Tensor? value, Tensor past_key,
    Tensor past_value, Tensor? cos, Tensor? sin, Tensor? padding, Tensor? bias, Tensor? sinks, int heads, int kv_heads,
    float scale, float softcap, int window, bool interleaved, bool lengths) -> (Tensor, Tensor, Tensor)

    com.microsoft GroupQueryAttention. Without keys and values each query has them behind it. With `lengths` the padding
    of a row is behind its tokens, and only their number counts. Otherwise what the padding hides is added as a bias.
    """
    batch, length, past = op.dim(query, 0), op.dim(query, 1), op.dim(past_key, 2)
    if lengths and padding is not None:
        # the buffer of the past may be longer than what is in it
        total = op.cast(_value(op, op.dim(padding, 1)), dtypes.INT32)
        used = op.Sub(op.ReduceSum(op.cast(padding, dtypes.INT32), axes=[1], keepdims=0), 1)
    else:
        total = op.cast(_value(op, plus(op, past, length)), dtypes.INT32)
        used = op.Expand(op.Sub(total, 1), op.ints([batch]))
    bias = _with_padding(op, query, None if lengths else padding, bias, length)
    shape = query.shape or (None, None, None)
    size = (past_key.shape or (None,) * 4)[3]
    shape = (*shape[:2], size * heads if isinstance(size, int) else None)
    whole = tuple(
        (*(item.shape or (None,) * 4)[:2], _sum(item, shape[1]), (item.shape or (None,) * 4)[3])
        for item in (past_key, past_value)
    )
    inputs = [query, key, value, past_key, past_value, used, total, cos, sin, None]
    return node(
        op,
        "GroupQueryAttention",
        [*inputs, bias, op.cast(sinks, query.dtype) if sinks is not None else None],
        [(query.dtype, shape), *((query.dtype, item) for item in whole)],
        num_heads=heads,
        kv_num_heads=kv_heads,
        scale=scale,
        softcap=softcap or None,
        local_window_size=window or None,
        do_rotary=int(cos is not None),
        rotary_interleaved=int(interleaved),
    )


@lower("purexport_llm::mixture")
def mixture(
    op: Emitter,
    x: Value,
    index: Value,
    weights: Value,
    up: Value,
    down: Value,
    up_bias: Value | None,
    down_bias: Value | None,
    alpha: float,
    beta: float,
    limit: float,
) -> Value:
    """purexport_llm::mixture(Tensor x, Tensor index, Tensor weights, Tensor up, Tensor down, Tensor? up_bias,
    Tensor? down_bias, float alpha, float beta, float limit) -> Tensor

    com.microsoft MoE, which chooses by the logarithms of the weights again, and divides them by their sum.  QMoE always
    does so, whatever normalize_routing_weights says; so the attribute says it here, too.
    """
    nothing = op.Expand(op.like(0, x), op.ints([op.dim(x, 0), op.dim(up, 0)]))
    chosen = op.ScatterElements(nothing, index, weights, axis=1)
    lowest = op.like(torch.finfo(dtypes.torch_dtype(x.dtype or dtypes.FLOAT)).min, x)
    found = node(
        op,
        "MoE",
        [x, op.Where(op.Greater(chosen, op.like(0, x)), op.Log(chosen), lowest), up, up_bias, down, down_bias],
        [(x.dtype, x.shape)],
        k=op.dim(index, 1),
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=alpha,
        activation_beta=beta,
        swiglu_limit=limit or None,
        normalize_routing_weights=1,
    )
    result = op.Mul(found[0], op.ReduceSum(weights, axes=[1], keepdims=1))
    # the kernel (ONNX Runtime 1.31, CPU) writes into the buffer of x before it has read it, where nobody needs x later
    return op.Where(op.const(False, dtypes.BOOL), x, result)


def multi_head_attention(
    op: Emitter, query: Value, key: Value, value: Value, mask: Value | None, causal: bool, scale: Any
) -> Value | None:
    """com.microsoft MultiHeadAttention of [batch, heads, length, size], which wants the heads behind the length.

    `mask` is added to the products, or is true where a key is visible.  None where the file may not have the operator,
    or where the kernel does not take it.  With `causal` the kernel counts from the last key, torch from the first one,
    so both lengths must be the same.
    """
    operands = (query, key, value)
    shapes = [item.shape or () for item in operands]
    if not op.of_runtime or any(len(shape) != 4 for shape in shapes):
        return None
    (_, heads, length, width), (_, *others, keys, key_width), (_, *more, values, _) = shapes
    static = [heads, width, shapes[2][3]]
    if any(item.dtype != dtypes.FLOAT for item in operands) or not all(isinstance(size, int) for size in static):
        return None
    if others != [heads] or more != [heads] or key_width != width or keys != values or (causal and length != keys):
        return None
    bias = mask
    if mask is not None:
        if mask.dtype == dtypes.BOOL:
            bias = op.Where(mask, op.like(0, query), op.like(torch.finfo(torch.float32).min, query))
        # the kernel wants both last axes in full
        bias = op.cast(op.Expand(bias, op.ints([1, 1, op.dim(query, 2), op.dim(key, 2)])), query.dtype)
    assert isinstance(heads, int) and isinstance(static[2], int)
    flat = [_heads_last(op, item) for item in operands]
    (found,) = node(
        op,
        "MultiHeadAttention",
        [*flat, None, None, bias],
        [(query.dtype, (shapes[0][0], length, heads * static[2]))],
        num_heads=heads,
        scale=scale,
        unidirectional=int(causal) or None,
    )
    return op.Transpose(op.Reshape(found, [0, 0, heads, static[2]]), perm=[0, 2, 1, 3])


def _heads_last(op: Emitter, value: Value) -> Value:
    """[batch, heads, length, size] as [batch, length, heads * size]; what it was made from, where it was that."""
    batch, heads, length, width = value.shape or ()
    assert isinstance(heads, int) and isinstance(width, int)
    apart = _input_of(value, "Transpose", perm=[0, 2, 1, 3])
    source = None if apart is None else _input_of(apart, "Reshape")
    if source is not None and source.shape == (batch, length, heads * width):
        return source
    turned = op.Transpose(value, perm=[0, 2, 1, 3]) if apart is None else apart
    return op.Reshape(turned, [0, 0, heads * width])


def _input_of(value: Value, op_type: str, **attributes: Any) -> Value | None:
    """The first input of the node that makes a value, where it is one of this kind with these attributes."""
    made = value.node
    if made is None or (made.op_type, made.domain) != (op_type, ""):
        return None
    given = {name: list(item) if isinstance(item, tuple) else item for name, item in made.attributes.items()}
    return made.inputs[0] if all(given.get(name) == item for name, item in attributes.items()) else None


def _sum(past: Value, length: Dim) -> Dim:
    size = (past.shape or (None,) * 4)[2]
    return None if size is None or length is None else size + length


def _value(op: Emitter, size: Any) -> Value:
    return op.const(size) if isinstance(size, int) else size


def _with_padding(op: Emitter, query: Value, padding: Value | None, bias: Value | None, length: Any) -> Value | None:
    """[batch or 1, heads or 1, length, total]: the bias, and the lowest number for the keys that the padding hides."""
    ones = [1, 1, length, 1]
    if padding is None:
        return op.Expand(bias, op.ints(ones)) if bias is not None else None
    lowest = op.like(torch.finfo(dtypes.torch_dtype(query.dtype or dtypes.FLOAT)).min, query)
    hidden = op.Unsqueeze(op.Where(padding, op.like(0, query), lowest), [1, 2])
    return op.Expand(hidden if bias is None else op.Add(bias, hidden), op.ints(ones))


def node(
    op: Emitter,
    op_type: str,
    inputs: Sequence[Value | None],
    results: Sequence[tuple[int | None, tuple[Dim, ...] | None]],
    **attributes: Any,
) -> tuple[Value, ...]:
    """The results of a node of this domain, whose dtypes and shapes the caller knows; UNDEFINED ones have no name."""
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    made = Node(op_type, given, [], {name: item for name, item in attributes.items() if item is not None}, DOMAIN)
    made.source = op.source
    made.outputs = [Value(dtype, shape, node=made) for dtype, shape in results]
    op.graph.nodes.append(made)
    return tuple(made.outputs)
