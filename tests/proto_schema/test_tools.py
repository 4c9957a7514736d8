"""The small tools: sizes of inputs and outputs, and constants without their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import proto_schema as ps
from proto_schema.parser import parse_model
from proto_schema.tools.replace_constants import replace_initializer_by_constant_of_shape as replaced
from proto_schema.tools.update_model_dims import update_inputs_outputs_dims as updated

HEAD = '<ir_version: 10, opset_import: ["": 21, "d": 1]> '
CONV = HEAD + "g (float[1, c, 5] x, float[1] b) => (float[n, m] y) { y = Flatten(x) }"


def test_new_sizes() -> None:
    model = parse_model(CONV)
    assert updated(model, {"x": [1, "k", 5]}, {"y": [-1, 8]}) is model
    text = ps.printer.to_text(model)
    assert "(float[1,k,5] x, float[1] b) => (float[y_0,8] y)" in text


@pytest.mark.parametrize(
    ("inputs", "outputs", "error", "text"),
    [
        ({"x": [2, 3, 5]}, {}, ValueError, "the axis 0 of 'x' has the size 1, and not 2"),
        ({"x": [1, 3]}, {}, ValueError, "'x' has 3 axes, and 2 sizes are given"),
        ({"xx": [1]}, {}, ValueError, "the model has no input 'xx'; it has x"),
        ({}, {"x": [1]}, ValueError, "the model has no output 'x'"),
        ({"x": [1, 2.5, 5]}, {}, TypeError, "a size is an int or a str, not a float"),
        ({"x": [1, "y_0", 5]}, {"y": [-1, -1]}, ValueError, "the name 'y_1' is taken"),
    ],
)
def test_sizes_that_are_refused(inputs: Any, outputs: Any, error: type[Exception], text: str) -> None:
    model = parse_model(CONV.replace("[1] b", "[y_1] b"))
    before = model.SerializeToString()
    with pytest.raises(error, match=text):
        updated(model, inputs, outputs)
    assert model.SerializeToString() == before


def _run(model: ps.ModelProto) -> Any:
    onnx.checker.check_model(model.SerializeToString(), full_check=True)
    results: Any = ReferenceEvaluator(onnx.load_from_string(model.SerializeToString())).run(
        None, {"x": np.zeros((10, 20), np.float32)}
    )
    return results[0]


def _model(place: str) -> ps.ModelProto:
    numbers = f"float[10, 20] w = {{{','.join(['3'] * 200)}}}"
    constant = f"w = Constant <value = {numbers.replace(' w =', '')}> ()"
    call, function, text = "y = Add(x, w)", "", ""
    if place == "initializer":
        text = f"<{numbers}, float[1] small = {{1}}>"
    elif place == "node":
        call = f"{constant} {call}"
    elif place == "branch":
        call = f"q = Constant <value = bool {{1}}> () y = If <then_branch = t () => (float[10, 20] r) {{ {constant} "
        call += "r = Add(x, w) }, else_branch = e () => (float[10, 20] r) { r = Neg(x) }> (q)"
    else:
        function = f'<domain: "d", opset_import: ["": 21]> f (x) => (y) {{ {constant} {call} }}'
        call = "y = d.f(x)"
    return parse_model(f"{HEAD} g (float[10, 20] x) => (float[10, 20] y) {text} {{ {call} }} {function}")


@pytest.mark.parametrize("place", ["initializer", "node", "branch", "function"])
def test_constants_without_their_numbers(place: str) -> None:
    model = _model(place)
    before = model.SerializeToString()
    made = replaced(model)
    assert len(made.SerializeToString()) < len(before) - 500
    assert (_run(made) == 0.5).all()
    assert (_run(replaced(made, value_constant_of_shape=2.0)) == 2).all()
    ranged = replaced(made, use_range=True)
    np.testing.assert_allclose(_run(ranged).ravel(), np.arange(200) / 200, rtol=1e-6)
    assert "ConstantOfShape" not in ps.printer.to_text(ranged)
    assert replaced(model, threshold=200) == model
    assert model.SerializeToString() == before


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="ConstantOfShape came with opset 9, and the model has opset 8"):
        replaced(parse_model('<ir_version: 3, opset_import: ["": 8]> g () => () {}'))
    with pytest.raises(ValueError, match="Range came with opset 11"):
        replaced(parse_model('<ir_version: 3, opset_import: ["": 10]> g () => () {}'), use_range=True)
    with pytest.raises(TypeError, match="a model, graph or function is expected, not a NodeProto"):
        replaced(ps.NodeProto())  # type: ignore[type-var]
