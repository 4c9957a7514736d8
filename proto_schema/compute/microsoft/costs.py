"""What rows of com.microsoft ask for before they run: products as such, and codes as the numbers that they become.

An attribute may say any size of a block, and a cache any length: what is made of them is counted before it is made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, elements, products
from proto_schema.compute.nn.pooling import pool_cost
from proto_schema.compute.nn.products import product_cost
from proto_schema.compute.nn.recurrent import recurrent_cost

_FORMULA = 40  # units for an element of a row of elements
_ARRAYS = 8  # arrays of the size of the result that a formula has at once
_SCORES = 10  # and of the scores of an attention


def of_elements(call: Call, *inputs: Any) -> Cost:
    """A formula, with the sum or the mean beside its result."""
    count = max(elements(inputs), sum(item.size for item in inputs if isinstance(item, np.ndarray)))
    return Cost(_FORMULA * count, 2 * WIDE * count, _ARRAYS * WIDE * count)


def of_windows(call: Call, data: Array, *scales: Array | None) -> Cost:
    """An average pool of numbers that are made of codes."""
    last = bool(call.attribute("channels_last", 0))
    turned = np.moveaxis(data, -1, 1) if last and data.ndim > 1 else data
    found, beside = pool_cost(call, turned), of_elements(call, data)
    results = found.results * 4
    return Cost(found.work + beside.work, results, 4 * found.scratch + beside.scratch + 4 * results)


def of_bits(call: Call, data: Array, codes: Array, scales: Array, *more: Array | None) -> Cost:
    """A product with a weight in blocks, whose last block may reach far beyond it."""
    rows, size, block = (max(1, int(call.attribute(name, 1))) for name in ("N", "K", "block_size"))
    spread = rows * -(-size // block) * block
    made, codes_made = data.size // size * rows, 8 * codes.size
    work = products(data.size * rows, np.float32) + 12 * spread + 4 * codes_made + 3 * made
    return Cost(work, WIDE * made, 4 * (6 * spread + 2 * data.size + 4 * made) + 4 * codes_made)


def of_table(call: Call, data: Array, places: Array, scales: Array, *more: Array | None) -> Cost:
    """The whole table as numbers, and the rows of it that are asked for."""
    table = max(2 * data.size, scales.size * max(1, int(call.attribute("block_size", 128))))
    axis = call.axis(call.attribute("gather_axis", 0), data.ndim)
    made = places.size * (2 * data.size // max(1, data.shape[axis]))
    return Cost(12 * table + 2 * made, WIDE * made, 4 * (8 * table + 2 * made))


def of_product(call: Call, one: Array, other: Array, *more: Array | None) -> Cost:
    """A product of integers or numbers, either turned, by way of wider ones."""
    left = one.swapaxes(-1, -2) if call.attribute("transA", 0) and one.ndim > 1 else one
    right = other.swapaxes(-1, -2) if call.attribute("transB", 0) and other.ndim > 1 else other
    found, held = product_cost(left, right, np.float32), one.size + other.size
    return Cost(found.work + 10 * held, 2 * found.results, 2 * found.scratch + 6 * found.results + 3 * WIDE * held)


def of_gemm(call: Call, one: Array, scale: Array, zero: Array, other: Array, *more: Array | None) -> Cost:
    """The same with scales and zero points between its operands."""
    return of_product(call, one, other)


def of_experts(
    call: Call, data: Array, logits: Array, up: Array, up_bias: Array | None, down: Array, *more: Any
) -> Cost:
    """Each token goes through some experts, at worst all through the same one."""
    return _experts(call, data, logits, up.size, down.size, up.shape[1] if up.ndim > 1 else 1, up.size + down.size)


def of_coded_experts(
    call: Call, data: Array, logits: Array, up: Array, scales: Array, bias: Array | None, down: Array, *more: Any
) -> Cost:
    """The same with weights in codes, those of one expert at a time as numbers."""
    each = 8 // max(1, min(8, int(call.attribute("expert_weight_bits", 4))))
    block = max(1, int(call.attribute("block_size", 0)))
    below = more[0] if more and isinstance(more[0], np.ndarray) else scales
    wide = max(each * (up.size + down.size), (scales.size + below.size) * block)
    count = max(1, logits.size // max(1, data.size // max(1, data.shape[-1])))
    inner = up.shape[1] if up.ndim > 1 else 1
    return _experts(call, data, logits, each * up.size, each * down.size, inner, 8 * (-(-wide // count)))


def _experts(call: Call, data: Array, logits: Array, up: int, down: int, inner: int, held: int) -> Cost:
    tokens = data.size // max(1, data.shape[-1])
    count = max(1, logits.size // max(1, tokens))
    chosen = tokens * min(count, max(1, int(call.attribute("k", 1))))
    work = products(chosen * (up + down) // count, np.float32) + _FORMULA * (chosen * inner + logits.size)
    scratch = 4 * (held + _ARRAYS * (chosen * inner + data.size)) + _ARRAYS * WIDE * logits.size
    return Cost(work + 12 * held, WIDE * data.size, scratch)


def of_heads(
    call: Call, query: Array, key: Array | None = None, value: Array | None = None, *more: Array | None
) -> Cost:
    """All scores of queries and keys, the past among these, are held at once."""
    past = more[3] if len(more) > 3 and more[3] is not None and more[3].ndim > 2 else None
    heads = query.shape[2] if query.ndim == 5 else max(1, int(call.attribute("num_heads", 1)))
    batch, length = query.shape[:2] if query.ndim > 1 else (1, query.size)
    keys = length
    if key is not None and key.ndim > 2:
        keys = key.shape[2 if key.ndim == 4 else 1]
    scores = batch * heads * length * (keys + (0 if past is None else past.shape[2]))
    held = sum(item.size for item in (query, key, value, *more) if isinstance(item, np.ndarray))
    size = query.size // max(1, batch * length * heads)
    work = products(2 * scores * size, np.float32) + _FORMULA * scores + 6 * held
    return Cost(work, 4 * (2 * held + scores), 4 * (_SCORES * scores + _ARRAYS * held))


def of_groups(call: Call, query: Array, *more: Array | None) -> Cost:
    """The same, with a cache as long as its input says."""
    key, value, past_key, past_value, _, total = (*more, *[None] * 6)[:6]
    whole = int(np.asarray(total).reshape(-1)[0]) if isinstance(total, np.ndarray) and total.size else 0
    count, kv_count = (max(1, int(call.attribute(name, 1))) for name in ("num_heads", "kv_num_heads"))
    batch, length = query.shape[:2] if query.ndim > 1 else (1, query.size)
    room = max(0, whole, past_key.shape[2] if past_key is not None and past_key.ndim > 2 else 0)
    parts = count if isinstance(key, np.ndarray) else count + 2 * kv_count
    size = query.size // max(1, batch * length * parts)
    scores, cache = batch * count * length * room, 2 * batch * kv_count * room * size
    held = sum(item.size for item in (query, key, value, past_key, past_value) if isinstance(item, np.ndarray))
    work = products(2 * scores * size, np.float32) + _FORMULA * scores + 4 * (held + cache)
    return Cost(work, 4 * (2 * held + cache), 4 * (_SCORES * scores + _ARRAYS * held + 2 * cache))


def of_rotation(call: Call, data: Array, places: Array, cosines: Array, sines: Array) -> Cost:
    """The data turned, and an angle for each pair of it at each place."""
    count = 2 * data.size + cosines.size + sines.size
    return Cost(_FORMULA * count, WIDE * data.size, _ARRAYS * WIDE * count)


def of_rounded_lstm(call: Call, data: Array, weight: Array, recurrence: Array, *more: Array | None) -> Cost:
    """An LSTM of weights that are turned, rounded to codes and back."""
    if weight.ndim != 3 or recurrence.ndim != 3:
        call.fail(f"W and R have the ranks {weight.ndim} and {recurrence.ndim}, not 3")
    found = recurrent_cost(call, data, weight.swapaxes(1, 2), recurrence.swapaxes(1, 2))
    held = data.size + weight.size + recurrence.size
    return Cost(found.work + 20 * held, 2 * found.results, 2 * found.scratch + 6 * WIDE * held)
