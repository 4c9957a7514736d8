"""A program written for onnx, in a process without onnx and protobuf.

python examples/onnx_without_onnx.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import proto_schema as ps

ps.compat.install(force=True)  # before an installed onnx, too: this example shows ours

import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def main() -> None:
    weight = numpy_helper.from_array(np.eye(3, dtype=np.float32), "weight")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["y"])],
        "example",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        loaded = onnx.load(path)
    for tensor in loaded.graph.initializer:
        doubled = numpy_helper.from_array(numpy_helper.to_array(tensor) * 2, tensor.name)
        tensor.CopyFrom(doubled)
    print(helper.printable_graph(loaded.graph))
    print(loaded.graph.node[0])
    print("the weights add up to", numpy_helper.to_array(loaded.graph.initializer[0]).sum())


if __name__ == "__main__":
    main()
