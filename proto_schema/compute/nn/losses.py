"""Rows of losses."""

from __future__ import annotations

import numpy as np

from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import passes
from proto_schema.compute.nn.numbers import wide
from proto_schema.compute.rows import row


@row("NegativeLogLikelihoodLoss", cost=passes(32))
def negative_log_likelihood(call: Call, data: Array, target: Array, weight: Array | None = None) -> Array:
    """The negative of the target's log-probability, times its weight; the mean is divided by the sum of weights."""
    return _loss(call, wide(data), target, weight)


@row("SoftmaxCrossEntropyLoss", cost=passes(32))
def softmax_cross_entropy(call: Call, data: Array, target: Array, weight: Array | None = None) -> tuple[Array, Array]:
    """The negative log-likelihood of the softmax along axis 1; and the logarithms of that."""
    values = wide(data)
    shifted = values - values.max(axis=1, keepdims=True, initial=-np.inf)
    logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return _loss(call, logarithms, target, weight), logarithms


def _loss(call: Call, values: Array, target: Array, weight: Array | None) -> Array:
    if values.ndim < 2 or target.shape != (values.shape[0], *values.shape[2:]):
        call.fail(f"targets of shape {target.shape} do not fit data of shape {values.shape}")
    classes, ignored = values.shape[1], call.attribute("ignore_index")
    counted = np.ones(target.shape, np.bool_) if ignored is None else target != ignored
    labels = np.where(counted, target, 0).astype(np.int64)
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        call.fail(f"targets are outside of the {classes} classes")
    shares = np.ones(target.shape, values.dtype) if weight is None else wide(weight)[labels]
    shares = np.where(counted, shares, values.dtype.type(0))
    loss = -np.take_along_axis(values, labels[:, None], axis=1)[:, 0] * shares
    loss = np.where(counted, loss, values.dtype.type(0))
    reduction = call.text("reduction", "mean")
    if reduction == "none":
        return loss
    if reduction not in ("sum", "mean"):
        call.fail(f"reduction is {reduction!r}, and may be none, sum or mean")
    return np.asarray(loss.sum() if reduction == "sum" else loss.sum() / shares.sum())
