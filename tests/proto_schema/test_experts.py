"""Mixtures of experts in codes: what QMoE makes of them in ONNX Runtime is what MoE makes of the numbers they mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.derived.joined import JoinedPayload, TurnsPayload
from proto_schema.derived.transposed import TransposedPayload, permuted
from proto_schema.external.payload import LazyPayload, MemoryPayload
from proto_schema.quantization import Scheme, dequantized, planned, quantize
from proto_schema.quantization.arranged import arranged
from tests.tiers import dealt

onnxruntime = pytest.importorskip("onnxruntime", reason="QMoE is of ONNX Runtime")

Array: TypeAlias = npt.NDArray[Any]
Made: TypeAlias = "dict[str, Any]"
SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1}


def experts(
    count: int = 4,
    hidden: int = 64,
    inside: int = 64,
    k: int = 2,
    *,
    bias: bool = True,
    edge: Callable[[Array], Array] = lambda weight: weight,
    dtype: Any = np.float32,
    nodes: Any = (),
    **attributes: Any,
) -> ps.ModelProto:
    """A layer of experts; its weights are those that `edge` makes of random ones."""
    rng = np.random.default_rng(3)
    given = {**SWIGLU, **attributes}
    rows = inside * (2 if given["activation_type"] == "swiglu" else 1)
    arrays = {
        "up": edge(rng.standard_normal((count, rows, hidden)) / np.sqrt(hidden)),
        "down": edge(rng.standard_normal((count, hidden, inside)) / np.sqrt(inside)),
        "up_bias": rng.standard_normal((count, rows)),
        "down_bias": rng.standard_normal((count, hidden)),
    }
    biases = ("up_bias", "down_bias") if bias else ("", "")
    inputs = ["x", "router", "up", biases[0], "down", biases[1]]
    layer = helper.make_node("MoE", inputs, ["y"], "experts", domain="com.microsoft", k=k, **given)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [*nodes, layer],
        "g",
        [
            helper.make_tensor_value_info("x", kind, ["tokens", hidden]),
            helper.make_tensor_value_info("router", kind, ["tokens", count]),
        ],
        [helper.make_tensor_value_info("y", kind, ["tokens", hidden])],
        [ps.numpy_helper.from_array(np.asarray(item, dtype), name) for name, item in arrays.items() if name in inputs],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model: ps.ModelProto, hidden: int, count: int, dtype: Any = np.float32) -> Array:
    rng = np.random.default_rng(5)
    feed = {"x": rng.standard_normal((7, hidden)), "router": rng.standard_normal((7, count))}
    session = onnxruntime.InferenceSession(ps.dumps(model), providers=["CPUExecutionProvider"])
    found: Array = session.run(None, {name: item.astype(dtype) for name, item in feed.items()})[0]
    return found.astype(np.float64)


def operators(model: ps.ModelProto) -> list[str]:
    assert model.graph is not None
    return [node.op_type or "" for node in model.graph.node]


SCHEMES: dict[str, Any] = {
    "int4": "int4",
    "uint4": "uint4",
    "zero points": {"type": "int4", "symmetric": False},
    "blocks of 16": {"type": "int4", "block_size": 16},
    "whole rows": {"type": "int4", "block_size": 0},
    "whole rows, zero points": {"type": "uint4", "block_size": 0},
    "search": {"type": "int4", "clip": True},
    "int8": "int8",
    "uint8": "uint8",
    "int8, whole rows": {"type": "int8", "block_size": 0},
}


def _zeros(weight: Array) -> Array:
    weight[0] = 0
    weight[1, 3] = 0
    return weight


# (what is special, how the layer is made); all weights are drawn
LAYERS: dict[str, Made] = {
    "usual": {},
    "weights of the router that sum up to 1": {"normalize_routing_weights": 1},
    "one expert": {"count": 1, "k": 1},
    "all experts": {"count": 3, "k": 3},
    "many experts": {"count": 7, "k": 4},
    "no biases": {"bias": False},
    "relu": {"activation_type": "relu", "swiglu_fusion": 0},
    "gelu": {"activation_type": "gelu", "swiglu_fusion": 0, "bias": False},
    "silu": {"activation_type": "silu", "swiglu_fusion": 0},
    "identity": {"activation_type": "identity", "swiglu_fusion": 0, "count": 5, "k": 1},
    "a bounded gate": {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.5},
    "a smaller block fits": {"hidden": 48, "inside": 80},
    "a smaller block fits inside": {"inside": 48},
    "no block fits": {"hidden": 52, "inside": 44},
    "zeros": {"edge": _zeros},
    "all positive": {"edge": abs},
    "tiny": {"edge": lambda weight: weight * 1e-10, "bias": False},
    "large": {"edge": lambda weight: weight * 1e10},
}
ROWS = [(layer, kind) for layer in LAYERS for kind in (SCHEMES if layer == "usual" else ("int4", "uint4", "int8"))]


@pytest.mark.parametrize(("layer", "kind"), dealt(ROWS, 3))
def test_codes_mean_numbers(layer: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel rounds nothing by itself; the environment tells it so for blocks of 8 bits."""
    monkeypatch.setenv("ORT_QMOE_CPU_QNBIT_GEMM", "fp32")
    source, scheme = experts(**LAYERS[layer]), SCHEMES[kind]
    hidden, count = LAYERS[layer].get("hidden", 64), LAYERS[layer].get("count", 4)
    made = quantize(source, scheme, target="onnxruntime")
    assert operators(made)[-1] == "QMoE"
    wanted = run(dequantized(source, scheme, target="onnxruntime"), hidden, count)
    np.testing.assert_allclose(run(made, hidden, count), wanted, atol=1e-6 * np.abs(wanted).max(), rtol=1e-5)
    apart = np.abs(wanted - run(source, hidden, count)).max() / np.abs(wanted).max()
    assert 0 < apart < (0.03 if "int8" in kind else 0.35)
    report = planned(source, scheme, target="onnxruntime")
    assert [entry.form for entry in report.entries] == ["QMoE", "QMoE"]
    written = sum(bytes_of(item) for item in made.graph.initializer if "bias" not in (item.name or ""))  # type: ignore[union-attr]
    assert written == report.after < report.before / (3 if "int8" in kind else 5)


def bytes_of(tensor: ps.TensorProto) -> int:
    assert tensor.raw_data is not None
    return len(tensor.raw_data)


@pytest.mark.parametrize("kind", ["int8", "int2"])
def test_what_the_kernel_rounds_itself(kind: str) -> None:
    """docs/quantizing.md tells of it: for experts of 8 and of 2 bits what they are multiplied with becomes int8."""
    assert "ORT_QMOE_CPU_QNBIT_GEMM" not in os.environ
    source = experts()
    wanted = run(dequantized(source, kind, target="onnxruntime"), 64, 4)
    apart = np.abs(run(quantize(source, kind, target="onnxruntime"), 64, 4) - wanted).max() / np.abs(wanted).max()
    assert 1e-4 < apart < 0.02


def test_float16() -> None:
    """MoE has no such kernel for a CPU, and QMoE has."""
    made = quantize(experts(dtype=np.float16), "int4", target="onnxruntime")
    wanted = run(dequantized(experts(), "int4", target="onnxruntime"), 64, 4)
    np.testing.assert_allclose(run(made, 64, 4, np.float16), wanted, atol=0.1 * np.abs(wanted).max())


def _with_third(model: ps.ModelProto) -> ps.ModelProto:
    assert model.graph is not None
    model.graph.node[0].input += ["third"]
    return model


def _read_twice(model: ps.ModelProto) -> ps.ModelProto:
    assert model.graph is not None
    model.graph.node.append(helper.make_node("Neg", ["up"], ["z"]))
    return model


def _by_two_layers(model: ps.ModelProto) -> ps.ModelProto:
    assert model.graph is not None
    first = model.graph.node[0]
    second = helper.make_node("MoE", list(first.input), ["z"], domain="com.microsoft", k=2, **SWIGLU)
    model.graph.node.append(second)
    return model


# (what, the model, the scheme, the target, why both or one of the weights stay)
STAYS: list[tuple[str, Callable[[], ps.ModelProto], Any, Any, str]] = [
    ("standard operators", experts, "int4", "onnx", "is read by MoE, which has codes for the target onnxruntime only"),
    ("floats", experts, "float8e4m3fn", "onnxruntime", "is read by MoE, whose form for codes has no float8e4m3fn"),
    (
        "odd rows",
        lambda: experts(hidden=51),
        "int4",
        "onnxruntime",
        "rows of 51 and 64 elements do not fill whole bytes",
    ),
    ("fc3", lambda: _with_third(experts()), "int4", "onnxruntime", "a third product"),
    ("halves", lambda: experts(swiglu_fusion=2), "int4", "onnxruntime", "a gate that is not in turns"),
    ("one is left out", experts, {"type": "int4", "exclude": "down"}, "onnxruntime", "whose other weight stays as it"),
    ("read twice", lambda: _read_twice(experts()), "int4", "onnxruntime", "is read by Neg"),
    ("read by two layers", lambda: _by_two_layers(experts()), "int4", "onnxruntime", "several nodes, one of them MoE"),
    ("a shape that does not fit", lambda: experts(activation_type="relu"), "int4", "onnxruntime", ""),
]


@pytest.mark.parametrize(("made", "scheme", "target", "reason"), [row[1:] for row in STAYS], ids=[r[0] for r in STAYS])
def test_what_stays(made: Callable[[], ps.ModelProto], scheme: Any, target: Any, reason: str) -> None:
    source = made()
    if not reason:  # the weights contradict each other
        assert source.graph is not None
        source.graph.initializer[0] = ps.numpy_helper.from_array(np.ones((4, 64, 32), np.float32), "up")
        reason = "whose other weight stays as it"
    report = planned(source, scheme, target=target)
    assert any(reason in entry.reason for entry in report.entries), str(report)
    assert not any(entry.form for entry in report.entries)
    assert quantize(source, scheme, target=target) is source


def routed(**attributes: Any) -> ps.ModelProto:
    """A router in front, whose weight is large enough; it stays where no pattern names it."""
    nodes = [
        helper.make_node("Transpose", ["gate"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["router"], axis=1),
    ]
    made = experts(nodes=nodes, count=16, **attributes)
    assert made.graph is not None
    made.graph.input = made.graph.input[:1]
    gate = np.random.default_rng(7).standard_normal((16, 64)).astype(np.float32)
    made.graph.initializer.append(ps.numpy_helper.from_array(gate, "gate"))
    return made


def test_routers_stay() -> None:
    plans = [planned(routed(), scheme, target="onnxruntime") for scheme in ("int4", {"type": "int4", "include": "*"})]
    forms = [{entry.name: entry.form for entry in plan.entries if "bias" not in entry.name} for plan in plans]
    assert forms[0] == {"up": "QMoE", "down": "QMoE", "gate": ""} and forms[1]["gate"] == "MatMulNBits"
    assert "decides between experts" in next(entry.reason for entry in plans[0].entries if entry.name == "gate")


def laid_out(cut: Callable[[ps.GraphProto], None] = lambda graph: None) -> tuple[ps.ModelProto, ps.ModelProto]:
    """(the layer whose gates and ups are halves that nodes put in turns, the plain one); `down` is transposed, too."""
    plain = experts(bias=False)
    assert plain.graph is not None
    held = {item.name: ps.numpy_helper.to_array(item) for item in plain.graph.initializer}
    halves = held["up"].reshape(4, 64, 2, 64).transpose(0, 2, 1, 3).reshape(4, 128, 64)
    nodes = [
        helper.make_node("Reshape", ["halves", "four"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["b", "three"], ["up"]),
        helper.make_node("Transpose", ["across"], ["down"], perm=[0, 2, 1]),
    ]
    made = experts(bias=False, nodes=nodes)
    assert made.graph is not None
    arrays = {"halves": halves, "across": held["down"].transpose(0, 2, 1).copy()}
    arrays |= {"four": np.array([0, 2, -1, 64]), "three": np.array([0, 128, 64])}
    made.graph.initializer = [ps.numpy_helper.from_array(item, name) for name, item in arrays.items()]
    cut(made.graph)
    return made, plain


def test_weights_that_nodes_lay_out() -> None:
    """The nodes go, the codes are those of the plain weights, and names are those of the weights."""
    made, plain = (quantize(item, "int4", target="onnxruntime") for item in laid_out())
    assert operators(made) == operators(plain) == ["Softmax", "QMoE"]
    assert made.graph is not None and plain.graph is not None
    assert [item.name for item in made.graph.initializer][:2] == ["halves_quantized", "halves_scale"]
    found = [bytes(item.raw_data or b"") for item in made.graph.initializer]
    assert found == [bytes(item.raw_data or b"") for item in plain.graph.initializer]


def _also_read(graph: ps.GraphProto) -> None:
    graph.node.append(helper.make_node("Neg", ["b"], ["z"]))


def _unknown(graph: ps.GraphProto) -> None:
    graph.node[1] = helper.make_node("Relu", ["a"], ["b"])


def _other_size(graph: ps.GraphProto) -> None:
    graph.initializer[2] = ps.numpy_helper.from_array(np.array([4, 3, -1, 64]), "four")


def _source_read(graph: ps.GraphProto) -> None:
    graph.node.append(helper.make_node("Neg", ["halves"], ["z"]))


@pytest.mark.parametrize("cut", [_also_read, _unknown, _other_size, _source_read])
def test_nodes_that_stay(cut: Callable[[ps.GraphProto], None]) -> None:
    source, _ = laid_out(cut)
    assert operators(arranged(source, Scheme()))[0] == "Reshape"
    assert operators(quantize(source, "int4", target="onnxruntime")).count("MoE") == 1


# (the shape of the whole, how many parts it has, the order of axes, whether it is written without a temporary file)
ORDERS = [
    ((4, 2, 6, 8), 8, (0, 2, 1, 3), True),
    ((4, 2, 6, 8), 4, (0, 2, 1, 3), False),
    ((2, 6, 8), 2, (1, 0, 2), True),
    ((2, 6, 8), 3, (1, 0, 2), False),
    ((4, 6, 8), 2, (0, 2, 1), False),
    ((4, 6, 8), 4, (1, 0, 2), True),
]


@pytest.mark.parametrize(("shape", "count", "axes", "in_turns"), ORDERS)
def test_parts_in_another_order(shape: tuple[int, ...], count: int, axes: tuple[int, ...], in_turns: bool) -> None:
    whole = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape)
    parts = np.split(whole.reshape(-1), count)
    joined = JoinedPayload([LazyPayload(part.nbytes, part.tobytes) for part in parts])
    found = permuted(joined, 2, shape, axes)
    assert found.tobytes() == whole.transpose(axes).tobytes() and found.nbytes == whole.nbytes
    kinds = {type(item) for item in (found.parts if isinstance(found, JoinedPayload) else (found,))}
    assert kinds == {TurnsPayload if in_turns else TransposedPayload}


def test_rows_in_turns_are_held_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proto_schema.derived.joined._HELD", 64)
    parts = [np.arange(300, dtype=np.uint8) + 1 * place for place in range(3)]
    found = TurnsPayload([MemoryPayload(part) for part in parts], 10)
    wanted = np.stack([part.reshape(-1, 10) for part in parts], axis=1).tobytes()
    assert found.tobytes() == wanted and max(chunk.nbytes for chunk in found.chunks()) <= 3 * 64
