"""BatchNormalization, in inference, into the weights of the convolution before it.

    norm(conv(x)) = conv(x) * factor + rest,  factor = scale / sqrt(var + epsilon),  rest = B - mean * factor

The products are rounded in another order, so results differ by rounding. Weights of any size merge: their bytes are
read and scaled when the model is written, so the sources must stay as they are until then.
"""

from __future__ import annotations

import copy
from math import prod
from typing import Any

import numpy as np

from proto_schema.datafiles import expected_size
from proto_schema.derived.scaled import ScaledPayload
from proto_schema.derived.source import source_of
from proto_schema.onnx import NodeProto, TensorProto
from proto_schema.simplification.draft import Draft

_FLOATS = (1, 11)  # FLOAT and DOUBLE
_OUTPUT_AXIS = {"Conv": 0, "ConvTranspose": 1}  # of the weight
_STATISTICS = 1 << 24  # bytes of a number for each channel; no convolution has so many channels


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
    weight = draft.constants.get(inner.input[1])
    if weight is None or weight.data_type not in _FLOATS or len(weight.dims) < 2:
        return None
    axis = _OUTPUT_AXIS[inner.op_type]
    channels = weight.dims[axis]
    names = [*node.input[1:5], *([inner.input[2]] if len(inner.input) > 2 and inner.input[2] else [])]
    numbers = [_of_channels(draft, name, channels) for name in names]
    if any(item is None for item in numbers):
        return None
    scale, shift, mean, variance, *bias = numbers
    factor = scale / np.sqrt(variance + float(attributes.get("epsilon", 1e-5)))
    scaled = _scaled(weight, factor, prod(weight.dims[axis + 1 :]))
    if scaled is None:
        return None
    rest = ((bias[0] if bias else 0.0) - mean) * factor + shift
    made = copy.copy(inner)
    made.input = [
        inner.input[0],
        draft.add_constant(f"{inner.input[1]}_merged", scaled),
        draft.new_constant(f"{node.output[0]}_bias", rest.astype(_numpy(weight))),
    ]
    made.output = [node.output[0]]
    return made


def _of_channels(draft: Draft, name: str, channels: int) -> Any:
    """The numbers of a constant that has one for each channel; None for another."""
    tensor = draft.constants.get(name)
    if tensor is None or tuple(tensor.dims) != (channels,):
        return None
    array = draft.read(tensor, max(draft.limit, _STATISTICS))
    return None if array is None else np.asarray(array, np.float64)


def _scaled(weight: TensorProto, factor: Any, inner: int) -> TensorProto | None:
    """The weight, each channel times its factor, as a payload; None where its bytes are not there."""
    try:
        source = source_of(weight)
    except (ValueError, OSError):
        return None
    if source.nbytes != expected_size(weight):
        return None
    payload = ScaledPayload(source, weight.data_type or 0, factor, inner)
    return TensorProto(data_type=weight.data_type, dims=list(weight.dims), raw_data=payload)


def _numpy(tensor: TensorProto) -> Any:
    return np.float32 if tensor.data_type == TensorProto.FLOAT else np.float64
