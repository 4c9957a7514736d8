"""`op` is a frozen value: made once for a call, derived for another, never repaired.

One half reads the sources: nothing under `PURE` assigns to an `op`.  The other half sees that assigning raises, and
that what is derived leaves the original alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
import torch

import purexport
from purexport import dtypes
from purexport.aten.graph import AtenValue, Call, TensorType
from purexport.graph import ir
from purexport.lowering.core.context import site_of
from purexport.lowering.core.emitter import Emitter

ROOT = Path(__file__).parent.parent.parent.parent
PURE = ("purexport/lowering", "purexport/compat/symbolic")
# what gives an `op`: functions and methods by name
GIVERS = {"Emitter", "of", "at", "giving", "subgraph", "giving_parts"}
PARTS = {"site", "body", "builder"}
SETTERS = {"setattr", "delattr", "__setattr__", "__delattr__"}


def assignments(text: str) -> list[int]:
    """The lines that assign to an `op`, to one of its parts, or to an item of what these hold."""
    tree = ast.parse(text)
    names = {"op", *ops_by_name(tree)}
    found = [target.lineno for target in targets(tree) if is_assigned(target, names)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) in SETTERS and node.args and is_op(node.args[0], names):
            found.append(node.lineno)
    return sorted(found)


def ops_by_name(tree: ast.AST) -> Iterator[str]:
    """Names that hold an `op`: parameters of its type, and what a giver's result is assigned to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None and "Emitter" in ast.unparse(node.annotation):
            yield node.arg
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called(node.value) in GIVERS:
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def targets(tree: ast.AST) -> Iterator[ast.expr]:
    """Every attribute and item that is written or deleted, in whatever statement."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            yield node


def is_assigned(target: ast.expr, names: set[str]) -> bool:
    if isinstance(target, ast.Subscript):  # op.results[0] = ..., op.body.dims[key] = ...
        return isinstance(target.value, ast.Attribute) and is_op(target.value.value, names)
    return isinstance(target, ast.Attribute) and is_op(target.value, names)


def is_op(node: ast.expr, names: set[str]) -> bool:
    """True for `op`, `run.op` and the parts that an `op` is made of."""
    if isinstance(node, ast.Name):
        return node.id in names
    if not isinstance(node, ast.Attribute):
        return False
    return node.attr in ("op", "_emitter") or (node.attr in PARTS and is_op(node.value, names))


FILES = [path for folder in PURE for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_assigns_to_an_op(path: Path) -> None:
    assert assignments(path.read_text()) == []


# the first five stood in the lowering
PLANTED = [
    "self.op.source, self.op.target = call.source, call.target",
    "run.op.source = call.source",
    "op.results = before",
    "self.op.operands = {name: arg.type for name, arg in call.args.items()}",
    "run.op.folds, run.kind = fold, kind",
    "op.graph = Graph()",
    "op.site.results = ()",
    "op.results += (None,)",
    "op.target: str = 'aten::add'",
    "op.results[0] = None",
    "op.body.dims[key] = value",
    "del op.site",
    "setattr(op, 'site', site)",
    "object.__setattr__(op, 'site', site)",
    "self._emitter.site = site",
    "with opened() as op.graph: pass",
    "for op.site in sites: pass",
    "def rule(inside: Emitter) -> None:\n    inside.results = ()",
    "inside = op.subgraph()\ninside.site = op.site",
]


@pytest.mark.parametrize("text", PLANTED)
def test_planted_assignments_are_found(text: str) -> None:
    assert assignments(text)


PURE_TEXTS = [
    "op = op.at(site)",
    "inside.graph.inputs += [number]",
    "result.shape = op.result.shape",
    "found = op.results[0]",
    "self._emitter = outside.subgraph()",
]


@pytest.mark.parametrize("text", PURE_TEXTS)
def test_pure_texts_are_not_found(text: str) -> None:
    assert assignments(text) == []


# The value --------------------------------------------------------------------------------------------------------


FLOATS = TensorType(torch.float32, (2, "n"))


def op_of_a_call() -> Emitter:
    """The `op` of a call of two tensors of which one has a dynamic axis."""
    given = AtenValue(FLOATS)
    call = Call("aten::relu", {"self": given, "alpha": 1}, [AtenValue(FLOATS), AtenValue(TensorType(torch.quint8))])
    site = site_of(call, lambda value: value.type)
    return Emitter.of(ir.Graph(), 20).at(site)


ATTRIBUTES = ["builder", "body", "site", "opset", "graph", "source", "target", "results", "operands", "result", "new"]
PATHS = ["builder.opset", "builder.folds", "builder.remarks", "body.graph", "body.dims", "site.results", "site.source"]


@pytest.mark.parametrize("path", ATTRIBUTES + PATHS)
def test_assigning_raises(path: str) -> None:
    *parts, name = path.split(".")
    owner: Any = op_of_a_call()
    for part in parts:
        owner = getattr(owner, part)
    with pytest.raises(FrozenInstanceError, match=name):
        setattr(owner, name, None)


def test_the_site_is_that_of_the_call() -> None:
    op = op_of_a_call()
    assert (op.target, op.result_dtype, dict(op.operands)) == ("aten::relu", dtypes.FLOAT, {"self": FLOATS})
    assert op.results == (FLOATS, TensorType(torch.uint8)), "of a quantized tensor, its integers"
    with pytest.raises(TypeError, match="mappingproxy"):
        op.operands["self"] = FLOATS  # type: ignore[index]


def test_another_result_is_not_that_of_the_call() -> None:
    op = op_of_a_call()
    inner = op.giving([TensorType(torch.float64)])
    assert inner.result_dtype == dtypes.DOUBLE and inner.target == op.target
    assert inner.graph is op.graph and op.result_dtype == dtypes.FLOAT


def test_a_body_sees_outer_sizes_and_keeps_its_own() -> None:
    op = op_of_a_call()
    x = ir.Value(dtypes.FLOAT, ("m", "n"), name="x")
    outer = op.dim(x, 0)
    inside = op.subgraph()
    assert inside.dim(x, 0) is outer and not inside.graph.nodes
    own = inside.dim(x, 1)
    assert inside.dim(x, 1) is own and len(inside.graph.nodes) == 1, "one more Gather; the shape is known outside"
    written = len(op.graph.nodes)
    assert op.dim(x, 1) is not own and len(op.graph.nodes) == written + 1
    assert inside.site is op.site and inside.builder.remarks is op.builder.remarks


def test_a_kept_op_still_says_its_call() -> None:
    """A function of the user may keep its `op`; the calls that follow do not change it."""
    kept: list[Emitter] = []

    def relu(op: Emitter, x: ir.Value) -> ir.Value:
        kept.append(op)
        return op.Relu(x)

    table = {"aten::relu": relu, "aten::tanh": lambda op, x: op.Tanh(x)}
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    purexport.export(model, (torch.ones(2),), capture="trace", custom_translation_table=table)
    (op,) = kept
    assert (op.target, op.source.scope) == ("aten::relu", "0")


def test_assigning_in_a_rule_of_the_user_is_refused() -> None:
    def relu(op: Any, x: ir.Value) -> ir.Value:
        op.results = []
        return op.Relu(x)

    with pytest.raises(purexport.ExportError, match=r"aten::relu .*FrozenInstanceError: .*'results'"):
        purexport.export(
            torch.nn.ReLU(), (torch.ones(2),), capture="trace", custom_translation_table={"aten::relu": relu}
        )
