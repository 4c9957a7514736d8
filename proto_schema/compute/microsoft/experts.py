"""Rows of mixtures of experts: MoE with numbers, QMoE with codes.

A token goes through the `k` experts of the largest logits; their weights are parts of a softmax. Only tokens that an
expert was chosen for are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.microsoft import costs
from proto_schema.compute.microsoft.elements import fast_gelu_of
from proto_schema.compute.microsoft.numbers import DOMAIN, in_blocks, like, sigmoid, unpacked
from proto_schema.compute.nn.numbers import wide
from proto_schema.compute.rows import row

Weights = Callable[[int], Array]  # of one expert, [rows, columns]


def _activated(call: Call, values: Array) -> Array:
    """Of SwiGLU the gate and the other half are in turns."""
    kind = call.text("activation_type", "relu")
    if kind == "swiglu":
        if call.attribute("swiglu_fusion", 0) != 1:
            call.fail("swiglu whose halves are not in turns is not computed here; swiglu_fusion is to be 1")
        gate, other = values[:, ::2], values[:, 1::2]
        limit = float(call.attribute("swiglu_limit", np.inf))
        gate, other = np.minimum(gate, limit), np.clip(other, -limit, limit)
        alpha, beta = call.attribute("activation_alpha", 1.0), call.attribute("activation_beta", 0.0)
        return np.asarray(gate * sigmoid(alpha * gate) * (other + beta))
    if kind == "relu":
        return np.maximum(values, 0)
    if kind == "silu":
        return np.asarray(values * sigmoid(values))
    if kind == "gelu":
        return fast_gelu_of(values)
    if kind != "identity":
        call.fail(f"activation_type {kind!r} is not one of relu, gelu, silu, swiglu, identity")
    return values


def _mixed(
    call: Call,
    data: Array,
    logits: Array,
    weights: tuple[Weights, Weights],
    biases: tuple[Array | None, Array | None],
    normalized: bool,
    routed: Array | None = None,
) -> Typed:
    tokens = wide(data).reshape(-1, data.shape[-1])
    scores = wide(logits).reshape(tokens.shape[0], -1)
    most = call.attribute("k", 1)
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :most]
    if routed is not None:
        parts = np.take_along_axis(wide(routed).reshape(scores.shape), chosen, axis=1)
    else:
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        parts = np.take_along_axis(chances / chances.sum(axis=1, keepdims=True), chosen, axis=1)
    if normalized and routed is None:
        parts = parts / parts.sum(axis=1, keepdims=True)
    result = np.zeros((tokens.shape[0], tokens.shape[1]), np.float32)
    for expert in np.unique(chosen).tolist():
        places, slots = np.nonzero(chosen == expert)
        values = tokens[places] @ weights[0](expert).T
        values = _activated(call, values if biases[0] is None else values + wide(biases[0][expert]))
        values = values @ weights[1](expert).T
        values = values if biases[1] is None else values + wide(biases[1][expert])
        result[places] += values * parts[places, slots][:, None]
    return like(call, result.reshape(data.shape))


@row("MoE", domain=DOMAIN, cost=costs.of_experts)
def mixture(
    call: Call,
    data: Array,
    logits: Array,
    up: Array,
    up_bias: Array | None,
    down: Array,
    down_bias: Array | None = None,
    *third: Array | None,
) -> Typed:
    """The sum of what the chosen experts make of each token, by their weights."""
    if any(item is not None for item in third):
        call.fail("a third product (fc3) is not computed here")
    normalized = bool(call.attribute("normalize_routing_weights", 0))
    one, two = wide(up), wide(down)
    return _mixed(call, data, logits, (lambda e: one[e], lambda e: two[e]), (up_bias, down_bias), normalized)


@row("QMoE", domain=DOMAIN, cost=costs.of_coded_experts)
def mixture_of_codes(
    call: Call,
    data: Array,
    logits: Array,
    up: Array,
    up_scales: Array,
    up_bias: Array | None,
    down: Array,
    down_scales: Array,
    down_bias: Array | None = None,
    third: Array | None = None,
    third_scales: Array | None = None,
    third_bias: Array | None = None,
    up_zeros: Array | None = None,
    down_zeros: Array | None = None,
    third_zeros: Array | None = None,
    routed: Array | None = None,
) -> Typed:
    """The same with weights in codes along the rows, low bits first. The parts of the chosen experts sum up to 1."""
    if third is not None:
        call.fail("a third product (fc3) is not computed here")
    bits, block = call.attribute("expert_weight_bits", 4), call.attribute("block_size", 0)
    if bits not in (2, 4, 8):
        call.fail(f"expert_weight_bits is {bits}, and may be 2, 4 or 8")

    def read(codes: Array, scales: Array, zeros: Array | None) -> Weights:
        def of(expert: int) -> Array:
            size = codes.shape[2] * (8 // bits)
            blocks = scales.shape[2] if scales.ndim == 3 else 1
            points: Array | float = float(1 << bits - 1)
            if zeros is not None:
                points = unpacked(zeros[expert].reshape(codes.shape[1], -1), bits, blocks)
            row_scales = wide(scales[expert]).reshape(codes.shape[1], blocks)
            return in_blocks(unpacked(codes[expert], bits, size), row_scales, points, block or size)

        return of

    weights = read(up, up_scales, up_zeros), read(down, down_scales, down_zeros)
    return _mixed(call, data, logits, weights, (up_bias, down_bias), True, routed)
