"""Shape inference over whole models: contradictions, functions, subgraphs, labels, and what it leaves as it was.

The models are texts of `onnx.parser`.  `test_shape_inference_rows.py` tests the operators one by one, and
`test_shape_inference_official.py` beside the official inference.
"""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest

import proto_schema as ps
from proto_schema import numpy_helper
from proto_schema.shape_inference import InferenceError, infer_shapes, infer_shapes_path

HEAD = '<ir_version: 10, opset_import: ["": 21, "own": 1]>\n'


def model_of(text: str) -> ps.ModelProto:
    return ps.loads(onnx.parser.parse_model(HEAD + text).SerializeToString())


def shown(value: ps.ValueInfoProto) -> str:
    """`float[n, 3]`, `float[?]` for an unknown rank, `seq(float[n])`."""
    return _shown(value.type)


def _shown(kind: ps.TypeProto | None) -> str:
    if kind is not None and kind.sequence_type is not None:
        return f"seq({_shown(kind.sequence_type.elem_type)})"
    if kind is not None and kind.optional_type is not None:
        return f"optional({_shown(kind.optional_type.elem_type)})"
    tensor = kind.tensor_type if kind is not None else None
    if tensor is None:
        return "nothing"
    name = ps.TensorProto.DataType(tensor.elem_type or 0).name.lower()
    if tensor.shape is None:
        return f"{name}[?]"
    sizes = [dim.dim_param or str(dim.dim_value) for dim in tensor.shape.dim]
    return f"{name}[{', '.join(sizes)}]"


def inferred(text: str, **options: bool) -> dict[str, str]:
    graph = infer_shapes(model_of(text), strict_mode=True, **options).graph
    assert graph is not None
    return {item.name or "": shown(item) for item in (*graph.value_info, *graph.output)}


# what contradicts: a model, and what the error says of it
CONTRADICTIONS = {
    "MatMul": (
        'g (float[2, 3] a, float[4, 5] b) => (float[m, n] y) { ["product"] y = MatMul(a, b) }',
        ("product", "3", "4"),
    ),
    "Conv of another rank": (
        'g (float[1, 3, 8] x, float[4, 3, 3, 3] w) => (y) { ["slide"] y = Conv(x, w) }',
        ("slide", "rank 3", "rank 4"),
    ),
    "Conv of other channels": (
        'g (float[1, 3, 8] x, float[4, 2, 3] w) => (y) { ["slide"] y = Conv(x, w) }',
        ("slide", "channels", "3 and 2"),
    ),
    "a window that is too large": (
        'g (float[1, 3, 2] x, float[4, 3, 5] w) => (y) { ["slide"] y = Conv(x, w) }',
        ("slide", "5", "fit into 2"),
    ),
    "Concat along an axis that is not there": (
        'g (float[2, 3] x) => (y) { ["join"] y = Concat<axis=9>(x, x) }',
        ("join", "axis 9", "rank 2"),
    ),
    "Add": ('g (float[2, 3] x, float[4] b) => (y) { ["plus"] y = Add(x, b) }', ("plus", "3", "4")),
    "Reshape": (
        'g (float[2, 3] x) => (y) <int64[1] s = {5}> { ["form"] y = Reshape(x, s) }',
        ("form", "6", "5"),
    ),
    "an output that is declared otherwise": (
        'g (float[2, 3] x) => (float[3, 2] y) { ["same"] y = Relu(x) }',
        ("same", "[3, 2]", "[2, 3]"),
    ),
    "an output of another dtype": (
        'g (float[2] x) => (int64[2] y) { ["same"] y = Relu(x) }',
        ("same", "INT64", "FLOAT"),
    ),
    "a value that is declared with another rank": (
        'g (float[2, 3] x) => (y) <float[6] h> { ["first"] h = Relu(x) y = Relu(h) }',
        ("first", "rank 1", "rank 2"),
    ),
    "an initializer unlike its input": (
        "g (float[3] w) => (y) <float[2] w = {1, 2}> { y = Relu(w) }",
        ("initializer 'w'", "[3]", "[2]"),
    ),
    "a node in a branch": (
        "g (bool c, float[2, 3] a, float[4, 5] b) => (y) { y = If(c)"
        ' <then_branch = t () => (p) { ["inner"] p = MatMul(a, b) }, else_branch = e () => (q) { q = Relu(a) }> }',
        ("inner", "3", "4"),
    ),
    "LSTM with another hidden size": (
        "g (float[5, 2, 4] x, float[1, 12, 4] w, float[1, 12, 4] r) => (y)"
        ' { ["cell"] y = LSTM<hidden_size=4>(x, w, r) }',
        ("cell", "12", "16"),
    ),
    "LSTM with a state of another batch": (
        "g (float[5, 2, 4] x, float[1, 16, 4] w, float[1, 16, 4] r, float[1, 3, 4] h) => (y)"
        ' { ["cell"] y = LSTM<hidden_size=4>(x, w, r, , , h) }',
        ("cell", "2", "3", "initial_h"),
    ),
}


QKV = "g (float[2, 4, 3, 8] q, float[2, 2, 5, 8] k, float[2, 2, 4, 8] p, int64[2] n) => (y) "
TREES = (
    "n_targets=1, nodes_featureids=[0], nodes_splits=%s, nodes_modes=uint8[1] {0}, nodes_truenodeids=%s, "
    "nodes_falsenodeids=[1], nodes_trueleafs=[1], nodes_falseleafs=[1], leaf_targetids=[0, 0], leaf_weights=%s, "
    "tree_roots=[0]"
)
LISTS = {  # attributes and inputs that do not fit together: opset, ai.onnx.ml, the model, what is said
    "cache by halves": (25, 5, QKV + "{ y = Attention(q, k, k, , p) }", "past_key and past_value are given together"),
    "present by halves": (25, 5, QKV + "{ y, z = Attention(q, k, k) }", "present_key and present_value"),
    "two caches": (25, 5, QKV + "{ y = Attention(q, k, k, , p, p, n) }", "nonpad_kv_seqlen"),
    "heads twice": (25, 5, QKV + "{ y = Attention<q_num_heads=4>(q, k, k) }", "for inputs of rank 3"),
    "window": (25, 5, QKV + "{ y = Attention<left_window_size=-2>(q, k, k) }", "left_window_size is -2"),
    "activation": (27, 5, "g (float[2, 4, 8] x, float[4, 1, 4] w) => (y, s) "
        '{ y, s = CausalConvWithState<activation="what">(x, w) }', "must be none, silu or swish"),
    "scan": (21, 5, "g (float[2] a, float[2] b, float[3, 2] c) => (y) { y = Scan <num_scan_inputs=1, body = t "
        "(float p, float q, float r) => (float s) { s = Identity(p) }>(a, b, c) }", "there are 2 loop state variables"),
    "mapper": (18, 1, "g (int64[2] x) => (y) { y = ai.onnx.ml.CategoryMapper<cats_int64s=[1, 2], "
        'cats_strings=["a"]>(x) }', "cats_int64s has 2 items and cats_strings 1"),
    "encoder": (18, 1, 'g (int64[2] x) => (y) { y = ai.onnx.ml.OneHotEncoder<cats_int64s=[1], cats_strings=["a"]>(x) }',
        "one of cats_int64s and cats_strings"),
    "label": (18, 4, "g (int64[2] x) => (y) { y = ai.onnx.ml.LabelEncoder<keys_int64s=[1], values_int64s=[2], "
        "default_tensor=int32[1] {0}>(x) }", "default_tensor has another data type"),
    "label, shape": (18, 4, "g (int64[2] x) => (y) { y = ai.onnx.ml.LabelEncoder<keys_int64s=[1], values_int64s=[2], "
        "default_tensor=int64[2] {0, 1}>(x) }", "default_tensor has shape [2]"),
    "trees": (18, 5, "g (float[2, 3] x) => (y) { y = ai.onnx.ml.TreeEnsemble<"
        + TREES % ("float[1] {0}", "[0, 1]", "float[2] {0, 1}") + ">(x) }", "nodes_truenodeids 2"),
    "trees, type": (18, 5, "g (float[2, 3] x) => (y) { y = ai.onnx.ml.TreeEnsemble<"
        + TREES % ("double[1] {0}", "[0]", "float[2] {0, 1}") + ">(x) }", "nodes_splits has another data type"),
    "sizes": (21, 5, "g (int32[2] x) => (y) { y = ConstantOfShape(x) }", "another data type than int64"),
    "indices": (9, 1, "g (float[2] v) => (y) <int64[2] i = {0, -1}, int64 d = {3}> { y = OneHot(i, d, v) }",
        "indices are negative"),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_attributes_that_do_not_fit(name: str) -> None:
    opset, learning, text, message = LISTS[name]
    model = ps.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "ai.onnx.ml": {learning}]>\n{text}')
    with pytest.raises(InferenceError, match=re.escape(message)):
        infer_shapes(model, strict_mode=True)
    infer_shapes(model)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions(name: str) -> None:
    text, words = CONTRADICTIONS[name]
    model = model_of(text)
    with pytest.raises(InferenceError) as caught:
        infer_shapes(model, strict_mode=True)
    assert caught.value.code == "shapes-contradict"
    for word in words:
        assert word in str(caught.value)
    infer_shapes(model)  # not strict: the others are inferred, and this one stays


# a model, and what is inferred of the values that are named
WHOLE = {
    "a function of the model, called with two shapes": (
        "g (float[n, 3] x, float[4] z) => (y, w) { y = own.twice(x) w = own.twice(z) }\n"
        '<domain: "own", opset_import: ["": 21]> twice (a) => (b) { h = Relu(a) b = Concat<axis=0>(h, h) }',
        {"y": "float[2*n, 3]", "w": "float[8]"},
    ),
    "an attribute of a function": (
        "g (float[n, 3] x) => (y, w) { y = own.wide<at=1>(x) w = own.wide(x) }\n"
        '<domain: "own", opset_import: ["": 21]> wide <at: int = 0> (a) => (b)'
        " { b = Concat<axis: int = @at>(a, a) }",
        {"y": "float[n, 6]", "w": "float[2*n, 3]"},
    ),
    "a function in a function": (
        "g (float[n] x) => (y) { y = own.outer(x) }\n"
        '<domain: "own", opset_import: ["": 21, "own": 1]> outer (a) => (b) { h = own.twice(a) b = own.twice(h) }\n'
        '<domain: "own", opset_import: ["": 21]> twice (a) => (b) { b = Concat<axis=0>(a, a) }',
        {"y": "float[4*n]"},
    ),
    "both branches of an If": (
        "g (bool c, float[n, 3] x) => (y) { y = If(c)"
        " <then_branch = t () => (p) { p = Relu(x) }, else_branch = e () => (q) { q = Concat<axis=1>(x, x) }> }",
        {"y": "float[n, unk__0]"},
    ),
    "the branch that a known condition takes": (
        "g (float[n, 3] x) => (y) <bool c = {0}> { y = If(c)"
        " <then_branch = t () => (p) { p = Concat<axis=7>(x, x) },"
        " else_branch = e () => (q) { q = Concat<axis=1>(x, x) }> }",
        {"y": "float[n, 6]"},
    ),
    "a Loop that changes a size": (
        "g (int64 k, bool c, float[n, 3] x) => (y, s) { y, s = Loop(k, c, x)"
        " <body = b (int64 i, bool go, float[m, 3] v) => (bool on, w, r) {"
        " on = Identity(go) w = Concat<axis=0>(v, v) r = ReduceSum<keepdims=0>(v) }> }",
        {"y": "float[unk__0, 3]", "s": "float[unk__1]"},
    ),
    "a Scan": (
        "g (float[3] h, float[t, 3] x) => (y, s) { y, s = Scan<num_scan_inputs=1,"
        " body = b (float[3] a, float[3] v) => (p, q) { p = Add(a, v) q = Concat<axis=0>(a, v) }>(h, x) }",
        {"y": "float[3]", "s": "float[t, 6]"},
    ),
    "labels as users write them": (
        'g (float["batch-size", "n+1"] x) => (y, z) { y = Relu(x) z = Concat<axis=0>(x, x) }',
        {"y": "float[batch-size, n+1]", "z": "float[2*'batch-size', n+1]"},
    ),
    "a shape that the graph computes": (
        "g (float[n, t, 6] x) => (y) <int64 two = {2}, int64[1] end = {-1}, int64[1] zero = {0}> {"
        " s = Shape(x) b = Gather(s, zero) h = Gather<axis=0>(s, two) p = Mul(b, h) q = Concat<axis=0>(p, end)"
        " y = Reshape(x, q) }",
        {"y": "float[6*n, t]"},
    ),
    "a sequence": (
        "g (float[n, 3] x) => (y, k, z) { y = SequenceConstruct(x, x) k = SequenceLength(y)"
        " z = ConcatFromSequence<axis=1>(y) }",
        {"y": "seq(float[n, 3])", "k": "int64[]", "z": "float[n, unk__0]"},
    ),
    "an equation that is learnt on the way": (
        "g (float[n, 3] a, float[3, 4] b, float[5, 2] c, float[n] d, float[5] e) => (y, z)"
        " { h = MatMul(a, b) t = Transpose(h) y = MatMul(t, c) z = Add(d, e) }",
        {"y": "float[4, 2]", "z": "float[5]"},
    ),
    "what a branch learns does not hold outside of it": (
        "g (bool c, float[n] a, float[m] b) => (y) { h = If(c)"
        " <then_branch = t () => (r) { r = Relu(a) }, else_branch = e () => (p) { q = MatMul(a, b) p = Add(a, b) }>"
        " y = Add(a, b) }",
        {"y": "float[unk__0]"},
    ),
    "equal nodes of other data": (
        "g (float[n] a, float[n] b) => (y, z) { y = NonZero(a) z = NonZero(b) }",
        {"y": "int64[1, unk__0]", "z": "int64[1, unk__1]"},
    ),
    "an operator that nobody knows": (
        "g (float[n, 3] x) => (y, z) { h = own.mystery(x) y = Relu(h) z = Relu(x) }",
        {"y": "nothing", "z": "float[n, 3]"},
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_models(name: str) -> None:
    text, expected = WHOLE[name]
    found = inferred(text)
    assert {key: found.get(key, "nothing") for key in expected} == expected


@pytest.mark.parametrize("name", WHOLE)
def test_the_given_model_stays_and_a_second_time_changes_nothing(name: str) -> None:
    model = model_of(WHOLE[name][0])
    before = model.SerializeToString()
    once = infer_shapes(model)
    assert model.SerializeToString() == before
    assert infer_shapes(once).SerializeToString() == once.SerializeToString()


def test_without_the_contents() -> None:
    text, _ = WHOLE["a shape that the graph computes"]
    assert inferred(text, data_prop=False)["y"] == "float[unk__0, unk__1]"


def test_types_of_inputs() -> None:
    model = model_of('g (int64[2] x, float[2] z) => (y) { ["plus"] y = Add(x, z) }')
    infer_shapes(model, strict_mode=True)
    with pytest.raises(InferenceError, match="plus"):
        infer_shapes(model, strict_mode=True, check_type=True)


def test_values_inside_of_branches_are_declared() -> None:
    made = infer_shapes(model_of(WHOLE["the branch that a known condition takes"][0]))
    assert made.graph is not None
    branches = {item.name: item.g for item in made.graph.node[0].attribute}
    taken = branches["else_branch"]
    assert taken is not None and shown(taken.output[0]) == "float[n, 6]"


def test_external_data_that_is_not_there(tmp_path: Path) -> None:
    """A shape that lies in the file is not known; all else is inferred."""
    model = model_of("g (float[n, 8] x) => (y, z) { y = MatMul(x, w) z = Reshape(y, s) }")
    assert model.graph is not None
    model.graph.initializer = [
        numpy_helper.from_array(np.ones((8, 512), np.float32), "w"),
        numpy_helper.from_array(np.array([-1, 4]), "s"),
    ]
    path = tmp_path / "m.onnx"
    ps.save(model, path, external_data=True, size_threshold=0)
    for item in tmp_path.iterdir():
        if item != path:
            item.unlink()
    made = infer_shapes(path)
    assert made.graph is not None
    assert [shown(item) for item in made.graph.output] == ["float[n, 512]", "float[unk__0, unk__1]"]


def test_a_path_to_a_path(tmp_path: Path) -> None:
    given, made = tmp_path / "m.onnx", tmp_path / "o.onnx"
    ps.save(model_of("g (float[n, 3] x) => (y) { h = Relu(x) y = Concat<axis=1>(h, x) }"), given)
    infer_shapes_path(given, made)
    graph = ps.load(made).graph
    assert graph is not None
    assert [shown(item) for item in (*graph.value_info, *graph.output)] == ["float[n, 3]", "float[n, 6]"]


def test_sparse_initializers() -> None:
    model = model_of("g (float[n, 3] x) => (y) { y = Identity(w) }")
    assert model.graph is not None
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    places = numpy_helper.from_array(np.zeros(1, np.int64), "")
    model.graph.sparse_initializer = [ps.SparseTensorProto(values=values, indices=places, dims=[4, 5])]
    made = infer_shapes(model)
    assert made.graph is not None
    kind = made.graph.output[0].type
    assert kind is not None and kind.sparse_tensor_type is not None and kind.sparse_tensor_type.shape is not None
    assert [dim.dim_value for dim in kind.sparse_tensor_type.shape.dim] == [4, 5]


def test_large_weights_are_not_read() -> None:
    """A weight is shared with the result, and its bytes are not looked at."""
    model = model_of("g (float[n, 1000] x) => (y) { y = MatMul(x, w) }")
    assert model.graph is not None
    weight = numpy_helper.from_array(np.ones((1000, 5000), np.float32), "w")
    model.graph.initializer = [weight]
    tracemalloc.start()
    made = infer_shapes(model)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.graph is not None and made.graph.initializer[0] is weight
    assert peak < 1 << 20


def test_very_many_axes() -> None:
    """A shape of more than 64 sizes stays where a file declares it, and makes no other value's shape."""
    long, longest = ", ".join(["2"] * 65), ", ".join(["2"] * 64)
    text = f"""
    g (float[{long}] x, float[{longest}] z, float[n] one) => (float[{long}] y, float c, float s)
    <int64[3] axes = {{0, 1, 2}}, int64[62] many = {{{", ".join(map(str, range(62)))}}}> {{
        a = Relu(x)
        y = Relu(a)
        b = Relu(z)
        k = Size(x)
        s = Cast <to = 1> (k)
        three = Unsqueeze(one, axes)
        c = Unsqueeze(three, many)
    }}"""
    found = inferred(text)
    assert found["y"] == f"float[{long}]"
    assert found["a"] == "float[?]"
    assert found["b"] == f"float[{longest}]"
    assert found["three"] == "float[1, 1, 1, n]"
    assert found["c"] == "float[]"
    assert found["s"] == "float[]"
