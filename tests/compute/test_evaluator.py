"""`ReferenceEvaluator` as programs use it: what it takes, what it gives, and what it says of mistakes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import pytest

import proto_schema as ps
from proto_schema.reference import EvaluationError, ReferenceEvaluator, UnsupportedOperatorError
from proto_schema.reference.op_run import OpRun
from proto_schema.tensors.dtypes import DTYPES

h = ps.helper
FLOAT, INT64, BFLOAT16 = ps.TensorProto.FLOAT, ps.TensorProto.INT64, ps.TensorProto.BFLOAT16


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def model(
    nodes: list[ps.NodeProto],
    inputs: dict[str, Any],
    outputs: dict[str, int],
    initializers: dict[str, np.ndarray] | None = None,
    functions: tuple[ps.FunctionProto, ...] = (),
    opset: int = 21,
) -> ps.ModelProto:
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info(name, code, shape) for name, (code, shape) in inputs.items()],
        [h.make_tensor_value_info(name, code, None) for name, code in outputs.items()],
        [ps.numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()],
    )
    imports = [h.make_opsetid("", opset), h.make_opsetid("custom", 1)]
    return h.make_model(graph, opset_imports=imports, functions=list(functions))


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> ps.NodeProto:
    return h.make_node(operator, inputs.split(), outputs.split(), **attributes)


UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
    "IsNaN LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign "
    "Sqrt Tan Tanh ThresholdedRelu"
)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_value_of_no_axes(dtype: Any) -> None:
    """numpy gives numbers of its own for these, which are no arrays."""
    for operator in UNARY.split():
        evaluator = ReferenceEvaluator(node(operator, "x", "y"), {"": 21})
        (alone,), (beside,) = (evaluator.run(None, {"x": np.full(shape, 0.5, dtype)}) for shape in ((), (1,)))
        assert alone.shape == () and alone.dtype == beside.dtype, operator
        np.testing.assert_array_equal(alone, beside[0], operator)


X = {"x": (FLOAT, ["n"])}
LINEAR = model(
    [node("Mul", "x w", "scaled", name="scale"), node("Add", "scaled b", "y", name="shift")],
    X,
    {"y": FLOAT},
    {"w": f32(2), "b": f32(1)},
)


def test_a_path_bytes_and_messages_of_both_packages(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    ps.save(LINEAR, path)
    data = path.read_bytes()
    for given in (path, str(path), data, LINEAR, onnx.load_from_string(data)):
        session = ReferenceEvaluator(given)
        assert session.input_names == ["x"]
        assert session.output_names == ["y"]
        assert session.opsets == {"": 21, "custom": 1}
        assert session.input_types is not None
        np.testing.assert_array_equal(session.run(None, {"x": f32(1, 2)})[0], f32(3, 5))


def test_numbers_near_0_and_images_without_pixels() -> None:
    tiny = f32(-1e-7, 1e-7)
    found = ReferenceEvaluator(node("Selu", "x", "y", alpha=1.0, gamma=1.0)).run(None, {"x": tiny})[0]
    np.testing.assert_array_equal(found, np.where(tiny < 0, np.expm1(tiny), tiny))
    empty = np.zeros((1, 1, 2, 0), np.float32)
    assert ReferenceEvaluator(node("SpaceToDepth", "x", "y", blocksize=2)).run(None, {"x": empty})[0].shape == (
        1,
        4,
        1,
        0,
    )


def test_names_of_outputs_choose_what_is_returned() -> None:
    session = ReferenceEvaluator(LINEAR)
    found = session.run(["scaled", "y"], {"x": f32(1)})
    assert [value.tolist() for value in found] == [[2.0], [3.0]]


def test_intermediate_results() -> None:
    session = ReferenceEvaluator(LINEAR)
    seen: list[str] = []
    session.run(None, {"x": f32(1)}, intermediate=lambda name, value: seen.append(f"{name}{value.tolist()}"))
    assert seen == ["scaled[2.0]", "y[3.0]"]
    every = session.run(None, {"x": f32(1)}, intermediate=True)
    assert set(every) >= {"x", "scaled", "y"}


def test_verbose_writes_each_result(capsys: pytest.CaptureFixture[str]) -> None:
    ReferenceEvaluator(LINEAR, verbose=1).run(None, {"x": f32(1, 4)})
    assert capsys.readouterr().out.splitlines()[1] == " + y: float[2] in [3.0, 9.0]"


class InvAlpha(OpRun):
    op_domain = "custom"

    def _run(self, x: np.ndarray, alpha: float | None = None) -> tuple[np.ndarray]:
        assert alpha is not None
        return ((1 / (x + alpha)).astype(x.dtype),)


CUSTOM = [node("InvAlpha", "x", "y", domain="custom", alpha=1.0)]


def test_operators_that_users_bring() -> None:
    session = ReferenceEvaluator(model(CUSTOM, X, {"y": FLOAT}), new_ops=[InvAlpha])
    assert session.run(None, {"x": f32(1, 3)})[0].tolist() == [0.5, 0.25]
    assert InvAlpha.eval(f32(1), alpha=1.0).tolist() == [0.5]


def test_an_operator_that_users_bring_goes_before_ours() -> None:
    class Relu(OpRun):
        def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
            return (x * 0 + 7,)

    assert ReferenceEvaluator(model([node("Relu", "x", "y")], X, {"y": FLOAT}), new_ops=[Relu]).run(
        None, {"x": f32(1)}
    )[0].tolist() == [7.0]


def scaled_by(default: float | None = None) -> ps.FunctionProto:
    body = [node("Constant", "", "k"), node("Mul", "x k", "y")]
    body[0].attribute = [h.make_attribute_ref("value_float", ps.AttributeProto.FLOAT, ref_attr_name="k")]
    protos = [] if default is None else [h.make_attribute("k", default)]
    return h.make_function(
        "custom", "ScaledBy", ["x"], ["y"], body, [h.make_opsetid("", 21)], ["k"] if default is None else [], protos
    )


def test_functions_of_the_model_and_their_attributes() -> None:
    nodes = [
        node("ScaledBy", "x", "a", domain="custom", k=3.0),
        node("ScaledBy", "a", "y", domain="custom"),
    ]
    made = model(nodes, X, {"y": FLOAT}, functions=(scaled_by(5.0),))
    assert ReferenceEvaluator(made).run(None, {"x": f32(1)})[0].tolist() == [15.0]


def test_a_function_a_graph_and_a_node_alone() -> None:
    assert ReferenceEvaluator(scaled_by()).run(None, {"x": f32(1)}, attributes={"k": 4.0})[0].tolist() == [4.0]
    assert ReferenceEvaluator(scaled_by(5.0)).run(None, {"x": f32(1)})[0].tolist() == [5.0]
    assert ReferenceEvaluator(LINEAR.graph, {"": 21}).run(None, {"x": f32(1)})[0].tolist() == [3.0]
    single = node("Clip", "x  high", "y")
    single.input = ["x", "", "high"]
    session = ReferenceEvaluator(single)
    assert session.input_names == ["x", "high"]
    assert session.run(None, {"x": f32(1, 9), "high": np.float32(5)})[0].tolist() == [1.0, 5.0]
    called = node("ScaledBy", "x", "y", domain="custom", k=2.0)
    assert ReferenceEvaluator(called, functions=[scaled_by()]).run(None, {"x": f32(1)})[0].tolist() == [2.0]


def test_a_body_sees_the_values_around_it() -> None:
    inner = h.make_graph(
        [node("Add", "sum step", "next"), node("Identity", "next", "each"), node("Identity", "go", "goes")],
        "body",
        [h.make_tensor_value_info(name, code, []) for name, code in (("i", INT64), ("go", 9), ("sum", FLOAT))],
        [h.make_tensor_value_info(name, code, []) for name, code in (("goes", 9), ("next", FLOAT), ("each", FLOAT))],
    )
    nodes = [node("Neg", "x", "step"), node("Loop", "count  x", "last all", body=inner)]
    nodes[1].input = ["count", "", "x"]
    made = model(nodes, {"x": (FLOAT, []), "count": (INT64, [])}, {"last": FLOAT, "all": FLOAT})
    session = ReferenceEvaluator(made)
    last, every = session.run(None, {"x": np.float32(2), "count": np.int64(3)})
    assert (last.tolist(), every.tolist()) == (-4.0, [0.0, -2.0, -4.0])
    last, every = session.run(None, {"x": np.float32(2), "count": np.int64(0)})
    assert (last.tolist(), every.shape, every.dtype) == (2.0, (0,), np.float32)


def test_bfloat16_is_rounded_after_each_node() -> None:
    values = {name: (BFLOAT16, ["n"]) for name in "ab"}
    made = model([node("Mul", "a b", "p"), node("Add", "p b", "y")], values, {"y": BFLOAT16})
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=1000).astype(ml_dtypes.bfloat16) for _ in "ab")
    found = ReferenceEvaluator(made).run(None, {"a": a, "b": b})[0]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, (a * b + b).astype(np.float32))


WIDE = {
    ml_dtypes.bfloat16: BFLOAT16,
    ml_dtypes.float8_e4m3fn: ps.TensorProto.FLOAT8E4M3FN,
    ml_dtypes.float8_e5m2: ps.TensorProto.FLOAT8E5M2,
    ml_dtypes.float4_e2m1fn: ps.TensorProto.FLOAT4E2M1,
    ml_dtypes.int4: ps.TensorProto.INT4,
    ml_dtypes.uint2: ps.TensorProto.UINT2,
}


@pytest.mark.parametrize("kind", WIDE, ids=lambda kind: kind.__name__)
def test_types_that_numpy_lacks_go_through_sequences_and_branches(kind: Any) -> None:
    """Their code stays with them: the cast at the end takes the bits of the right type."""
    code = WIDE[kind]
    branch = h.make_graph([node("Identity", "x", "t")], "b", [], [h.make_tensor_value_info("t", code, None)])
    nodes = [
        node("If", "c", "held", then_branch=branch, else_branch=branch),
        node("SequenceConstruct", "held held", "seq"),
        node("SequenceAt", "seq at", "one"),
        node("Cast", "one", "y", to=FLOAT),
        node("BitCast", "one", "bits", to={4: 23, 8: 2}.get(DTYPES[code].bits, 4)),
    ]
    wide = DTYPES[code].bits >= 8
    made = model(
        nodes if wide else nodes[:-1],
        {"x": (code, ["n"]), "c": (9, [])},
        {"y": FLOAT, **({"bits": 4 if code == BFLOAT16 else 2} if wide else {})},
        {"at": np.array(1)},
        opset=26,
    )
    x = np.array([0, 1, 2, 3, 1], np.float32).astype(kind)
    found = ReferenceEvaluator(made).run(None, {"x": x, "c": np.array(True)})
    assert found[0].tolist() == [0.0, 1.0, 2.0, 3.0, 1.0]
    if wide:
        np.testing.assert_array_equal(found[1], x.view(found[1].dtype))


def test_sequences_optionals_and_text() -> None:
    made = model([node("StringConcat", "x t", "y")], {"x": (8, ["n"]), "t": (8, [])}, {"y": 8})
    given = {"x": np.array(["a", "b"]), "t": np.array("!", object)}
    assert ReferenceEvaluator(made).run(None, given)[0].tolist() == ["a!", "b!"]
    optional = h.make_optional_type_proto(h.make_tensor_type_proto(FLOAT, None))
    graph = h.make_graph(
        [node("OptionalHasElement", "o", "y")],
        "g",
        [h.make_value_info("o", optional)],
        [h.make_tensor_value_info("y", 9, None)],
    )
    session = ReferenceEvaluator(graph, {"": 21})
    assert [session.run(None, {"o": value})[0].item() for value in (None, f32(1))] == [False, True]
    pair = node("SequenceConstruct", "a b", "s")
    assert [item.tolist() for item in ReferenceEvaluator(pair).run(None, {"a": f32(1), "b": f32(2)})[0]] == [
        [1.0],
        [2.0],
    ]


def test_values_are_freed_after_their_last_use() -> None:
    count, size = 20, 1 << 18
    nodes = [node("Relu", f"v{at}", f"v{at + 1}") for at in range(count)]
    session = ReferenceEvaluator(model(nodes, {"v0": (FLOAT, ["n"])}, {f"v{count}": FLOAT}))
    x = np.ones(size, np.float32)
    session.run(None, {"v0": x})
    tracemalloc.start()
    session.run(None, {"v0": x})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * x.nbytes


def test_external_data_is_read_when_it_is_used(tmp_path: Path) -> None:
    branches = {}
    for name in ("used", "unused"):
        output = [h.make_tensor_value_info(f"{name}_out", FLOAT, None)]
        branches[name] = h.make_graph([node("Add", f"x {name}", f"{name}_out")], name, [], output)
    made = model(
        [node("If", "c", "y", then_branch=branches["used"], else_branch=branches["unused"])],
        {**X, "c": (9, [])},
        {"y": FLOAT},
    )
    made.graph.initializer = [
        ps.TensorProto(
            name=name,
            data_type=FLOAT,
            dims=[1],
            data_location=ps.TensorProto.EXTERNAL,
            external_data=[ps.StringStringEntryProto(key="location", value=f"{name}.bin")],
        )
        for name in branches
    ]
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    (tmp_path / "used.bin").write_bytes(f32(5).tobytes())
    session = ReferenceEvaluator(tmp_path / "m.onnx")
    assert session.run(None, {"x": f32(1), "c": np.array(True)})[0].tolist() == [6.0]
    with pytest.raises(ps.ExternalDataError, match=r"'unused'.*unused\.bin"):
        session.run(None, {"x": f32(1), "c": np.array(False)})


def test_sparse_initializers() -> None:
    made = model([node("Add", "x s", "y")], X, {"y": FLOAT})
    values = ps.numpy_helper.from_array(f32(5, 7), "s")
    indices = ps.numpy_helper.from_array(np.array([0, 2]))
    made.graph.sparse_initializer = [ps.SparseTensorProto(values=values, indices=indices, dims=[3])]
    assert ReferenceEvaluator(made).run(None, {"x": f32(1, 1, 1)})[0].tolist() == [6.0, 1.0, 8.0]


def test_an_initializer_is_the_default_of_an_input() -> None:
    made = model([node("Add", "x b", "y")], {**X, "b": (FLOAT, [1])}, {"y": FLOAT}, {"b": f32(1)})
    session = ReferenceEvaluator(made)
    assert session.run(None, {"x": f32(1)})[0].tolist() == [2.0]
    assert session.run(None, {"x": f32(1), "b": f32(9)})[0].tolist() == [10.0]


def test_random_numbers_follow_the_seed() -> None:
    one = node("RandomNormal", "", "y", shape=[4], seed=1.5)
    other = node("RandomNormal", "", "y", shape=[4], seed=1.25)
    first, again, second = (ReferenceEvaluator(item).run(None, {})[0] for item in (one, one, other))
    np.testing.assert_array_equal(first, again)
    assert (first != second).all()


UNKNOWN = model([node("Nope", "x", "a"), node("Worse", "a", "y", domain="custom")], X, {"y": FLOAT})
SELF = h.make_function("custom", "Self", ["x"], ["y"], [node("Self", "x", "y", domain="custom")], [], [])

REFUSED_BEFORE = {
    "unknown": (UNKNOWN, {}, UnsupportedOperatorError, r"2 operators cannot be computed: ai\.onnx\.Nope \(the Nope "
                r"that makes 'a' at opset 21\); custom\.Worse .*new_ops="),
    "not-imported": (model([node("Binarizer", "x", "y", domain="ai.onnx.ml")], X, {"y": FLOAT}), {},
                     UnsupportedOperatorError, "whose domain the model does not import"),
    "recursion": (model([node("Self", "x", "y", domain="custom")], X, {"y": FLOAT}, functions=(SELF,)), {},
                  EvaluationError, r"custom\.Self calls itself"),
    "opsets": (LINEAR, {"opsets": {"": 13}}, ValueError, "says its opsets itself"),
    "no-model": (3, {}, TypeError, "a int cannot be run; pass a path, bytes, or a ModelProto"),
    "new-ops": (LINEAR, {"new_ops": [int]}, TypeError, "derived from proto_schema.reference.op_run.OpRun"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_BEFORE)
def test_what_is_refused_before_anything_runs(name: str) -> None:
    given, options, error, text = REFUSED_BEFORE[name]
    with pytest.raises(error, match=text):
        ReferenceEvaluator(given, **options)


BROKEN = model([node("Reshape", "x shape", "y", name="bend")], X, {"y": FLOAT}, {"shape": np.array([2, 2])})
SHAPES = model([node("Add", "x b", "y")], X, {"y": FLOAT}, {"b": f32(1, 2)})
UNORDERED = model([node("Relu", "a", "y"), node("Relu", "x", "a")], X, {"y": FLOAT})

REFUSED = {
    "missing": (LINEAR, None, {}, r"the input 'x' is missing; pass a value for each of \['x'\]"),
    "no-input": (LINEAR, None, {"x": f32(1), "z": f32(1)}, "no input 'z'; its inputs are 'x'"),
    "no-output": (LINEAR, ["z"], {"x": f32(1)}, "no value 'z'; its outputs are 'y'"),
    "dtype": (LINEAR, None, {"x": np.ones(1)}, r"input 'x' does not fit: it is double, and the model takes float; cast "
              r"it with \.astype\('float32'\)"),
    "text": (LINEAR, None, {"x": np.array(["a"])}, "input 'x' does not fit: it holds text"),
    "node": (BROKEN, None, {"x": f32(1, 2, 3)}, r"node 'bend' \(Reshape\) cannot be computed: 3 elements of shape "
             r"\[3\] cannot take the shape \[2, 2\]\. Its inputs are float\[3\], int64\[2\]; compare"),
    "numpy": (SHAPES, None, {"x": f32(1, 2, 3)}, "the Add that makes 'y' cannot be computed: operands could not be"),
    "order": (UNORDERED, None, {"x": f32(1)}, "nothing makes its input 'a' before it; order the nodes"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_run_refuses(name: str) -> None:
    given, outputs, feed, text = REFUSED[name]
    with pytest.raises(EvaluationError, match=text):
        ReferenceEvaluator(given).run(outputs, feed)


def test_lists_and_numbers_take_the_declared_type() -> None:
    assert ReferenceEvaluator(LINEAR).run(None, {"x": [1, 2]})[0].dtype == np.float32


def test_the_constructor_takes_what_the_official_one_takes() -> None:
    official = onnx.reference.ReferenceEvaluator(onnx.load_from_string(LINEAR.SerializeToString()), None, None, 0, None)
    ours = ReferenceEvaluator(LINEAR, None, None, 0, None)
    assert str(ours) == str(official)
    assert ours.run(None, {"x": f32(1)}, None, False)[0].tolist() == official.run(None, {"x": f32(1)}, None, False)[0]
