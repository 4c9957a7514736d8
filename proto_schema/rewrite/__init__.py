"""Rewrite rules over graphs: `ps.rewrite`.

    def pattern(op, x, w, b):
        return op.Add(op.MatMul(x, w), b)

    def replacement(op, x, w, b):
        return op.Gemm(x, w, b)

    fuse = ps.rewrite.rule(pattern, replacement, condition=lambda x, w, b: x.rank == w.rank == 2 and b.rank == 1)
    changes = ps.rewrite.apply("model.onnx", [fuse], prove=3)
    ps.save(changes.model, "fused.onnx")

Both functions say operators in their newest form, whatever opset the model has (`forms`). A rule is applied wherever
its pattern is and nobody else reads a value inside of it; `prove` runs the model before and after on random inputs and
names the rule that changed the numbers.
"""

from __future__ import annotations

from proto_schema.ir.changes import Changes
from proto_schema.rewrite.applying import Rewriter, Rule, apply, rule
from proto_schema.rewrite.matching import Match
from proto_schema.rewrite.pattern import RewriteError
from proto_schema.rewrite.proof import ProofError

__all__ = ["Changes", "Match", "ProofError", "RewriteError", "Rewriter", "Rule", "apply", "rule"]
