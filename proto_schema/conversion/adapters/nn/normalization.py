"""Rows of normalizations and Dropout: what the inputs and outputs of older versions are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import BOOL, Writer
from proto_schema.ir import Value
from proto_schema.legalization.nn.normalization import in_groups, scaled


@down("GroupNormalization", version=18)
def scale_of_groups(node: VersionedNode, op: Writer) -> Result:
    """Scale and bias of each group; opset 21 has such of each channel."""
    groups = node.attribute("num_groups")
    found = in_groups(op, node[0], groups, node.attribute("epsilon"))
    scale, bias = (op.Reshape(node[place], [1, groups, 1]) for place in (1, 2))
    return op.Reshape(scaled(op, found, scale, bias, node.need_dtype(0)), op.shape(node[0]))


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
    """Without training: one type for all inputs."""
    if node.attribute("training_mode"):
        return None
    statistics = [op.cast(node[place], node.need_dtype(0)) for place in (3, 4)]
    return node.with_(inputs=[*node.inputs[:3], *statistics], drop="training_mode")


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
    """Nothing is dropped without training, nor in training with a known ratio of 0, and nobody asks for the mask."""
    training = node[2].number() if node.has(2) else 0
    ratio = 0.5 if not node.has(1) else node[1].number()
    if training is None or (training and ratio != 0) or node.wants(1):
        return None
    given = {"ratio": float(ratio)} if node.has(1) and ratio is not None and not training else {}
    return node.with_(inputs=[node[0]], drop="seed", also=given)


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
