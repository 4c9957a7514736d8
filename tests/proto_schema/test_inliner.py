"""Functions become part of the graph: as the official inliner does, where it is right, with the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import proto_schema as ps
from proto_schema.inliner import inline_local_functions, inline_selected_functions
from proto_schema.inlining import by_call, engine
from proto_schema.inlining.standard import ROWS
from proto_schema.parser import parse_model

HEAD = '<ir_version: 10, opset_import: ["": 21, "d": 1]> '
F = '<domain: "d", opset_import: ["": 21, "d": 1]> '
X = np.array([1.0, -2.0, 3.0], dtype=np.float32)


def _run(model: ps.ModelProto, **feed: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": X, **feed}))


def _model(body: str, *functions: str, ends: str = "(float[3] x) => (float[3] y)") -> ps.ModelProto:
    return parse_model(f"{HEAD} g {ends} {{ {body} }} {' '.join(F + function for function in functions)}")


BAR = "bar (x) => (y) { t = Neg(x) y = Mul(t, t) }"
SCALE = "scale <k> (x) => (y) { f = Constant <value_float: float = @k> () y = Mul(x, f) }"
SCALE2 = "scale <k: float = 2.0> (x) => (y) { [n] f = Constant <value_float: float = @k> () y = Mul(x, f) }"
ROWS_OF_MODELS = {
    "functions in functions": _model("y = d.foo(x)", "foo (x) => (y) { t = Add(x, x) y = d.bar(t) }", BAR),
    "twice": _model("t = d.bar(x) y = d.bar(t)", BAR),
    "names that are taken": _model("t__1 = Relu(x) t = d.bar(t__1) y = Add(t, t__1)", BAR),
    "an attribute": _model("y = d.scale <k = 3.0> (x)", SCALE),
    "a default": _model("y = d.scale(x)", SCALE2),
    "a default that is not taken": _model("y = d.scale <k = 3.0> (x)", SCALE2),
    "an attribute through two functions": _model(
        "y = d.outer <j = 5.0> (x)", "outer <j> (x) => (y) { y = d.scale <k: float = @j> (x) }", SCALE
    ),
    "an attribute that is missing": _model("y = d.f(x)", "f <j> (x) => (y) { y = LeakyRelu <alpha: float = @j> (x) }"),
    "an input that is missing": _model("y = d.f(x)", "f (a, low) => (y) { y = Clip(a, low) }"),
    "an output that is missing": _model('y, "" = d.f(x)', "f (a) => (y, z) { z = Neg(a) y = Relu(z) }"),
    "branches": _model(
        "z = d.f(q, x) y = Relu(z)",
        "f (c, a) => (y) { n = Neg(a) y = If <then_branch = t () => (r) { s = Neg(n) r = Add(s, a) }, "
        "else_branch = e () => (r) { r = Identity(n) }> (c) }",
        ends="(bool q, float[3] x) => (float[3] y)",
    ),
    "calls in branches": _model(
        "y = If <then_branch = t () => (float[3] r) { r = d.bar(x) }, else_branch = e () => (float[3] s) "
        "{ s = d.bar(x) }> (q)",
        BAR,
        ends="(bool q, float[3] x) => (float[3] y)",
    ),
    "branches with names that are taken": _model(
        "t = d.bar(x) y = If <then_branch = t () => (float[3] t__1) { t__1 = Neg(t) }, else_branch = e () => "
        "(float[3] s) { s = Neg(x) }> (q)",
        BAR,
        ends="(bool q, float[3] x) => (float[3] y)",
    ),
    "types of values": _model("y = d.f(x)", "f (float[3] a) => (float[3] y) <float[3] t> { t = Neg(a) y = Relu(t) }"),
}


@pytest.mark.parametrize("name", ROWS_OF_MODELS)
def test_the_numbers_stay_and_the_functions_go(name: str) -> None:
    model = ROWS_OF_MODELS[name]
    before = model.SerializeToString()
    made = inline_local_functions(model)
    assert made.functions == []
    assert not [node for node in made.graph.node if node.domain == "d"]
    feed = {"q": np.array(True)} if "branches" in name else {}
    onnx.checker.check_model(made.SerializeToString(), full_check=True)
    for expected, found in zip(_run(model, **feed), _run(made, **feed), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert model.SerializeToString() == before
    theirs = onnx.inliner.inline_local_functions(onnx.load_from_string(before))
    assert [node.op_type for node in made.graph.node] == [node.op_type for node in theirs.graph.node]
    if name not in (
        "names that are taken",
        "branches",
        "branches with names that are taken",
    ):  # numbers at the ends of names are counted otherwise there
        assert [list(node.output) for node in made.graph.node] == [list(node.output) for node in theirs.graph.node]


def test_an_input_that_is_an_output() -> None:
    """The official inliner loses the value."""
    made = inline_local_functions(_model("y = d.f(x)", "f (a) => (a) { }"))
    assert [(node.op_type, node.input, node.output) for node in made.graph.node] == [("Identity", ["x"], ["y"])]


def test_a_graph_that_a_call_passes_keeps_its_names() -> None:
    """`t` means the caller's value in the graph that is passed, and another one in the function."""
    model = _model(
        "t = Add(x, x) y = d.f <b = g () => (float[3] r) { r = Neg(t) }> (q, x)",
        "f <b> (c, a) => (y) { t = Mul(a, a) u = If <then_branch: graph = @b, else_branch: graph = @b> (c) "
        "y = Add(u, t) }",
        ends="(bool q, float[3] x) => (float[3] y)",
    )
    found = _run(inline_local_functions(model), q=np.array(True))
    np.testing.assert_array_equal(found[0], -2 * X + X * X)


def test_domains_that_only_the_function_imports() -> None:
    """The official inliner leaves such a model without the import."""
    text = F.replace('"": 21', '"": 21, "ai.onnx.ml": 3') + "f (a) => (y) { y = ai.onnx.ml.Scaler <scale = [2.0]> (a) }"
    made = inline_local_functions(parse_model(f"{HEAD} g (float[3] x) => (float[3] y) {{ y = d.f(x) }} {text}"))
    assert {row.domain: row.version for row in made.opset_import} == {"": 21, "d": 1, "ai.onnx.ml": 3}
    onnx.checker.check_model(made.SerializeToString(), full_check=True)


VERSIONS = [  # (body, version of the function, whether it can stand at opset 21 as it is)
    ("y = Neg(x)", 20, True),
    ("y = Identity(x)", 18, False),
    ("t = ReduceSum <axes = [0]> (x) y = Add(x, t)", 11, False),
]


@pytest.mark.parametrize(("body", "version", "fits"), VERSIONS)
def test_other_versions(body: str, version: int, fits: bool) -> None:
    text = F.replace("21", str(version)) + f"f (x) => (y) {{ {body} }} " + F.replace("21", str(version))
    model = parse_model(f"{HEAD} g (float[3] x) => (float[3] y) {{ y = d.h(x) }} {text} h (x) => (y) {{ y = d.f(x) }}")
    made = inline_local_functions(model)
    assert [function.name for function in made.functions] == ([] if fits else ["f"])
    if not fits:
        with pytest.raises(
            ValueError, match=f"d::f is written for opset {version} of ai.onnx, and the model imports 21"
        ):
            inline_selected_functions(model, [("d", "f"), ("d", "h")])


def test_other_versions_are_converted() -> None:
    pytest.importorskip("proto_schema.version_converter", reason="the converter is not there yet")
    text = F.replace("21", "11") + "f (x) => (y) { t = ReduceSum <axes = [0]> (x) y = Add(x, t) }"
    made = inline_local_functions(
        parse_model(f"{HEAD} g (float[3] x) => (float[3] y) {{ y = d.f(x) }} {text}"), convert_version=True
    )
    assert made.functions == []
    np.testing.assert_array_equal(_run(made)[0], X + X.sum())


def test_functions_that_stay_keep_what_they_call() -> None:
    """f is inlined in the graph, and h, which stays, still calls it; the official inliner removes f."""
    functions = (F + "f (x) => (y) { y = Neg(x) } ") + F.replace('"": 21', '"": 12') + "h (x) => (y) { t = Identity(x) "
    model = parse_model(f"{HEAD} g (float[3] x) => (float[3] y) {{ t = d.f(x) y = d.h(t) }} {functions} y = d.f(t) }}")
    made = inline_local_functions(model)
    assert [node.op_type for node in made.graph.node] == ["Neg", "h"]
    assert [function.name for function in made.functions] == ["f", "h"]


CHOICE = _model(
    "t = d.square(x) y = d.both(t)",
    "both (x) => (y) { t = Add(x, x) y = d.square(t) }",
    "square (x) => (y) { y = Mul(x, x) }",
)


@pytest.mark.parametrize(("names", "exclude"), [([("d", "square")], False), ([("d", "both")], True)])
def test_some_functions(names: list[tuple[str, str]], exclude: bool) -> None:
    made = inline_selected_functions(CHOICE, names, exclude=exclude)
    assert [node.op_type for node in made.graph.node] == ["Mul", "both"]
    assert [[node.op_type for node in function.node] for function in made.functions] == [["Add", "Mul"]]
    np.testing.assert_array_equal(_run(made)[0], _run(CHOICE)[0])
    assert inline_selected_functions(CHOICE, []) == CHOICE


def test_recursion_and_calls_that_do_not_fit() -> None:
    with pytest.raises(ps.CheckError, match="functions must not be recursive: d::f -> d::f"):
        inline_local_functions(_model("y = d.f(x)", "f (x) => (y) { y = d.f(x) }"))
    with pytest.raises(ps.CheckError, match="node 'f' has 2 inputs; the function d::f has 1"):
        inline_local_functions(_model("y = d.f(x, x)", "f (x) => (y) { y = Neg(x) }"))
    with pytest.raises(TypeError, match="model must be a ModelProto, not a GraphProto"):
        inline_local_functions(CHOICE.graph)  # type: ignore[arg-type]


def test_no_end_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 functions that call the next one twice are a million million nodes: refused before any is made."""
    chain = [f"f{at} (x) => (y) {{ t = d.f{at + 1}(x) y = d.f{at + 1}(t) }}" for at in range(40)]
    with pytest.raises(ValueError, match=r"inlining would make 1,099,511,627,776 nodes, and 10,000,000 are the limit"):
        inline_local_functions(_model("y = d.f0(x)", *chain, "f40 (x) => (y) { y = Neg(x) }"))
    monkeypatch.setattr(engine, "MOST_NODES", 4)
    with pytest.raises(ValueError, match="would make 6 nodes"):
        inline_local_functions(_model("a = d.bar(x) b = d.bar(a) y = d.bar(b)", BAR))


# -- functions of the standard -----------------------------------------------------------------------------------------

FORMS = {  # operator: inputs and attributes
    "BlackmanWindow": "n", "Celu": "x <alpha = 0.5>", "DynamicQuantizeLinear": "x", "Elu": "x <alpha = 0.5>",
    "GreaterOrEqual": "x, x", "HammingWindow": "n <periodic = 0>", "HannWindow": "n", "HardSigmoid": "x <beta = 0.1>",
    "HardSwish": "x", "LeakyRelu": "x <alpha = 0.5>", "LessOrEqual": "x, x", "LogSoftmax": "x <axis = 0>",
    "MeanVarianceNormalization": "x <axes = [0]>", "Mish": "x", "PRelu": "x, x", "ReduceL1": "x, i",
    "ReduceL2": "x <keepdims = 0>", "ReduceLogSum": "a, i", "ReduceLogSumExp": "x, i <keepdims = 0>",
    "ReduceSumSquare": "x, i", "Relu": "x", "Selu": "x", "Shrink": "x <bias = 0.25, lambd = 1.5>", "Softmax": "x",
    "Softplus": "x", "Softsign": "x", "SwiGLU": "x, a", "Swish": "x <alpha = 0.5>",
    "ThresholdedRelu": "x <alpha = 2.0>",
}  # fmt: skip


def test_each_function_of_the_standard_has_a_row() -> None:
    assert FORMS.keys() == ROWS.keys()


@pytest.mark.parametrize("op", FORMS)
def test_functions_of_the_standard(op: str) -> None:
    inputs, _, attributes = FORMS[op].partition(" <")
    outputs = ["y", "s", "z"] if op.startswith("Dynamic") else ["y"]
    opset = max(18, ps.operators.versions(op)[-1])
    head = f'<ir_version: 10, opset_import: ["": {opset}]> g (float[3] x) => ({", ".join(outputs)}) '
    constants = "<float[3] a = {1, 2, 3}, int64[1] i = {0}, int64 n = {7}>"
    call = f"{', '.join(outputs)} = {op} {'<' if attributes else ''}{attributes} ({inputs})"
    model = parse_model(f"{head} {constants} {{ {call} }}")
    made = inline_selected_functions(model, [("", op)], inline_schema_functions=True)
    assert op not in [node.op_type for node in made.graph.node]
    run = [ReferenceEvaluator(onnx.load_from_string(m.SerializeToString())).run(None, {"x": X}) for m in (model, made)]
    for expected, found in zip(*run, strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert inline_selected_functions(model, [("", op)]) == model
    assert inline_selected_functions(model, [("", op)], exclude=True, inline_schema_functions=True) == model


CALLS = [  # operator, lowest opset, the call
    ("Gelu", 20, "Gelu(x)"),
    ("Gelu", 20, 'Gelu<approximate="tanh">(x)'),
    ("Clip", 13, "Clip(x)"),
    ("Clip", 13, "Clip(x, , high)"),
    ("Clip", 13, "Clip(x, low)"),
    ("Clip", 13, "Clip(x, high, low)"),
    ("LayerNormalization", 18, "LayerNormalization(x, s, s)"),
    ("LayerNormalization", 18, "LayerNormalization<axis=1, epsilon=0.1>(x, w)"),
    ("RMSNormalization", 23, "RMSNormalization<axis=-1>(x, s)"),
    ("RMSNormalization", 23, "RMSNormalization<axis=1, epsilon=0.5>(x, w)"),
    ("GroupNormalization", 21, "GroupNormalization<num_groups=2>(x, c, c)"),
    ("DepthToSpace", 28, "DepthToSpace<blocksize=2>(x)"),
    ("DepthToSpace", 28, 'DepthToSpace<blocksize=2, mode="CRD">(x)'),
    ("SpaceToDepth", 28, "SpaceToDepth<blocksize=2>(x)"),
    ("SpaceToDepth", 28, 'SpaceToDepth<blocksize=2, mode="CRD">(x)'),
    ("Bernoulli", 15, "Bernoulli<seed=1.0>(p)"),
    ("Bernoulli", 15, "Bernoulli<dtype=7>(p)"),
]


def test_each_function_that_depends_on_its_call_has_a_row() -> None:
    assert {op for op, _, _ in CALLS} == by_call.ROWS.keys()


@pytest.mark.parametrize(("op", "opset", "call"), CALLS, ids=[call for _, _, call in CALLS])
def test_functions_that_depend_on_the_call(op: str, opset: int, call: str) -> None:
    kind = "int64" if "dtype" in call else "float"
    text = (
        f'<ir_version: 10, opset_import: ["": %d]> g (float[2, 4, 4, 2] x) => ({kind}[a, b, c, d] y) '
        "<float low = {-0.5}, float high = {0.75}, float[2] s = {2, 3}, float[4] c = {1, 2, 3, 4}, "
        "float[2] p = {0, 1}, "
        f"float[4, 4, 2] w = {{{', '.join(map(str, range(32)))}}}> {{ y = {call} }}"
    )
    model = parse_model(text % opset)
    made = inline_selected_functions(model, [("", op)], inline_schema_functions=True)
    assert op not in [node.op_type for node in made.graph.node]
    x = np.random.default_rng(3).standard_normal((2, 4, 4, 2)).astype(np.float32)
    expected, found = (ps.reference.ReferenceEvaluator(one).run(None, {"x": x})[0] for one in (model, made))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    older = parse_model(text % (opset - 1))
    assert inline_selected_functions(older, [("", op)], inline_schema_functions=True) == older


def test_below_the_lowest_opset_calls_stay() -> None:
    model = parse_model('<ir_version: 8, opset_import: ["": 13]> g (float[3] x) => (float[3] y) { y = Selu(x) }')
    assert inline_selected_functions(model, [], exclude=True, inline_schema_functions=True) == model


@pytest.mark.parametrize("opset", [8, 11])
def test_what_a_conversion_names_differs_from_call_to_call(opset: int) -> None:
    """Constants of two calls under one name would be one constant: the axes of the second reduce in both."""
    text = F.replace("21", "18")
    body = "{ q = Constant <value_ints = [AXIS]> () y = ReduceMax <keepdims = 1> (x, q) }"
    model = parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "d" : 1]> g (float[2, 3] x) => (float[1, 1] y) '
        f"{{ a = d.f(x) y = d.h(a) }} {text} f (x) => (y) {body.replace('AXIS', '0')} "
        f"{text} h (x) => (y) {body.replace('AXIS', '1').replace('ReduceMax', 'ReduceMin')}"
    )
    made = inline_local_functions(model, convert_version=True)
    names = [name for node in made.graph.node for name in node.output] + [item.name for item in made.graph.initializer]
    assert len(set(names)) == len(names) > 2
    x = np.array([[1, 5, 3], [4, 2, 6]], np.float32)
    found = ps.reference.ReferenceEvaluator(made).run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, [[4.0]])
