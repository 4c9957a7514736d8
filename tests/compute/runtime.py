"""A node on our evaluator and in ONNX Runtime: the same numbers, within the bounds of tests/tolerances.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime

import proto_schema as ps
from tests.tolerances import USUAL, Bounds, assert_near


@dataclass(frozen=True)
class Node:
    """One node: its operator, inputs (None for one that is left out), attributes, opset, and number of outputs."""

    op_type: str
    inputs: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 22
    outputs: int = 1
    domain: str = ""
    bounds: Bounds = USUAL
    id: str = ""


def array(value: Any) -> Any:
    """Lists of text as arrays of objects, a map as it is, anything else as numpy has it."""
    if isinstance(value, dict):
        return value
    made = np.asarray(value)
    return made.astype(object) if made.dtype.kind in "US" else made


def model(node: Node) -> tuple[bytes, dict[str, Any]]:
    """The file of the node, and what it is fed."""
    feed = {f"x{place}": array(value) for place, value in enumerate(node.inputs) if value is not None}
    names = [f"x{place}" if value is not None else "" for place, value in enumerate(node.inputs)]
    made = onnx.helper.make_node(
        node.op_type,
        names,
        [f"y{place}" for place in range(node.outputs)],
        domain=node.domain,
        **node.attributes,
    )
    inputs = [onnx.helper.make_value_info(name, _type(value)) for name, value in feed.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in made.output]
    graph = onnx.helper.make_graph([made], "g", inputs, outputs)
    opsets = [onnx.helper.make_opsetid("", 22 if node.domain else node.opset)]
    if node.domain:
        opsets.append(onnx.helper.make_opsetid(node.domain, node.opset))
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), feed


def _type(value: Any) -> onnx.TypeProto:
    if not isinstance(value, dict):
        return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
    key, item = next(iter(value.items()))
    held = onnx.TensorProto.STRING if isinstance(item, str) else onnx.TensorProto.FLOAT
    kind = onnx.TensorProto.STRING if isinstance(key, str) else onnx.TensorProto.INT64
    return onnx.helper.make_map_type_proto(kind, onnx.helper.make_tensor_type_proto(held, []))


def wanted(node: Node) -> list[Any]:
    """What ONNX Runtime gives."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    data, feed = model(node)
    found: list[Any] = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feed)
    return found


def found(node: Node) -> list[Any]:
    """What our evaluator gives."""
    data, feed = model(node)
    results: list[Any] = ps.reference.ReferenceEvaluator(ps.loads(data)).run(None, feed)
    return results


def compare(node: Node) -> None:
    """AssertionError where a value, dtype or shape differs."""
    mine, theirs = found(node), wanted(node)
    assert len(mine) == len(theirs)
    for place, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        if isinstance(other, list):
            assert len(one) == len(other)
            for left, right in zip(one, other, strict=True):
                assert {key: float(item) for key, item in left.items()} == {k: float(item) for k, item in right.items()}
        elif np.asarray(other).dtype.kind in "OUS":
            np.testing.assert_array_equal(one, other)
        else:
            assert_near(one, other, node.bounds, f"{node.op_type} output {place}")
