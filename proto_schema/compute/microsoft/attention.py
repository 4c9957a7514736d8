"""Rows of attention and rotary embeddings of com.microsoft, for the kernels' inputs on a CPU.

Heads are axis 1 inside. Masks and biases are added to the scaled scores in float32. What padding hides gets
`mask_filter_value`, so a row in which everything is hidden keeps the differences of its scores.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.microsoft import costs
from proto_schema.compute.microsoft.numbers import DOMAIN, like
from proto_schema.compute.nn.numbers import wide
from proto_schema.compute.rows import row


def _heads(call: Call, data: Array, count: int) -> Array:
    """[batch, length, heads * size] with the heads in front of the length."""
    if data.ndim != 3 or count < 1 or data.shape[2] % count:
        call.fail(f"a tensor of shape {data.shape} is not (batch, length, size of {count} heads)")
    return np.asarray(data.reshape(*data.shape[:2], count, -1).transpose(0, 2, 1, 3))


def _flat(data: Array) -> Array:
    batch, heads, length, size = data.shape
    return np.asarray(data.transpose(0, 2, 1, 3).reshape(batch, length, heads * size))


def _softmax(scores: Array, sinks: Array | float | None = None) -> Array:
    """Along the last axis; a sink [heads] or number takes its part without a value."""
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    sink = None if sinks is None else np.asarray(sinks, scores.dtype).reshape(1, -1, 1, 1)
    if sink is not None:
        largest = np.maximum(largest, sink)
    largest = np.where(np.isneginf(largest), scores.dtype.type(0), largest)
    found = np.exp(scores - largest)
    sums = found.sum(axis=-1, keepdims=True)
    if sink is not None:
        sums = sums + np.exp(sink - largest)
    return np.asarray(found / np.where(sums == 0, scores.dtype.type(1), sums))


def _scale(call: Call, size: int) -> float:
    asked = float(call.attribute("scale", 0.0))
    return asked or (1 / sqrt(size) if size else 1.0)


@row("MultiHeadAttention", domain=DOMAIN, cost=costs.of_heads)
def multi_head_attention(
    call: Call,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    padding: Array | None = None,
    added: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    *others: Array | None,
) -> tuple[Any, ...]:
    """Attention of heads side by side; the keys and values with the past in front; the scaled, masked scores."""
    count = call.attribute("num_heads", 0)
    if any(item is not None for item in others):
        call.fail("past_sequence_length and cache_indirection belong to a decoder with beams and are not computed here")
    if query.ndim == 5:  # [batch, length, heads, 3, size]
        packed = wide(query).transpose(3, 0, 2, 1, 4)
        q, k, v = packed[0], packed[1], packed[2]
    elif key is not None and key.ndim == 5:  # [batch, length, heads, 2, size]
        pairs = wide(key).transpose(3, 0, 2, 1, 4)
        q, k, v = _heads(call, _biased(query, bias, 0, query.shape[2]), count), pairs[0], pairs[1]
    elif key is None or value is None:
        call.fail("key and value are given together, or packed with the query")
    elif key.ndim == 4:
        q, k, v = _heads(call, _biased(query, bias, 0, query.shape[2]), count), wide(key), wide(value)
    else:
        width = query.shape[2]
        q = _heads(call, _biased(query, bias, 0, width), count)
        k = _heads(call, _biased(key, bias, width, width), count)
        v = _heads(call, _biased(value, bias, 2 * width, value.shape[2]), count)
    if past_key is not None and past_value is not None:
        k, v = np.concatenate([wide(past_key), k], axis=2), np.concatenate([wide(past_value), v], axis=2)
    scores = np.matmul(q, k.swapaxes(2, 3)) * q.dtype.type(_scale(call, q.shape[3]))
    scores = scores + _hidden(call, padding, scores) + (0 if added is None else wide(added))
    if call.attribute("unidirectional", 0):
        places = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
        scores = np.where(np.arange(k.shape[2]) <= places, scores, np.float32(-np.inf))
    result = np.matmul(_softmax(scores), v)
    return like(call, _flat(result)), like(call, k), like(call, v), like(call, scores)


def _biased(data: Array, bias: Array | None, start: int, size: int) -> Array:
    return wide(data) if bias is None else np.asarray(wide(data) + wide(bias)[start : start + size])


def _hidden(call: Call, padding: Array | None, scores: Array) -> Any:
    """What is added where keys are hidden: by a mask [batch, keys] or [batch, queries, keys], or lengths [batch]."""
    if padding is None:
        return 0
    batch, _, _, keys = scores.shape
    if padding.shape == (batch,):
        seen = (np.arange(keys) < padding[:, None])[:, None, None]
    elif padding.ndim == 2 and padding.shape[0] == batch:
        seen = padding.astype(bool)[:, None, None]
    elif padding.ndim == 3:
        seen = padding.astype(bool)[:, None]
    else:
        call.fail(f"a key_padding_mask of shape {padding.shape} is not computed here")
    return np.where(seen, np.float32(0), np.float32(call.attribute("mask_filter_value", -10000.0)))


@row("GroupQueryAttention", domain=DOMAIN, cost=costs.of_groups)
def group_query_attention(
    call: Call,
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    lengths: Array,
    total: Array,
    cosines: Array | None = None,
    sines: Array | None = None,
    positions: Array | None = None,
    added: Array | None = None,
    sinks: Array | None = None,
    *others: Array | None,
) -> tuple[Any, ...]:
    """Causal attention whose queries share keys; the cache with the new keys and values behind what is valid of it.

    `lengths` is one less than the number of valid keys of each sequence, the new ones among them.
    """
    count, kv_count = call.attribute("num_heads", 0), call.attribute("kv_num_heads", 0)
    if any(item is not None for item in others) or count < 1 or kv_count < 1 or count % kv_count:
        call.fail(f"{count} heads cannot share {kv_count}, or the cache is in codes, which is not computed here")
    if key is None or value is None:  # each query has its key and value behind it
        size = query.shape[2] // (count + 2 * kv_count)
        query, key, value = np.split(query, [count * size, (count + kv_count) * size], axis=2)
    q, k, v = (_heads(call, wide(item), n) for item, n in ((query, count), (key, kv_count), (value, kv_count)))
    batch, _, new, size = q.shape
    valid = lengths.reshape(-1).astype(np.int64) + 1
    whole = int(np.asarray(total).reshape(-1)[0])
    first = new == whole
    before = np.zeros(batch, np.int64) if first else valid - new
    if call.attribute("do_rotary", 0):
        if cosines is None or sines is None:
            call.fail("do_rotary needs cos_cache and sin_cache")
        places = before[:, None] + np.arange(new) if positions is None else positions.reshape(batch, new)
        q, k = (_turned(call, item, cosines, sines, places) for item in (q, k))
    held = 0 if past_key is None else past_key.shape[2]
    room = max(held, whole)
    keys, values = (np.zeros((batch, kv_count, room, size), k.dtype) for _ in range(2))
    for at in range(batch):
        start = int(before[at])
        if past_key is not None and past_value is not None:
            keys[at, :, :start], values[at, :, :start] = past_key[at, :, :start], past_value[at, :, :start]
        keys[at, :, start : start + new], values[at, :, start : start + new] = k[at], v[at]
    rows = q.reshape(batch, kv_count, -1, size)
    scores = np.matmul(rows, keys.swapaxes(2, 3)).reshape(batch, count, new, room) * q.dtype.type(_scale(call, size))
    cap = float(call.attribute("softcap", 0.0))
    if cap:
        scores = cap * np.tanh(scores / cap)
    if added is not None:
        scores[..., : added.shape[3]] += wide(added)
    last = before[:, None, None, None] + np.arange(new)[:, None]
    seen = np.arange(room) <= last
    window = call.attribute("local_window_size", -1)
    if window >= 0:
        seen = seen & (np.arange(room) > last - window)
    scores = np.where(seen, scores, np.float32(-np.inf))
    sink = sinks if sinks is not None else 0.0 if call.attribute("smooth_softmax", 0) == 1 else None
    chances = _softmax(scores, None if sink is None else wide(np.asarray(sink, q.dtype)))
    result = np.matmul(chances.reshape(batch, kv_count, -1, room), values).reshape(batch, count, new, size)
    return like(call, _flat(result)), like(call, keys), like(call, values)


def _turned(call: Call, data: Array, cosines: Array, sines: Array, places: Array) -> Array:
    """Pairs of elements of [batch, heads, length, size] turned by the angles of their positions [batch, length]."""
    cosine, sine = wide(cosines)[places][:, None], wide(sines)[places][:, None]
    turned = 2 * cosine.shape[-1]
    result: Array = data.copy()
    if call.attribute("rotary_interleaved", 0) or call.attribute("interleaved", 0):
        first, second = slice(0, turned, 2), slice(1, turned, 2)
    else:
        first, second = slice(0, turned // 2), slice(turned // 2, turned)
    one, other = data[..., first], data[..., second]
    result[..., first] = cosine * one - sine * other
    result[..., second] = sine * one + cosine * other
    return result


@row("RotaryEmbedding", domain=DOMAIN, cost=costs.of_rotation)
def rotary_embedding(call: Call, data: Array, positions: Array, cosines: Array, sines: Array) -> Typed:
    """The same of [batch, length, heads * size] or [batch, heads, length, size]; one position is that of the first."""
    values = wide(data)
    packed = data.ndim == 3
    if packed:
        partial = call.attribute("rotary_embedding_dim", 0)
        count = call.attribute("num_heads", 0) if partial else data.shape[2] // (2 * cosines.shape[1])
        values = _heads(call, values, count)
    length = values.shape[2]
    places = positions if positions.size > 1 or positions.ndim == 2 else positions.reshape(1, 1) + np.arange(length)
    places = np.broadcast_to(places.reshape(-1, length), (values.shape[0], length))
    result = _turned(call, values, cosines, sines, places)
    return like(call, _flat(result) if packed else result)
