"""`ps.passes`: each does its own thing, and says what it did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import proto_schema as ps
from proto_schema import ir, passes, rewrite
from proto_schema.parser import parse_model
from tests.proto_schema.graph_uses import uses_that_are_wrong

HEAD = '<ir_version: 9, opset_import: ["" : 17, "ours" : 1]>\n'
FUNCTION = '<opset_import: ["" : 17], domain: "ours">\nf (v) => (w) { n = Neg(v) w = Relu(n) }'
DEAD = (
    "g (float[2] x, bool c) => (float[2] y) <float[1] k = {1}> { a = Exp(x) y = If (c) <then_branch = t () => "
    "(float[2] p) "
    "{ u = Neg(x) v = Add(u, a) p = Abs(x) }, else_branch = e () => (float[2] q) { q = Sin(x) }> }"
)
RELU = rewrite.rule(lambda op, x: op.Relu(op.Relu(x)), lambda op, x: op.Relu(x))


class Rename(passes.Pass):
    def change(self, model: ir.Model) -> Mapping[str, int]:
        for node in model.graph.nodes:
            node.name = node.name or f"{node.op_type}_"
        return {"named": len(model.graph.nodes)}


# the pass, a graph, what it says, operators that are left (bodies behind their node)
ROWS: list[tuple[passes.Pass, str, dict[str, int], str]] = [
    (
        passes.CommonSubexpressionElimination(),
        "g (float[2] x) => (float[2] y) { a = Exp(x) b = Exp(x) c = Neg(a) d = Neg(b) z = Sin(x) y = Add(c, d) }",
        {"equal": 2},
        "Exp Neg Sin Add",
    ),
    (passes.DeadCodeElimination(), f"{DEAD}\n{FUNCTION}", {"unused": 3, "unused functions": 1}, "If Abs Sin"),
    (
        passes.ConstantFolding(),
        "g (float[2] x) => (float[2] y) <float[1] k = {1}> { a = Exp(k) b = Identity(x) y = Add(b, a) }",
        {"folded": 1},
        "Identity Add",
    ),
    (passes.Inline(), f"g (float[2] x) => (float[2] y) {{ y = ours.f(x) }}\n{FUNCTION}", {"inlined": 1}, "Neg Relu"),
    (passes.Inline(), "g (float[2] x) => (float[2] y) { y = Neg(x) }", {}, "Neg"),
    (
        passes.Simplify(),
        "g (float[2] x) => (float[2] y) <float[1] k = {1}> { a = Exp(k) b = Identity(x) y = Add(b, a) }",
        {"folded": 1, "identities": 1},
        "Add",
    ),
    (
        passes.Rewrite([RELU]),
        "g (float[2] x) => (float[2] y) { a = Relu(x) y = Relu(a) }",
        {"Relu(Relu(x))": 1},
        "Relu",
    ),
    (
        passes.Sequence(
            [passes.Rewrite([RELU]), passes.Inline(), passes.CommonSubexpressionElimination()], until_done=True
        ),
        "g (float[2] x) => (float[2] y) { a = ours.f(x) b = ours.f(x) c = Relu(a) d = Relu(b) y = Add(c, d) }\n"
        + FUNCTION,
        {"inlined": 1, "Relu(Relu(x))": 1, "equal": 3},
        "Neg Relu Add",
    ),
    (Rename(), "g (float[2] x) => (float[2] y) { y = Neg(x) }", {"named": 1}, "Neg"),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{type(row[0]).__name__}-{place}" for place, row in enumerate(ROWS)])
def test_rows(row: tuple[passes.Pass, str, dict[str, int], str], tmp_path: Path) -> None:
    one, text, counts, operators = row
    given = parse_model(HEAD + text)
    path = tmp_path / "given.onnx"
    ps.save(given, path)
    work = ir.from_message(given)
    for model in (given, path, given.SerializeToString(), work):
        changes = one.run(model)
        assert dict(changes) == counts
        message = changes.model.to_message() if isinstance(changes.model, ir.Model) else changes.model
        found = ir.from_message(message)
        assert [node.op_type for graph in found.graph.nested() for node in graph.nodes] == operators.split()
        ps.checker.check_model(message, full_check=True)
    assert not uses_that_are_wrong(work)
    assert given.SerializeToString() == path.read_bytes()


def test_mistakes() -> None:
    given = parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Neg(x) }")
    with pytest.raises(RuntimeError, match="the passes Rename still change the model after 100 rounds; run them once"):
        passes.Sequence([Rename()], until_done=True).run(given)
    with pytest.raises(ValueError, match="fold_bytes=-1 must be 0 or more"):
        passes.ConstantFolding(fold_bytes=-1).run(given)
    given.graph.node.insert(0, ps.NodeProto(op_type="Relu", input=["y"], output=["u"]))
    with pytest.raises(ps.CheckError, match="'y'"):
        passes.Simplify().run(given)
