"""BatchNormalization, in inference, into the weights of the convolution before it.

    norm(conv(x)) = conv(x) * factor + rest,  factor = scale / sqrt(var + epsilon),  rest = B - mean * factor

The products are rounded in another order, so results differ by rounding. The weights are read and written anew, so
only weights within the budget are merged.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from proto_schema.onnx import NodeProto
from proto_schema.simplification.draft import Draft

_FLOATS = (1, 11)  # FLOAT and DOUBLE
_OUTPUT_AXIS = {"Conv": 0, "ConvTranspose": 1}  # of the weight


def merged(draft: Draft, node: NodeProto) -> NodeProto | None:
    """A convolution that takes the place of a BatchNormalization; None where the two do not merge."""
    if node.domain or node.op_type != "BatchNormalization" or any(node.output[1:]):
        return None
    inner = draft.makers.get(node.input[0])
    if inner is None or inner.domain or inner.op_type not in _OUTPUT_AXIS or draft.uses[draft.now(node.input[0])] != 1:
        return None
    attributes = draft.attributes(node)
    grouped = inner.op_type == "ConvTranspose" and draft.attributes(inner).get("group", 1) != 1
    if attributes.get("training_mode") or attributes.get("spatial", 1) != 1 or draft.opset < 7 or grouped:
        return None
    statistics = [draft.array(name) for name in node.input[1:5]]
    weight = draft.array(inner.input[1])
    bias = draft.array(inner.input[2]) if len(inner.input) > 2 and inner.input[2] else np.zeros((), np.float64)
    if weight is None or bias is None or any(item is None for item in statistics):
        return None
    if draft.dtype(inner.input[1]) not in _FLOATS:
        return None
    scale, shift, mean, variance = (np.asarray(item, np.float64) for item in statistics)
    factor = scale / np.sqrt(variance + float(attributes.get("epsilon", 1e-5)))
    axis = _OUTPUT_AXIS[inner.op_type]
    spread = factor.reshape([-1 if place == axis else 1 for place in range(weight.ndim)])
    made = copy.copy(inner)
    names = [
        draft.new_constant(f"{inner.input[1]}_merged", _as(weight * spread, weight)),
        draft.new_constant(f"{node.output[0]}_bias", _as((bias - mean) * factor + shift, weight)),
    ]
    made.input = [inner.input[0], *names]
    made.output = [node.output[0]]
    return made


def _as(array: Any, like: Any) -> Any:
    return array.astype(like.dtype)
