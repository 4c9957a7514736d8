"""Makes a small classifier with onnx.helper, checks it, saves it and prints it."""

import sys

import numpy as np
import onnx
from onnx import TensorProto, checker, helper, numpy_helper, shape_inference

rng = np.random.default_rng(0)
weight = numpy_helper.from_array(rng.standard_normal((4, 3)).astype(np.float32), name="weight")
bias = helper.make_tensor("bias", TensorProto.FLOAT, [3], [0.1, 0.2, 0.3])
graph = helper.make_graph(
    [
        helper.make_node("Gemm", ["x", "weight", "bias"], ["logits"], name="gemm", alpha=1.0, transB=0),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ],
    "classifier",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
    [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 3])],
    initializer=[weight, bias],
)
model = helper.make_model(graph, producer_name="script", opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
model.metadata_props.add(key="author", value="me")
checker.check_model(model, full_check=True)
model = shape_inference.infer_shapes(model)
onnx.save(model, sys.argv[1])
print(helper.printable_graph(model.graph))
print([value.name for value in model.graph.value_info], len(model.SerializeToString()))
