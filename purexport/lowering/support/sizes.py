"""Sizes as torch writes them, computed in the graph: `2*batch`, `(length//2) + 1`, `Max(a, b)`.

An expression is parsed by Python's own grammar. Its names are axes whose sizes the graph can read from somewhere.
Divisions are of sizes, which are not negative, so rounding down and rounding towards zero are the same.
"""

from __future__ import annotations

import ast
from functools import reduce
from typing import Any

from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter

_OPERATORS: dict[type, str] = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.FloorDiv: "Div"}


def computed_size(op: Emitter, expression: str) -> Value | None:
    """The size that `expression` names, as a zero-dim int64 value; None where it cannot be computed."""
    found = op.size(expression)
    if found is not None:
        return found
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return None
    return _value(op, tree) if not isinstance(tree, ast.Name) else None


def _value(op: Emitter, tree: ast.AST) -> Any:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return op.const(tree.value)
    if isinstance(tree, ast.Name):
        return op.size(tree.id)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        operand = _value(op, tree.operand)
        return None if operand is None else op.Neg(operand)
    if isinstance(tree, ast.BinOp):
        return _binary(op, tree)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return _call(op, tree.func.id, [_value(op, item) for item in tree.args])
    return None


def _binary(op: Emitter, tree: ast.BinOp) -> Any:
    if isinstance(tree.op, ast.Pow):
        power = tree.right
        if not isinstance(power, ast.Constant) or not isinstance(power.value, int) or power.value < 1:
            return None
        factors = [_value(op, tree.left)] * power.value
        return None if factors[0] is None else reduce(op.Mul, factors)
    left, right = _value(op, tree.left), _value(op, tree.right)
    name = _OPERATORS.get(type(tree.op))
    return None if left is None or right is None or name is None else op.emit(name, left, right)


def _call(op: Emitter, name: str, operands: list[Any]) -> Any:
    if any(item is None for item in operands):
        return None
    if name == "Max":
        return reduce(lambda one, other: op.Where(op.Less(one, other), other, one), operands)
    if name == "Min":
        return reduce(lambda one, other: op.Where(op.Less(one, other), one, other), operands)
    if name in ("Mod", "PythonMod"):
        one, other = operands
        return op.Sub(one, op.Mul(op.Div(one, other), other))
    return None
