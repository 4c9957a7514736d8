"""Passes over models, of one protocol: `ps.passes`.

    changes = ps.passes.CommonSubexpressionElimination().run(model)
    ps.save(changes.model, "smaller.onnx")

`run` takes a `ps.ir.Model`, a message, bytes or a path, and returns `Changes`: what was done how often, and the model.
A pass of your own is a class with `change`, which gets the `ps.ir.Model`.
"""

from __future__ import annotations

from proto_schema.ir.changes import Changes
from proto_schema.passes.base import Pass, Sequence
from proto_schema.passes.standard import (
    CommonSubexpressionElimination,
    ConstantFolding,
    DeadCodeElimination,
    Inline,
    Rewrite,
    Simplify,
)

__all__ = [
    "Changes",
    "CommonSubexpressionElimination",
    "ConstantFolding",
    "DeadCodeElimination",
    "Inline",
    "Pass",
    "Rewrite",
    "Sequence",
    "Simplify",
]
