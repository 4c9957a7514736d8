"""Rows of operators of networks, images and ai.onnx.ml that no case of the package and no random node has.

Old opsets that ONNX Runtime does not run, empty tensors, small data types, and what is refused.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import proto_schema as ps
from proto_schema.reference import ReferenceEvaluator
from tests.compute.random_nodes import SUMS
from tests.compute.runtime import Node, array, compare, found, model
from tests.tolerances import USUAL, Bounds, assert_near


def f32(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


ML = "ai.onnx.ml"
F8 = ml_dtypes.float8_e4m3fn
IMAGE, DATA = f32(1, 4, 6, 5), f32(2, 3, 4)
TRAINED = [f32(3), f32(3), f32(3), np.abs(f32(3)) + np.float32(1)]


def batch(data: Any, scale: Any, bias: Any, mean: Any, variance: Any, *axes: int) -> Any:
    """What BatchNormalization computes, along axis 1 or for each element."""
    form = [
        item.reshape(*(1,) * (data.ndim - 2 - item.ndim + 1), *item.shape, *axes)
        for item in (scale, bias, mean, variance)
    ]
    return (data - form[2]) / np.sqrt(form[3] + np.float32(1e-5)) * form[0] + form[1]


WHOLE = [np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)]

# operator, inputs, attributes, opset, expected outputs: opsets, types and sizes that ONNX Runtime does not run
OLD = [
    (
        "BatchNormalization",
        [DATA, *TRAINED],
        {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]},
        1,
        [batch(DATA, *TRAINED, 1)],
    ),
    ("BatchNormalization", [DATA, *TRAINED], {"is_test": 1}, 6, [batch(DATA, *TRAINED, 1)]),
    (
        "BatchNormalization",
        [DATA, f32(3, 4), f32(3, 4) + 1, f32(3, 4) * 2, np.abs(f32(3, 4)) + 1],
        {"spatial": 0},
        7,
        [batch(DATA, f32(3, 4), f32(3, 4) + 1, f32(3, 4) * 2, np.abs(f32(3, 4)) + 1)],
    ),
    (
        "BatchNormalization",
        [DATA, *TRAINED],
        {},
        6,
        [
            batch(DATA, TRAINED[0], TRAINED[1], DATA.mean((0, 2)), DATA.var((0, 2)), 1),
            TRAINED[2] * np.float32(0.9) + DATA.mean((0, 2)) * np.float32(0.1),
            TRAINED[3] * np.float32(0.9) + DATA.var((0, 2)) * np.float32(0.1),
            DATA.mean((0, 2)),
            DATA.var((0, 2)),
        ],
    ),
    ("Upsample", [IMAGE], {"height_scale": 2.0, "width_scale": 3.0}, 1, [IMAGE.repeat(2, 2).repeat(3, 3)]),
    (
        "InstanceNormalization",
        [DATA, f32(3) * 0 + 1, f32(3) * 0],
        {"consumed_inputs": [0]},
        1,
        [(DATA - DATA.mean(2, keepdims=True)) / np.sqrt(DATA.var(2, keepdims=True) + np.float32(1e-5))],
    ),
    ("LpPool", [DATA], {"kernel_shape": [4], "p": 2.0}, 1, [np.sqrt(np.square(DATA).sum(2, keepdims=True))]),
    ("GlobalLpPool", [DATA], {"p": 1.0}, 1, [np.abs(DATA).sum(2, keepdims=True)]),
    ("Gemm", [f32(2, 3), f32(3, 4), f32(4)], {"broadcast": 1}, 1, [f32(2, 3) @ f32(3, 4) + f32(4)]),
    (
        "GRU",
        [f32(1, 1, 2), f32(1, 3, 2) * 0, f32(1, 3, 1) * 0],
        {"hidden_size": 1, "output_sequence": 1},
        1,
        [np.zeros((1, 1, 1, 1), np.float32)],
    ),
    ("Attention", [f32(1, 2, 0, 4), f32(1, 2, 3, 4), f32(1, 2, 3, 4)], {}, 23, [f32(1, 2, 0, 4)]),
    (
        "QLinearMatMul",
        [
            *(np.array([[1, 2.5]], F8), np.float32(1), np.zeros((), F8)),
            *(np.array([[0.5], [0.25]], F8), np.float32(1), np.zeros((), F8)),
            *(np.float32(0.5), np.zeros((), F8)),
        ],
        {},
        21,
        [np.array([[2.25]])],
    ),
    ("Gemm", WHOLE, {}, 13, [WHOLE[0] @ WHOLE[1]]),
]


@pytest.mark.parametrize("row", OLD, ids=[f"{row[0]}-{row[3]}-{place}" for place, row in enumerate(OLD)])
def test_by_the_specification(row: Any) -> None:
    name, inputs, attributes, opset, expected = row
    results = found(Node(name, inputs, attributes, opset, len(expected)))
    for mine, wanted in zip(results, expected, strict=True):
        assert_near(mine, np.asarray(wanted, np.float32 if np.asarray(wanted).dtype.kind == "f" else None))


def rnn(**attributes: Any) -> Node:
    """One direction of three units over three steps."""
    data = [f32(3, 2, 2), f32(1, 3, 2) / 4, f32(1, 3, 3) / 4]
    return Node("RNN", data, {"hidden_size": 3, **attributes}, 14, 2, id=attributes["activations"][0])


# nodes that ONNX Runtime computes, too
EXACT = [
    rnn(activations=["ThresholdedRelu"], activation_alpha=[0.125]),
    rnn(activations=["Softplus"]),
    rnn(activations=["Sigmoid"], clip=0.25),
    Node("LayerNormalization", [f32(0, 4), f32(4)], {}, 17, id="no rows"),
    Node("LayerNormalization", [f32(2, 3, 4), f32(1, 3, 4), f32(3, 1)], {"axis": -2}, 17, id="a scale of more axes"),
    Node("InstanceNormalization", [f32(1, 12, 64, 64), f32(12), f32(12)], {}, 22, bounds=SUMS, id="in blocks"),
    Node(
        "GroupNormalization", [f32(1, 12, 64, 64), f32(12), f32(12)], {"num_groups": 6}, 21, bounds=SUMS, id="in blocks"
    ),
    Node("LayerNormalization", [f32(99, 999), f32(999), f32(999)], {}, 17, bounds=SUMS, id="in blocks"),
    Node("InstanceNormalization", [f32(0, 4, 6), f32(4), f32(4)], {}, 22, id="no images"),
    Node("Conv", [f32(0, 4, 6, 5), f32(2, 4, 3, 3)], {}, 11, id="no images"),
    Node(
        "Conv",
        [IMAGE, f32(8, 1, 3, 2)],
        {"group": 4, "strides": [2, 3], "dilations": [2, 1], "pads": [1, 0, 2, 1]},
        11,
        id="two filters a channel",
    ),
    Node("Conv", [f32(2, 4, 3), f32(6, 2, 1)], {"group": 2, "strides": [2]}, 11, id="one element, in groups"),
    Node(
        "Conv",
        [f32(1, 2, 70, 300), f32(40, 2, 7, 7)],
        {"pads": [3, 3, 3, 3]},
        11,
        bounds=Bounds(times=4, loose="98 products, added in another order"),
        id="in tiles",
    ),
    Node(
        "ConvTranspose",
        [f32(1, 40, 40, 40), f32(40, 30, 3, 3)],
        {"strides": [2, 2]},
        11,
        bounds=Bounds(times=4, loose="40 products, added in another order"),
        id="in parts",
    ),
    Node(
        "MaxPool",
        [np.arange(-9, 9, dtype=np.int8).reshape(1, 1, 18)],
        {"kernel_shape": [3], "pads": [1, 1]},
        12,
        id="int8",
    ),
    Node(
        "Resize",
        [IMAGE, None, np.array([1, 1, 0.3, 0.3], np.float32)],
        {"mode": "linear", "antialias": 1},
        18,
        id="many neighbours",
    ),
    Node(
        "Resize",
        [np.arange(24, dtype=np.uint8).reshape(1, 1, 4, 6), None, np.array([1, 1, 2, 2], np.float32)],
        {"mode": "nearest"},
        13,
        id="uint8",
    ),
    Node("NonMaxSuppression", [f32(1, 0, 4), f32(1, 2, 0), np.array([3])], {}, 11, id="no boxes"),
    Node("MatMul", [f32(2, 3).astype(np.float64), f32(3, 4).astype(np.float64)], {}, 13, id="double"),
    Node(
        "MaxRoiPool",
        [IMAGE, np.array([[0, -0.5, -1.5, 3.5, 2.5]], np.float32)],
        {"pooled_shape": [2, 2]},
        7,
        id="halves below 0",
    ),
    Node("StringNormalizer", [array(["a", "A"])], {"stopwords": ["a"], "locale": "C"}, 10, id="nothing left"),
    Node(
        "MatMulInteger", [np.full((2, 999), 255, np.uint8), np.full((999, 3), 253, np.uint8)], {}, 10, id="large sums"
    ),
    Node(
        "ConvInteger",
        [np.full((1, 999, 2), 255, np.uint8), np.full((2, 999, 1), 253, np.uint8)],
        {},
        10,
        id="large sums",
    ),
    Node("CastMap", [{1: 0.5, 0: 2.0}], {"cast_to": "TO_FLOAT"}, 1, domain=ML, id="dense"),
    Node(
        "CastMap",
        [{1: 7.5, 3: 2.0}],
        {"cast_to": "TO_FLOAT", "map_form": "SPARSE", "max_map": 5},
        1,
        domain=ML,
        id="sparse",
    ),
    Node("CastMap", [{1: 0.5, 0: 2.0}], {"cast_to": "TO_STRING"}, 1, domain=ML, id="text"),
    Node("DictVectorizer", [{"b": 0.5, "a": 2.0}], {"string_vocabulary": ["a", "z", "b"]}, 1, domain=ML, id="text"),
    Node("DictVectorizer", [{1: 0.5, 7: 2.0}], {"int64_vocabulary": [7, 9, 1]}, 1, domain=ML, id="numbers"),
    Node("QuantizeLinear", [f32(4) * 900, np.float32(0.5)], {}, 13, id="saturated"),
]


@pytest.mark.parametrize("node", EXACT, ids=lambda node: f"{node.op_type}-{node.id}")
def test_as_in_onnx_runtime(node: Node) -> None:
    compare(node)


def test_statistics_have_the_type_of_the_stash() -> None:
    """Mean and deviation of LayerNormalization of doubles are float32, unless `stash_type` says double."""
    double, inputs = np.float64, [DATA.astype(np.float64), f32(4).astype(np.float64)]
    for attributes, dtype in (({}, np.float32), ({"stash_type": 11}, double)):
        results = found(Node("LayerNormalization", inputs, attributes, 17, 3))
        assert [item.dtype for item in results] == [double, dtype, dtype]


SEQUENCE, INDEX = f32(3, 2, 2), np.array([0, 2])
FOREST: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LT", "LEAF", "LEAF"],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
VOTES = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 1], "weights": [0.25, 0.75]}

# operator, inputs, attributes, domain, opsets: each gives what the last of them gives
SAME: list[tuple[str, list[Any], dict[str, Any], str, list[int]]] = [
    ("DeformConv", [IMAGE, f32(2, 4, 2, 2), f32(1, 8, 5, 4)], {}, "", [19, 22]),
    (
        "DequantizeLinear",
        [np.array([[1, 2, 250]], np.uint8), f32(3), np.array([1, 2, 3], np.uint8)],
        {},
        "",
        [13, 19, 21, 23, 24, 25, 28],
    ),
    (
        "QuantizeLinear",
        [f32(2, 3), np.abs(f32(3)), np.array([1, 2, 3], np.uint8)],
        {},
        "",
        [13, 19, 21, 23, 24, 25, 28],
    ),
    ("RNN", [SEQUENCE, f32(1, 3, 2), f32(1, 3, 3)], {"hidden_size": 3}, "", [1, 7, 14, 22]),
    ("GRU", [SEQUENCE, f32(1, 9, 2), f32(1, 9, 3)], {"hidden_size": 3}, "", [1, 3, 7, 14, 22]),
    ("LSTM", [SEQUENCE, f32(1, 12, 2), f32(1, 12, 3)], {"hidden_size": 3}, "", [1, 7, 14, 22]),
    ("Gemm", [f32(2, 3), f32(3, 4), f32(2, 4)], {"alpha": 0.5}, "", [1, 6, 7, 9, 11, 13]),
    ("MatMul", [f32(2, 3), f32(3, 4)], {}, "", [1, 9, 13]),
    ("MaxRoiPool", [IMAGE, np.array([[0, 1, 0, 3, 5]], np.float32)], {"pooled_shape": [2, 2]}, "", [1, 22]),
    ("NegativeLogLikelihoodLoss", [f32(2, 3), INDEX], {}, "", [12, 13, 22]),
    ("SoftmaxCrossEntropyLoss", [f32(2, 3), INDEX], {}, "", [12, 13]),
    ("Upsample", [IMAGE, np.array([1, 1, 2, 3], np.float32)], {}, "", [9, 10]),
    (
        "TreeEnsembleRegressor",
        [f32(4, 2)],
        FOREST | {"n_targets": 2} | {f"target_{name}": item for name, item in VOTES.items()},
        ML,
        [1, 3, 5],
    ),
    (
        "TreeEnsembleClassifier",
        [f32(4, 2)],
        FOREST | {"classlabels_int64s": [4, 5]} | {f"class_{name}": item for name, item in VOTES.items()},
        ML,
        [1, 3, 5],
    ),
]


@pytest.mark.parametrize("row", SAME, ids=[row[0] for row in SAME])
def test_opsets_that_compute_the_same(row: Any) -> None:
    name, inputs, attributes, domain, opsets = row
    *older, newest = [found(Node(name, inputs, attributes, opset, domain=domain))[0] for opset in opsets]
    assert newest.size
    for mine in older:
        np.testing.assert_array_equal(mine, newest)


SMALL = [
    *[getattr(ml_dtypes, name) for name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")],
    *[getattr(ml_dtypes, f"float8_{name}") for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")],
    *[getattr(ml_dtypes, f"float6_{name}") for name in ("e2m3fn", "e3m2fn")],
]


@pytest.mark.parametrize("dtype", SMALL, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("saturate", [0, 1])
def test_quantized_to_small_types(dtype: Any, saturate: int) -> None:
    """As ml_dtypes casts, which rounds as the specification does; saturated where that is asked for."""
    data = np.concatenate([np.linspace(-600, 600, 301), [0.1, -0.3, 1e-3, 448, 464, 465, 57344, 61440, 1e9]])
    data = data.astype(np.float32)
    zero, scale = np.zeros((), dtype), np.float32(1)
    (mine,) = found(Node("QuantizeLinear", [data, scale, zero], {"saturate": saturate} if saturate == 0 else {}, 28))
    info = ml_dtypes.finfo(dtype) if "float" in dtype.__name__ else ml_dtypes.iinfo(dtype)
    whole = "float" not in dtype.__name__
    clipped = np.clip(np.rint(data) if whole else data, float(info.min), float(info.max))
    expected = (clipped if saturate or whole or dtype.__name__[5] in "64" else data).astype(dtype).astype(mine.dtype)
    np.testing.assert_array_equal(mine, expected)
    (back,) = found(Node("DequantizeLinear", [expected.astype(dtype), np.float32(0.5)], {}, 28))
    np.testing.assert_array_equal(back, expected.astype(np.float32) / 2)


HALVES = [
    Node("Conv", [IMAGE, f32(2, 4, 3, 3)], {}, 22),
    Node("MatMul", [f32(3, 4), f32(4, 5)], {}, 13),
    Node("AveragePool", [IMAGE], {"kernel_shape": [2, 2]}, 22),
    Node("LayerNormalization", [DATA, f32(4)], {}, 17),
    Node("BatchNormalization", [DATA, *TRAINED], {}, 15),
    Node("Attention", [f32(1, 2, 3, 4), f32(1, 2, 5, 4), f32(1, 2, 5, 4)], {}, 23),
    Node("GRU", [f32(3, 2, 2), f32(1, 9, 2), f32(1, 9, 3)], {"hidden_size": 3}, 22),
    Node("Resize", [IMAGE, None, np.array([1, 1, 2, 2], np.float32)], {"mode": "cubic"}, 19),
]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("node", HALVES, ids=[node.op_type for node in HALVES])
def test_other_floats(node: Node, dtype: Any) -> None:
    """Half precision is computed in float32 and rounded once, double in double."""
    rounded = [
        item if item is None or (item.shape == (4,) and node.op_type == "Resize") else item.astype(dtype)
        for item in node.inputs
    ]
    (mine,) = found(Node(node.op_type, rounded, node.attributes, node.opset))
    single = [item if item is None else item.astype(np.float32) for item in rounded]
    (wanted,) = found(Node(node.op_type, single, node.attributes, node.opset))
    assert mine.dtype == (np.float32 if dtype is ml_dtypes.bfloat16 else dtype)
    if dtype is np.float64:
        assert_near(mine.astype(np.float32), wanted)
        assert np.abs(mine - wanted).max() > 0
    else:
        np.testing.assert_array_equal(mine.astype(np.float32), wanted.astype(dtype).astype(np.float32))


REFUSED = [
    ("Conv", [IMAGE, f32(2, 3, 3, 3)], {}, "data of 4 channels and a weight of shape (2, 3, 3, 3) do not fit group 1"),
    ("Conv", [IMAGE, f32(2, 4, 9, 9)], {}, "the window of 9 along spatial axis 0 does not fit into 6"),
    ("Conv", [IMAGE, f32(2, 4, 3, 3)], {"kernel_shape": [2, 2]}, "kernel_shape is [2, 2], and the weight's is [3, 3]"),
    ("Conv", [IMAGE, f32(2, 4, 3, 3)], {"strides": [0, 1]}, "strides are [0, 1], and must be above 0"),
    ("MaxPool", [IMAGE], {"kernel_shape": [2]}, "kernel_shape has 1 numbers, and the data has rank 4"),
    ("MatMul", [f32(2, 3), f32(4, 5)], {}, "shapes (2, 3) and (4, 5) have no product of matrices"),
    ("Einsum", [f32(2, 3)], {"equation": "ij,k->k"}, "equation 'ij,k->k'"),
    ("LayerNormalization", [DATA, f32(5)], {}, "a scale or bias of shape (5,) does not fit the axes from 2 on"),
    ("GroupNormalization", [DATA, f32(3), f32(3)], {"num_groups": 2}, "3 channels cannot be split into 2 groups"),
    (
        "LSTM",
        [f32(1, 1, 2), f32(1, 8, 2), f32(1, 8, 2)],
        {"hidden_size": 2, "activations": ["Sin"] * 3},
        "activation 'Sin' is not one of relu",
    ),
    ("QuantizeLinear", [DATA, f32(5)], {}, "a scale or zero point of 5 numbers does not fit 3 along 1"),
    ("Resize", [IMAGE, None, np.full(4, 2, np.float32)], {"mode": "square"}, "mode 'square' is not one"),
    ("Resize", [IMAGE], {}, "either scales or sizes must be given"),
    ("GridSample", [IMAGE, f32(1, 2, 2, 3)], {}, "a grid of shape (1, 2, 2, 3) does not fit"),
    ("DepthToSpace", [IMAGE], {"blocksize": 3}, "4 channels do not make blocks of 3 x 3"),
    ("DFT", [f32(2, 3, 3)], {}, "is neither one of real numbers (1) nor of complex ones (2)"),
    ("RegexFullMatch", [array(["a"])], {"pattern": "(?=a)b"}, "looks ahead or behind or refers to a group"),
    ("RegexFullMatch", [array(["a"])], {"pattern": r"\pN"}, r"cannot be used: bad escape \p"),
    ("ImageDecoder", [np.zeros(4, np.uint8)], {}, "needs the package Pillow; install it, or decode the image before"),
    ("Gradient", [f32(2)], {"xs": ["x0"], "y": "x0"}, "Gradient differentiates the graph around it"),
    (
        "Momentum",
        [np.float32(0.1), np.array(1), f32(2), f32(2)],
        {"mode": "standard", "alpha": 0.9, "beta": 1.0, "norm_coefficient": 0.0},
        "2 tensors are not 3 groups of as many each",
    ),
    ("LinearRegressor", [f32(2, 3)], {"coefficients": [1.0]}, "1 coefficients do not fit 1 x 3 features"),
    ("OneHotEncoder", [np.array([5])], {"cats_int64s": [1], "zeros": 0}, "an element is none of the categories"),
]
DOMAINS = {
    "Gradient": "ai.onnx.preview.training",
    "Momentum": "ai.onnx.preview.training",
    "LinearRegressor": ML,
    "OneHotEncoder": ML,
}


@pytest.mark.parametrize("row", REFUSED, ids=[f"{row[0]}-{place}" for place, row in enumerate(REFUSED)])
def test_what_contradicts_the_specification_is_refused(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name, inputs, attributes, words = row
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)  # as if it were not installed
    domain = DOMAINS.get(name, "")
    data, feed = model(Node(name, inputs, attributes, 1 if domain else 23, domain=domain))
    with pytest.raises(ps.reference.EvaluationError) as raised:
        ReferenceEvaluator(ps.loads(data)).run(None, feed)
    assert name in str(raised.value)
    assert words in str(raised.value)


def test_a_large_image_takes_no_large_columns() -> None:
    """The columns of a 3 x 3 kernel over 8 channels of 512 x 512 would take 75 MB; data and result take 16."""
    node = Node("Conv", [f32(1, 8, 512, 512), f32(8, 8, 3, 3)], {"pads": [1, 1, 1, 1]}, 11)
    data, feed = model(node)
    session = ReferenceEvaluator(ps.loads(data))
    tracemalloc.start()
    try:
        session.run(None, feed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_long_attention_takes_no_square_of_scores() -> None:
    """All scores of 8 heads over 2,048 places would take 134 MB."""
    tensors = [f32(1, 8, 2048, 8) for _ in range(3)]
    data, feed = model(Node("Attention", tensors, {"is_causal": 1}, 23))
    session = ReferenceEvaluator(ps.loads(data))
    tracemalloc.start()
    try:
        (result,) = session.run(None, feed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 128 << 20
    assert_near(result[0, 0, 0], tensors[2][0, 0, 0], USUAL)  # the first place sees itself only
