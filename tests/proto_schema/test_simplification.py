"""`ps.simplify`: each rule fires where it may and stays away where it must, and results stay what they are.

The official cases go through it in `tests/compute/test_backend_cases.py`, which has them loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import proto_schema as ps
from proto_schema.parser import parse_model
from proto_schema.simplification import ProofError, engine, rules
from tests.proto_schema.graph_uses import uses_that_are_wrong

HEAD = '<ir_version: 9, opset_import: ["" : %d]>\n'


def model(text: str, opset: int = 17) -> ps.ModelProto:
    return parse_model(HEAD % opset + text)


def operators(given: ps.ModelProto) -> list[str]:
    assert given.graph is not None
    return [node.op_type or "" for node in given.graph.node]


# name, the graph, the operators that are left
ROWS: list[tuple[str, str, list[str]]] = [
    ("identity", "g (float[2] x) => (float[2] y) { a = Identity(x) y = Relu(a) }", ["Relu"]),
    ("identity, output", "g (float[2] x) => (float[2] y) { a = Relu(x) y = Identity(a) }", ["Relu"]),
    ("identity of an input stays", "g (float[2] x) => (float[2] y) { y = Identity(x) }", ["Identity"]),
    (
        "identity of an output stays",
        "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Identity(y) }",
        ["Relu", "Identity"],
    ),
    (
        "identity, of which another node takes the source",
        "g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) b = Neg(a) y = Identity(a) z = Exp(b) }",
        ["Relu", "Neg", "Exp"],
    ),
    ("dropout", "g (float[2] x) => (float[2] y) { a = Dropout(x) y = Relu(a) }", ["Relu"]),
    (
        "shape of a flatten, computed: 5 nodes before, also 5 by Unsqueeze",
        "g (float[b, 3, 4] x) => (float[b, 12] y) <int64 i = {0}, int64[1] o = {1}, int64[1] m = {-1}> "
        "{ s = Shape(x) n = Gather(s, i) u = Reshape(n, o) c = Concat<axis = 0>(u, m) y = Reshape(x, c) }",
        ["Reshape"],
    ),
    (
        "shape of heads, computed: 8 nodes before",
        "g (float[b, t, 8] x) => (float[b, t, 4, 2] y) <int64 i = {0}, int64 j = {1}, int64[1] z = {0}, "
        "int64[1] k = {4}, int64[1] l = {2}> { s = Shape(x) m = Gather(s, i) n = Gather(s, j) u = Unsqueeze(m, z) "
        "v = Unsqueeze(n, z) c = Concat<axis = 0>(u, v, k, l) a = Reshape(x, c) y = Relu(a) }",
        ["Reshape", "Relu"],
    ),
    (
        "shape of which one size is left, computed, where 0 is a size: 3 nodes before",
        "g (float[2, n] x) => (float[n, 2] y) <int64[1] k = {2}> { s = Shape<start = 1>(x) c = Concat<axis = 0>(s, k) "
        "y = Reshape<allowzero = 1>(x, c) }",
        ["Reshape"],
    ),
    (
        "the same where 0 stands for the size of the input stays",
        "g (float[2, n] x) => (float[n, 2] y) <int64[1] k = {2}> { s = Shape<start = 1>(x) c = Concat<axis = 0>(s, k) "
        "y = Reshape(x, c) }",
        ["Shape", "Concat", "Reshape"],
    ),
    (
        "shape with a -1 that would be ambiguous for b = 0 stays",
        "g (float[b, 4, 3, t, 2] x) => (float[b, 12, t, 2] y) <int64[1] k = {12}, int64[1] l = {2}> "
        "{ s = Shape<start = 0, end = 1>(x) t1 = Shape<start = 3, end = 4>(x) c = Concat<axis = 0>(s, k, t1, l) "
        "y = Reshape<allowzero = 1>(x, c) }",
        ["Shape", "Shape", "Concat", "Reshape"],
    ),
    (
        "shape of two sizes that change places stays",
        "g (float[a, b] x) => (float[b, a] y) <int64[2] o = {1, 0}> "
        "{ s = Shape(x) c = Gather(s, o) y = Reshape(x, c) }",
        ["Shape", "Gather", "Reshape"],
    ),
    (
        "if of a known condition",
        "g (float[2] x) => (float[2] y) <bool c = {1}> { t = Neg(x) y = If <then_branch = a () => (float[2] r) "
        "{ u = Exp(t) r = Add(u, x) }, else_branch = b () => (float[2] s) { u = Abs(t) s = Sub(u, x) }>(c) }",
        ["Neg", "Exp", "Add"],
    ),
    (
        "if of a condition that follows from sizes, and names that both branches have",
        "g (float[2] x) => (float[2] y, float[2] z) { n = Shape(x) o = Constant<value_ints = [1]>() e = Equal(n, o) "
        "y = If <then_branch = a () => (float[2] r) { u = Exp(x) r = Add(u, x) }, else_branch = b () => (float[2] s) "
        "{ u = Abs(x) s = Sub(u, x) }>(e) z = If <then_branch = a2 () => (float[2] r2) { r2 = Identity(x) }, "
        "else_branch = b2 () => (float[2] s2) { u = Neg(x) s2 = Sub(u, x) }>(e) }",
        ["Abs", "Sub", "Neg", "Sub"],
    ),
    (
        "if of a known condition, before one whose branch has its names",
        "g (float[2] x, bool d) => (float[2] y, float[2] z) <bool c = {1}> { y = If <then_branch = a () => "
        "(float[2] r) { u = Exp(x) r = Add(u, x) }, else_branch = b () => (float[2] s) { s = Abs(x) }>(c) "
        "z = If <then_branch = a2 () => (float[2] r2) { u = Neg(x) r2 = Exp(u) }, "
        "else_branch = b2 () => (float[2] s2) { s2 = Abs(x) }>(d) }",
        ["Exp", "Add", "If"],
    ),
    (
        "if that gives a value from around it, and one value twice",
        "g (float[2] x) => (float[2] p, float[2] q, float[2] z) <bool c = {0}> { t = Neg(x) p, q, z = If <then_branch "
        "= a () => (float[2] i, float[2] i2, float[2] i3) { i = Exp(x) i2 = Exp(i) i3 = Exp(i2) }, else_branch = "
        "b () => (float[2] t, float[2] s, float[2] s) { s = Abs(t) }>(c) }",
        ["Neg", "Abs", "Identity"],
    ),
    (
        "if in an if, with a tensor of its own",
        "g (float[2] x, bool d) => (float[2] y) <bool c = {1}> { y = If <then_branch = a () => (float[2] r) "
        "<float[2] w = {2, 3}> { v = If <then_branch = e () => (float[2] f) { f = Mul(w, x) }, else_branch = h () => "
        "(float[2] j) { j = Add(w, x) }>(d) r = Neg(v) }, else_branch = b () => (float[2] s) { s = Abs(x) }>(c) }",
        ["If", "Neg"],
    ),
    (
        "if of a condition that is given",
        "g (float[2] x, bool c) => (float[2] y) { y = If <then_branch = a () => (float[2] r) { r = Exp(x) }, "
        "else_branch = b () => (float[2] s) { s = Abs(x) }>(c) }",
        ["If"],
    ),
    (
        "dropout with a mask stays",
        "g (float[2] x) => (float[2] y, bool[2] m) { a, m = Dropout(x) y = Relu(a) }",
        ["Dropout", "Relu"],
    ),
    (
        "dropout in training stays",
        "g (float[2] x, bool t) => (float[2] y) { r = Constant<value_float: float = 0.5>() a = Dropout(x, r, t)"
        " y = Relu(a) }",
        ["Dropout", "Relu"],
    ),
    ("cast", "g (float[2] x) => (float[2] y) { a = Cast<to: int = 1>(x) y = Relu(a) }", ["Relu"]),
    ("cast to another", "g (float[2] x) => (double[2] y) { a = Cast<to: int = 11>(x) y = Neg(a) }", ["Cast", "Neg"]),
    ("one input", "g (float[2] x) => (float[2] y) { a = Concat<axis: int = 0>(x) b = Sum(a) y = Relu(b) }", ["Relu"]),
    (
        "reshape to the same",
        "g (float[n, 3] x) => (float[n, 3] y) { s = Shape(x) a = Reshape(x, s) y = Relu(a) }",
        ["Relu"],
    ),
    (
        "expand to the same",
        "g (float[2, 3] x) => (float[2, 3] y) { s = Shape(x) a = Expand(x, s) y = Relu(a) }",
        ["Relu"],
    ),
    (
        "expand to more",
        "g (float[1, 3] x) => (float[2, 3] y) <int64[2] s = {2, 3}> { a = Expand(x, s) y = Relu(a) }",
        ["Expand", "Relu"],
    ),
    ("add 0 of ints", "g (int64[2] x) => (int64[2] y) <int64 z = {0}> { a = Add(z, x) y = Neg(a) }", ["Neg"]),
    (
        "add 0.0 stays, because of -0.0",
        "g (float[2] x) => (float[2] y) <float z = {0.0}> { a = Add(x, z) y = Neg(a) }",
        ["Add", "Neg"],
    ),
    ("add -0.0", "g (float[2] x) => (float[2] y) <float z = {-0.0}> { a = Add(x, z) y = Neg(a) }", ["Neg"]),
    ("subtract 0.0", "g (float[2] x) => (float[2] y) <float z = {0.0}> { a = Sub(x, z) y = Neg(a) }", ["Neg"]),
    ("subtract -0.0", "g (float[2] x) => (float[2] y) <float z = {-0.0}> { a = Sub(x, z) y = Neg(a) }", ["Sub", "Neg"]),
    (
        "subtract zeros of both signs",
        "g (float[2] x) => (float[2] y) <float[2] z = {0.0, -0.0}> { a = Sub(x, z) y = Neg(a) }",
        ["Sub", "Neg"],
    ),
    (
        "add zeros of both signs",
        "g (float[2] x) => (float[2] y) <float[2] z = {-0.0, 0.0}> { a = Add(x, z) y = Neg(a) }",
        ["Add", "Neg"],
    ),
    ("0.0 - x", "g (float[2] x) => (float[2] y) <float z = {0.0}> { a = Sub(z, x) y = Neg(a) }", ["Sub", "Neg"]),
    ("times 1", "g (float[2] x) => (float[2] y) <float[1] z = {1.0}> { a = Mul(z, x) y = Neg(a) }", ["Neg"]),
    (
        "times 1 with more axes",
        "g (float[2] x) => (float[1, 2] y) <float[1, 1] z = {1.0}> { a = Mul(z, x) y = Neg(a) }",
        ["Mul", "Neg"],
    ),
    ("by 1", "g (float[2] x) => (float[2] y) <float z = {1.0}> { a = Div(x, z) b = Pow(a, z) y = Neg(b) }", ["Neg"]),
    ("1 / x", "g (float[2] x) => (float[2] y) <float z = {1.0}> { a = Div(z, x) y = Neg(a) }", ["Div", "Neg"]),
    (
        "pad by nothing",
        "g (float[2, 3] x) => (float[2, 3] y) <int64[4] p = {0, 0, 0, 0}> { a = Pad(x, p) y = Relu(a) }",
        ["Relu"],
    ),
    (
        "slice of all",
        "g (float[2] x) => (float[2] y) <int64[1] s = {0}, int64[1] e = {9}> { a = Slice(x, s, e) y = Relu(a) }",
        ["Relu"],
    ),
    (
        "slice backwards",
        "g (float[2] x) => (float[2] y) <int64[1] s = {-1}, int64[1] e = {-9}, int64[1] a = {0}> "
        "{ b = Slice(x, s, e, a, s) y = Relu(b) }",
        ["Slice", "Relu"],
    ),
    (
        "transposes that cancel",
        "g (float[2, 3] x) => (float[2, 3] y) { a = Transpose(x) b = Transpose<perm: ints = [1, 0]>(a) y = Relu(b) }",
        ["Relu"],
    ),
    (
        "transposes that join",
        "g (float[2, 3, 4] x) => (float[4, 2, 3] y) { a = Transpose<perm: ints = [1, 2, 0]>(x) "
        "b = Transpose<perm: ints = [1, 2, 0]>(a) y = Relu(b) }",
        ["Transpose", "Relu"],
    ),
    (
        "reshape of reshape",
        "g (float[2, 6] x) => (float[3, 4] y) <int64[3] s = {2, 3, 2}, int64[2] t = {3, 4}> "
        "{ a = Reshape(x, s) b = Reshape(a, t) y = Relu(b) }",
        ["Reshape", "Relu"],
    ),
    (
        "reshape of reshape with a 0",
        "g (float[2, n] x, int64[2] s) => (float[p, q, 1] y) <int64[3] t = {0, -1, 1}> "
        "{ a = Reshape(x, s) b = Reshape(a, t) y = Relu(b) }",
        ["Reshape", "Reshape", "Relu"],
    ),
    (
        "squeeze of unsqueeze",
        "g (float[2, 3] x) => (float[2, 3] y) <int64[1] a = {1}> { b = Unsqueeze(x, a) c = Squeeze(b, a) y = Relu(c) }",
        ["Relu"],
    ),
    ("not of not", "g (bool[2] x) => (bool[2] y) { a = Not(x) b = Not(a) c = And(b, x) y = Not(c) }", ["And", "Not"]),
    ("equal nodes", "g (float[2] x) => (float[2] y) { a = Exp(x) b = Exp(x) y = Add(a, b) }", ["Exp", "Add"]),
    (
        "equal nodes with other attributes",
        "g (float[2] x) => (float[2] y) { a = Elu<alpha: float = 1.0>(x) b = Elu<alpha: float = 2.0>(x) "
        "y = Add(a, b) }",
        ["Elu", "Elu", "Add"],
    ),
    (
        "random numbers are never equal",
        "g (float[2] x) => (float[2] y) { a = RandomNormalLike(x) b = RandomNormalLike(x) y = Add(a, b) }",
        ["RandomNormalLike", "RandomNormalLike", "Add"],
    ),
    ("what nothing needs", "g (float[2] x) => (float[2] y) { a = Exp(x) b = Neg(a) y = Relu(x) }", ["Relu"]),
    (
        "constants",
        "g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { a = Exp(w) b = Add(a, w) y = Mul(x, b) }",
        ["Mul"],
    ),
    ("a constant output", "g (float[2] x) => (int64[1] y) { y = Shape(x) }", ["Constant"]),
    (
        "sizes of dynamic axes stay",
        "g (float[n, 3] x) => (int64[2] y) { s = Shape(x) y = Add(s, s) }",
        ["Shape", "Add"],
    ),
    (
        "a known size of a dynamic shape",
        "g (float[n, 3] x) => (int64 y) <int64 i = {1}> { s = Shape(x) t = Gather(s, i) y = Add(t, t) }",
        ["Constant"],
    ),
    (
        "a quantized weight stays",
        "g (float[2] x) => (float[2] y) <int8[2] w = {1, 2}, float s = {0.5}> "
        "{ a = DequantizeLinear(w, s) y = Add(x, a) }",
        ["DequantizeLinear", "Add"],
    ),
    (
        "what a body takes",
        "g (float[2] x, bool c) => (float[2] y) { a = Identity(x) y = If(c) <then_branch = t () => (float[2] p) "
        "{ p = Relu(a) }, else_branch = e () => (float[2] q) { q = Neg(a) }> }",
        ["If"],
    ),
]


@pytest.mark.parametrize(("name", "text", "left"), ROWS, ids=[row[0] for row in ROWS])
def test_row(name: str, text: str, left: list[str]) -> None:
    given = model(text)
    before = given.SerializeToString()
    made = ps.simplify(given)
    assert operators(made) == left
    assert given.SerializeToString() == before
    ps.checker.check_model(made)
    if "random" not in name and "training" not in name and " with a 0" not in name:
        from proto_schema.rewrite.proof import proven

        proven(given, made, 2)


NORMALIZED = (
    "<float[2, 1, 1, 1] w = {2.0, 3.0}, float[2] s = {1.5, 2.0}, float[2] b = {1.0, 2.0}, float[2] m = {0.5, 0.25}, "
    "float[2] v = {4.0, 9.0}, int64[8] p = {0, 0, 0, 0, 0, 0, 0, 0}, int64[4] k = {1, 2, 2, 2}> "
)
IMAGES = "g (float[1, 1, 2, 2] x) => (float[1, 2, 2, 2] y, float[1, 2, 2, 2] z) "
# what stands between a convolution and its normalization, the graph, the operators that are left
SECOND_READERS: list[tuple[str, str, list[str]]] = [
    ("nothing",
     "a = Conv(x, w) y = BatchNormalization(a, s, b, m, v) z = Neg(a)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("identity",
     "a = Conv(x, w) i = Identity(a) y = BatchNormalization(i, s, b, m, v) z = Neg(a)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("identity, which the other one reads",
     "a = Conv(x, w) i = Identity(a) y = BatchNormalization(a, s, b, m, v) z = Neg(i)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("two identities",
     "a = Conv(x, w) i = Identity(a) j = Identity(i) y = BatchNormalization(j, s, b, m, v) z = Neg(i)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("identity behind the other one",
     "a = Conv(x, w) z = Neg(a) i = Identity(a) y = BatchNormalization(i, s, b, m, v)",
     ["Conv", "Neg", "BatchNormalization"]),
    ("dropout",
     "a = Conv(x, w) i = Dropout(a) y = BatchNormalization(i, s, b, m, v) z = Neg(a)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("pad by nothing",
     "a = Conv(x, w) i = Pad(a, p) y = BatchNormalization(i, s, b, m, v) z = Neg(a)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("reshape to the same",
     "a = Conv(x, w) i = Reshape(a, k) y = BatchNormalization(i, s, b, m, v) z = Neg(a)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("not-not",
     "a = Conv(x, w) i = Neg(a) j = Neg(i) y = BatchNormalization(j, s, b, m, v) z = Relu(i)",
     ["Conv", "Neg", "BatchNormalization", "Relu"]),
    ("an equal one",
     "a = Conv(x, w) c = Conv(x, w) y = BatchNormalization(a, s, b, m, v) z = Neg(c)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("an equal one, behind",
     "a = Conv(x, w) y = BatchNormalization(a, s, b, m, v) c = Conv(x, w) z = Neg(c)",
     ["Conv", "Conv", "Neg"]),
    ("an output",
     "a = Conv(x, w) z = Identity(a) y = BatchNormalization(a, s, b, m, v)",
     ["Conv", "BatchNormalization"]),
    ("a body", "a = Conv(x, w) i = Identity(a) y = BatchNormalization(i, s, b, m, v) t = ReduceMax(x) "
     "e = Cast<to = 9>(t) z = If(e) <then_branch = f () => (float[1, 2, 2, 2] q) { q = Neg(a) }, "
     "else_branch = h () => (float[1, 2, 2, 2] r) { r = Abs(a) }>",
     ["Conv", "BatchNormalization", "ReduceMax", "Cast", "If"]),
    ("a reader that goes away", "a = Conv(x, w) i = Identity(a) y = BatchNormalization(i, s, b, m, v) c = Conv(x, w) "
     "d = BatchNormalization(c, s, b, m, v) z = Neg(d)", ["Conv", "Conv", "Neg"]),
    ("identity, which both read",
     "a = Conv(x, w) i = Identity(a) y = BatchNormalization(i, s, b, m, v) z = Neg(i)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("dropout, which both read",
     "a = Conv(x, w) i = Dropout(a) y = BatchNormalization(i, s, b, m, v) z = Neg(i)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("pad by nothing, which both read",
     "a = Conv(x, w) i = Pad(a, p) y = BatchNormalization(i, s, b, m, v) z = Neg(i)",
     ["Conv", "BatchNormalization", "Neg"]),
    ("reshape to the same, which both read",
     "a = Conv(x, w) i = Reshape(a, k) y = BatchNormalization(i, s, b, m, v) z = Neg(i)",
     ["Conv", "BatchNormalization", "Neg"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "nodes", "left"), SECOND_READERS, ids=[row[0] for row in SECOND_READERS])
def test_a_convolution_with_a_second_reader_stays(name: str, nodes: str, left: list[str]) -> None:
    """Every question that a rewrite asks is answered by the graph as it is then."""
    made = ps.simplify(model(f"{IMAGES}{NORMALIZED}{{ {nodes} }}"), prove=2)
    ps.checker.check_model(made, full_check=True)
    assert operators(made) == left


@pytest.mark.parametrize(
    "text", [row[1] for row in ROWS] + [f"{IMAGES}{NORMALIZED}{{ {row[1]} }}" for row in SECOND_READERS]
)
def test_uses_are_those_of_the_graph_after_every_node(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visit = engine._Round._visit
    seen = []

    def watched(self: engine._Round, node: ps.ir.Node) -> None:
        visit(self, node)
        seen.append(node)
        assert uses_that_are_wrong(self.known.model) == []

    monkeypatch.setattr(engine._Round, "_visit", watched)
    ps.simplify(model(text))
    assert seen


def test_every_rule_has_a_row() -> None:
    used = {node.op_type for _, text, _ in ROWS for node in model(text).graph.node}
    others = {"CastLike", "Flatten", "Max", "Mean", "Min", "Tile"}  # which are like one that has a row
    assert {rule.pattern.anchors[0].op_type for rule in rules.RULES} - used == others


NORM = (
    "g (float[2, 3, 5, 5] x, float[4, 3, 3, 3] w, float[4] s, float[4] b, float[4] m, float[4] v) "
    "=> (float[2, 4, 3, 3] y) { a = Conv(x, w%s) y = BatchNormalization(a, s, b, m, v) }"
)


@pytest.mark.parametrize("bias", ["", ", b"])
def test_normalization_goes_into_the_convolution(bias: str) -> None:
    draw = np.random.default_rng(0)
    given = parse_model(HEAD % 17 + NORM % bias)
    image, *parameters = given.graph.input
    given.graph.input = [image]
    for item in parameters:
        sizes = [dim.dim_value or 0 for dim in item.type.tensor_type.shape.dim]
        array = draw.uniform(0.5, 2, sizes).astype(np.float32)
        given.graph.initializer.append(ps.numpy_helper.from_array(array, item.name))
    made = ps.simplify(given, prove=3)
    assert operators(made) == ["Conv"]
    feed = {"x": draw.standard_normal((2, 3, 5, 5)).astype(np.float32)}
    wanted, found = (onnxruntime.InferenceSession(item.SerializeToString()).run(None, feed) for item in (given, made))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)
    assert operators(ps.simplify(given, fold_bytes=0, prove=1)) == ["Conv"]


class Unread(ps.Payload):
    """Bytes of a weight, which nobody asks for."""

    def __init__(self, size: int) -> None:
        self.size = size

    @property
    def nbytes(self) -> int:
        return self.size

    def chunks(self, limit: int = 1) -> Iterator[memoryview]:
        raise AssertionError("a large weight was read")


class Counted(ps.Payload):
    """A weight of ones, made in pieces, whose largest is remembered."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.largest = 0

    @property
    def nbytes(self) -> int:
        return self.size

    def chunks(self, limit: int = 1) -> Iterator[memoryview]:
        for start in range(0, self.size, limit):
            count = min(limit, self.size - start)
            self.largest = max(self.largest, count)
            yield np.ones(count // 4, np.float32).view(np.uint8).data


@pytest.mark.parametrize(("operator", "dims"), [("Conv", [8, 512, 32, 32]), ("ConvTranspose", [512, 8, 32, 32])])
def test_a_normalization_goes_into_a_weight_of_any_size(operator: str, dims: list[int], tmp_path: Path) -> None:
    """16 MiB, of which no more than 1 MiB is in memory at once, and nothing before the model is written."""
    given = model(
        f"g (float[1, 512, 32, 32] x) => (float[a, b, c, d] y) {{ a = {operator}(x, w) "
        "y = BatchNormalization(a, s, b, m, v) }"
    )
    size = 4 * int(np.prod(dims))
    weight = Counted(size)
    given.graph.initializer.append(ps.TensorProto(name="w", data_type=1, dims=dims, raw_data=weight))
    numbers = {name: np.arange(1, 9, dtype=np.float32) * k for name, k in (("s", 3), ("b", 1), ("m", 2), ("v", 4))}
    given.graph.initializer += [ps.numpy_helper.from_array(array, name) for name, array in numbers.items()]
    made = ps.simplify(given)
    assert operators(made) == [operator]
    assert weight.largest == 0
    ps.save(made, tmp_path / "m.onnx")
    assert weight.largest == 1 << 20
    found = {item.name: ps.numpy_helper.to_array(item) for item in ps.load(tmp_path / "m.onnx").graph.initializer}
    factor = numbers["s"] / np.sqrt(numbers["v"] + 1e-5)
    shape = [8 if size == 8 else 1 for size in dims]
    np.testing.assert_allclose(found["w_merged"], np.broadcast_to(factor.reshape(shape), dims), rtol=1e-6)
    np.testing.assert_allclose(found["y_bias"], numbers["b"] - numbers["m"] * factor, rtol=1e-5)


def test_a_normalization_that_does_not_fit_stays() -> None:
    """Statistics of another size than the weight has channels, and weights whose bytes are not there."""
    text = (
        "g (float[1, 1, 2, 2] x) => (float[1, 2, 2, 2] y) %s { a = Conv(x, w) y = BatchNormalization(a, s, b, m, v) }"
    )
    short = NORMALIZED.replace("float[2] s = {1.5, 2.0}", "float[1] s = {1.5}")
    assert operators(ps.simplify(model(text % short))) == ["Conv", "BatchNormalization"]
    missing = model(text % NORMALIZED)
    weight = next(item for item in missing.graph.initializer if item.name == "w")
    weight.float_data, weight.data_location = [], ps.TensorProto.EXTERNAL
    weight.external_data = [ps.StringStringEntryProto(key="location", value="gone.data")]
    assert operators(ps.simplify(missing)) == ["Conv", "BatchNormalization"]


def test_large_weights_are_not_read() -> None:
    given = model("g (float[2, 4] x) => (float[2, 4] y) { a = Transpose(w) b = Identity(x) y = MatMul(b, a) }")
    size = 1 << 16
    tensor = ps.TensorProto(name="w", data_type=1, dims=[size, size], raw_data=Unread(4 * size * size))
    given.graph.initializer.append(tensor)
    made = ps.simplify(given)
    assert operators(made) == ["Transpose", "MatMul"]
    assert made.graph.initializer[0].raw_data is tensor.raw_data


def test_an_old_file_gets_nodes_for_its_constants() -> None:
    given = model(
        "g (float[2] x) => (float[2] y) { a = Constant<value_float: float = 2.0>() b = Exp(a) y = Mul(x, b) }"
    )
    given.ir_version = 3
    made = ps.simplify(given)
    assert operators(made) == ["Constant", "Mul"]
    ps.checker.check_model(made)


def test_a_wrong_rewrite_is_found_by_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "g (float[2] x) => (float[2] y) { a = Exp(x) y = Neg(a) }"
    wrong = ps.rewrite.rule(lambda op, x: op.Exp(x), lambda op, x: x)
    monkeypatch.setattr(engine, "RULES", (*rules.RULES, wrong))
    assert operators(ps.simplify(model(text))) == ["Neg"]
    with pytest.raises(ProofError, match="output 'y' of the changed model differs on inputs 0; please report it"):
        ps.simplify(model(text), prove=1)
    with pytest.raises(ProofError, match="nothing is proven: the input 'x' is missing"):
        ps.simplify(model(text), prove=[{}])


@pytest.mark.parametrize(
    ("nodes", "error"),
    [
        ("y = Relu(a) a = Identity(x)", r"node\[0\]: takes 'a', which node\[1\] makes; nodes must be in topological"),
        ("a = Identity(a) y = Relu(a)", r"node\[0\]: takes 'a', which node\[0\] makes; nodes must be in topological"),
        ("a = Relu(x) a = Relu(a) y = Relu(a)", r"node\[1\].output: 'a' is defined already; a value is assigned only"),
        ("x = Relu(x) y = Relu(x)", r"node\[0\].output: 'x' is defined already; a value is assigned only once"),
    ],
)
def test_names_that_cannot_be_followed(nodes: str, error: str) -> None:
    with pytest.raises(ps.CheckError, match=error):
        ps.simplify(model(f"g (float[2] x) => (float[2] y) {{ {nodes} }}"))


@pytest.mark.parametrize("node", ["y = Expand(x)", "y = Slice(x, s)", 'y = Flatten<axis = "1">(x)', "y = Reshape(x, )"])
def test_nodes_that_are_none_stay(node: str) -> None:
    """What the operator requires is missing, so no row looks at the node."""
    assert operators(ps.simplify(model(f"g (float[2] x, int64[1] s) => (float[2] y) {{ {node} }}"))) == [
        node[4:].partition("(")[0].partition("<")[0]
    ]


def test_paths_bytes_and_arguments(tmp_path: Path) -> None:
    given = model("g (float[2] x) => (float[2] y) { a = Identity(x) y = Relu(a) }")
    ps.save(given, tmp_path / "m.onnx")
    for form in (str(tmp_path / "m.onnx"), given.SerializeToString()):
        assert operators(ps.simplify(form)) == ["Relu"]
    with pytest.raises(ValueError, match="fold_bytes=-1 must be 0 or more"):
        ps.simplify(given, fold_bytes=-1)
