"""`ps.rewrite`: a rule is applied where its pattern is, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import ir, rewrite
from proto_schema.parser import parse_model
from proto_schema.reference import ReferenceEvaluator
from tests.proto_schema.graph_uses import uses_that_are_wrong


def model(text: str, opset: int = 17) -> ps.ModelProto:
    return parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')


def left(message: ps.ModelProto) -> list[str]:
    """The operators in order, those of bodies behind their node."""
    graph = ir.from_message(message).graph
    return [node.op_type for inner in graph.nested() for node in inner.nodes]


def _gelu(op: Any, x: Any) -> Any:
    return op.Mul(op.Mul(x, op.Add(op.Erf(op.Div(x, 1.4142135623730951)), 1.0)), 0.5)


def _bodies(op: Any, x: Any) -> Any:
    return op.Relu(op.Neg(x))


NO = "g (float[2, 3] x) => (float[2, 3] y) "
GEMM = rewrite.rule(
    lambda op, x, w, b: op.Add(op.MatMul(x, w), b),
    lambda op, x, w, b: op.Gemm(x, w, b),
    lambda x, w, b: x.rank == w.rank == 2 and b.rank == 1,
    name="gemm",
)
TRANSPOSES = rewrite.rule(
    lambda op, x, first, second: op.Transpose(op.Transpose(x, perm=first), perm=second),
    lambda op, x, first, second: op.Transpose(x, perm=[first[axis] for axis in second]),
    lambda first, second: first and second,
)
SWISH = rewrite.rule(lambda op, x: op.Mul(x, op.Sigmoid(x)), lambda op, x: op.op("Silu", x, domain="com.example"))
CLIP = rewrite.rule(lambda op, x: op.Clip(x, 0.0, 6.0), lambda op, x: op.Min(op.Relu(x), 6.0))
SUM = rewrite.rule(lambda op, x: op.ReduceSum(x, [1], keepdims=0), lambda op, x: op.Squeeze(op.ReduceSum(x, [1]), [1]))
CONV = rewrite.rule(
    lambda op, x, w, rest, b=None: op.Relu(op.Conv(x, w, b, **rest)),
    lambda op, x, w, rest, b: op.Relu(op.Neg(op.Conv(op.Neg(x), w, b, **rest))) if b is None else None,
)
SPLIT = rewrite.rule(
    lambda op, x: tuple(op.Split(x, axis=1, outputs=2)),
    lambda op, x: (op.Slice(x, [0], [2], [1]), op.Slice(x, [2], [4], [1])),
)
BOTH = rewrite.rule(
    lambda op, x: (op.Sin(x), op.Cos(x)), lambda op, x: (op.Cos(op.Sub(x, np.pi / 2)), op.Sin(op.Add(x, np.pi / 2)))
)

# name, rule, graph, operators that are left, opset
ROWS: list[tuple[str, Any, str, list[str], int]] = [
    (
        "gemm",
        GEMM,
        NO + "<float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[3] b = {1, 2, 3}> { a = MatMul(x, w) y = Add(a, b) }",
        ["Gemm"],
        17,
    ),
    (
        "commutes",
        GEMM,
        NO + "<float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[3] b = {1, 2, 3}> { a = MatMul(x, w) y = Add(b, a) }",
        ["Gemm"],
        17,
    ),
    (
        "condition",
        GEMM,
        NO + "<float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[2, 3] c = {1, 2, 3, 4, 5, 6}> { a = MatMul(x, "
        "w) y = Add(a, c) }",
        ["MatMul", "Add"],
        17,
    ),
    (
        "read elsewhere",
        GEMM,
        "g (float[2, 3] x, float[3, 3] w, float[3] b) => (float[2, 3] y, float[2, 3] a) { a = MatMul(x, w) y = "
        "Add(a, b) }",
        ["MatMul", "Add"],
        17,
    ),
    (
        "read in a body",
        GEMM,
        "g (float[2, 3] x, float[3, 3] w, float[3] b, bool c) => (float[2, 3] y, float[2, 3] z) { a = MatMul(x, w) "
        "y = Add(a, b) z = If (c) <then_branch = t () => (float[2, 3] p) { p = Neg(a) }, "
        "else_branch = e () => (float[2, 3] q) { q = Exp(x) }> }",
        ["MatMul", "Add", "If", "Neg", "Exp"],
        17,
    ),
    (
        "attributes",
        TRANSPOSES,
        "g (float[2, 3, 4] x) => (float[4, 2, 3] y) { a = Transpose<perm = [1, 2, 0]>(x) y = Transpose<perm = "
        "[1, 2, 0]>(a) }",
        ["Transpose"],
        17,
    ),
    ("the same value twice", SWISH, NO + "{ s = Sigmoid(x) y = Mul(s, x) }", ["Silu"], 17),
    (
        "not the same value",
        SWISH,
        "g (float[2] x, float[2] z) => (float[2] y) { s = Sigmoid(x) y = Mul(s, z) }",
        ["Sigmoid", "Mul"],
        17,
    ),
    ("inputs", CLIP, NO + "<float l = {0}, float h = {6}> { y = Clip(x, l, h) }", ["Relu", "Min"], 17),
    ("attributes of old", CLIP, NO + "{ y = Clip<min = 0.0, max = 6.0>(x) }", ["Relu", "Min"], 10),
    ("another number", CLIP, NO + "<float l = {0}, float h = {5}> { y = Clip(x, l, h) }", ["Clip"], 17),
    ("one number less", CLIP, NO + "<float l = {0}> { y = Clip(x, l) }", ["Clip"], 17),
    (
        "axes",
        SUM,
        "g (float[2, 3] x) => (float[2] y) <int64[1] a = {1}> { y = ReduceSum<keepdims = 0>(x, a) }",
        ["ReduceSum", "Squeeze"],
        17,
    ),
    (
        "axes of old",
        SUM,
        "g (float[2, 3] x) => (float[2] y) { y = ReduceSum<axes = [1], keepdims = 0>(x) }",
        ["ReduceSum", "Squeeze"],
        11,
    ),
    (
        "an attribute by its default",
        SUM,
        "g (float[2, 3] x) => (float[2, 1] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }",
        ["ReduceSum"],
        17,
    ),
    (
        "left out, with the rest of the attributes",
        CONV,
        "g (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y) <float[1, 1, 2, 2] w = {1, 2, 3, 4}> "
        "{ a = Conv<strides = [2, 2]>(x, w) y = Relu(a) }",
        ["Neg", "Conv", "Neg", "Relu"],
        17,
    ),
    (
        "None leaves it as it is",
        CONV,
        "g (float[1, 1, 4, 4] x) => (float[1, 1, 3, 3] y) <float[1, 1, 2, 2] w = {1, 2, 3, 4}, float[1] b = {1}> "
        "{ a = Conv(x, w, b) y = Relu(a) }",
        ["Conv", "Relu"],
        17,
    ),
    (
        "several outputs",
        SPLIT,
        "g (float[2, 4] x) => (float[2, 2] y, float[2, 2] z) { y, z = Split<axis = 1>(x) }",
        ["Slice", "Slice"],
        13,
    ),
    (
        "several anchors",
        BOTH,
        NO[:-1] + " { a = Sin(x) b = Exp(a) c = Cos(x) y = Add(b, c) }",
        ["Sub", "Cos", "Add", "Sin", "Exp", "Add"],
        17,
    ),
    (
        "bodies",
        rewrite.rule(_bodies, lambda op, x: op.Max(op.Neg(x), 0.0)),
        "g (float[2] x, bool c) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] p) "
        "{ n = Neg(x) p = Relu(n) }, else_branch = e () => (float[2] q) { q = Abs(x) }> }",
        ["If", "Neg", "Max", "Abs"],
        17,
    ),
    (
        "gelu, to a newer operator",
        rewrite.rule(_gelu, lambda op, x: op.Gelu(x)),
        NO + "<float s = {1.41421354}, float o = {1}, float h = {0.5}> "
        "{ d = Div(x, s) e = Erf(d) a = Add(o, e) m = Mul(x, a) y = Mul(m, h) }",
        ["Gelu"],
        20,
    ),
    (
        "a softmax that means something else",
        rewrite.rule(lambda op, x: op.Softmax(x, axis=1), lambda op, x: op.Exp(op.LogSoftmax(x, axis=1))),
        "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax<axis = 1>(x) }",
        ["Softmax"],
        11,
    ),
    (
        "a resize that means something else",
        rewrite.rule(lambda op, x, s, rest: op.Resize(x, None, s, **rest), lambda op, x, s: op.Tile(x, [1, 1, 2, 2])),
        "g (float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y) <float[4] s = {1, 1, 2, 2}> { y = Resize(x, s) }",
        ["Resize"],
        10,
    ),
    (
        "to the input, where an output must keep its name",
        rewrite.rule(lambda op, x: op.Neg(op.Neg(x)), lambda op, x: x),
        NO + "{ a = Neg(x) y = Neg(a) }",
        ["Identity"],
        17,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_rows(row: tuple[str, Any, str, list[str], int]) -> None:
    _, rule, text, operators, opset = row
    before = model(text, opset)
    data = before.SerializeToString()
    changes = rewrite.apply(before, rule, prove=0 if rule is SWISH else 2)
    after = changes.model
    assert isinstance(after, ps.ModelProto)
    assert left(after) == operators
    assert bool(changes) == (left(before) != operators)
    assert before.SerializeToString() == data
    assert not uses_that_are_wrong(ir.from_message(after))
    ps.checker.check_model(after, full_check=True)


def test_counts_names_and_places(tmp_path: Path) -> None:
    given = ir.from_message(model(NO + "{ a = Neg(x) b = Neg(a) c = Relu(b) d = Relu(c) y = Exp(d) }"))
    rules = [
        rewrite.rule(lambda op, x: op.Neg(op.Neg(x)), lambda op, x: x),
        rewrite.rule(lambda op, x: op.Relu(op.Relu(x)), lambda op, x: op.Relu(x), name="relu"),
    ]
    changes = rewrite.apply(given, rules)
    assert dict(changes) == {"Neg(Neg(x))": 1, "relu": 1} and changes.model is given and changes.total == 2
    assert str(changes) == "Neg(Neg(x)): 1, relu: 1"
    assert [node.op_type for node in given.graph.nodes] == ["Relu", "Exp"]
    ps.save(model(NO + "{ a = Neg(x) b = Neg(a) y = Exp(b) }"), tmp_path / "a.onnx")
    assert left(rewrite.apply(tmp_path / "a.onnx", rules).model) == ["Exp"]  # type: ignore[arg-type]
    assert not rewrite.apply(given, rules)


def test_functions_of_the_model_are_walked_and_hide_operators() -> None:
    own = '<opset_import: ["" : 17], domain: "ours">\nf (v) => (w) { n = Neg(v) w = Neg(n) }'
    text = f"{NO} {{ a = Relu(x) b = Relu(a) y = ours.f(b) }}\n{own}"
    given = parse_model('<ir_version: 9, opset_import: ["" : 17, "ours" : 1]>\n' + text)
    rule = rewrite.rule(lambda op, x: op.Neg(op.Neg(x)), lambda op, x: op.Identity(x))
    after = rewrite.apply(given, rule, prove=1).model
    assert [node.op_type for node in after.functions[0].node] == ["Identity"]  # type: ignore[union-attr]
    given.functions[0].domain, given.functions[0].name = None, "Relu"
    given.graph.node.pop()
    given.graph.node[-1].output[:] = ["y"]
    assert not rewrite.apply(given, rewrite.rule(lambda op, x: op.Relu(op.Relu(x)), lambda op, x: op.Relu(x)))


def _wrong(op: Any, x: Any) -> Any:
    return op.Neg(op.Relu(x))


def test_the_rule_that_changed_the_numbers_is_named() -> None:
    rules = [
        rewrite.rule(lambda op, x: op.Exp(op.Relu(x)), lambda op, x: op.Exp(op.Max(x, 0.0)), name="right"),
        rewrite.rule(lambda op, x: op.Neg(op.Max(x, 0.0)), lambda op, x: op.Neg(x), name="wrong"),
        rewrite.rule(_wrong, lambda op, x: op.Neg(op.Max(x, 0.0)), name="before"),
    ]
    text = NO + "{ a = Relu(x) b = Exp(a) c = Relu(b) d = Sin(c) e = Relu(d) y = Neg(e) }"
    with pytest.raises(rewrite.ProofError, match=r"rule '(before|wrong)' changes the numbers"):
        rewrite.apply(model(text), rules, prove=3)
    with pytest.raises(rewrite.ProofError, match="rule 'wrong' changes the numbers: output 'y' of the changed model"):
        rewrite.apply(model(NO + "<float z = {0}> { a = Exp(x) b = Sin(a) m = Max(b, z) y = Neg(m) }"), rules, prove=3)


# a rule that cannot be one, and what is said
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: rewrite.rule(lambda op, x: op.Relou(x), lambda op, x: x), "ai.onnx has no operator 'Relou'"),
    (lambda: rewrite.rule(lambda op, x: x, lambda op, x: x), r"returns \[x\]; return what its operators make"),
    (
        lambda: rewrite.rule(lambda op, x: op.Relu(x), lambda op, z: z),
        "has the parameter 'z', and the pattern has match, x",
    ),
    (lambda: rewrite.rule(lambda op, x: op.relu(x), lambda op, x: x), "op has no 'relu'; names of operators begin"),
    (
        lambda: rewrite.apply(
            model(NO + "{ y = Relu(x) }"), rewrite.rule(lambda op, x: op.Relu(x), lambda op, x: op.Cast(x, to=7))
        ),
        r"rule 'Relu\(x\)': makes int64\[2, 3\] of 'y', which was float\[2, 3\]; give it a condition",
    ),
    (
        lambda: rewrite.apply(
            model(NO + "{ y = Relu(x) }"),
            rewrite.rule(lambda op, x: op.Relu(x), lambda op, x: op.RotaryEmbedding(x, x, x)),
        ),
        r"rule 'Relu\(x\)': RotaryEmbedding does not exist at opset 17",
    ),
    (
        lambda: rewrite.apply(
            model(NO + "{ y = Relu(x) }"), rewrite.rule(lambda op, x: op.Relu(x), lambda op, x: op.Relu(op.Relu(x)))
        ),
        r"rule 'Relu\(x\)' still changes the model after 40 changes: its replacement has its pattern in it",
    ),
    (
        lambda: rewrite.apply(
            model(NO + "{ y = Relu(x) }"), rewrite.rule(lambda op, x: op.Relu(x), lambda op, x: (x, x))
        ),
        r"rule 'Relu\(x\)': returns 2 values for 1 of the pattern; return as many",
    ),
]


@pytest.mark.parametrize(("mistake", "text"), MISTAKES, ids=[row[1][:30] for row in MISTAKES])
def test_mistakes(mistake: Callable[[], Any], text: str) -> None:
    with pytest.raises((rewrite.RewriteError, AttributeError), match=text):
        mistake()


def test_a_refused_replacement_leaves_nothing() -> None:
    def refuse(op: Any, x: Any) -> None:
        op.Add(op.Exp(x), 1.0)

    given = ir.from_message(model(NO + "{ y = Relu(x) }"))
    assert not rewrite.apply(given, rewrite.rule(lambda op, x: op.Relu(x), refuse))
    assert [node.op_type for node in given.graph.nodes] == ["Relu"] and not given.graph.initializers
    assert ReferenceEvaluator(given.to_message()).run(None, {"x": np.ones((2, 3), np.float32)})
