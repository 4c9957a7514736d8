"""Build, save, load and edit a model with proto_schema alone: no torch, no onnx, no protobuf.

python examples/edit_without_torch.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import proto_schema as ps
from proto_schema import helper, numpy_helper


def build() -> ps.ModelProto:
    """scale * x + 1, with the scale as a weight."""
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "one"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, ["n", 3]) for name in ("x", "y"))
    weights = [
        numpy_helper.from_array(np.array([1, 10, 100], np.float32), "scale"),
        numpy_helper.from_array(np.float32(1).reshape(()), "one"),
    ]
    graph = helper.make_graph(nodes, "example", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        ps.save(build(), path)

        model = ps.load(path)  # mapped: the weights are views into the file
        ps.checker.check_model(model)
        scale = next(tensor for tensor in model.graph.initializer if tensor.name == "scale")
        print("scale is", numpy_helper.to_array(scale))

        scale.CopyFrom(numpy_helper.from_array(np.array([2, 20, 200], np.float32), "scale"))
        model.producer_name = "examples/edit_without_torch.py"
        ps.save(model, path)  # atomic, also over the file that is mapped
        print(helper.printable_graph(ps.load(path).graph))


if __name__ == "__main__":
    main()
