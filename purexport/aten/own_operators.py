"""Operators of our own that a language model is recorded with, declared in torch when they are first needed.

`attention` is what an attention layer computes, whatever code computes it.  `visible` is a mask of attention that says
beside its values how it was made, so that a runtime which makes it itself need not be given it.  `rotary` turns pairs
of elements by an angle.  `written` is a cache of one length, with new tokens in it.  `experts` is what the experts
compute that a router chose.  `recurrence` is a state that decays and learns, token by token.  Each has a kernel in
torch operators, which is its definition.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from purexport.aten.names import operator_of

NAMESPACE = "purexport_llm"

Tensor = torch.Tensor

ATTENTION = f"{NAMESPACE}::attention"
VISIBLE = f"{NAMESPACE}::visible"
ROTARY = f"{NAMESPACE}::rotary"
EXPERTS = f"{NAMESPACE}::experts"
RECURRENCE = f"{NAMESPACE}::recurrence"
# these have no kernel: they are made by `fusion` only
ROTARY_EMBEDDING = f"{NAMESPACE}::rotary_embedding"
ATTENTION_WITH_PAST = f"{NAMESPACE}::attention_with_past"
GROUP_QUERY_ATTENTION = f"{NAMESPACE}::group_query_attention"
SKIP_NORM = f"{NAMESPACE}::skip_norm"
MIXTURE = f"{NAMESPACE}::mixture"
SWIGLU = f"{NAMESPACE}::swiglu"
LINEAR_ATTENTION = f"{NAMESPACE}::linear_attention"

CAUSAL, WINDOW, FULL, OTHER = "causal", "window", "full", "other"  # the patterns of `visible`

_SCHEMAS = (
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor? bias, Tensor? sinks, float scale, "
    "float softcap, bool causal) -> Tensor",
    "visible(Tensor mask, Tensor? padding, str pattern, int width) -> Tensor",
    "rotary(Tensor x, Tensor cos, Tensor sin, bool interleaved) -> Tensor",
    "written(Tensor cache, Tensor new, Tensor place) -> Tensor",
    "experts(Tensor x, Tensor index, Tensor weights, Tensor up, Tensor down, Tensor? up_bias, Tensor? down_bias, "
    "bool transposed, bool interleaved, float alpha, float beta, float limit) -> Tensor",
    "recurrence(Tensor query, Tensor key, Tensor value, Tensor state, Tensor decay, Tensor? rate, Tensor? beta, "
    "float scale) -> (Tensor, Tensor)",
)


@functools.cache
def operators() -> torch.library.Library:
    """The operators, declared at the first call.  They stay until the process ends."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    kernels = (_attention, _visible, _rotary, _written, _experts, _recurrence)
    for schema, kernel in zip(_SCHEMAS, kernels, strict=True):
        library.define(schema)  # type: ignore[no-untyped-call]
        library.impl(schema.partition("(")[0], kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    library.impl("experts", lambda x, *_: torch.empty_like(x), "Meta")  # type: ignore[no-untyped-call]
    library.impl("recurrence", _recurrence_of_shapes, "Meta")  # type: ignore[no-untyped-call]
    return library


def operator(name: str) -> Any:
    """torch's operator of a name."""
    operators()
    return operator_of(f"{NAMESPACE}::{name}")


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    sinks: Tensor | None,
    scale: float,
    softcap: float,
    causal: bool,
) -> Tensor:
    """[batch, heads, queries, size]: the values, weighted by the softmax of query @ key^T * scale.

    `softcap` bounds the products.  `bias` is added to them; `mask` is added too, or is true where a key is visible.
    With `causal` query i of n sees the keys up to the one that has as many behind it.  `sinks` holds a number for each
    head, which takes part in the softmax and has no value.
    """
    times = query.shape[1] // key.shape[1]
    if times > 1:
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    scores = query @ key.transpose(-1, -2) * scale
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    least, wide = torch.finfo(scores.dtype).min, torch.promote_types(scores.dtype, torch.float32)
    if bias is not None:
        scores = scores + bias
    if causal:
        shape = (query.shape[-2], key.shape[-2])
        seen = torch.ones(shape, dtype=torch.bool, device=query.device).tril(shape[1] - shape[0])
        scores = torch.where(seen, scores, least)
    if mask is not None:
        scores = torch.where(mask, scores, least) if mask.dtype == torch.bool else scores + mask
    if sinks is not None:
        column = sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1).to(scores.dtype)
        weights = torch.softmax(torch.cat([scores, column], -1), -1, wide)[..., :-1]
    else:
        weights = torch.softmax(scores, -1, wide)
    return weights.to(value.dtype) @ value


def _visible(mask: Tensor, padding: Tensor | None, pattern: str, width: int) -> Tensor:
    """`mask`, which is true where the query of the last axis but one sees the key of the last axis.

    It hides the keys for which `padding`, [batch, keys], is false, and others by `pattern`: the keys behind the query
    ("causal"), those too and those `width` or more before it ("window"), or none ("full").  "other" says nothing.
    """
    return mask.clone()


def _rotary(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """`x` with the first elements of its last axis turned in pairs, by angles whose `cos` and `sin` are given.

    As many pairs are turned as the last axis of `cos` is long.  The elements of a pair are next to each other if
    `interleaved`, otherwise the second ones stand behind all first ones.
    """
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    first, second = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    parts = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    return torch.cat([joined, rest], -1)


def _written(cache: Tensor, new: Tensor, place: Tensor) -> Tensor:
    """`cache`, [batch, heads, slots, size], with the tokens of `new` in the slots from `place`, [1], on."""
    slots = torch.arange(new.shape[2], device=cache.device) + place
    return cache.index_copy(2, slots, new)


def _experts(
    x: Tensor,
    index: Tensor,
    weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    transposed: bool,
    interleaved: bool,
    alpha: float,
    beta: float,
    limit: float,
) -> Tensor:
    """[tokens, size]: for each token of `x` the sum of what its experts compute, times their `weights`.

    `index`, [tokens, chosen], says which ones.  An expert is a product with `up`, a gate, and a product with `down`;
    both have a matrix [out, in] for each expert, or [in, out] if `transposed`.  `gated` says what the gate is.
    """
    result = torch.zeros_like(x)
    for expert in sorted(set(index.flatten().tolist())):
        rows, places = (index == expert).nonzero(as_tuple=True)
        first, second = (item[expert] if transposed else item[expert].t() for item in (up, down))
        both = x[rows] @ first if up_bias is None else x[rows] @ first + up_bias[expert]
        found = gated(both, interleaved, alpha, beta, limit) @ second
        found = found if down_bias is None else found + down_bias[expert]
        result.index_add_(0, rows, found * weights[rows, places, None])
    return result


def gated(both: Tensor, interleaved: bool, alpha: float, beta: float, limit: float) -> Tensor:
    """gate * sigmoid(alpha * gate) * (up + beta), of the gate and up, which are halves of the last axis or in turns.

    A `limit` that is not 0 bounds the gate from above, and up from both sides.
    """
    gate, up = (both[..., ::2], both[..., 1::2]) if interleaved else both.chunk(2, -1)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + beta)


def _recurrence(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: Tensor,
    decay: Tensor,
    rate: Tensor | None,
    beta: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """[batch, tokens, heads, width] and the last state: what each token finds in a state that decays and learns.

    `query` and `key`, [batch, tokens, groups, size], serve as many neighbouring heads each, of which `value` and
    `state`, [batch, heads, size, width], have one for each.  For each token the state is multiplied by exp(`decay`),
    [batch, tokens, heads] or [batch, tokens, heads, size]; with a `rate`, [heads, size], by exp(decay * rate).  Then
    key^T @ value is added.  With `beta`, [batch, tokens, heads], it is key^T @ (value - key @ state) * beta.  The
    result is query @ state * scale; a scale of 0 is 1 / sqrt(size).
    """
    heads = value.shape[2]
    query, key = (item.repeat_interleave(heads // item.shape[2], 2) for item in (query, key))
    if decay.dim() == 3:
        decay = decay[..., None]
    factors = (decay if rate is None else decay * rate).exp()
    found, state, scale = [], state.clone(), scale or query.shape[3] ** -0.5
    for at in range(value.shape[1]):
        state = state * factors[:, at, :, :, None]
        column, fresh = key[:, at, :, :, None], value[:, at, :, None]
        if beta is not None:
            fresh = (fresh - (column * state).sum(-2, keepdim=True)) * beta[:, at, :, None, None]
        state = state + column * fresh
        found.append((query[:, at, :, :, None] * state).sum(-2) * scale)
    return torch.stack(found, 1) if found else value.clone(), state


def _recurrence_of_shapes(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor, *others: Any
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(value), torch.empty_like(state)
