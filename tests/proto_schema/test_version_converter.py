"""Conversion between opsets: what is written, what stays, what is refused and how; functions, graphs inside of nodes.

The numbers are compared on the cases of the official package (test_version_converter_cases) and on whole networks here.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import proto_schema as ps
from proto_schema import numpy_helper, operators
from proto_schema.conversion import rows, steps
from proto_schema.conversion.engine import Engine
from proto_schema.version_converter import ConversionError, convert_ir, convert_version, opset
from tests.proto_schema.conversion_cases import lowered, run_in_reference, run_in_runtime
from tests.proto_schema.graph_uses import uses_that_are_wrong


def model_of(text: str) -> ps.ModelProto:
    """A model of onnx's textual syntax."""
    return ps.ModelProto.FromString(onnx.parser.parse_model(text).SerializeToString())


def head(version: int, ir: int = 10) -> str:
    return f'<ir_version: {ir}, opset_import: ["" : {version}, "own" : 1]>'


def operators_of(model: ps.ModelProto) -> list[str]:
    assert model.graph is not None
    return [node.op_type or "" for node in model.graph.node]


def same_numbers(text: str, target: int, *feeds: np.ndarray[Any, Any]) -> ps.ModelProto:
    """The converted model, which must give the same numbers."""
    model = model_of(text)
    before = model.SerializeToString()
    made = convert_version(model, target)
    assert model.SerializeToString() == before, "the given model stays as it is"
    ps.checker.check_model(made)
    data = lowered(made).SerializeToString()
    onnx.checker.check_model(data, full_check=True)
    assert model.graph is not None and opset(made) == target
    feed = {item.name: value for item, value in zip(model.graph.input, feeds, strict=True)}
    source = opset(model)
    wanted, found = (
        (run_in_runtime(item, feed) if version <= 26 else None) or run_in_reference(item, feed)
        for item, version in ((lowered(model).SerializeToString(), source), (data, target))
    )
    assert wanted is not None and found is not None, "nothing runs it"
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return made


X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4)
IDS = np.array([0, -1, 2], np.int64)

# what it is: (model, opset to convert to, inputs)
WHOLE: dict[str, tuple[str, int, tuple[Any, ...]]] = {
    "a layer norm with dynamic sizes": (
        head(17) + "g (float[n, m, 4] x, float[4] s) => (float[n, m, 4] y) { y = LayerNormalization(x, s) }",
        9,
        (X, X[0, 0]),
    ),
    "a function whose calls are of two types": (
        head(20)
        + """g (float[n, 4] x) => (float[n, 4] y, double[n, 4] z)
        { y = own.act(x) d = Cast<to=11>(x) z = own.act(d) }
        <domain: "own", opset_import: ["" : 20]> act (a) => (b) {
        one = Constant<value_int=1>() c = CastLike(one, a) b = Add(a, c) }""",
        13,
        (X[0],),
    ),
    "a function with an attribute of the call": (
        head(18)
        + """g (float[2, 3, 4] x) => (float[2, 3, 1] y) { y = own.total<how=1>(x) }
        <domain: "own", opset_import: ["" : 18]> total <how> (a) => (b)
        { axes = Constant<value_ints=[-1]>() b = ReduceMean<keepdims: int = @how>(a, axes) }""",
        11,
        (X,),
    ),
    "a function that stays one": (
        head(18)
        + """g (float[2, 3] x) => (float[2, 3] y) { y = own.twice(x) }
        <domain: "own", opset_import: ["" : 18]> twice (a) => (b) { b = Add(a, a) }""",
        15,
        (X[:, :, 0],),
    ),
    "branches": (
        head(20)
        + """g (bool c, float[2, 3, 4] x) => (float[p, q, r] y) { y = If(c)
        <then_branch = t () => (float[2, 3, 4] u) { u = Gelu(x) },
        else_branch = e () => (float[1, 3, 4] v) { two = Constant<value_ints=[0]>() v = ReduceSum(x, two) }> }""",
        11,
        (np.array(False), X),
    ),
    "a loop": (
        head(21)
        + """g (int64 k, float[2, 3] x) => (float[2, 3] y) { t = Constant<value_int=1>() c = Cast<to=9>(t)
        y = Loop(k, c, x) <body = b (int64 i, bool go, float[2, 3] v) => (bool on, float[2, 3] w)
        { on = Identity(go) h = HardSwish(v) w = Softmax<axis=0>(h) }> }""",
        9,
        (np.array(3), X[:, :, 0]),
    ),
    "indices from the end": (
        head(13) + "g (float[5, 4] x, int64[3] i) => (float[3, 4] y) { y = Gather(x, i) }",
        9,
        (np.arange(20, dtype=np.float32).reshape(5, 4), IDS),
    ),
    "softmax over the middle": (
        head(13) + "g (float[n, 3, 4] x) => (float[n, 3, 4] y) { y = Softmax<axis=1>(x) }",
        11,
        (X,),
    ),
    "softmax over a matrix, upwards": (
        head(11) + "g (float[n, 3, 4] x) => (float[n, 3, 4] y) { y = Softmax(x) }",
        13,
        (X,),
    ),
    "old names, upwards": (
        head(9) + "g (float[1, 1, 3, 4] x) => (float[1, 1, 6, 8] y) <float[4] s = {1, 1, 2, 2}> "
        '{ y = Upsample<mode="linear">(x, s) }',
        18,
        (X[:1, None, :, :].reshape(1, 1, 3, 4),),
    ),
    "attributes that became inputs, upwards": (
        head(9) + "g (float[2, 3, 4] x) => (float[p, q] y) { a = Pad<pads=[0, 1, 0, 0, 0, 2], value=1.5>(x) "
        "b = Slice<starts=[0, 1], ends=[9, 4], axes=[0, 1]>(a) c = Clip<min=-1.0, max=1.0>(b) "
        "d = ReduceSum<axes=[0], keepdims=0>(c) y = Dropout(d) }",
        21,
        (X,),
    ),
    "integers that older operators do not take": (
        head(14) + "g (int8[4] x, int8[4] z) => (int8[4] y, bool[4] e) { a = Add(x, z) b = Relu(a) y = Max(b, z) "
        "e = GreaterOrEqual(a, z) }",
        9,
        (np.array([100, -100, 1, 2], np.int8), np.array([100, -100, -5, 3], np.int8)),
    ),
    "a determinant, whose largest elements are not on the diagonal": (
        head(17) + "g (float[n, 3, 3] x) => (float[n] y) { y = Det(x) }",
        9,
        (np.array([[[0, 2, 1], [3, 0, 1], [1, 1, 9]], [[1, 2, 3], [2, 4, 6], [0, 1, 5]], np.zeros((3, 3))], "f4"),),
    ),
    "integers in a body, below the opset of their constants": (
        head(21)
        + """g (float[2, 3] x) => (float[2, 3] y) { k = Constant<value_int=3>() t = Constant<value_int=1>()
        c = Cast<to=9>(t) y = Loop(k, c, x) <body = b (int64 i, bool go, float[2, 3] v) => (bool on, float[2, 3] w)
        { on = Identity(go) a = Constant<value_ints=[0]>() s = ReduceSum(v, a) w = Add(v, s) }> }""",
        8,
        (X[:, :, 0],),
    ),
    "half a spectrum": (
        head(17) + "g (float[2, 5, 2] x) => (float[2, 9, 1] y) <int64 n = {9}> "
        "{ y = DFT<axis=1, inverse=1, onesided=1>(x, n) }",
        13,
        (np.linspace(-1, 2, 20, dtype=np.float32).reshape(2, 5, 2),),
    ),
    "attention with a cache": (
        head(23)
        + "g (float[2, 2, 1, 4] q, float[2, 2, 1, 4] k, float[2, 2, p, 4] c, float[2, 2, p, 4] d) "
        "=> (float[2, 2, 1, 4] y, float[2, 2, r, 4] n, float[2, 2, r, 4] m) "
        "{ y, n, m = Attention<is_causal=1>(q, k, k, , c, d) }",
        13,
        (X.reshape(2, 1, 3, 4)[:, :, :1].repeat(2, 1), X[:, None, 1:2].repeat(2, 1), X[:, None].repeat(2, 1),
         X[:, None].repeat(2, 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_whole_models(name: str) -> None:
    text, target, feeds = WHOLE[name]
    same_numbers(text, target, *feeds)


def test_uses_are_true_afterwards() -> None:
    for text, target, _ in WHOLE.values():
        engine = Engine(model_of(text), target)
        engine.run()
        assert uses_that_are_wrong(engine.model) == []


def test_what_did_not_change_is_the_same_message() -> None:
    model = model_of(head(13) + "g (float[n] x) => (float[n] y) { h = Relu(x) y = Gelu2(h) }".replace("Gelu2", "Exp"))
    made = convert_version(model, 17)
    assert model.graph is not None and made.graph is not None
    assert all(one is other for one, other in zip(model.graph.node, made.graph.node, strict=True))


def test_names_stay() -> None:
    text = head(20) + 'g (float[n] x) => (float[n] y) { ["act"] y = Gelu(x) }'
    made = convert_version(model_of(text), 13)
    assert made.graph is not None
    names = [node.name or "" for node in made.graph.node]
    assert made.graph.node[-1].output == ["y"]
    assert len(set(names)) == len(names) and all(name.startswith("act/") for name in names)


def test_functions_stay_where_they_can() -> None:
    made = convert_version(model_of(WHOLE["a function that stays one"][0]), 15)
    assert operators_of(made) == ["twice"] and made.functions[0].opset_import[0].version == 15
    made = convert_version(model_of(WHOLE["a function whose calls are of two types"][0]), 13)
    assert not made.functions and "act" not in operators_of(made)


def test_constants_that_nobody_reads_go() -> None:
    text = head(13) + "g (float[1, 3] x) => (float[3] y) <int64[1] axes = {0}> { y = Squeeze(x, axes) }"
    made = convert_version(model_of(text), 11)
    assert made.graph is not None
    assert made.graph.initializer == [] and operators_of(made) == ["Squeeze"]


def test_the_ir_version_follows_upwards_and_stays_downwards() -> None:
    model = model_of(head(9, 4) + "g (float[n] x) => (float[n] y) { y = Relu(x) }")
    assert convert_version(model, 21).ir_version == operators.ir_version_for(21)
    model.ir_version = 12
    assert convert_version(model, 7).ir_version == 12


@pytest.mark.parametrize("target", [11, 9])
def test_a_mask_of_nothing_dropped(target: int) -> None:
    """All elements stay; the older operator does not say so, and kernels of it say the opposite."""
    text = head(15) + "g (float[2, 3] x) => (float[2, 3] y, bool[2, 3] m) { y, m = Dropout(x) }"
    made = convert_version(model_of(text), target)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for found in (run_in_runtime(ps.dumps(made), {"x": x}), ps.reference.ReferenceEvaluator(made).run(None, {"x": x})):
        assert found is not None
        np.testing.assert_array_equal(found[0], x)
        np.testing.assert_array_equal(found[1], np.ones((2, 3), bool))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_in_training_keeps_the_mean(training: bool) -> None:
    text = "g (float[100, 100] x, bool t) => (float[100, 100] y, bool[100, 100] m) <float r = {0.25}> "
    made = convert_version(model_of(head(20) + text + "{ y, m = Dropout<seed=3>(x, r, t) }"), 9)
    feed = {"x": np.ones((100, 100), np.float32), "t": np.array(training)}
    y, mask = ps.reference.ReferenceEvaluator(made).run(None, feed)
    np.testing.assert_allclose(y, np.where(mask, 1 / 0.75 if training else 1.0, 0.0), rtol=1e-6)
    assert 0.7 < mask.mean() < 0.8 if training else mask.all()


# Refusals -------------------------------------------------------------------------------------------------------------

# model, opset to convert to, what the error says, the opset that it names
REFUSED = [
    (
        'g (string[n] x) => (string[n] y) { ["join"] y = StringConcat(x, x) }',
        13,
        "node 'join' \\(StringConcat\\): the operator StringConcat does not exist before opset 20; "
        "opset 20 can express it",
        20,
    ),
    (
        "g (float[n, 3] x, int64[k] a) => (float[p] y) { y = ReduceMean<keepdims=0>(x, a) }",
        17,
        "its axes are computed when the model runs; opset 18 can express it",
        18,
    ),
    (
        "g (float[n, c, h, w] x, float[4] s) => (float[p, q, r, t] y) { y = Resize<antialias=1>(x, , s) }",
        17,
        "its sizes are not known, and antialias=1 is written out for known sizes only",
        18,
    ),
    ("g (float[n] x) => (float[n] y) { y = Add(x, w) }", 13, "not complete: .* 'y': nothing makes its input 'w'", 0),
    ("g (float[n] x) => (float[n] y) { z = Relu(x) }", 13, "not complete: .* nothing makes its output 'y'", 0),
    ("g (float[n] x) => (float[n] y) { y = Add(x) }", 13, "not complete: .*: its input 'B' is missing", 0),
    (
        "g (float[n] x) => (float[n] y) { y = DepthToSpace(x) }",
        13,
        "not complete: .*: its attribute 'blocksize' is missing",
        0,
    ),
    (
        'g (float[n] x) => (float[n] y) { y = Flatten<axis = "1">(x) }',
        13,
        "not complete: .*: attribute 'axis' is of another type than Flatten takes",
        0,
    ),
    ("g (bfloat16[n] x) => (bfloat16[n] y) { y = Relu(x) }", 12, r"opset 12 has no Relu of tensor\(bfloat16\)", 13),
    (
        "g (seq(float[n]) x, int64 i) => (float[n] y) { y = SequenceAt(x, i) }",
        9,
        "the operator SequenceAt does not exist before opset 11",
        11,
    ),
    (
        "g (float[n] x) => (float[n] y) { h = own.mystery(x) y = Relu(h) z = Nothing(x) }",
        13,
        "opset 20 has no operator 'Nothing'",
        0,
    ),
    (
        "g (bool c, string[n] x) => (string[n] y) { y = If(c) "
        "<then_branch = t () => (string[n] u) { u = StringConcat(x, x) }, "
        "else_branch = e () => (string[n] v) { v = Identity(x) }> }",
        13,
        "the StringConcat that makes",
        20,
    ),
]


@pytest.mark.parametrize(("text", "target", "message", "needs"), REFUSED)
def test_refusals(text: str, target: int, message: str, needs: int) -> None:
    with pytest.raises(ConversionError, match=message) as caught:
        convert_version(model_of(head(20) + text), target)
    assert caught.value.needs == needs
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, ValueError)


def test_a_value_that_is_made_twice_is_refused() -> None:
    model = model_of(head(20) + "g (float[n] x) => (float[n] y) { y = Relu(x) y = Exp(x) }")
    with pytest.raises(ConversionError, match=r"not valid: graph.node\[1\].output: 'y' is defined already"):
        convert_version(model, 13)


def test_two_versions_of_a_domain_are_refused() -> None:
    model = model_of(head(20) + "g (float[n] x) => (float[n] y) { y = Relu(x) }")
    model.opset_import.append(ps.OperatorSetIdProto(domain="ai.onnx", version=6))
    with pytest.raises(ConversionError, match=r"'ai[.]onnx' is imported at opset 20 and at opset 6: it is unknown"):
        convert_version(model, 13)


def test_all_refusals_are_in_one_error() -> None:
    text = head(20) + "g (string[n] x) => (string[n] y, bool[n] z) { y = StringConcat(x, x) "
    text += 'z = RegexFullMatch<pattern="a">(x) }'
    with pytest.raises(ConversionError, match="cannot convert 2 nodes to opset 13") as caught:
        convert_version(model_of(text), 13)
    assert [row.needs for row in caught.value.refusals] == [20, 20]


@pytest.mark.parametrize("target", [0, 6, 29])
def test_opsets_that_do_not_exist(target: int) -> None:
    model = model_of(head(13) + "g (float[n] x) => (float[n] y) { y = Relu(x) }")
    with pytest.raises(ConversionError, match="is not one of 7 to 28"):
        convert_version(model, target)


def test_a_function_that_calls_itself() -> None:
    text = head(20) + "g (float[n] x) => (float[n] y) { y = own.f(x) } "
    text += '<domain: "own", opset_import: ["" : 20, "own" : 1]> f (a) => (b) { c = ReduceMean(a) b = own.f(c) }'
    with pytest.raises(ConversionError, match=r"written out: .* must not be recursive: own::f -> own::f"):
        convert_ir(model_of(text.replace("20", "13")), 7)


def test_a_function_of_another_opset_is_not_written_out_in_that_of_the_model() -> None:
    text = head(13) + "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = own.f(x) } "
    text += '<domain: "own", opset_import: ["" : 12, "own" : 1]> f (a) => (b) { b = Softmax(a) }'
    model = model_of(text)
    with pytest.raises(ConversionError, match="own::f is written for opset 12"):
        convert_ir(model, 7)
    made = convert_ir(convert_version(model, 13), 7)
    assert not made.functions and made.graph is not None
    assert [node.op_type for node in made.graph.node][-3:] == ["Flatten", "Softmax", "Reshape"]


# IR versions ----------------------------------------------------------------------------------------------------------


def test_ir_versions() -> None:
    model = model_of(head(13, 10) + "g (float[1, 3] x) => (float[1, 3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }")
    made = convert_ir(convert_version(model, 7), 3)
    assert made.graph is not None and [item.name for item in made.graph.input] == ["x", "w"]
    onnx.checker.check_model(made.SerializeToString())
    with pytest.raises(ConversionError, match=r"opset 13 of ai\.onnx came with IR version 7"):
        convert_ir(model, 4)
    with pytest.raises(ConversionError, match="is not one of 3 to"):
        convert_ir(model, 2)
    first = ps.ModelProto(ir_version=2, graph=model.graph)  # the opset of such a file is the first
    assert [item.version for item in convert_ir(first, 3).opset_import] == [1]
    relu = model_of(head(13, 10) + "g (float[n] x) => (float[n] y) { y = Relu(x) }").graph
    made = convert_version(ps.ModelProto(ir_version=2, graph=relu), 13)
    assert [item.version for item in made.opset_import] == [13] and not first.opset_import
    function = model_of(WHOLE["a function that stays one"][0])
    made = convert_ir(convert_version(function, 13), 7)
    assert not made.functions and operators_of(made) == ["Add"]


def test_data_types_need_their_ir_version() -> None:
    model = model_of(head(13, 10) + "g (float[3] x) => (float[3] y) { y = Relu(x) }")
    assert model.graph is not None
    model.graph.initializer = [ps.helper.make_tensor("w", ps.TensorProto.FLOAT8E5M2, [1], [1.0])]
    with pytest.raises(ConversionError, match="initializer 'w' is FLOAT8E5M2, which came with IR version 9"):
        convert_ir(model, 8)


# The table ------------------------------------------------------------------------------------------------------------


def test_each_row_is_of_a_version() -> None:
    wrong = [key for key in rows.table() if key[2] not in operators.versions(key[1], key[0])]
    assert wrong == []


def test_changes_of_types_alone_need_no_row() -> None:
    assert steps.changes("", "Relu", 28, 7) == (14,)  # 13 added a type; 14 has a row for integers
    assert steps.changes("", "Tanh", 28, 7) == ()
    assert steps.changes("", "Squeeze", 28, 7) == (13, 11)
    assert steps.changes("", "Squeeze", 7, 28) == (13,)
    assert steps.changes("", "Gelu", 28, 19) == (20,)


def test_a_second_row_is_an_error() -> None:
    rows.table()
    with pytest.raises(ValueError, match="Squeeze has two rows from opset 13"):
        rows.down("Squeeze", version=13)(lambda node, op: None)


# Weights --------------------------------------------------------------------------------------------------------------


def test_weights_are_shared() -> None:
    model = model_of(head(20) + "g (float[n, 1000] x) => (float[n, 5000] y) { h = MatMul(x, w) y = Gelu(h) }")
    assert model.graph is not None
    weight = numpy_helper.from_array(np.ones((1000, 5000), np.float32), "w")
    model.graph.initializer = [weight]
    tracemalloc.start()
    made = convert_version(model, 9)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.graph is not None and made.graph.initializer[0] is weight
    assert peak < 4 << 20


def test_external_weights_stay_in_their_file(tmp_path: Path) -> None:
    model = model_of(head(20) + "g (float[n, 8] x) => (float[n, 8] y) { h = MatMul(x, w) y = Gelu(h) }")
    assert model.graph is not None
    model.graph.initializer = [numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")]
    ps.save(model, tmp_path / "m.onnx", external_data=True, size_threshold=0)
    before = {path.name for path in tmp_path.iterdir()}
    made = convert_version(tmp_path / "m.onnx", 13)
    ps.version_converter.save_converted(made, tmp_path / "m.onnx", tmp_path / "o.onnx")
    assert {path.name for path in tmp_path.iterdir()} == before | {"o.onnx"}
    assert opset(ps.load(tmp_path / "o.onnx")) == 13
    ps.checker.check_model(tmp_path / "o.onnx")


# The first opsets, which are converted from ---------------------------------------------------------------------------

# nodes of opset 6 or before, what they become at opset 13
OLD = [
    ("Add", 6, {"broadcast": 1, "axis": 1}, [(2, 3, 4), (3,)], ["Constant", "Unsqueeze", "Add"]),
    ("Mul", 6, {"broadcast": 1}, [(2, 3), (3,)], ["Mul"]),
    ("Relu", 1, {"consumed_inputs": [0]}, [(2, 3)], ["Relu"]),
    ("Reshape", 4, {"shape": [3, 2]}, [(2, 3)], ["Constant", "Reshape"]),
]


@pytest.mark.parametrize(("name", "version", "attributes", "shapes", "wanted"), OLD)
def test_the_first_opsets(
    name: str, version: int, attributes: dict[str, Any], shapes: list[tuple[int, ...]], wanted: list[str]
) -> None:
    names = [f"x{place}" for place in range(len(shapes))]
    inputs = [ps.helper.make_tensor_value_info(key, 1, shape) for key, shape in zip(names, shapes, strict=True)]
    node = ps.helper.make_node(name, names, ["y"], **attributes)
    graph = ps.helper.make_graph([node], "g", inputs, [ps.helper.make_tensor_value_info("y", 1, None)])
    model = ps.helper.make_model(graph, opset_imports=[ps.helper.make_opsetid("", version)])
    made = convert_version(model, 13)
    assert sorted(operators_of(made)) == sorted(wanted)
    values = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes]
    found = run_in_runtime(lowered(made).SerializeToString(), dict(zip(names, values, strict=True)))
    assert found is not None
    if name == "Add":
        np.testing.assert_array_equal(found[0], values[0] + values[1][:, None])
    if name == "Reshape":
        assert found[0].shape == (3, 2)


@pytest.mark.parametrize("opset", [9, 13])
def test_a_computed_shape_with_allowzero(opset: int) -> None:
    """A size of 0 stays one, where without `allowzero` it would be a size of the input."""
    inputs = [
        ps.helper.make_tensor_value_info("x", 1, ["n", "m"]),
        ps.helper.make_tensor_value_info("shape", ps.TensorProto.INT64, [3]),
    ]
    node = ps.helper.make_node("Reshape", ["x", "shape"], ["y"], allowzero=1)
    graph = ps.helper.make_graph([node], "g", inputs, [ps.helper.make_tensor_value_info("y", 1, [None] * 3)])
    made = convert_version(ps.helper.make_model(graph, opset_imports=[ps.helper.make_opsetid("", 20)]), opset)
    for old, new in (((2, 3), (3, 1, 2)), ((0, 3), (5, 0, 2)), ((4, 0), (0, 7, 1)), ((0, 0), (3, 3, 0))):
        x = np.arange(np.prod(old), dtype=np.float32).reshape(old)
        found = run_in_runtime(lowered(made).SerializeToString(), {"x": x, "shape": np.array(new, np.int64)})
        assert found is not None
        np.testing.assert_array_equal(found[0], x.reshape(new))
