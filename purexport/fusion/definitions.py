"""What operators that only rows make compute, in torch: the definitions that proofs compare with.

They are those of ONNX Runtime's operators as far as rows use them, without its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from purexport.aten import own_operators as own

Tensor = torch.Tensor


def rotary_embedding(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, heads: int, interleaved: bool) -> Tensor:
    """[batch, length, heads * size], turned by the rows of tables that the positions name."""
    apart = _heads_first(x, heads)
    turned = own.operator("rotary")(apart, cos[positions][:, None], sin[positions][:, None], interleaved)
    return _tokens_first(turned)


def attention_with_past(
    query: Tensor, key: Tensor, value: Tensor, past_key: Tensor, past_value: Tensor, **others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention to the past and the new tokens, and both together."""
    keys, values = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
    return own.operator("attention")(query, keys, values, **others), keys, values


def group_query_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor,
    past_value: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    padding: Tensor | None,
    bias: Tensor | None,
    sinks: Tensor | None,
    heads: int,
    kv_heads: int,
    scale: float,
    softcap: float,
    window: int,
    interleaved: bool,
    lengths: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention to the past and the new tokens, and both together; positions count from the first key."""
    if key is None or value is None:
        width = query.shape[-1] // (heads + 2 * kv_heads)
        query, key, value = torch.split(query, [heads * width, kv_heads * width, kv_heads * width], -1)
    new_query, new_key, new_value = (
        _heads_first(item, count) for item, count in ((query, heads), (key, kv_heads), (value, kv_heads))
    )
    past, length = past_key.shape[2], new_query.shape[2]
    if cos is not None and sin is not None:
        at = torch.arange(past, past + length)
        new_query, new_key = (
            own.operator("rotary")(item, cos[at], sin[at], interleaved) for item in (new_query, new_key)
        )
    keys, values = torch.cat([past_key, new_key], 2), torch.cat([past_value, new_value], 2)
    rows, columns = torch.arange(past, past + length)[:, None], torch.arange(past + length)
    seen = columns <= rows
    if window:
        seen &= columns > rows - window
    if padding is not None:
        seen = seen & padding.bool()[:, None, None, :]
    found = own.operator("attention")(new_query, keys, values, seen, bias, sinks, scale, softcap, False)
    return _tokens_first(found), keys, values


def skip_norm(
    x: Tensor, skip: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centered: bool
) -> tuple[Tensor, Tensor]:
    """The normalized sum, and the sum."""
    total = x + skip
    if centered:
        return torch.nn.functional.layer_norm(total, weight.shape, weight, bias, eps), total
    return torch.nn.functional.rms_norm(total, list(weight.shape), weight, eps), total


def mixture(x: Tensor, index: Tensor, weights: Tensor, up: Tensor, down: Tensor, *rest: Any, **named: Any) -> Tensor:
    """The experts, whose gate and up are in turns, [out, in] each."""
    total = weights.sum(1, keepdim=True)
    named |= {"transposed": False, "interleaved": True}
    found: Tensor = own.operator("experts")(x, index, weights / total, up, down, *rest, **named)
    return found * total


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return torch.nn.functional.silu(gate) * up


def linear_attention(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor, decay: Tensor, beta: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """What each token finds in the state, and the last state."""
    found: tuple[Tensor, Tensor] = own.operator("recurrence")(query, key, value, state, decay, None, beta, scale)
    return found


DEFINITIONS: Mapping[str, Callable[..., Any]] = {
    own.ROTARY_EMBEDDING: rotary_embedding,
    own.ATTENTION_WITH_PAST: attention_with_past,
    own.GROUP_QUERY_ATTENTION: group_query_attention,
    own.SKIP_NORM: skip_norm,
    own.MIXTURE: mixture,
    own.SWIGLU: swiglu,
    own.LINEAR_ATTENTION: linear_attention,
}


def _heads_first(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:-1], heads, -1).transpose(1, 2)


def _tokens_first(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)
