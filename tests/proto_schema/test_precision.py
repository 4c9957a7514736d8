"""float16, bfloat16 and mixed precision: what changes and what stays, the casts, the numbers, and planted faults."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.precision import converted, engine, rewriting
from proto_schema.reference import ReferenceEvaluator

ort.set_default_logger_severity(4)
HALF, BFLOAT = ps.TensorProto.FLOAT16, ps.TensorProto.BFLOAT16
HEAD = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft": 1]>\n'
X = "g (float[n, 4] x) => (float[n, 4] y) "

# name: the graph, options, the nodes of the result, and words of the reasons of what stays
ROWS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "cast at the borders": (X + "{ a = Relu(x) y = Exp(a) }", {}, "Cast Relu Exp Cast", ""),
    "no cast": (X + "{ a = Relu(x) y = Exp(a) }", {"io": "convert"}, "Relu Exp", ""),
    "cast once for all readers": (X + "{ a = Relu(x) b = Exp(x) y = Add(a, b) }", {}, "Cast Relu Exp Add Cast", ""),
    "an operator that is kept": (
        X + "{ a = Relu(x) s = Softmax(a) y = Exp(s) }",
        {"keep": "Softmax,LayerNormalization"},
        "Cast Relu Cast Softmax Cast Exp Cast",
        "named by keep",
    ),
    "a chain that is kept has no casts inside": (
        X + "{ a = Relu(x) s = Softmax(a) t = Softmax(s) y = Exp(t) }",
        {"keep": ["Softmax"]},
        "Cast Relu Cast Softmax Softmax Cast Exp Cast",
        "named by keep",
    ),
    "moves between what stays": (
        X + "{ a = Softmax(x) t = Identity(a) y = Softmax(t) }",
        {"keep": ["Softmax"]},
        "Softmax Identity Softmax",
        "moves or compares",
    ),
    "a type that the operator lacks": (
        "g (float[n, 4] x) => (float[a] y) { c = Constant<value_float = 1.0>() e = ReduceMax<keepdims = 0>(x) "
        "r = Range(c, e, c) y = Relu(r) }",
        {},
        "Constant Cast ReduceMax Cast Range Cast Relu Cast",
        "takes no float16",
    ),
    "no kernel": (
        X + "{ c = Constant<value_int = 1>() a = CumSum(x, c) y = Relu(a) }",
        {},
        "Constant CumSum Cast Relu Cast",
        "no float16 kernel",
    ),
    "sizes in floats": (
        "g (float[n, 4] x) => (float[a, b] y) { s = Shape(x) f = Cast<to = 1>(s) h = Constant<value_float = 1.0>() "
        "m = Mul(f, h) i = Cast<to = 7>(m) r = Relu(x) y = Reshape(r, i) }",
        {},
        "Shape Cast Constant Mul Cast Cast Relu Reshape Cast",
        "sizes or positions",
    ),
    "angles of positions": (
        "g (int64[n] p, float[n] x) => (float[n] y) { f = Cast<to = 1>(p) s = Sin(f) y = Mul(s, x) }",
        {},
        "Cast Cast Sin Cast Mul Cast",
        "sizes or positions",
    ),
    "a mask of an integer is no position": (
        "g (int64[n] p, float[n] x) => (float[n] y) { f = Cast<to = 1>(p) y = Mul(f, x) }",
        {},
        "Cast Cast Mul Cast",
        "",
    ),
    "casts of the model": (
        X + "{ h = Cast<to = 10>(x) e = Exp(h) f = Cast<to = 1>(e) a = Relu(f) y = Neg(a) }",
        {},
        "Cast Exp Relu Neg Cast",
        "",
    ),
    "a branch": (
        "g (bool c, float[4] x) => (float[4] y) { y = If (c) <then_branch = t () => (float[4] p) { p = Relu(x) }, "
        "else_branch = e () => (float[4] q) { q = Identity(x) }> }",
        {},
        "Cast If Cast",
        "",
    ),
    "a loop": (
        "g (int64 n, bool c, float[4] x) => (float[4] y, float[k, 4] z) { y, z = Loop (n, c, x) <body = b "
        "(int64 i, bool d, float[4] v) => (bool e, float[4] w, float[4] s) { e = Identity(d) w = Add(v, v) "
        "s = Exp(w) }> }",
        {},
        "Cast Loop Cast Cast",
        "",
    ),
    "a loop that is kept": (
        "g (int64 n, bool c, float[4] x) => (float[4] y) { r = Relu(x) y = Loop (n, c, x) <body = b "
        "(int64 i, bool d, float[4] v) => (bool e, float[4] w) { e = Identity(d) w = Add(v, r) }> }",
        {"keep": ["Loop"]},
        "Cast Relu Cast Loop",
        "named by keep",
    ),
    "an operator of ONNX Runtime": (
        X + "{ a = com.microsoft.QuickGelu(x) y = Relu(a) }",
        {},
        "Cast QuickGelu Relu Cast",
        "",
    ),
    "numbers of a shape": (
        X + "{ s = Shape(x) c = ConstantOfShape(s) r = RandomNormalLike(c) z = Mul(r, c) y = Add(x, z) }",
        {},
        "Cast Shape ConstantOfShape RandomNormalLike Mul Add Cast",
        "",
    ),
    "an epsilon that would be 0": (
        X + "{ e = Constant<value_float = 1e-12>() a = Relu(x) b = Add(a, e) y = Exp(b) }",
        {},
        "Cast Constant Relu Cast Add Cast Exp Cast",
        "loses 100%",
    ),
    "a number beyond the type": (
        X + "{ e = Constant<value_float = 1e5>() a = Relu(x) b = Div(a, e) y = Exp(b) }",
        {},
        "Cast Constant Relu Cast Div Cast Exp Cast",
        "beyond the 65504",
    ),
    "a large number that is moved": (
        "g (bool[n, 4] k) => (float[n, 4] y) { e = Constant<value_float = 1e5>() z = Constant<value_float = 0.0>() "
        "b = Where(k, z, e) y = Exp(b) }",
        {},
        "Constant Constant Where Exp",
        "beyond the 65504",
    ),
    "a large number that is given back": (
        "g (bool[n, 4] k) => (float[n, 4] y) { e = Constant<value_float = 1e5>() z = Constant<value_float = 0.0>() "
        "y = Where(k, z, e) }",
        {"io": "convert"},
        "Constant Constant Where Clip Cast",
        "beyond the 65504",
    ),
}


def read(text: str) -> ps.ModelProto:
    return ps.parser.parse_model(HEAD + text)


def feed_of(model: ps.ModelProto, half: bool = False) -> dict[str, Any]:
    """Numbers for the inputs: the same for both models."""
    draw = np.random.default_rng(3)
    made: dict[str, Any] = {}
    for item in model.graph.input:
        kind = item.type.tensor_type
        shape = [size.dim_value or 3 for size in kind.shape.dim]
        numbers = draw.standard_normal(shape)
        if kind.elem_type in (1, 10):
            made[item.name or ""] = numbers.astype(np.float16).astype(np.float16 if half else np.float32)
        else:
            made[item.name or ""] = np.ones(shape, np.bool_) if kind.elem_type == 9 else np.full(shape, 2, np.int64)
    return made


def pairs_of_casts(model: ps.ModelProto) -> list[str]:
    """Casts between floats of casts between floats, and values that are cast twice to one type."""
    makers = {name: node for node in model.graph.node for name in node.output}
    casts = [node for node in model.graph.node if node.op_type == "Cast"]
    found = [
        node.output[0]
        for node in casts
        if node.input[0] in makers
        and makers[node.input[0]].op_type == "Cast"
        and makers[node.input[0]].attribute[0].i in (1, HALF)
        and node.attribute[0].i in (1, HALF)
    ]
    twice = Counter((node.input[0], node.attribute[0].i) for node in casts)
    return found + [str(key) for key, count in twice.items() if count > 1]


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    text, options, nodes, reason = ROWS[name]
    model = read(text)
    before = model.SerializeToString()
    found = converted(model, **options)
    made = found.model
    assert model.SerializeToString() == before
    # the places of Constant nodes, and of casts beside each other, mean nothing
    wanted, there = Counter(nodes.split()), Counter(node.op_type for node in made.graph.node)
    there["Constant"] = wanted["Constant"] = 0
    assert there == wanted, [node.op_type for node in made.graph.node]
    assert not pairs_of_casts(made)
    assert all(item.reason for item in found.report.stays)
    assert reason in " ".join(item.reason for item in found.report.stays) and bool(reason) == bool(found.report.stays)
    onnx.checker.check_model(onnx.ModelProto.FromString(ps.dumps(made)), full_check="microsoft" not in text)
    if "Random" in text:
        return
    wanted_results = ReferenceEvaluator(model).run(None, feed_of(model))
    for run in (ReferenceEvaluator(made).run, ort.InferenceSession(ps.dumps(made)).run):
        for one, two in zip(wanted_results, run(None, feed_of(made, options.get("io") == "convert")), strict=True):
            assert np.allclose(one, two.astype(np.float32), rtol=4e-3, atol=4e-3)


def weights(text: str, **arrays: Any) -> ps.ModelProto:
    model = read(text)
    model.graph.initializer = [
        ps.numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in arrays.items()
    ]
    return model


def test_a_weight_of_two_readers_is_there_in_both_types() -> None:
    model = weights(X + "{ a = MatMul(x, w) b = Softmax(w) y = MatMul(a, b) }", w=np.eye(4) / 3)
    made = ps.convert_float(model, keep=["Softmax"])
    types = {item.name: item.data_type or 0 for item in made.graph.initializer}
    assert sorted(types.values()) == [1, HALF] and types["w"] == 1
    alone = ps.convert_float(model).graph.initializer
    assert [(item.name, item.data_type) for item in alone] == [("w", HALF)]


def test_masks_become_the_lowest_and_the_report_says_so() -> None:
    model = weights(X + "{ a = Add(x, m) y = Softmax(a) }", m=[0, 0, np.finfo(np.float32).min, -np.inf])
    for dtype, lowest in (("float16", -65504.0), ("bfloat16", -3.3895313892515355e38)):
        found = converted(model, dtype)
        (mask,) = (ps.numpy_helper.to_array(item) for item in found.model.graph.initializer)
        assert mask.astype(np.float64).tolist() == [0, 0, lowest, -np.inf]
        assert f"constant 'm': 1 number near infinity became the largest of {dtype}" in str(found.report)


def test_a_weight_beyond_the_type_is_named_and_its_node_stays() -> None:
    model = weights(X + "{ a = MatMul(x, w) y = Exp(a) }", w=np.full((4, 4), 1e6))
    (stay,) = converted(model).report.stays
    assert (
        stay.op_type == "MatMul"
        and stay.reason == "reads the constant 'w', which reaches 1e+06, beyond the 65504 of float16"
    )
    assert not converted(model, "bfloat16").report.stays


def test_what_has_to_be_converted_and_does_not_fit_is_refused() -> None:
    model = weights("g (float[n, 4] x) => (float[n, 4] y, float[1] w) { y = Relu(x) }", w=[1e6])
    assert converted(model).model.graph.output[1].type.tensor_type.elem_type == 1
    with pytest.raises(ValueError, match="the output 'w' is a constant which reaches 1e\\+06, beyond the 65504"):
        converted(model, io="convert")
    inside = "{ y = If (c) <then_branch = t () => (float[1] p) { p = Constant<value_floats = [1e6]>() }, "
    inside += "else_branch = e () => (float[1] q) { q = Constant<value_floats = [1.0]>() }> }"
    (stay,) = converted(read("g (bool c) => (float[1] y) " + inside)).report.stays
    assert stay.reason.startswith("passes the constant 'p', which reaches 1e+06")


def test_an_output_that_is_declared_twice_keeps_its_sizes() -> None:
    model = read(X + "{ a = Relu(x) y = Exp(a) }")
    model.graph.value_info = [helper.make_tensor_value_info("y", 1, None)]
    for io in ("keep", "convert"):
        made = ps.convert_float(model, io=io)
        sizes = made.graph.output[0].type.tensor_type.shape
        assert sizes is not None and [size.dim_param or size.dim_value for size in sizes.dim] == ["n", 4]


def test_a_mask_of_a_node_that_stays_is_as_it_was() -> None:
    model = weights(X + "{ a = Add(x, m) y = Softmax(a) }", m=[0, 0, 0, -3e38])
    found = converted(model, keep=["Add"])
    assert not found.report.clamped and found.model.graph.initializer[0].data_type == 1


def test_samples_find_what_overflows() -> None:
    model = read(X + "{ a = Mul(x, x) b = Sqrt(a) y = Exp(b) }")
    samples = [np.full((1, 4), 300, np.float32)]
    assert not converted(model).report.stays
    stays = {item.op_type: item.reason for item in converted(model, samples=samples).report.stays}
    assert stays == {
        "Mul": "makes 'a', which reaches 9e+04 on the samples",
        "Sqrt": "reads 'a', which reaches 9e+04 on the samples",
    }
    small = [np.full((1, 4), 1e-5, np.float32)]
    assert "loses 100% in float16" in str(converted(model, samples=small).report)


def test_search_keeps_the_node_that_is_at_fault() -> None:
    # 1 + x loses x; what follows makes it large again
    text = X + "{ o = Constant<value_float = 1024.0>() a = Exp(x) b = Add(a, o) c = Sub(b, o) y = Relu(c) }"
    model = read(text)
    samples = [np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)]
    found = converted(model, samples=samples, search=True, tolerance=0.01)
    kept = {item.op_type for item in found.report.stays}
    assert kept == {"Add", "Sub"}, found.report
    assert "the search kept 2 nodes" in str(found.report)


def test_functions_become_nodes_and_inputs_with_values_weights() -> None:
    model = read(X + "{ y = com.microsoft.Twice(x) }")
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    function = helper.make_function("com.microsoft", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    model.functions = [function]
    found = converted(model)
    assert [node.op_type for node in found.model.graph.node] == ["Cast", "Add", "Cast"]
    assert "1 function became part of the graph" in str(found.report)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"dtype": "float8"}, "there is no half type 'float8'; it can be float16 or bfloat16"),
    ({"io": "change"}, "io is 'keep' or 'convert', not 'change'"),
    ({"keep": ["Softmaxx"]}, "keep='Softmaxx' fits no node and is no operator"),
    ({"tolerance": 2}, "tolerance is a part of the largest element"),
]


@pytest.mark.parametrize(("options", "text"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_mistakes(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text.replace("(", r"\(")):
        converted(read(X + "{ y = Relu(x) }"), **options)
    assert "keep 'LayerNormalization' fits no node" in str(
        converted(read(X + "{ y = Relu(x) }"), keep="LayerNormalization").report
    )


def test_an_opset_without_the_type() -> None:
    model = read(X + "{ y = Relu(x) }")
    model.opset_import[0].version = 11
    with pytest.raises(ValueError, match="opset 11 of the model has no bfloat16; convert it to opset 13 or later"):
        ps.convert_float(model, "bfloat16")


# A cast that is left out, and one that makes another type, are found by strict inference -----------------------------


@pytest.mark.parametrize("fault", ["no cast", "other type"])
def test_planted_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rewriting.CastRewriter._make

    def planted(self: rewriting.CastRewriter, value: Any, wanted: int) -> Any:
        return value if fault == "no cast" else real(self, value, BFLOAT)

    monkeypatch.setattr(rewriting.CastRewriter, "_make", planted)
    with pytest.raises(ps.CheckError, match="the converted model is not valid, though the given one is"):
        ps.convert_float(weights(X + "{ a = MatMul(x, w) y = Exp(a) }", w=np.eye(4)))
    monkeypatch.setattr(engine, "_invalid", lambda model: None)
    made = ps.convert_float(weights(X + "{ a = MatMul(x, w) y = Exp(a) }", w=np.eye(4)))
    with pytest.raises(Exception, match=r"[Tt]ype"):
        ort.InferenceSession(ps.dumps(made))


@pytest.mark.full
def test_weights_of_any_size_are_read_in_pieces(tmp_path: Path) -> None:
    data = tmp_path / "w.data"
    rows = 1 << 14
    with data.open("wb") as file:
        file.truncate(4 * rows * rows)  # a file without blocks: 1 GiB of zeros
    model = read(f"g (float[n, {rows}] x) => (float[n, {rows}] y) {{ y = MatMul(x, w) }}")
    tensor = ps.TensorProto(name="w", data_type=1, dims=[rows, rows], data_location=ps.TensorProto.EXTERNAL)
    tensor.external_data = [
        ps.StringStringEntryProto(key="location", value="w.data"),
        ps.StringStringEntryProto(key="length", value=str(4 * rows * rows)),
    ]
    model.graph.initializer = [tensor]
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    tracemalloc.start()
    ps.save(ps.convert_float(tmp_path / "m.onnx"), tmp_path / "h.onnx", external_data=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    assert sum(path.stat().st_size for path in tmp_path.glob("h.onnx*")) < (2 * rows * rows) + 10_000
