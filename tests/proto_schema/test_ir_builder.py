"""`ps.ir.Builder`: one call is one computation at every opset, and what an operator does not take is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import ir
from proto_schema.inference.types import Tensor
from proto_schema.reference import ReferenceEvaluator
from tests.proto_schema.graph_uses import uses_that_are_wrong

X = np.linspace(-3, 9, 2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
FILTER = np.linspace(-1, 1, 2 * 3 * 9).reshape(2, 3, 3, 3)


def begun(opset: int, ir_version: int = 0) -> tuple[ir.Model, ir.Builder, ir.Value]:
    model = ir.Model(ir.Graph("g", [ir.Value("x", Tensor(1, X.shape))]), {"": opset})
    model.message.ir_version = ir_version or ps.operators.ir_version_for(opset)
    return model, ir.Builder(model.graph, model.opsets), model.graph.inputs[0]


def ended(model: ir.Model, *values: ir.Value) -> ps.ModelProto:
    model.graph.outputs = values
    model.infer()
    assert not uses_that_are_wrong(model)
    made = model.to_message()
    ps.checker.check_model(made, full_check=True)
    return made


Call = Callable[[ir.Builder, ir.Value], Any]

# what is written, in the newest form, and the lowest opset that has it
CALLS: list[tuple[str, Call, int]] = [
    ("Conv", lambda b, x: b.Conv(x, FILTER, [0.5, 1], pads=[1, 1, 1, 1]), 6),
    ("Clip", lambda b, x: b.Clip(x, 0, 6), 6),
    ("Clip, one bound by name", lambda b, x: b.Clip(x, max=6.0), 6),
    ("ReduceSum", lambda b, x: b.ReduceSum(x, [-1, 1], keepdims=0), 6),
    ("ReduceMax", lambda b, x: b.ReduceMax(x, axes=np.array([2])), 6),
    ("ReduceMean of all", lambda b, x: b.ReduceMean(x), 6),
    ("Squeeze", lambda b, x: b.Squeeze(b.Unsqueeze(x, [0, -1]), [-1]), 6),
    ("Slice", lambda b, x: b.Slice(x, [1], [3], [-1]), 6),
    ("Slice, steps", lambda b, x: b.Slice(x, [0], [4], [2], [2]), 6),
    ("Slice, steps of 1", lambda b, x: b.Slice(x, [0], [4], [2], [1]), 6),
    ("Pad", lambda b, x: b.Pad(x, [0, 0, 1, 0, 0, 0, 0, 2], 1.5), 6),
    ("Dropout", lambda b, x: b.Dropout(x, 0.5, False), 6),
    ("TopK", lambda b, x: b.TopK(x, 2)[0], 6),
    ("Split", lambda b, x: b.Split(x, [1, 3], axis=-1)[1], 6),
    ("Split in equal parts", lambda b, x: b.Split(x, num_outputs=2, axis=2)[1], 6),
    ("Softmax", lambda b, x: b.Softmax(x), 6),
    ("Softmax, another axis", lambda b, x: b.Softmax(x, axis=1), 13),
    ("BatchNormalization", lambda b, x: b.BatchNormalization(x, *[np.ones(3)] * 3, input_var=[1, 2, 3]), 7),
    ("Resize", lambda b, x: b.Resize(x, scales=[1.0, 1, 2, 2], mode="nearest"), 11),
    ("Resize to sizes", lambda b, x: b.Resize(x, sizes=[2, 3, 8, 2], mode="nearest"), 11),
    ("Reshape", lambda b, x: b.Reshape(x, [0, -1]), 6),
    ("numbers", lambda b, x: b.Add(b.Mul(b.Pow(x, 2), 0.5), np.ones((3, 1, 1))), 7),
    ("Where", lambda b, x: b.Where(b.Greater(x, 1), x, -1), 9),
    ("Cast", lambda b, x: b.Cast(x, to=np.int32), 6),
    ("Gather", lambda b, x: b.Gather(x, [2, 0], axis=1), 6),
    ("Einsum", lambda b, x: b.Einsum(x, x, equation="abcd,abdc->ab"), 6),
    ("Gelu", lambda b, x: b.Gelu(x, approximate="tanh"), 7),
    ("Det in a loop", lambda b, x: b.Det(b.Add(b.Tile(x, [1, 1, 3, 3]), np.eye(12))), 9),
    ("Concat", lambda b, x: b.Concat(x, b.Neg(x), axis=-1), 6),
]


@pytest.mark.parametrize(("call", "lowest"), [row[1:] for row in CALLS], ids=[row[0] for row in CALLS])
def test_one_call_at_all_opsets(call: Call, lowest: int) -> None:
    wanted = None
    for opset in (23, 18, 13, 12, 11, 10, 9, 7, 6):
        model, b, x = begun(opset, 4 if opset < 9 else 0)
        if opset < lowest:
            with pytest.raises(ir.BuildError, match=r"opset|equal parts"):
                call(b, x)
            assert not [item for item in model.graph.initializers if not item.uses]
            continue
        made = ended(model, call(b, x))
        axes = [item for node in model.graph.nodes for item in node.attributes.get("axes", ())]
        assert opset >= 11 or all(axis >= 0 for axis in axes)  # older versions take no others
        (found,) = ReferenceEvaluator(made).run(None, {"x": X})
        wanted = found if wanted is None else wanted
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def _cast(b: ir.Builder, x: ir.Value, dtype: Any) -> ir.Value:
    made: ir.Value = b.Cast(x, to=dtype)
    return made


# what is written at opset 17, and what the error says
REFUSED: list[tuple[Call, str]] = [
    (lambda b, x: b.Convv(x), "ai.onnx has no operator 'Convv'; did you mean Conv?"),
    (lambda b, x: b.RotaryEmbedding(x, X, X), "RotaryEmbedding does not exist at opset 17, but from 23 on: convert"),
    (lambda b, x: b.Upsample(x, [1.0, 1, 2, 2]), "Upsample does not exist from opset 10 on; write it by other"),
    (lambda b, x: b.Conv(x, FILTER, pad=[1]), "Conv has no input or attribute 'pad'; did you mean 'pads'?"),
    (lambda b, x: b.Conv(x), "Conv takes the inputs X, W, and one of them is missing; give all of these"),
    (lambda b, x: b.Relu(x, x), r"Relu takes 1 inputs \(X\), and 2 are given"),
    (lambda b, x: b.Clip(x, 0, min=1), "Clip: input 'min' is given twice, by its place and by its name"),
    (lambda b, x: b.Cast(x), "Cast: the attribute 'to' is missing; give it as to="),
    (lambda b, x: b.Transpose(x, perm="ab"), r"Transpose: attribute 'perm' is \['ab'\], and takes INTS"),
    (lambda b, x: b.Sin(b.Shape(x)), r"Sin: input 'input' is tensor\(int64\), which it does not take; it takes .*cast"),
    (
        lambda b, x: b.Add(x, _cast(b, x, np.float64)),
        r"Add: input 'B' is tensor\(double\), and 'A' is tensor\(float\), which must be the same; cast one of them",
    ),
    (lambda b, x: b.Equal(*[_cast(b, x, str)] * 2), r"Equal: input 'A' is tensor\(string\), which it takes from .* 19"),
    (lambda b, x: b.Add(x, 1e300), r"Add: input 'B' 1e\+300 is too large for float, and 'A' is tensor\(float\)"),
    (lambda b, x: b.Add(b.Shape(x), 0.5), r"Add: input 'B' 0.5 is no int64, and 'A' is tensor\(int64\); give other"),
    (lambda b, x: b.Add(_cast(b, x, np.uint8), -1), "Add: input 'B' -1 is out of the range of uint8"),
    (lambda b, x: b.Relu(object()), "Relu: input 'X' is a object; give a Value, numbers or a numpy array"),
    (lambda b, x: b.MatMul(x, np.ones((3, 3))), r"MatMul: shapes .* its inputs are 'x' tensor\(float\)\[2, 3, 4, 4\]"),
    (lambda b, x: b.Split(x, axis=2), "Split: the number of parts is not known; say outputs="),
    (lambda b, x: b.op("Normalizer", x, domain="ai.onnx.ml"), "Normalizer: the graph imports no opset of ai.onnx.ml"),
    (lambda b, x: b.Softmax(x, b.constant("text", 1)), "the constant 'text' is no float; give another dtype="),
]


@pytest.mark.parametrize(("call", "error"), REFUSED, ids=[row[1][:40] for row in REFUSED])
def test_refused(call: Call, error: str) -> None:
    model, b, x = begun(17)
    with pytest.raises(ir.BuildError, match=error):
        call(b, x)
    assert all(value.uses or value.producer is not None for value in model.graph.initializers)


def test_no_method_and_no_opset() -> None:
    _, b, _ = begun(17)
    with pytest.raises(AttributeError, match="has no 'relu'; names of operators begin with a capital letter"):
        b.relu  # noqa: B018
    with pytest.raises(ValueError, match="the opset of the graph is not known; say opset="):
        ir.Builder(ir.Graph())


def test_other_domains_bodies_and_functions() -> None:
    model, b, x = begun(20)
    model.opsets["com.example"] = 1
    some = b.op("Mix", x, np.arange(3), domain="com.example", outputs=["a", None, "c"], k=2, w=np.ones(2), mode="fast")
    assert [value and value.name for value in some] == ["a", None, "c"]
    assert dict(some[0].producer.attributes)["mode"] == b"fast"
    yes, no = b.body("yes"), b.body("no")
    yes.graph.outputs = [yes.Mul(x, 2)]
    no.graph.outputs = [no.Neg(x)]
    y = b.If(b.Greater(b.ReduceSum(x, keepdims=0), 0), then_branch=yes.graph, else_branch=no.graph)
    assert y.sizes == X.shape
    (found,) = ReferenceEvaluator(ended(model, y)).run(None, {"x": X}) if not model.graph.nodes._first else (X * 2,)
    np.testing.assert_array_equal(found, X * 2)
    function = ir.Function("f", [ir.Value("v")])
    function.opsets = {"": 20}
    inner = ir.Builder(function)
    function.outputs = [inner.Add(function.inputs[0], 1.0)]
    assert [node.op_type for node in function.nodes] == ["Constant", "Add"]


def test_places() -> None:
    """Nodes come where they are asked for, and what a file says of a node goes on."""
    text = "g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }"
    model = ir.from_message(ps.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))
    relu, neg = model.graph.nodes
    assert neg.message is not None
    neg.message.doc_string = "said"
    b = ir.Builder(model.graph, model.opsets)
    first = b.after(None)
    one = first.Abs(first.Exp(model.graph.inputs[0]))
    two = b.instead_of(neg).Sub(relu.output, one)
    b.before(relu).Sin(model.graph.inputs[0])
    b.replace(neg, two)
    b.replace(relu, model.graph.inputs[0])
    assert [node.op_type for node in model.graph.nodes] == ["Exp", "Abs", "Sin", "Sub"]
    assert two.name == "y" and two.producer.message.doc_string == "said"
    b.replace(two.producer, model.graph.inputs[0])  # which cannot be called y
    assert [node.op_type for node in model.graph.nodes] == ["Exp", "Abs", "Sin", "Identity"]
    assert not uses_that_are_wrong(model)
    ps.checker.check_model(model.to_message(), full_check=True)
