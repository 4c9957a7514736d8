"""Halves the float initializers of a model, renames an output, and saves with external data."""

import os
import sys

import numpy as np
import onnx
from onnx import numpy_helper

source, target = sys.argv[1:]
model = onnx.load(source)
for position, tensor in enumerate(model.graph.initializer):
    array = numpy_helper.to_array(tensor)
    if array.dtype == np.float32:
        half = numpy_helper.from_array(array / 2, tensor.name)
        model.graph.initializer[position].CopyFrom(half)
for node in model.graph.node:
    for index, name in enumerate(node.output):
        if name == "probabilities":
            node.output[index] = "scores"
model.graph.output[0].name = "scores"
del model.graph.value_info[:]
for attribute in model.graph.node[0].attribute:
    if attribute.name == "alpha":
        attribute.f = 0.5
onnx.checker.check_model(model)
onnx.save_model(model, target, save_as_external_data=True, location="weights.bin", size_threshold=0)
again = onnx.load(target)
print(os.path.getsize(os.path.join(os.path.dirname(target), "weights.bin")))
for tensor in again.graph.initializer:
    print(
        tensor.name, list(tensor.dims), onnx.TensorProto.DataType.Name(tensor.data_type), numpy_helper.to_array(tensor)
    )
