"""Rows of attention by softmax, and of rotary embeddings.

Heads are axis 1 throughout. With fewer heads of keys than of queries, the queries that share a head are rows of one
matrix, so that keys and values are never repeated. Scores are computed for some queries at a time, so that memory does
not grow with the square of the length. What is narrower than float32 is computed in float32.

A row whose bias is minus infinity everywhere has no key to attend to; its probabilities are 0 (Attention-23, errata).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.costs import WIDE, products
from proto_schema.compute.nn.numbers import wide
from proto_schema.compute.rows import row

_SCORES = 1 << 19
"""The most scores that are held at a time, as far as a few queries allow it: 2 MiB of float32."""
_QUERIES = 8
_DOUBLE = 11


def _form(call: Call, values: Array, heads: str) -> tuple[int, int, int, int]:
    """(batch, heads, length, size) of what is packed or not."""
    if values.ndim == 3:
        count = call.attribute(heads, 0)
        return values.shape[0], count, values.shape[1], values.shape[2] // max(1, count)
    if values.ndim != 4:
        call.fail(f"a tensor of rank {values.ndim}: 3 or 4 is needed")
    batch, count, length, size = values.shape
    return batch, count, length, size


def _attention_cost(
    call: Call,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    lengths: Array | None = None,
) -> Cost:
    """All products of queries and keys are computed, but only those of some queries are held; all are if asked for."""
    batch, heads, length, size = _form(call, query, "q_num_heads")
    *_, keys, made = _form(call, value, "kv_num_heads")
    keys += past_key.shape[2] if past_key is not None and past_key.ndim > 2 else 0
    scores = batch * heads * length * keys
    part = max(_SCORES, _QUERIES * batch * heads * keys)
    held = sum(item.size for item in (query, key, value, past_key, past_value) if item is not None)
    results = batch * heads * length * made + held + (scores if call.wants(3) else 0)
    masked = 0 if mask is None else mask.size + mask.size // max(1, mask.shape[-1]) * keys if mask.ndim else 1
    work = products(scores * (size + made), np.float32) + 30 * scores + 3 * held + masked
    return Cost(work, results * max(4, query.itemsize), WIDE * (8 * min(part, 2 * scores + 1) + 4 * held + 2 * masked))


def _flexible_cost(call: Call, query: Array, key: Array, value: Array) -> Cost:
    batch, heads, length, size = _form(call, query, "")
    *_, keys, made = _form(call, value, "")
    scores = batch * heads * length * keys
    results = batch * heads * length * made
    held = query.size + key.size + value.size
    work = products(scores * (size + made), np.float32) + 30 * scores + 3 * held
    return Cost(work, WIDE * results, WIDE * (4 * scores + 3 * held + results))


def _rotary_cost(call: Call, data: Array, cosines: Array, sines: Array, places: Array | None = None) -> Cost:
    taken = cosines.size if places is None else places.size * (cosines.shape[-1] if cosines.ndim else 1)
    width = max(4, data.itemsize)
    return Cost(8 * data.size + 2 * taken, data.size * width, 5 * data.size * width + 4 * taken * width)


@row("Attention", cost=_attention_cost)
def attention(
    call: Call,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    lengths: Array | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    """Softmax of scaled products of queries and keys, capped and masked, times the values; the grown cache; scores.

    Rank 4 is (batch, heads, length, size), rank 3 (batch, length, heads * size). `lengths` says how many keys of a
    cache outside are valid. The fourth output is, by `qk_matmul_output_mode`, the scaled product, that after the cap,
    that after the mask, or the probabilities.
    """
    packed = query.ndim == 3
    if packed:
        heads, kv_heads = call.attribute("q_num_heads", 0), call.attribute("kv_num_heads", 0)
        query = _unpacked(call, query, heads)
        key, value = _unpacked(call, key, kv_heads), _unpacked(call, value, kv_heads)
    if not query.ndim == key.ndim == value.ndim == 4:
        call.fail(f"ranks {query.ndim}, {key.ndim}, {value.ndim} of query, key and value: all 3 or all 4 are needed")
    if (past_key is None) != (past_value is None):
        call.fail("past_key and past_value are given together or not at all")
    before = 0
    if past_key is not None and past_value is not None:
        if lengths is not None:
            call.fail("nonpad_kv_seqlen says how long a cache outside is, and past_key is one inside")
        before = past_key.shape[2]
        key, value = np.concatenate([past_key, key], axis=2), np.concatenate([past_value, value], axis=2)
    if query.shape[1] % max(1, key.shape[1]) or key.shape[1] != value.shape[1]:
        call.fail(f"{query.shape[1]} heads of queries cannot share {key.shape[1]} of keys, {value.shape[1]} of values")
    result, scores = _attended(call, query, key, value, _Bias(call, query, key, mask, before, lengths))
    if packed:
        result = np.asarray(result.transpose(0, 2, 1, 3).reshape(query.shape[0], query.shape[2], -1))
    return result, key, value, scores


def _unpacked(call: Call, values: Array, heads: int) -> Array:
    if values.ndim != 3 or heads < 1 or values.shape[2] % heads:
        call.fail(f"a tensor of shape {values.shape} is not (batch, length, size of {heads} heads)")
    split: Array = values.reshape(*values.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    return split


class _Bias:
    """What is added to the scores of some queries."""

    def __init__(
        self, call: Call, query: Array, key: Array, mask: Array | None, before: int, lengths: Array | None
    ) -> None:
        self.kind = wide(query).dtype
        self.keys, self.mask, self.lengths = key.shape[2], mask, lengths
        if mask is not None and mask.shape[-1] < self.keys:
            fill = np.zeros((*mask.shape[:-1], self.keys - mask.shape[-1]), mask.dtype)
            if mask.dtype != np.bool_:
                fill[...] = -np.inf
            self.mask = np.concatenate([mask, fill], axis=-1)
        if lengths is None:
            self.offset: Array = np.full((1, 1, 1, 1), before)
        else:
            self.offset = lengths.reshape(-1, 1, 1, 1) - query.shape[2]
        self.causal = bool(call.attribute("is_causal", 0))
        self.left, self.right = call.attribute("left_window_size", -1), call.attribute("right_window_size", -1)
        self.nothing = mask is None and lengths is None and not self.causal and max(self.left, self.right) < 0

    def of(self, start: int, stop: int) -> Array | None:
        """(batch or 1, heads or 1, stop - start, keys) for these queries; None for zeros."""
        if self.nothing:
            return None
        bias: Array = np.zeros((1, 1, 1, self.keys), self.kind)
        if self.mask is not None:
            mask: Array = self.mask.reshape((1,) * (4 - self.mask.ndim) + self.mask.shape)
            mask = mask[:, :, start:stop] if mask.shape[2] > 1 else mask
            bias = np.where(mask, self.kind.type(0), self.kind.type(-np.inf)) if mask.dtype == np.bool_ else wide(mask)
        places = np.arange(start, stop).reshape(-1, 1) + self.offset
        keys, allowed = np.arange(self.keys), np.ones((1, 1, 1, self.keys), np.bool_)
        if self.causal:
            allowed = allowed & (keys <= places)
        if self.left >= 0:
            allowed = allowed & (places - keys <= self.left)
        if self.right >= 0:
            allowed = allowed & (keys - places <= self.right)
        if self.lengths is not None:
            allowed = allowed & (keys < self.lengths.reshape(-1, 1, 1, 1))
        return np.where(allowed, bias, self.kind.type(-np.inf))


def _attended(call: Call, query: Array, key: Array, value: Array, bias: _Bias) -> tuple[Array, Array | None]:
    batch, heads, length, size = query.shape
    kv_heads, keys = key.shape[1:3]
    scale, softcap = call.attribute("scale"), call.attribute("softcap", 0.0)
    mode = call.attribute("qk_matmul_output_mode", 0) if call.wants(3) else None
    kind = wide(query).dtype
    root = kind.type(sqrt(1 / sqrt(size) if scale is None else scale)) if size else kind.type(1)
    precise = np.float64 if call.attribute("softmax_precision", 0) == _DOUBLE else kind
    ready, values = (wide(key) * root).swapaxes(2, 3), wide(value)
    result = np.empty((batch, heads, length, value.shape[3]), kind)
    kept = None if mode is None else np.empty((batch, heads, length, keys), kind)
    step = max(_QUERIES, _SCORES // max(1, batch * heads * keys))
    for start in range(0, length, step):
        stop = min(start + step, length)
        some = np.ascontiguousarray(wide(query[:, :, start:stop]) * root)
        rows = some.reshape(batch, kv_heads, heads // max(1, kv_heads) * (stop - start), size)
        scores = np.matmul(rows, ready).reshape(batch, heads, stop - start, keys)
        found = scores.copy() if mode == 0 else scores
        if softcap:
            scores = np.tanh(scores / kind.type(softcap)) * kind.type(softcap)
        found = scores.copy() if mode == 1 else found
        added = bias.of(start, stop)
        if added is not None:
            scores += added
        found = scores if mode == 2 else found
        chances = _softmax(scores.astype(precise, copy=False)).astype(kind, copy=False)
        if added is not None:
            hidden = np.isneginf(added.max(axis=-1, keepdims=True, initial=-np.inf))
            chances = np.where(hidden, kind.type(0), chances) if hidden.any() else chances
        if kept is not None:
            kept[:, :, start:stop] = chances if mode == 3 else found
        some = np.matmul(chances.reshape(*rows.shape[:3], keys), values)
        result[:, :, start:stop] = some.reshape(batch, heads, stop - start, -1)
    return result, kept


def _softmax(scores: Array) -> Array:
    """Along the last axis, 0 for rows of minus infinity. Always a new array."""
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    found: Array = scores - np.where(np.isneginf(largest), largest.dtype.type(0), largest)
    np.exp(found, out=found)
    sums = found.sum(axis=-1, keepdims=True)
    found /= np.where(sums == 0, sums.dtype.type(1), sums)
    return found


@row("FlexAttention", domain="ai.onnx.preview", cost=_flexible_cost)
def flex_attention(call: Call, query: Array, key: Array, value: Array) -> Array:
    """Attention whose scores and probabilities pass through graphs of the node, if it has them."""
    if not query.ndim == key.ndim == value.ndim == 4:
        call.fail(f"ranks {query.ndim}, {key.ndim}, {value.ndim} of query, key and value: rank 4 is needed")
    batch, heads, length, size = query.shape
    if key.shape[1] != value.shape[1] or heads % max(1, key.shape[1]):
        call.fail(f"{heads} heads of queries cannot share {key.shape[1]} of keys and {value.shape[1]} of values")
    scale, precision = call.attribute("scale"), call.attribute("softmax_precision", 0)
    kind = wide(query).dtype
    root = kind.type(np.sqrt(np.float32(1 / sqrt(size) if scale is None else scale)))
    rows = np.ascontiguousarray(wide(query) * root).reshape(batch, key.shape[1], -1, size)
    scores: Any = np.matmul(rows, (wide(key) * root).swapaxes(2, 3)).reshape(batch, heads, length, key.shape[2])
    code = precision or (_DOUBLE if kind == np.float64 else 1)
    scores = scores.astype(np.float64 if code == _DOUBLE else np.float32)
    if call.attribute("score_mod") is not None:
        scores = _modified(call, "score_mod", scores, code)
    chances = _softmax(scores)
    if call.attribute("prob_mod") is not None:
        chances = _modified(call, "prob_mod", chances, code)
    found = np.matmul(chances.reshape(batch, key.shape[1], -1, key.shape[2]), wide(value).astype(chances.dtype))
    return np.asarray(found.reshape(batch, heads, length, -1).astype(kind))


def _modified(call: Call, name: str, values: Array, code: int) -> Array:
    found = call.run(name, [Typed(values, code)])
    made = found[0].array if found and isinstance(found[0], Typed) else found[0] if found else None
    if not isinstance(made, np.ndarray) or made.shape != values.shape:
        call.fail(f"the graph {name!r} must keep the shape {values.shape}")
    return made.astype(values.dtype)


@row("RotaryEmbedding", cost=_rotary_cost)
def rotary_embedding(call: Call, data: Array, cosines: Array, sines: Array, places: Array | None = None) -> Array:
    """Pairs of elements of each head turned by the angles of their position.

    The pairs are halves of a head, or neighbours if `interleaved`; what lies behind `rotary_embedding_dim` stays.
    """
    heads, packed = call.attribute("num_heads", 0), data.ndim == 3
    values = wide(_unpacked(call, data, heads) if packed else data)
    turned = call.attribute("rotary_embedding_dim", 0) or values.shape[3]
    if places is not None:
        cosines, sines = cosines[places], sines[places]
    if cosines.shape[-1] != turned // 2 or sines.shape[-1] != turned // 2:
        call.fail(f"caches of shapes {cosines.shape} and {sines.shape} do not hold {turned // 2} angles a position")
    cosine, sine = wide(cosines)[:, None], wide(sines)[:, None]
    result: Array = values.copy()
    if call.attribute("interleaved", 0):
        first, second = slice(0, turned, 2), slice(1, turned, 2)
    else:
        first, second = slice(0, turned // 2), slice(turned // 2, turned)
    one, other = values[..., first], values[..., second]
    result[..., first] = cosine * one - sine * other
    result[..., second] = sine * one + cosine * other
    return result.transpose(0, 2, 1, 3).reshape(data.shape) if packed else result
