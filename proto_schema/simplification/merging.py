"""BatchNormalization, in inference, into the weights of the convolution before it.

    norm(conv(x)) = conv(x) * factor + rest,  factor = scale / sqrt(var + epsilon),  rest = B - mean * factor

The products are rounded in another order, so results differ by rounding. Weights of any size merge: their bytes are
read and scaled when the model is written, so the sources must stay as they are until then.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from proto_schema.derived.scaled import ScaledPayload
from proto_schema.derived.source import source_of
from proto_schema.external.datafiles import expected_size
from proto_schema.ir import Node, Value
from proto_schema.numpy_helper import from_array
from proto_schema.onnx import TensorProto
from proto_schema.simplification.known import Known

_FLOATS = (1, 11)  # FLOAT and DOUBLE
_OUTPUT_AXIS = {"Conv": 0, "ConvTranspose": 1}  # of the weight
_STATISTICS = 1 << 24  # bytes of a number for each channel; no convolution has so many channels


def merged(known: Known, node: Node) -> Node | None:
    """The convolution that does the work of a BatchNormalization, too, in its place; None where they do not merge."""
    if node.domain or node.op_type != "BatchNormalization" or any(node.outputs[1:]) or node.inputs[0] is None:
        return None
    inner = node.inputs[0].producer
    if inner is None or inner.domain or inner.op_type not in _OUTPUT_AXIS or len(node.inputs[0].uses) != 1:
        return None
    attributes = known.attributes(node)
    grouped = inner.op_type == "ConvTranspose" and known.attributes(inner).get("group", 1) != 1
    if attributes.get("training_mode") or attributes.get("spatial", 1) != 1 or known.opset < 7 or grouped:
        return None
    kernel = inner.input(1)
    weight = kernel.constant if kernel is not None else None
    if kernel is None or weight is None or weight.data_type not in _FLOATS or len(weight.dims) < 2:
        return None
    axis = _OUTPUT_AXIS[inner.op_type]
    channels = weight.dims[axis]
    before = [value for value in inner.inputs[2:3] if value is not None]
    numbers = [_of_channels(known, value, channels) for value in (*node.inputs[1:5], *before)]
    if any(item is None for item in numbers):
        return None
    scale, shift, mean, variance, *bias = numbers
    factor = scale / np.sqrt(variance + float(attributes.get("epsilon", 1e-5)))
    scaled = _scaled(weight, factor, prod(weight.dims[axis + 1 :]))
    if scaled is None:
        return None
    total = ((bias[0] if bias else 0.0) - mean) * factor + shift
    made = from_array(np.ascontiguousarray(total.astype(_numpy(weight))))
    graph, new_name = known.graph, known.model.new_name
    inner.inputs = (
        inner.inputs[0],
        graph.add_initializer(scaled, new_name(f"{kernel.name}_merged")),
        graph.add_initializer(made, new_name(f"{node.output.name}_bias")),
    )
    graph.nodes.insert(node, inner)
    return inner


def _of_channels(known: Known, value: Value | None, channels: int) -> Any:
    """The numbers of a constant that has one for each channel; None for another."""
    if value is None or value.constant is None or value.sizes != (channels,):
        return None
    array = known.read(value, max(known.limit, _STATISTICS))
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
