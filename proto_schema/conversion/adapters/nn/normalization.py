"""Rows of normalizations and Dropout: mean and variance written out, and what the outputs of older versions are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import BOOL, FLOAT, Writer
from proto_schema.ir import Value
from proto_schema.onnx import TensorProto

DOUBLE = TensorProto.DOUBLE


@down("LayerNormalization", version=17)
def layer_normalization(node: VersionedNode, op: Writer) -> Result:
    """(x - mean) / sqrt(variance + epsilon) over the last axes, computed in the stash type; then scale and bias."""
    rank = node.need_rank(0)
    axis = node.attribute("axis")
    axes = list(range(axis + rank if axis < 0 else axis, rank))
    given, wanted = node.need_dtype(0), node.attribute("stash_type")
    x = op.cast(node[0], wanted)
    mean = op.ReduceMean(x, axes, keepdims=1)
    away = op.Sub(x, mean)
    variance = op.ReduceMean(op.Mul(away, away), axes, keepdims=1)
    deviation = op.Sqrt(op.Add(variance, node.attribute("epsilon")))
    made = op.Mul(op.cast(op.Div(away, deviation), given), node[1])
    if node.has(2):
        made = op.Add(made, node[2])
    inverse = op.Reciprocal(deviation) if node.wants(2) else None
    return [made, mean, inverse]


@down("GroupNormalization", version=21)
def group_normalization(node: VersionedNode, op: Writer) -> Result:
    """Mean and variance of each group; scale and bias are of each channel. Opset 18 has a form that is withdrawn."""
    return _groups(node, op, per_group=False)


@down("GroupNormalization", version=18)
def group_normalization_18(node: VersionedNode, op: Writer) -> Result:
    """The same with scale and bias of each group."""
    return _groups(node, op, per_group=True)


@up("GroupNormalization", version=21)
def scale_of_channels(node: VersionedNode, op: Writer) -> Result:
    """Scale and bias of each group are repeated for its channels."""
    groups = node.attribute("num_groups")
    channels = op.size(node[0], 1)
    each = op.Div(channels, op.ints([groups]))
    inputs: list[Value | None] = [node[0]]
    for place in (1, 2):
        known, count = node[place].array(), each.ints()
        if known is not None and count is not None:
            inputs.append(op.const(np.repeat(known, count[0]), node.need_dtype(place)))
        else:
            rows = op.Expand(op.Unsqueeze(node[place], [1]), op.joined([groups], each))
            inputs.append(op.Reshape(rows, [-1]))
    return node.with_(inputs=inputs)


def _groups(node: VersionedNode, op: Writer, *, per_group: bool) -> Value:
    given = node.need_dtype(0)
    wanted = given if per_group else node.attribute("stash_type")
    groups = node.attribute("num_groups")
    x, shape = op.cast(node[0], wanted), op.shape(node[0])
    parts = op.Reshape(x, [0, groups, -1])
    mean = op.ReduceMean(parts, [2], keepdims=1)
    away = op.Sub(parts, mean)
    variance = op.ReduceMean(op.Mul(away, away), [2], keepdims=1)
    normal = op.cast(op.Div(away, op.Sqrt(op.Add(variance, node.attribute("epsilon")))), given)
    if per_group:
        scale, bias = (op.Reshape(node[place], [1, groups, 1]) for place in (1, 2))
        return op.Reshape(op.Add(op.Mul(normal, scale), bias), shape)
    channels = op.Reshape(normal, op.joined(op.size(node[0], 0), op.size(node[0], 1), [-1]))
    scale, bias = (op.Reshape(node[place], [1, -1, 1]) for place in (1, 2))
    return op.Reshape(op.Add(op.Mul(channels, scale), bias), shape)


@down("MeanVarianceNormalization", version=9)
def mean_variance(node: VersionedNode, op: Writer) -> Result:
    """(x - mean) / (sqrt(variance) + 1e-9)."""
    axes: Sequence[int] = node.attribute("axes")
    away = op.Sub(node[0], op.ReduceMean(node[0], list(axes), keepdims=1))
    deviation = op.Sqrt(op.ReduceMean(op.Mul(away, away), list(axes), keepdims=1))
    return op.Div(away, op.Add(deviation, 1e-9))


# BatchNormalization ---------------------------------------------------------------------------------------------------


@down("BatchNormalization", version=15)
def one_type(node: VersionedNode, op: Writer) -> Result:
    """Opset 14 has one type for scale and bias, that of x, and one for mean and variance."""
    own = node.need_dtype(0)
    scale = [op.cast(node[place], own) for place in (1, 2)]
    statistics = [op.cast(node[place], node.need_dtype(3)) for place in (3, 4)]
    return node.with_(inputs=[node[0], *scale, *statistics])


@down("BatchNormalization", version=14)
def not_trained(node: VersionedNode, op: Writer) -> Result:
    """Without training: one type for all inputs. In training, mean and variance of the batch are written out."""
    own = node.need_dtype(0)
    if not node.attribute("training_mode"):
        statistics = [op.cast(node[place], own) for place in (3, 4)]
        return node.with_(inputs=[*node.inputs[:3], *statistics], drop="training_mode")
    axes = [axis for axis in range(node.need_rank(0)) if axis != 1]
    kind, keep = node.need_dtype(3), node.attribute("momentum")
    # half precision has too few bits for the sums
    wide = op.cast(node[0], own if own == DOUBLE else FLOAT)
    mean = op.ReduceMean(wide, axes, keepdims=1)
    away = op.Sub(wide, mean)
    variance = op.ReduceMean(op.Mul(away, away), axes, keepdims=1)
    form = op.ints([1, -1, *[1] * (len(axes) - 1)])
    scale, bias = (op.Reshape(op.cast(node[place], wide.dtype), form) for place in (1, 2))
    normal = op.Div(away, op.Sqrt(op.Add(variance, node.attribute("epsilon"))))
    made: list[Value | None] = [op.cast(op.Add(op.Mul(normal, scale), bias), own)]
    for place, now in ((3, mean), (4, variance)):
        if not node.wants(place - 2):
            made.append(None)
            continue
        flat = op.cast(op.Reshape(now, [-1]), kind)
        made.append(op.Add(op.Mul(node[place], keep), op.Mul(flat, 1 - keep)))
    return made


@up("BatchNormalization", version=14)
def with_mode(node: VersionedNode, op: Writer) -> Result:
    """Trained where the node has more outputs, which were the statistics of the batch."""
    if any(node.wants(place) for place in range(1, 5)):
        raise RefusedError("it is in training mode, whose outputs opset 14 changed")
    return None


@up("BatchNormalization", version=9)
def of_channels(node: VersionedNode, op: Writer) -> Result:
    """Statistics of channels; those of each element were withdrawn."""
    if not node.attribute("spatial"):
        raise RefusedError("it has statistics of each element (spatial is 0), which opset 9 withdrew")
    return node.with_(drop="spatial")


# Dropout --------------------------------------------------------------------------------------------------------------


@up("Dropout", version=12)
def ratio_as_input(node: VersionedNode, op: Writer) -> Result:
    """The ratio becomes an input; it is not trained, as before."""
    ratio = op.like(node.attribute("ratio"), node[0]) if node.given("ratio") else None
    return node.with_(inputs=[node[0], ratio], drop="ratio")


@down("Dropout", version=12)
def ratio_as_attribute(node: VersionedNode, op: Writer) -> Result:
    """Without training, nothing is dropped. In training with a known ratio of 0, neither."""
    known = node[2].number() if node.has(2) else 0
    training = bool(known)
    ratio = 0.5 if not node.has(1) else node[1].number()
    if known is None or (training and ratio != 0):
        return _dropped(node, op, None if training else node[2])
    if node.wants(1):  # where nothing is dropped, older versions do not say what the mask is, and kernels differ
        return [node[0], op.Expand(op.const(np.array(True)), op.Shape(node[0]))]
    given = {"ratio": float(ratio)} if node.has(1) and ratio is not None and not training else {}
    return node.with_(inputs=[node[0]], drop="seed", also=given)


def _dropped(node: VersionedNode, op: Writer, training: Value | None) -> list[Value]:
    """Some elements are 0, and the others are scaled, so that the mean stays. Older versions do not train.

    `training` says when the model runs whether it does; None stands for a model that does.
    """
    x, seed = node[0], node.attribute("seed")
    dtype = node.need_dtype(0)
    ratio = op.cast(node[1], FLOAT) if node.has(1) else op.const(np.array(0.5), FLOAT)
    drawn = op.RandomUniformLike(x, dtype=FLOAT, seed=None if seed is None else float(seed))
    mask, left = op.Not(op.Less(drawn, ratio)), op.Sub(op.const(np.array(1.0), FLOAT), ratio)
    if training is not None:
        mask = op.Or(mask, op.Not(training))
        left = op.Where(training, left, op.const(np.array(1.0), FLOAT))
    scaled = op.Div(x, op.cast(left, dtype))
    return [op.Where(mask, scaled, op.like(0, x)), mask]


@down("Dropout", version=10)
def mask_as_numbers(node: VersionedNode, op: Writer) -> Result:
    """The mask was of the type of the data."""
    if not node.wants(1):
        return None
    data, mask = op.at(9).multi("Dropout", node[0], outputs=2, ratio=node.attribute("ratio"))
    return [data, op.cast(mask, BOOL)]


@up("Dropout", version=10)
def mask_as_truth(node: VersionedNode, op: Writer) -> Result:
    """The mask is of truth values."""
    if not node.wants(1):
        return None
    data, mask = op.at(10).multi("Dropout", node[0], outputs=2, ratio=node.attribute("ratio"))
    return [data, op.cast(mask, node.need_dtype(0))]
