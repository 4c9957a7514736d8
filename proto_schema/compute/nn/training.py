"""Rows of ai.onnx.preview.training: one step of an optimizer for several tensors.

The tensors come in groups: all values, all gradients, then each state; so do the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import passes
from proto_schema.compute.rows import row

_DOMAIN = "ai.onnx.preview.training"


def _grouped(call: Call, tensors: tuple[Array, ...], groups: int) -> Iterator[tuple[Array, ...]]:
    """For each tensor its value, gradient and states."""
    count, rest = divmod(len(tensors), groups)
    if rest:
        call.fail(f"{len(tensors)} tensors are not {groups} groups of as many each")
    return zip(*[tensors[start * count : (start + 1) * count] for start in range(groups)], strict=True)


def _regular(call: Call, value: Array, gradient: Array) -> Array:
    return np.asarray(value.dtype.type(call.attribute("norm_coefficient", 0.0)) * value + gradient)


def _in_groups(results: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    return tuple(item for group in zip(*results, strict=True) for item in group)


@row("Adagrad", domain=_DOMAIN, cost=passes(32))
def adagrad(call: Call, rate: Array, count: Array, *tensors: Array) -> tuple[Array, ...]:
    """New values, and the accumulated squares of the gradients."""
    step = rate / (1 + count * np.float32(call.attribute("decay_factor", 0.0)))
    made = []
    for value, gradient, squares in _grouped(call, tensors, 3):
        kind = value.dtype.type
        regular = _regular(call, value, gradient)
        total = squares + regular * regular
        root = np.sqrt(total) + kind(call.attribute("epsilon", 1e-6))
        made.append((np.asarray(value - step.astype(kind) * regular / root), np.asarray(total)))
    return _in_groups(made)


@row("Adam", domain=_DOMAIN, cost=passes(32))
def adam(call: Call, rate: Array, count: Array, *tensors: Array) -> tuple[Array, ...]:
    """New values, and the running means of the gradients and of their squares."""
    alpha, beta = call.attribute("alpha", 0.9), call.attribute("beta", 0.999)
    times, made = int(count.reshape(())), []
    for value, gradient, old_mean, old_squares in _grouped(call, tensors, 4):
        kind = value.dtype.type
        step = rate.astype(kind)
        if times > 0:
            step = step * kind(np.sqrt(1 - beta**times) / (1 - alpha**times))
        regular = _regular(call, value, gradient)
        mean = kind(alpha) * old_mean + kind(1 - alpha) * regular
        squares = kind(beta) * old_squares + kind(1 - beta) * (regular * regular)
        new = value - step * mean / (np.sqrt(squares) + kind(call.attribute("epsilon", 1e-6)))
        new = kind(1 - call.attribute("norm_coefficient_post", 0.0)) * new
        made.append((np.asarray(new), np.asarray(mean), np.asarray(squares)))
    return _in_groups(made)


@row("Momentum", domain=_DOMAIN, cost=passes(32))
def momentum(call: Call, rate: Array, count: Array, *tensors: Array) -> tuple[Array, ...]:
    """New values and momenta; Nesterov's look one step ahead."""
    mode = call.text("mode")
    if mode not in ("standard", "nesterov"):
        call.fail(f"mode is {mode!r}, and may be standard or nesterov")
    made = []
    for value, gradient, before in _grouped(call, tensors, 3):
        kind = value.dtype.type
        alpha = kind(call.attribute("alpha"))
        share = kind(call.attribute("beta") if count.reshape(()) > 0 else 1)
        regular = _regular(call, value, gradient)
        moved = alpha * before + share * regular
        direction = regular + alpha * moved if mode == "nesterov" else moved
        made.append((np.asarray(value - rate.astype(kind) * direction), np.asarray(moved)))
    return _in_groups(made)


@row("Gradient", domain=_DOMAIN)
def gradient(call: Call, *inputs: Array) -> Array:
    """Refused: it stands for the derivative of the graph around it, which running a node does not know."""
    call.fail("Gradient differentiates the graph around it; let the training framework write the derivative as nodes")
