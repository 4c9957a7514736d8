"""The row of linear attention: a state of each head that every position decays, corrects and adds to.

The state and all that enters it are float32. One position is a few products over all batches and heads.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.costs import pieces
from proto_schema.compute.nn.numbers import narrowed
from proto_schema.compute.rows import row

_RULES = ("linear", "gated", "delta", "gated_delta")


def _cost(call: Call, query: Array, key: Array, value: Array, *more: Array | None) -> Cost:
    """A few products with the state at each position."""
    heads, kv_heads = max(1, call.attribute("q_num_heads", 0)), max(1, call.attribute("kv_num_heads", 0))
    if query.ndim != 3 or value.ndim != 3:
        call.fail(f"query and value have the ranks {query.ndim} and {value.ndim}, not 3")
    batch, length, _ = query.shape
    state = batch * kv_heads * (query.shape[2] // heads) * (value.shape[2] // kv_heads)
    results = batch * length * heads * (value.shape[2] // kv_heads)
    held = sum(item.size for item in (query, key, value, *more) if item is not None)
    work = length * (6 + heads // kv_heads) * state + 4 * held + pieces(20 * length)
    return Cost(work, 4 * (results + state), 8 * (held + results + 4 * state))


@row("LinearAttention", cost=_cost)
def linear_attention(
    call: Call,
    query: Array,
    key: Array,
    value: Array,
    past: Array | None = None,
    decay: Array | None = None,
    rate: Array | None = None,
) -> tuple[Array, Typed]:
    """(batch, length, heads * size) to the same; and the state (batch, heads of keys, size of keys, of values).

    The state has the type of the one that is given, else the query's.
    """
    heads, kv_heads = call.attribute("q_num_heads", 0), call.attribute("kv_num_heads", 0)
    rule = call.text("update_rule", "gated_delta")
    if rule not in _RULES:
        call.fail(f"update_rule is {rule!r}, and may be {', '.join(_RULES)}")
    gated, corrected = rule.startswith("gated"), rule.endswith("delta")
    for name, given, needed in (("decay", decay, gated), ("beta", rate, corrected)):
        if (given is not None) != needed:
            call.fail(f"update_rule {rule!r} {'needs' if needed else 'has no use for'} the input {name}")
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        call.fail(f"{heads} heads of queries cannot share {kv_heads} of keys")
    batch, length, _ = query.shape
    size, made = query.shape[2] // heads, value.shape[2] // kv_heads
    scale = np.float32(call.attribute("scale", 0.0) or 1 / sqrt(size))
    # time goes first, so that one position lies in one piece
    queries = _by_time(query, kv_heads).reshape(length, batch, kv_heads, heads // kv_heads, size) * scale
    keys, values = _by_time(key, kv_heads), _by_time(value, kv_heads)
    shape = (batch, kv_heads, size, made)
    state = np.zeros(shape, np.float32) if past is None else past.astype(np.float32)
    if state.shape != shape:
        call.fail(f"the past state has shape {state.shape}, and {shape} is needed")
    factors = None if decay is None else np.exp(_by_time(decay, kv_heads))
    rates = None if rate is None else _by_time(rate, min(rate.shape[2], kv_heads))
    code = call.dtype(3) or call.dtype(0)
    result = np.empty((length, batch, kv_heads, heads // kv_heads, made), np.float32)
    for at in range(length):
        if factors is not None:
            state = state * factors[at][..., None]
        added = values[at]
        if rates is not None:
            added = rates[at] * (added - np.matmul(keys[at][..., None, :], state)[..., 0, :])
        state = state + keys[at][..., :, None] * added[..., None, :]
        np.matmul(queries[at], state, out=result[at])
    return result.transpose(1, 0, 2, 3, 4).reshape(batch, length, heads * made), Typed(narrowed(state, code), code)


def _by_time(values: Array, heads: int) -> Array:
    """(batch, length, heads * size) as (length, batch, heads, size), in float32."""
    split = values.astype(np.float32).reshape(*values.shape[:2], heads, -1)
    return np.ascontiguousarray(split.transpose(1, 0, 2, 3))
