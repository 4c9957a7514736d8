"""Weights wherever a model keeps them: in stacks of matrices, in Constant nodes, in branches, loops and functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.quantization import dequantized, measured, planned, quantize
from proto_schema.quantization.codes import streams

Array = np.ndarray[Any, Any]
node, value = helper.make_node, helper.make_tensor_value_info


def drawn(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def tensor(name: str, *shape: int) -> ps.TensorProto:
    return ps.numpy_helper.from_array(drawn(*shape), name)


def made(nodes: Sequence[ps.NodeProto], inputs: Mapping[str, Sequence[int]], **fields: Any) -> ps.ModelProto:
    opset, functions, ir = fields.pop("opset", 21), fields.pop("functions", []), fields.pop("ir_version", 10)
    given = [value(name, ps.TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    rank = fields.pop("rank", 2)
    output = [value("y", ps.TensorProto.FLOAT, [f"y{axis}" for axis in range(rank)])]
    graph = helper.make_graph(list(nodes), "g", given, output, fields.pop("weights", []))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=functions)


def run(model: ps.ModelProto, **feed: Array) -> Array:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    session: Any = ort.InferenceSession(ps.dumps(model), options, providers=["CPUExecutionProvider"])
    result: Array = session.run(None, feed)[0]
    return result


def close(source: ps.ModelProto, scheme: Any, target: Any = "onnx", **feed: Array) -> ps.ModelProto:
    """The quantized model, which is valid, gives what its codes stand for, and nearly what the source gives."""
    before = ps.dumps(source)
    found = quantize(source, scheme, target=target)
    assert ps.dumps(source) == before
    ps.checker.check_model(found, full_check=True)
    result = run(found, **feed)
    np.testing.assert_allclose(
        result, run(dequantized(source, scheme, target=target), **feed), rtol=1e-4, atol=1e-4 * np.abs(result).max()
    )
    wanted = run(source, **feed)
    error = max(entry.error or 0 for entry in measured(source, scheme, target=target).entries)
    assert 0 < np.linalg.norm(wanted - result) / np.linalg.norm(wanted) < 3 * error + 1e-3
    return found


# ---- stacks


@pytest.mark.parametrize("piece", [1 << 8, 1 << 18])
@pytest.mark.parametrize(
    "shape",
    [(3, 41, 51), (2, 3, 17, 64), *(pytest.param(s, marks=pytest.mark.full) for s in [(3, 40, 50), (1, 64, 32)])],
)
@pytest.mark.parametrize(
    ("scheme", "opset"),
    [
        ("int8", 13),
        ("int8", 21),
        ("uint8", 17),
        ("uint8", 21),
        ({"type": "uint4", "block_size": 0}, 21),
        ("int4", 21),
        ({"type": "int8", "block_size": 16}, 21),
        ("float8e4m3fn", 19),
        ("float8e4m3fn", 21),
    ],
)
def test_a_stack_of_matrices(
    scheme: Any, opset: int, shape: tuple[int, ...], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks, or with a scale for each column: of each matrix from opset 21 on, before of all matrices together."""
    monkeypatch.setattr(streams, "PIECE", piece)
    x = drawn(5, shape[-2])
    source = made(
        [node("MatMul", ["x", "w"], ["y"])],
        {"x": x.shape},
        weights=[tensor("w", *shape)],
        rank=len(shape),
        opset=opset,
    )
    if isinstance(scheme, str):
        scheme = {"type": scheme, "smallest": 1}
    found = close(source, scheme, x=x)
    assert found.graph is not None
    assert [item.op_type for item in found.graph.node] == ["DequantizeLinear", "MatMul"]
    scale = next(item.dims for item in found.graph.initializer if item.name == "w_scale")
    if scheme == {"type": "int8", "smallest": 1}:
        assert scale == ([shape[-1]] if opset < 21 or shape[0] == 1 else [*shape[:-2], 1, shape[-1]])


# ---- nodes, branches, loops

N = 40
X = {"x": (5, N)}


def constant(name: str, *shape: int) -> ps.NodeProto:
    held = tensor("", *shape)
    return node("Constant", [], [name], value=held)


def matmul(weight: str = "w", result: str = "y", given: str = "x") -> ps.NodeProto:
    return node("MatMul", [given, weight], [result])


def branch(*nodes: ps.NodeProto, weights: Sequence[ps.TensorProto] = ()) -> ps.GraphProto:
    return helper.make_graph(list(nodes), "b", [], [value("z", ps.TensorProto.FLOAT, None)], list(weights))


def chosen_by(condition: bool, *branches: ps.GraphProto) -> list[ps.NodeProto]:
    held = ps.numpy_helper.from_array(np.array(condition))
    return [
        node("Constant", [], ["c"], value=held),
        node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]


def twice(*nodes: ps.NodeProto, weights: Sequence[ps.TensorProto] = ()) -> list[ps.NodeProto]:
    """A Loop of two steps over what the nodes make of `v`, which is `z`."""
    inputs = [value("i", ps.TensorProto.INT64, []), value("k", ps.TensorProto.BOOL, [])]
    inputs.append(value("v", ps.TensorProto.FLOAT, [5, N]))
    outputs = [value("k_out", ps.TensorProto.BOOL, []), value("z", ps.TensorProto.FLOAT, [5, N])]
    body = helper.make_graph([node("Identity", ["k"], ["k_out"]), *nodes], "body", inputs, outputs, list(weights))
    count = node("Constant", [], ["count"], value=ps.numpy_helper.from_array(np.array(2)))
    return [count, node("Loop", ["count", "", "x"], ["y"], body=body)]


def ordinary(then: bool = True) -> list[ps.NodeProto]:
    """Both branches call their weight w; one holds it as an initializer, one in a node."""
    other = branch(constant("w", N, N), matmul("w", "z"))
    return chosen_by(then, branch(matmul("w", "z"), weights=[tensor("w", N, N)]), other)


def deep() -> list[ps.NodeProto]:
    """A branch in the body of a loop: its floats are made once, in front of the loop."""
    inner = chosen_by(True, branch(constant("w", N, N), matmul("w", "z", "v")), branch(node("Neg", ["v"], ["z"])))
    inner[1].output = ["z"]
    return twice(*inner)


def deeper() -> list[ps.NodeProto]:
    """A branch in a branch."""
    inner = chosen_by(True, branch(constant("w", N, N), matmul("w", "z")), branch(node("Neg", ["x"], ["z"])))[1:]
    inner[0].output = ["z"]
    return chosen_by(True, branch(*inner), branch(node("Neg", ["x"], ["z"])))


# nodes, and the places of the nodes that make floats: the main graph, a branch, a branch in a branch
HOMES: dict[str, tuple[list[ps.NodeProto], list[str]]] = {
    "a node": ([constant("w", N, 30), matmul()], ["main"]),
    "a node in the middle": (
        [node("Relu", ["x"], ["r"]), constant("w", N, 30), matmul("w", "y", "r")],
        ["main"],
    ),
    "two nodes": (
        [constant("v", N, N), matmul("v", "t"), constant("w", N, N), matmul("w", "y", "t")],
        ["main", "main"],
    ),
    "a node that is transposed": (
        [constant("w", 30, N), node("Transpose", ["w"], ["t"], perm=[1, 0]), matmul("t")],
        ["main"],
    ),
    "both branches": (ordinary(), ["else_branch", "then_branch"]),
    "both branches, the other one runs": (ordinary(False), ["else_branch", "then_branch"]),
    "the body of a loop": (twice(matmul("w", "z", "v"), weights=[tensor("w", N, N)]), ["main"]),
    "a node in the body of a loop": (twice(constant("w", N, N), matmul("w", "z", "v")), ["main"]),
    "a branch in the body of a loop": (deep(), ["main"]),
    "a branch in a branch": (deeper(), ["then_branch.then_branch"]),
}  # fmt: skip


def places(graph: ps.GraphProto, path: str = "") -> list[str]:
    """Where nodes make floats of codes."""
    found = []
    for item in graph.node:
        found += [path or "main"] if item.op_type == "DequantizeLinear" else []
        for attribute in item.attribute:
            if attribute.g is not None:
                found += places(attribute.g, f"{path}.{attribute.name}".lstrip("."))
    return found


@pytest.mark.parametrize("target", ["onnx", "onnxruntime"])
@pytest.mark.parametrize("name", HOMES)
def test_weights_in_nodes_and_in_graphs_inside(name: str, target: Any) -> None:
    nodes, homes = HOMES[name]
    scheme = {"type": "int8", "block_size": 32}
    found = close(made(nodes, X), scheme, target, x=drawn(5, N))
    assert found.graph is not None
    if target == "onnx":
        assert places(found.graph) == homes
    else:
        assert places(found.graph) == []
        assert ps.dumps(found).count(b"MatMulNBits") == len(homes)


def test_a_convolution_whose_weight_is_in_a_node() -> None:
    """As Paddle writes all of its models."""
    nodes = [constant("w", 8, 3, 3, 3), node("Conv", ["x", "w"], ["y"])]
    close(made(nodes, {"x": (1, 3, 9, 9)}, rank=4, opset=13), {"type": "int8", "smallest": 1}, x=drawn(1, 3, 9, 9))


def test_small_floats_in_a_branch() -> None:
    """Types whose scales have a scale."""
    quantized = quantize(made(ordinary(), X, opset=23), "nvfp4")
    assert quantized.graph is not None and places(quantized.graph) == ["else_branch"] * 2 + ["then_branch"] * 2
    ps.checker.check_model(quantized, full_check=True)


def test_a_cast_in_a_branch() -> None:
    close(made(ordinary(), X), "float16", x=drawn(5, N))


FUNCTION = helper.make_function(
    "own", "Product", ["x"], ["y"], [constant("w", N, N), matmul()], [helper.make_opsetid("", 21)]
)
# what keeps its weight where it is: nodes, other fields of the model, and the reason
STAYS: dict[str, tuple[list[ps.NodeProto], dict[str, Any], str]] = {
    "in a function": (
        [node("Product", ["x"], ["y"], domain="own")],
        {"functions": [FUNCTION]},
        "is in the function 'Product'; inline_local_functions brings it into the graph",
    ),
    "read by another operator": ([constant("w", 5, N), node("Add", ["x", "w"], ["y"])], {}, "is read by Add"),
    "an output": ([constant("y", N, N)], {}, "is an input or output of the graph that it is in"),
    "what a branch gives": (
        chosen_by(True, branch(constant("z", 5, N)), branch(node("Neg", ["x"], ["z"]))),
        {},
        "is an input or output of the graph that it is in",
    ),
    "of a version that has no such weights": (
        [constant("w", N, N), matmul()],
        {"ir_version": 3},
        "is not a weight of the main graph, and IR version 3 allows no more of these",
    ),
    "left out": ([constant("w", N, N), matmul()], {}, "is left out by the patterns"),
    "no text": ([constant(b"\xff", N, N), matmul(b"\xff")], {}, "has a name that is not UTF-8"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_is_listed(name: str) -> None:
    nodes, fields, reason = STAYS[name]
    scheme: dict[str, Any] = {"type": "int8", "exclude": ["w"] if name == "left out" else [], "smallest": 1}
    source = made(nodes, X, **fields)
    report = planned(source, scheme)
    assert [entry.reason for entry in report.entries if entry.reason.startswith(reason)], report
    assert ps.dumps(quantize(source, scheme)) == ps.dumps(source)


def test_of_two_weights_only_one_moves() -> None:
    """The other one stays in its node."""
    nodes = [constant("v", 5, N), node("Add", ["x", "v"], ["s"]), constant("w", N, N), matmul("w", "y", "s")]
    found = quantize(made(nodes, X), {"type": "int8", "smallest": 1})
    assert found.graph is not None
    assert [item.op_type for item in found.graph.node] == ["DequantizeLinear", "Constant", "Add", "MatMul"]
    assert [item.name for item in found.graph.initializer] == ["w_quantized", "w_scale"]


def test_equal_names_in_two_branches_are_two_weights() -> None:
    """One of them is read by a product, the other one by an operator that keeps it."""
    kept = branch(node("Add", ["x", "w"], ["z"]), weights=[tensor("w", 5, N)])
    source = made(chosen_by(True, branch(matmul("w", "z"), weights=[tensor("w", N, N)]), kept), X)
    scheme = {"type": "int8", "smallest": 1}
    assert [(entry.shape, entry.form) for entry in planned(source, scheme).entries] == [
        ((N, N), "DequantizeLinear"),
        ((5, N), ""),
    ]
    close(source, scheme, x=drawn(5, N))


def test_types_of_values_that_moved_are_gone() -> None:
    nodes = twice(matmul("w", "z", "v"), weights=[tensor("w", N, N)])
    body = nodes[1].attribute[0].g
    assert body is not None
    body.value_info = [value("w", ps.TensorProto.FLOAT, [N, N])]
    found = close(made(nodes, X), "int8", x=drawn(5, N))
    assert "value_info" not in str(found.graph)


def test_activations_and_weights_of_nodes() -> None:
    """Weights and biases in nodes are integers in the file, as those of initializers are."""
    weight, bias = drawn(8, 3, 3, 3), drawn(8)
    held = [ps.numpy_helper.from_array(weight, "w"), ps.numpy_helper.from_array(bias, "b")]
    nodes = [node("Constant", [], [item.name], value=item) for item in held]
    conv = node("Conv", ["x", "w", "b"], ["y"])
    x = drawn(4, 3, 9, 9)
    found = [
        quantize(source, activations="uint8", calibration={"x": x})
        for source in (
            made([*nodes, conv], {"x": (4, 3, 9, 9)}, rank=4),
            made([conv], {"x": (4, 3, 9, 9)}, rank=4, weights=held),
        )
    ]
    assert ps.dumps(found[0]) == ps.dumps(found[1])
    assert found[0].graph is not None
    assert {item.data_type for item in found[0].graph.initializer} >= {ps.TensorProto.INT8, ps.TensorProto.INT32}
