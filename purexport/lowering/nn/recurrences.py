"""States that decay and learn, token by token: linear attention, the delta rule, selective state spaces.

ONNX has LinearAttention from opset 27 on. Before it a Scan takes a step for each token. Where each head has one number
only, as in selective state spaces of channels, the state is one matrix, whose rows are multiplied at once: a product of
matrices for each of thousands of heads takes far longer. That is a Scan at every opset.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.nn.contrib import node
from purexport.lowering.support.common import dims_of, reshape

_TOKENS = 1  # the axis

Step = Callable[[Emitter, Value, dict[str, Value]], tuple[Value, Value]]


@lower("purexport_llm::recurrence")
def recurrence(
    op: Emitter,
    query: Value,
    key: Value,
    value: Value,
    state: Value,
    decay: Value,
    rate: Value | None,
    beta: Value | None,
    scale: float,
) -> tuple[Value, ...]:
    """purexport_llm::recurrence(Tensor query, Tensor key, Tensor value, Tensor state, Tensor decay, Tensor? rate,
    Tensor? beta, float scale) -> (Tensor, Tensor)

    ONNX LinearAttention (opset 27); before it a Scan over tokens.
    """
    narrow = op.dim(value, 3) == 1
    size = op.dim(query, 3)
    if not scale and isinstance(size, int):
        scale = 1 / math.sqrt(size)
    if op.has("LinearAttention") and not narrow and value.dtype != dtypes.DOUBLE:
        heads = op.dim(value, 2)
        flat = _flat(op, query, key, value, decay if rate is None else op.Mul(op.Unsqueeze(decay, [3]), rate))
        found, last = op.multi(
            "LinearAttention",
            *flat[:3],
            state,
            flat[3],
            beta,
            outputs=2,
            q_num_heads=heads,
            kv_num_heads=heads,
            scale=scale,
            update_rule="gated" if beta is None else "gated_delta",
        )
        return op.Reshape(found, op.shape(value)), last
    factor = op.Unsqueeze(decay, [3]) if decay.rank == 3 else decay  # [batch, tokens, heads, size or 1]
    if rate is None:
        factor = op.Exp(factor)
    return (_rows if narrow else _matrices)(op, query, key, value, state, factor, rate, beta, scale)


@lower("purexport_llm::linear_attention")
def linear_attention(
    op: Emitter,
    query: Value,
    key: Value,
    value: Value,
    state: Value,
    decay: Value,
    beta: Value | None,
    scale: float,
) -> tuple[Value, ...]:
    """purexport_llm::linear_attention(Tensor query, Tensor key, Tensor value, Tensor state, Tensor decay, Tensor? beta,
    float scale) -> (Tensor, Tensor)

    com.microsoft LinearAttention.
    """
    heads = op.dim(value, 2)
    flat = _flat(op, query, key, value, decay)
    sizes = flat[2].shape
    found, last = node(
        op,
        "LinearAttention",
        [*flat[:3], state, flat[3], beta],
        [(value.dtype, sizes), (state.dtype, state.shape)],
        q_num_heads=heads,
        kv_num_heads=heads,
        scale=scale,
        update_rule="gated" if beta is None else "gated_delta",
    )
    return op.Reshape(found, op.shape(value)), last


def _flat(op: Emitter, query: Value, key: Value, value: Value, decay: Value) -> list[Value]:
    """[batch, tokens, heads * size] each, with a query and a key for each head."""
    rows = [_for_heads(op, item, value) for item in (query, key)]
    return [item if item.rank == 3 else _tokens_of(op, item) for item in (*rows, value, decay)]


def _tokens_of(op: Emitter, item: Value) -> Value:
    """[batch, tokens, heads * size]"""
    batch, tokens, heads, size = dims_of(op, item)
    assert isinstance(heads, int) and isinstance(size, int)
    return reshape(op, item, [batch, tokens, heads * size])


def _for_heads(op: Emitter, item: Value, value: Value) -> Value:
    """[batch, tokens, heads, size]: each of neighbouring groups as often as heads have it in common."""
    if op.dim(item, 2) == op.dim(value, 2):
        return item
    batch, tokens, groups, size = dims_of(op, item)
    heads = op.dim(value, 2)
    assert isinstance(heads, int) and isinstance(groups, int)
    wide = op.Expand(op.Unsqueeze(item, [3]), op.ints([1, 1, 1, heads // groups, 1]))
    return reshape(op, wide, [batch, tokens, heads, size])


def _matrices(
    op: Emitter,
    query: Value,
    key: Value,
    value: Value,
    state: Value,
    factor: Value,
    rate: Value | None,
    beta: Value | None,
    scale: float,
) -> tuple[Value, ...]:
    """The state is a matrix for each head, [batch, heads, size, width]."""
    query, key = (item if op.dim(item, 2) == 1 else _for_heads(op, item, value) for item in (query, key))
    per_token = {"query": op.Unsqueeze(op.Mul(query, op.like(scale, query)) if scale != 1 else query, [3])}
    per_token |= {"key": op.Unsqueeze(key, [4]), "value": op.Unsqueeze(value, [3]), "factor": op.Unsqueeze(factor, [4])}
    if beta is not None:
        per_token |= {"row": op.Unsqueeze(key, [3]), "beta": op.Unsqueeze(beta, [3, 4])}
    columns = None if rate is None else op.Unsqueeze(rate, [2])

    def step(op: Emitter, before: Value, now: dict[str, Value]) -> tuple[Value, Value]:
        before = op.Mul(before, _factor(op, now["factor"], columns))
        fresh = now["value"]
        if beta is not None:
            fresh = op.Mul(op.Sub(fresh, op.MatMul(now["row"], before)), now["beta"])
        after = op.Add(before, op.Mul(now["key"], fresh))
        return after, op.MatMul(now["query"], after)

    last, found = _scanned(op, state, per_token, step)
    return op.Squeeze(found, [3]), last


def _rows(
    op: Emitter,
    query: Value,
    key: Value,
    value: Value,
    state: Value,
    factor: Value,
    rate: Value | None,
    beta: Value | None,
    scale: float,
) -> tuple[Value, ...]:
    """The state is a row for each head, [batch, heads, size, 1]."""
    shared = op.dim(query, 2) == 1
    query, key = (item if op.dim(item, 2) == 1 else _for_heads(op, item, value) for item in (query, key))
    query = op.Mul(query, op.like(scale, query)) if scale != 1 else query
    per_token = {"query": op.Transpose(query, perm=[0, 1, 3, 2]) if shared else query}
    per_token |= {"key": key, "value": value, "factor": factor}
    if beta is not None:
        per_token["beta"] = op.Unsqueeze(beta, [3])

    def step(op: Emitter, before: Value, now: dict[str, Value]) -> tuple[Value, Value]:
        before = op.Mul(before, _factor(op, now["factor"], rate))
        fresh = now["value"]
        if beta is not None:
            known = op.ReduceSum(op.Mul(now["key"], before), axes=[2], keepdims=1)
            fresh = op.Mul(op.Sub(fresh, known), now["beta"])
        after = op.Add(before, op.Mul(now["key"], fresh))
        if shared:
            return after, op.MatMul(after, now["query"])
        return after, op.ReduceSum(op.Mul(after, now["query"]), axes=[2], keepdims=1)

    last, found = _scanned(op, op.Squeeze(state, [3]), per_token, step)
    return found, op.Unsqueeze(last, [3])


def _factor(op: Emitter, factor: Value, rate: Value | None) -> Value:
    return factor if rate is None else op.Exp(op.Mul(factor, rate))


def _scanned(op: Emitter, state: Value, per_token: dict[str, Value], step: Step) -> tuple[Value, ...]:
    """The state after all tokens, and what each step has found, as a Scan."""
    inside = op.subgraph()
    carried = Value(state.dtype, state.shape, name="state")
    now = {}
    for name, item in per_token.items():
        shape = item.shape and (*item.shape[:_TOKENS], *item.shape[_TOKENS + 1 :])
        now[name] = Value(item.dtype, shape, name=name)
    inside.graph.inputs += [carried, *now.values()]
    inside.graph.outputs += step(inside, carried, now)
    count = len(per_token)
    return tuple(
        op.multi(
            "Scan",
            state,
            *per_token.values(),
            outputs=2,
            body=inside.graph,
            num_scan_inputs=count,
            scan_input_axes=[_TOKENS] * count,
            scan_output_axes=[_TOKENS],
        )
    )
