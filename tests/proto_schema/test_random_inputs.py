"""Sizes of inputs that nobody gives are sizes that the model takes: rows of models, most of which 2 does not fit."""

from __future__ import annotations

import pytest

import proto_schema as ps
from proto_schema.parser import parse_model
from proto_schema.reference import ReferenceEvaluator
from proto_schema.reference.inputs import TRIED, allowed_shapes
from proto_schema.rewrite.proof import ProofError, random_inputs

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'

# name, the graph, the first shape of x that is allowed
ROWS: list[tuple[str, str, tuple[int, ...]]] = [
    ("no question", "g (float[3, 4] x) => (float[3, 4] y) { y = Relu(x) }", (3, 4)),
    ("2 does", "g (float[n, m] x) => (float[n, m] y) { y = Relu(x) }", (2, 2)),
    ("a product says it",
     "g (float[n, m] x) => (float[n, 1] y) <float[3, 1] w = {1, 2, 3}> { y = MatMul(x, w) }", (2, 3)),
    ("nothing has a name",
     "g (float[?, ?] x) => (float[a, b] y) <float[3, 1] w = {1, 2, 3}> { y = MatMul(x, w) }", (2, 3)),
    ("a reshape", "g (float[n] x) => (float[3, 4] y) <int64[2] s = {3, 4}> { y = Reshape(x, s) }", (12,)),
    ("parts of 3 and 1",
     "g (float[n, m] x) => (float[n, 3] y) <int64[2] t = {3, 1}> { a = Relu(x) y, z = Split<axis = 1>(a, t) }", (2, 4)),
    ("one of a batch", "g (float[n, m] x) => (float[1, 8] y) <int64[2] s = {1, 8}> { y = Reshape(x, s) }", (1, 8)),
    ("a window of 7", "g (float[n, 1, h, w] x) => (float[a, b, c, d] y) { y = AveragePool<kernel_shape = [7, 7]>(x) }",
     (2, 1, 8, 8)),
    ("a window of 7 in the middle", "g (float[n, 1, h, w] x) => (float[a, b, c, d] y) { p = Relu(x) "
     "q = MaxPool<kernel_shape = [7, 7], strides = [4, 4]>(p) r = MaxPool<kernel_shape = [3, 3]>(q) y = Relu(r) }",
     (1, 1, 16, 16)),
    ("up and down again", "g (float[n, 1, h, w] x) => (float[a, b, c, d] y) <float[4] s = {1, 1, 2, 2}> "
     "{ p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) "
     "q = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(p) r = Resize(q, , s) y = Concat<axis = 1>(p, r) }",
     (4, 1, 4, 4)),
    ("two inputs of one name", "g (float[n, m] x, float[m, 5] z) => (float[n, 5] y) { y = MatMul(x, z) }", (2, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "first"), ROWS, ids=[row[0] for row in ROWS])
def test_first_shapes(name: str, text: str, first: tuple[int, ...]) -> None:
    model = parse_model(HEAD + text)
    before = ps.dumps(model)
    found = next(allowed_shapes(model))
    assert found["x"] == first
    feed = next(random_inputs(model, 1))
    ReferenceEvaluator(model).run(None, feed)
    assert ps.dumps(model) == before


def test_what_is_given_counts() -> None:
    model = parse_model(HEAD + "g (float[n, m] x, float[m, k] z) => (float[n, k] y) { y = MatMul(x, z) }")
    assert next(allowed_shapes(model, {"n": 9})) == {"x": (9, 2), "z": (2, 2)}
    assert next(allowed_shapes(model, {}, {"z": (7, 5)})) == {"x": (2, 7), "z": (7, 5)}
    assert next(allowed_shapes(model, {"m": 3}, {"x": (4, 3)})) == {"x": (4, 3), "z": (3, 2)}


def test_a_sum_of_names() -> None:
    model = parse_model(HEAD + "g (float[n, m] x, float[k, t] z) => (float[n, m] y) { y = Relu(x) }")
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "n + m"
    assert next(allowed_shapes(model, {"m": 3})) == {"x": (2, 3), "z": (2, 5)}


def test_what_no_size_fits_has_the_usual_one() -> None:
    model = parse_model(HEAD + "g (float[n, m] x) => (float[a] y) <int64[2] s = {-1, 977}> { y = Reshape(x, s) }")
    assert next(allowed_shapes(model))["x"][0] in TRIED


@pytest.mark.parametrize("text", ["string[2] x", "bfloat16[2] x", "seq(float[2]) x", "float x"])
def test_inputs_that_are_not_drawn(text: str) -> None:
    model = parse_model(f"{HEAD}g ({text}) => (float[2] y) {{ y = Constant<value_floats = [1.0, 2.0]>() }}")
    if text == "float x":
        model.graph.input[0].type.tensor_type.shape = None
    with pytest.raises(
        ProofError, match="input 'x' has no type that random numbers are made of; give prove= the inputs"
    ):
        next(random_inputs(model, 1))


def test_an_optional_input_is_left_out() -> None:
    model = parse_model(f"{HEAD}g (optional(float[2]) x) => (bool y) {{ y = OptionalHasElement(x) }}")
    assert next(random_inputs(model, 1)) == {}
