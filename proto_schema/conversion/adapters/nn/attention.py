"""Rows of attention, rotary embeddings, caches and recurrent forms of attention."""

from __future__ import annotations

import math
from typing import Any

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import BOOL, FLOAT, Writer
from proto_schema.inference.types import Tensor
from proto_schema.ir import Value

# Attention ------------------------------------------------------------------------------------------------------------


@down("Attention", version=25)
def attention_without_window(node: VersionedNode, op: Writer) -> Result:
    """A window of keys becomes a mask."""
    if node.attribute("left_window_size") == -1 and node.attribute("right_window_size") == -1:
        return None
    return _written_out(node, op)


@down("Attention", version=24)
def attention_of_all_keys(node: VersionedNode, op: Writer) -> Result:
    """Written out: opset 23 leaves open what a causal mask is beside a cache, and rows without any key."""
    if node.has(6) or node.has(4) or node.attribute("is_causal") or node.has(3):
        return _written_out(node, op)
    return None


@down("Attention", version=23)
def attention(node: VersionedNode, op: Writer) -> Result:
    """Softmax(scale * Q K' + bias) V."""
    return _written_out(node, op)


def _heads(op: Writer, x: Value, count: int | None) -> Value:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    if x.rank == 4:
        return x
    if x.rank != 3 or not count:
        raise RefusedError("the ranks of its inputs are not known")
    return op.Transpose(op.Reshape(x, [0, 0, count, -1]), perm=[0, 2, 1, 3])


def _written_out(node: VersionedNode, op: Writer) -> Result:
    """The specification's own order: scale both operands, soft cap, bias, softmax; rows without keys are 0."""
    dtype = node.need_dtype(0)
    many, few = node.attribute("q_num_heads"), node.attribute("kv_num_heads")
    flat = node.need_rank(0) == 3
    q, k, v = _heads(op, node[0], many), _heads(op, node[1], few), _heads(op, node[2], few)
    if node.has(4):
        k, v = op.Concat(node[4], k, axis=2), op.Concat(node[5], v, axis=2)
    kept_k, kept_v = k, v
    count_q = many or q.dim(1)
    count_k = few or k.dim(1)
    if count_q != count_k:
        if not isinstance(count_q, int) or not isinstance(count_k, int):
            raise RefusedError("the numbers of its heads are not known")
        k, v = (_repeated(op, item, count_q // count_k) for item in (k, v))
    scores = _scaled(node, op, q, k)
    mode = node.attribute("qk_matmul_output_mode")
    shown = scores
    cap = node.attribute("softcap")
    if cap:
        scores = op.Mul(op.Tanh(op.Div(scores, cap)), cap)
    if mode == 1:
        shown = scores
    bias = _bias(node, op, q, k, dtype)
    if bias is not None:
        scores = op.Add(scores, bias)
    if mode == 2:
        shown = scores
    precision = node.attribute("softmax_precision") or dtype
    weights = op.cast(op.Softmax(op.cast(scores, precision), axis=-1), dtype)
    if bias is not None:
        masked = op.IsInf(op.ReduceMax(bias, [-1], keepdims=1), detect_positive=0)
        weights = op.Where(masked, op.like(0, weights), weights)
    if mode == 3:
        shown = weights
    made = op.MatMul(weights, v)
    if flat:
        made = op.Reshape(op.Transpose(made, perm=[0, 2, 1, 3]), [0, 0, -1])
    return [made, kept_k, kept_v, shown if node.wants(3) else None]


def _scaled(node: VersionedNode, op: Writer, q: Value, k: Value) -> Value:
    scale = node.attribute("scale")
    size = q.dim(3)
    if scale is None and not isinstance(size, int):
        wide = op.cast(op.size(q, 3), FLOAT)
        root: Any = op.cast(op.Sqrt(op.Reciprocal(op.Sqrt(wide))), q.dtype)
    else:
        root = math.sqrt(scale if scale is not None else 1 / math.sqrt(size if isinstance(size, int) else 1))
    return op.MatMul(op.Mul(q, root), op.Mul(op.Transpose(k, perm=[0, 1, 3, 2]), root))


def _repeated(op: Writer, x: Value, times: int) -> Value:
    """Each head that often, one after the other."""
    if times == 1:
        return x
    wide = op.Expand(op.Unsqueeze(x, [2]), op.joined([1, 1, times, 1, 1]))
    shape = op.joined(op.size(x, 0), [-1], op.size(x, 2), op.size(x, 3))
    return op.Reshape(wide, shape)


def _bias(node: VersionedNode, op: Writer, q: Value, k: Value, dtype: int) -> Value | None:
    """What is added to the scores, 0 or negative infinity: the mask, the causal order, the window, the lengths."""
    zero, lowest = op.const(_np(0.0), dtype), op.const(_np(-math.inf), dtype)
    bias: Value | None = None
    if node.has(3):
        mask = _padded_mask(node, op, k)
        bias = op.Where(mask, zero, lowest) if mask.dtype == BOOL else op.cast(mask, dtype)
    left, right = node.attribute("left_window_size", -1), node.attribute("right_window_size", -1)
    causal = node.attribute("is_causal")
    lengths = op.Reshape(node[6], [-1, 1, 1, 1]) if node.has(6) else None
    if causal or left >= 0 or right >= 0 or lengths is not None:
        keys = op.Unsqueeze(op.Range(op.scalar(0), _one(op, op.size(k, 2)), op.scalar(1)), [0])
        rows = op.Unsqueeze(op.Range(op.scalar(0), _one(op, op.size(q, 2)), op.scalar(1)), [1])
        if node.has(4):
            rows = op.Add(rows, op.size(node[4], 2))
        elif lengths is not None:
            rows = op.Add(rows, op.Sub(lengths, op.size(q, 2)))
        seen = []
        if causal:
            seen.append(op.LessOrEqual(keys, rows))
        if left >= 0:
            seen.append(op.GreaterOrEqual(keys, op.Sub(rows, op.scalar(left))))
        if right >= 0:
            seen.append(op.LessOrEqual(keys, op.Add(rows, op.scalar(right))))
        if lengths is not None:
            seen.append(op.Less(keys, lengths))
        allowed = seen[0]
        for item in seen[1:]:
            allowed = op.And(allowed, item)
        own = op.Where(allowed, zero, lowest)
        bias = own if bias is None else op.Add(bias, own)
    return bias


def _padded_mask(node: VersionedNode, op: Writer, k: Value) -> Value:
    """The mask for all keys: it may be shorter, and then hides the others."""
    mask = node[3]
    width, total = mask.dim(-1), k.dim(2)
    if width == total or width is None or mask.rank is None:
        return mask
    missing = op.Sub(op.size(k, 2), op.size(mask, mask.rank - 1))
    none = op.const(_np(False)) if mask.dtype == BOOL else op.const(_np(-math.inf), mask.dtype)
    if mask.dtype == BOOL:
        shape = op.joined(*[op.size(mask, axis) for axis in range(mask.rank - 1)], missing)
        return op.Concat(mask, op.Expand(none, shape), axis=mask.rank - 1)
    pads = op.joined([0] * (2 * mask.rank - 1), missing)
    return op.Pad(mask, pads, none)


def _one(op: Writer, size: Value) -> Value:
    """A list of one number as the number."""
    known = size.ints()
    return op.scalar(known[0]) if known is not None else op.Squeeze(size, [0])


def _np(value: float | bool) -> Any:
    import numpy as np

    return np.array(value)


# Rotary embeddings ----------------------------------------------------------------------------------------------------


@down("RotaryEmbedding", version=23)
def rotary_embedding(node: VersionedNode, op: Writer) -> Result:
    """Pairs of elements turned by the angles of their positions; elements past the given number stay."""
    x = node[0]
    flat = node.need_rank(0) == 3
    x = op.Reshape(x, [0, 0, node.attribute("num_heads"), -1]) if flat else op.Transpose(x, perm=[0, 2, 1, 3])
    turned = node.attribute("rotary_embedding_dim")
    rest = None
    if turned:
        rest = op.Slice(x, [turned], [1 << 62], [3])
        x = op.Slice(x, [0], [turned], [3])
    cos, sin = node[1], node[2]
    if node.has(3):
        cos, sin = op.Gather(cos, node[3], axis=0), op.Gather(sin, node[3], axis=0)
    cos, sin = op.Unsqueeze(cos, [2]), op.Unsqueeze(sin, [2])
    if node.attribute("interleaved"):
        pairs = op.Reshape(x, [0, 0, 0, -1, 2])
        one, other = (op.Squeeze(op.Slice(pairs, [place], [place + 1], [4]), [4]) for place in (0, 1))
    else:
        half = op.Div(op.size(x, 3), op.ints([2]))
        known = x.dim(3)
        half = op.ints([known // 2]) if isinstance(known, int) else half
        one, other = op.Slice(x, [0], half, [3]), op.Slice(x, half, [1 << 62], [3])
    real = op.Sub(op.Mul(cos, one), op.Mul(sin, other))
    imaginary = op.Add(op.Mul(sin, one), op.Mul(cos, other))
    if node.attribute("interleaved"):
        stacked = op.Concat(op.Unsqueeze(real, [4]), op.Unsqueeze(imaginary, [4]), axis=4)
        made = op.Reshape(stacked, [0, 0, 0, -1])
    else:
        made = op.Concat(real, imaginary, axis=3)
    if rest is not None:
        made = op.Concat(made, rest, axis=3)
    return op.Reshape(made, op.shape(node[0])) if flat else op.Transpose(made, perm=[0, 2, 1, 3])


# Caches ---------------------------------------------------------------------------------------------------------------


@down("CausalConvWithState", version=27)
def causal_convolution(node: VersionedNode, op: Writer) -> Result:
    """The state before the input, a convolution of each channel, and the last elements as the new state."""
    x, weight = node[0], node[1]
    channels, taps = weight.dim(0), weight.dim(2)
    if not isinstance(channels, int) or not isinstance(taps, int):
        raise RefusedError("the shape of its weight is not known")
    before = node.input(3)
    if before is None:
        sizes = op.joined(op.size(x, 0), [channels, taps - 1])
        before = op.Expand(op.like(0, x), sizes)
    whole = op.Concat(before, x, axis=2)
    made = op.Conv(whole, weight, node.input(2), group=channels)
    if node.text("activation") in ("silu", "swish"):
        made = op.Mul(made, op.Sigmoid(made))
    state = op.Slice(whole, op.Sub(op.size(whole, 2), op.ints([taps - 1])), [1 << 62], [2])
    return [made, state if node.wants(1) else None]


@down("LinearAttention", version=27)
def linear_attention(node: VersionedNode, op: Writer) -> Result:
    """One step for each token, in a Scan: the state decays, learns the token, and is asked."""
    many, few = node.attribute("q_num_heads"), node.attribute("kv_num_heads")
    rule = node.text("update_rule")
    dtype = node.need_dtype(0)
    q, k, v = (_heads(op, node[place], heads) for place, heads in ((0, many), (1, few), (2, few)))
    wide = node[3].dtype if node.has(3) else FLOAT if dtype != 11 else dtype
    size_k = q.dim(3)
    scale = node.attribute("scale")
    if not scale:
        if not isinstance(size_k, int):
            raise RefusedError("the size of its heads is not known")
        scale = 1 / math.sqrt(size_k)
    q, k, v = (op.cast(item, wide) for item in (q, k, v))
    state = node.input(3)
    if state is None:
        state = op.Expand(op.const(_np(0.0), wide), op.joined(op.size(k, 0), [few], op.size(k, 3), op.size(v, 3)))
    state = op.cast(state, wide)
    items = [op.Unsqueeze(q, [4]), op.Unsqueeze(k, [4]), op.Unsqueeze(v, [3])]  # columns, columns, rows
    names = ["q", "k", "v"]
    if "gated" in rule:
        if not node.has(4):
            raise RefusedError("it has no decay, which its update rule requires")
        decay = op.cast(_heads(op, node[4], few), wide)  # of each key dimension, or 1 for all
        items.append(op.Exp(op.Unsqueeze(decay, [4])))
        names.append("g")
    if "delta" in rule:
        rate = op.Unsqueeze(op.Unsqueeze(op.Transpose(op.cast(node[5], wide), perm=[0, 2, 1]), [3]), [4])
        items.append(rate)
        names.append("b")
    given = [Tensor(wide, None)] + [Tensor(wide, None)] * len(items)
    with op.body(("state", given[0]), *[(name, Tensor(wide, None)) for name in names]) as body:
        before, *now = body.inputs
        step = dict(zip(names, now, strict=True))
        if "g" in step:
            before = op.Mul(before, step["g"])
        fresh = step["v"]
        if "b" in step:
            told = op.MatMul(op.Transpose(step["k"], perm=[0, 1, 3, 2]), before)
            fresh = op.Mul(op.Sub(fresh, told), step["b"])
        after = op.Add(before, op.MatMul(step["k"], fresh))
        asked = after
        if many != few:
            asked = op.Unsqueeze(after, [2])
            grouped = op.Reshape(step["q"], op.joined([0, few, many // few, -1, 1]))
            answer = op.MatMul(op.Transpose(grouped, perm=[0, 1, 2, 4, 3]), asked)
            answer = op.Reshape(answer, op.joined([0, many, 1, -1]))
        else:
            answer = op.MatMul(op.Transpose(step["q"], perm=[0, 1, 3, 2]), asked)
        body.outputs = [after, op.Mul(answer, scale)]
    types = [Tensor(wide, state.shape), Tensor(wide, None)]
    last, answers = op.looped(
        "Scan", [state, *items], types, body=body, num_scan_inputs=len(items),
        scan_input_axes=[2] * len(items), scan_output_axes=[2],
    )  # fmt: skip
    # (batch, heads, length, 1, size)
    rows = op.Transpose(op.cast(answers, dtype), perm=[0, 2, 1, 3, 4])
    made = op.Reshape(rows, op.joined(op.size(node[0], 0), op.size(node[0], 1), [-1]))
    present = op.cast(last, node[3].dtype) if node.has(3) else last
    return [made, present if node.wants(1) else None]
