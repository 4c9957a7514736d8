"""Models as objects: `ps.ir`.

    model = ps.ir.from_message(ps.load("model.onnx"))
    for node in model.graph.nodes:
        if node.op_type == "Identity" and not node.output.is_output:
            node.output.replace_uses(node.inputs[0])
            model.graph.nodes.remove(node)
    ps.save(model.to_message(), "smaller.onnx")

A `Value` knows the node that makes it and everything that reads it, in bodies of If, Loop and Scan, too. Weights stay
where they are. What a file says and nothing here has a name for (documentation, metadata, devices, unknown fields)
stays with its node, value, graph or model, so that a model that did not change is written as it was read. `Builder`
writes new nodes: `b.Relu(b.Conv(x, w, pads=[1, 1, 1, 1]))`.
"""

from __future__ import annotations

from proto_schema.ir.builder import Builder
from proto_schema.ir.calls import BuildError
from proto_schema.ir.changes import Changes
from proto_schema.ir.functions import Function
from proto_schema.ir.graph import Annotation, Attributes, Graph, Node, Nodes, Use, User, Value
from proto_schema.ir.model import Model, from_message

__all__ = [
    "Annotation",
    "Attributes",
    "BuildError",
    "Builder",
    "Changes",
    "Function",
    "Graph",
    "Model",
    "Node",
    "Nodes",
    "Use",
    "User",
    "Value",
    "from_message",
]
