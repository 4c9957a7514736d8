"""Symbolic shapes of operators: each row says the sizes as text, and ONNX Runtime says whether these are right.

A row is an operator, its inputs and the shapes of its outputs.  An input is the text of its sizes (`"n c h"`, float32
unless a dtype goes before it: `"int64: n"`), or an array, which is a constant.  The expected sizes are evaluated for
several values of the symbols, and compared with the shapes that ONNX Runtime gives for data of these sizes.  It must
run at the two larger ones; at 0 and at 1 it may refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from proto_schema.shape_inference import infer_shapes
from proto_schema.sizes import Size, parse

# sizes of the n-th symbol of a row, in alphabetic order
LARGER = ((6, 5, 7, 4, 3), (9, 8, 11, 10, 12))
SMALL = ((1, 1, 1, 1, 1), (0, 0, 0, 0, 0), (2, 1, 0, 3, 1))


@dataclass
class Row:
    op: str
    inputs: list[Any]
    outputs: list[str]
    opset: int = 17
    only: dict[str, tuple[int, ...]] = field(default_factory=dict)  # sizes of symbols that the operator restricts
    domain: str = ""
    least: int = 0  # for smaller sizes ONNX Runtime ends the process, or rounds towards zero where no window fits
    attributes: dict[str, Any] = field(default_factory=dict)


def case(op: str, inputs: str | list[Any], outputs: str | list[str], *, opset: int = 17, **attributes: Any) -> Row:
    given = [inputs] if isinstance(inputs, str) else inputs
    made = [outputs] if isinstance(outputs, str) else outputs
    only = attributes.pop("only", {})
    domain = attributes.pop("domain", "")
    least = attributes.pop("least", 0)
    return Row(op, given, made, opset, only, domain, least, attributes)


def weight(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


LSTM = [weight(2, 16, 5), weight(2, 16, 4)]

ROWS = [
    # convolutions
    case("Conv", ["n 3 h w", weight(8, 3, 3, 5)], "n; 8; h - 2; w - 4"),
    case("Conv", ["n 3 h w", weight(8, 3, 3, 3)], "n; 8; (h - 1)//2 + 1; (w - 1)//2 + 1", strides=[2, 2], pads=[1] * 4),
    case("Conv", ["n 3 h", weight(8, 3, 3)], "n; 8; (h - 2)//3", dilations=[2], strides=[3]),
    case("Conv", ["n 3 h", weight(8, 3, 3)], "n; 8; (h + 1)//2", strides=[2], auto_pad="SAME_UPPER"),
    case("Conv", ["n 3 h", weight(8, 3, 3)], "n; 8; (h - 1)//2", strides=[2], auto_pad="VALID"),
    case("Conv", ["n c h", "m c 3"], "n; m; h - 2"),
    case("Conv", ["n 4 h", weight(6, 2, 1), "6"], "n; 6; h", group=2),
    case("ConvTranspose", ["n 3 h", weight(3, 4, 3)], "n; 4; 2*h + 1", strides=[2]),
    case("ConvTranspose", ["n 4 h", weight(4, 2, 3)], "n; 4; 2*h - 1", group=2, strides=[2], pads=[1, 1]),
    case("ConvTranspose", ["n 3 h", weight(3, 4, 3)], "n; 4; 2*h + 2", strides=[2], output_padding=[1]),
    case("ConvTranspose", ["n 3 h", weight(3, 4, 3)], "n; 4; 3*h", strides=[3], auto_pad="SAME_LOWER"),
    case("ConvTranspose", ["n 3 h", weight(3, 4, 1)], "n; 4; 3*h - 2", strides=[3], auto_pad="SAME_UPPER"),
    case("ConvTranspose", ["n 3 h", weight(3, 4, 3)], "n; 4; h + 4", dilations=[2]),
    # pools
    case("MaxPool", "n c h w", "n; c; h//2; w//3", kernel_shape=[2, 3], strides=[2, 3], least=3),
    case("MaxPool", "n c h", ["n; c; (h - 1)//2 + 1"] * 2, kernel_shape=[3], strides=[2], pads=[1, 1], least=1),
    case("MaxPool", "n c h", "n; c; h//2", kernel_shape=[3], strides=[2], ceil_mode=1),
    case("AveragePool", "n c h", "n; c; (h + 1)//2", kernel_shape=[2], strides=[2], ceil_mode=1),
    case("AveragePool", "n c h", "n; c; (h + 2)//3", kernel_shape=[2], strides=[3], ceil_mode=1, opset=22),
    case("AveragePool", "n c h", "n; c; (h + 3)//3", kernel_shape=[3], strides=[3], pads=[1, 1], ceil_mode=1, opset=22),
    case("LpPool", "n c h", "n; c; h - 3", kernel_shape=[4], p=2),
    case("GlobalAveragePool", "n c h w", "n; c; 1; 1"),
    case("MaxUnpool", ["n 1 h", "int64: n 1 h"], "n; 1; 2*h", kernel_shape=[2], strides=[2]),
    # normalizations and losses
    case("BatchNormalization", ["n 3 h", *[weight(3)] * 4], "n; 3; h"),
    case("InstanceNormalization", ["n 3 h", *[weight(3)] * 2], "n; 3; h"),
    case("LayerNormalization", ["n t 4", weight(4)], ["n; t; 4", "n; t; 1", "n; t; 1"]),
    case("LpNormalization", "n t", "n; t"),
    case("Dropout", "n t", ["n; t", "n; t"]),
    case("SoftmaxCrossEntropyLoss", ["n 4 h", "int64: n h"], ["n; h", "n; 4; h"], reduction="none"),
    case("NegativeLogLikelihoodLoss", ["n 4 h", "int64: n h"], "", reduction="mean"),
    # attention and recurrent layers
    case("Attention", ["b s 12", "b t 6", "b t 8"], ["b; s; 16"], opset=23, q_num_heads=4, kv_num_heads=2),
    case(
        "Attention",
        ["b 4 s 8", "b 4 s 8", "b 4 s 8", "", "b 4 p 8", "b 4 p 8"],
        ["b; 4; s; 8", "b; 4; p + s; 8", "b; 4; p + s; 8"],
        opset=23,
    ),
    case("RotaryEmbedding", ["b 2 s 8", "b s 4", "b s 4"], "b; 2; s; 8", opset=23),
    case(
        "LSTM",
        ["t n 5", *LSTM],
        ["t; 2; n; 4", "2; n; 4", "2; n; 4"],
        hidden_size=4,
        direction="bidirectional",
        least=1,
    ),
    case("GRU", ["t n 5", weight(1, 12, 5), weight(1, 12, 4)], ["t; 1; n; 4", "1; n; 4"], hidden_size=4, least=1),
    # quantization and spectra
    case("QuantizeLinear", ["n t", np.float32(0.5)], "n; t"),
    case("DynamicQuantizeLinear", "n t", ["n; t", "", ""]),
    case("DFT", ["n t 1"], "n; t//2 + 1; 2", onesided=1),
    case("DFT", ["n t 2", np.int64(9)], "n; 9; 2", inverse=1),
    case("STFT", ["n t 1", np.int64(2), "", np.int64(4)], "n; t//2 - 1; 3; 2"),
    # moving and making
    case("Reshape", ["n t 6", ints(0, -1, 3)], "n; 2*t; 3"),
    case("Reshape", ["n t 6", ints(-1, 4)], "(3*n*t)//2; 4", only={"n": (2, 4)}),
    case("Concat", ["n t", "n s"], "n; s + t", axis=1),
    case("Slice", ["n t", ints(1), ints(2**62), ints(1), ints(2)], "n; max(t, 1)//2"),
    case("Slice", ["n t", ints(-3), ints(2**62), ints(1)], "n; min(3, t)"),
    case("Pad", ["n t", ints(0, 1, 2, 3)], "n + 2; t + 4"),
    case("Tile", ["n t", ints(2, 3)], "2*n; 3*t"),
    case("Transpose", "n t 3", "3; n; t", perm=[2, 0, 1]),
    case("Split", ["n 7", ints(3, 4)], ["n; 3", "n; 4"], axis=1),
    case("SpaceToDepth", "n c h 6", "n; 4*c; h//2; 3", blocksize=2, only={"h": (2, 4)}),
    case("DepthToSpace", "n 8 h w", "n; 2; 2*h; 2*w", blocksize=2),
    case("Flatten", "n t 3", "n; 3*t"),
    case("Gather", ["n 5", "int64: i j"], "n; i; j", axis=1),
    case("Expand", ["n 1", ints(1, 4)], "n; 4"),
    case("MatMul", ["b n 4", "4 m"], "b; n; m"),
    case("Gemm", ["4 n", "m 4"], "n; m", transA=1, transB=1),
    case("Einsum", ["b i 4", "b 4 j"], "b; i; j", equation="bik,bkj->bij"),
    case("ReduceSum", ["n t 3", ints(1)], "n; 1; 3"),
    case("ReduceMax", "n t 3", "n; 3", axes=[1], keepdims=0),
    case("Resize", ["n 1 h w", "", np.array([1, 1, 2, 2], np.float32)], "n; 1; 2*h; 2*w", mode="nearest"),
    case("OneHot", ["int64: n", np.int64(5), weight(2)], "n; 5"),
    case("TopK", ["n 9", ints(3)], ["n; 3", "n; 3"]),
    case("Add", ["n 1 t", "s 1"], "n; s; t"),
    # ai.onnx.ml
    case("OneHotEncoder", "n t", "n; t; 3", cats_int64s=[0, 1, 2], zeros=1, domain="ai.onnx.ml"),
    case("LinearRegressor", "n 4", "n; 2", coefficients=[1.0] * 8, targets=2, domain="ai.onnx.ml"),
]  # fmt: skip


def sizes_of(text: str) -> list[int | Size]:
    return [parse(item) for item in text.split()]


def model_of(row: Row) -> onnx.ModelProto:
    given, constants, names = [], [], []
    for place, item in enumerate(row.inputs):
        name = f"x{place}" if not isinstance(item, str) or item else ""
        names.append(name)
        if isinstance(item, str) and item:
            dtype, _, text = item.rpartition(": ")
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or "float32"))
            given.append(
                helper.make_tensor_value_info(
                    name, kind, [str(s) if isinstance(s, Size) else s for s in sizes_of(text)]
                )
            )
        elif name:
            constants.append(onnx.numpy_helper.from_array(np.asarray(item), name))
    outputs = [f"y{place}" for place in range(len(row.outputs))]
    node = helper.make_node(row.op, names, outputs, domain=row.domain, **row.attributes)
    infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "g", given, infos, constants)
    opsets = [helper.make_opsetid("", row.opset), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    for output in model.graph.output:
        output.ClearField("type")
    return model


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.op}-{row.outputs[0]}")
def test_row(row: Row) -> None:
    model = model_of(row)
    made = infer_shapes(model.SerializeToString(), strict_mode=True, check_type=True)
    found = []
    for output in made.graph.output:
        assert (
            output.type is not None
            and output.type.tensor_type is not None
            and output.type.tensor_type.shape is not None
        )
        dims = output.type.tensor_type.shape.dim
        found.append([dim.dim_value if dim.dim_value is not None else parse(dim.dim_param or "") for dim in dims])
    expected = [[parse(size) for size in text.split(";")] if text else [] for text in row.outputs]
    assert found == expected

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    texts = [item for item in row.inputs if isinstance(item, str)]
    symbols = sorted(
        {s for t in texts for d in sizes_of(t.rpartition(": ")[2]) if isinstance(d, Size) for s in d.symbols}
    )
    for place, numbers in enumerate((*LARGER, *SMALL)):
        values = dict(zip(symbols, numbers, strict=False))
        values.update({name: some[place % len(some)] for name, some in row.only.items()})
        if min(values.values()) < row.least:
            continue
        feed = {item.name: data_of(item, values) for item in session.get_inputs()}
        try:
            results = session.run(None, feed)
        except Exception:
            assert place >= len(LARGER), f"at {values}"
            continue
        for sizes, result in zip(expected, results, strict=True):
            assert tuple([s.at(values) if isinstance(s, Size) else s for s in sizes]) == result.shape, f"at {values}"


def data_of(item: Any, values: dict[str, int]) -> np.ndarray[Any, Any]:
    shape = [size if isinstance(size, int) else values[size] for size in item.shape]
    return np.zeros(shape, np.int64 if "int64" in item.type else np.float32)
