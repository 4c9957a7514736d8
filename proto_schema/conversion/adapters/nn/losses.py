"""Rows of losses."""

from __future__ import annotations

import numpy as np

from proto_schema.conversion.rows import Result, down
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import INT64, Writer
from proto_schema.ir import Value


@down("NegativeLogLikelihoodLoss", version=12)
def negative_log_likelihood(node: VersionedNode, op: Writer) -> Result:
    """The element that the target names, negative and weighted."""
    return _loss(node, op, node[0])


@down("SoftmaxCrossEntropyLoss", version=12)
def cross_entropy(node: VersionedNode, op: Writer) -> Result:
    """The same of the logarithm of Softmax."""
    logarithm = op.LogSoftmax(node[0], axis=1)
    return [_loss(node, op, logarithm), logarithm]


def _loss(node: VersionedNode, op: Writer, x: Value) -> Value:
    target = op.cast(node[1], INT64)
    ignored = node.attribute("ignore_index")
    skipped: Value | None = None
    if ignored is not None:
        skipped = op.Equal(target, op.scalar(ignored))
        target = op.Where(skipped, op.scalar(0), target)
    picked = op.Squeeze(op.GatherElements(x, op.Unsqueeze(target, [1]), axis=1), [1])
    weight = op.Gather(node[2], target) if node.has(2) else None
    loss = op.Neg(picked if weight is None else op.Mul(picked, weight))
    zero = op.const(np.array(0), x.dtype)
    if skipped is not None:
        loss = op.Where(skipped, zero, loss)
    reduction = node.text("reduction")
    if reduction == "none":
        return loss
    if reduction == "sum":
        return op.ReduceSum(loss, keepdims=0)
    if weight is None and skipped is None:
        return op.ReduceMean(loss, keepdims=0)
    counted = weight if weight is not None else op.Expand(op.const(np.array(1), x.dtype), op.shape(target))
    if skipped is not None:
        counted = op.Where(skipped, zero, counted)
    return op.Div(op.ReduceSum(loss, keepdims=0), op.ReduceSum(counted, keepdims=0))
