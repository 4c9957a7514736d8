"""Functions as they are written with onnxscript for torch.onnx; imported only where onnxscript is installed."""

from __future__ import annotations

from typing import Any

import onnxscript
from onnxscript import opset18 as op
from onnxscript import script

custom = onnxscript.values.Opset("my.domain", 1)


def plain(x: Any, y: Any, a: float, n: int = 2, negative: bool = False) -> Any:
    values, _ = op.TopK(op.Constant(value_floats=[1.0, float(n)]), op.Constant(value_ints=[1]))
    made = op.Add(op.Mul(x, a), op.Mul(y, values))
    return op.Neg(made) if negative else made


@script()
def scripted(x, y, a: float, n: int = 2, negative: int = 0):
    made = op.Add(op.Mul(x, a), op.Mul(y, op.Cast(op.Constant(value_int=n), to=1)))
    return op.Mul(made, -1.0)


@script(default_opset=op)
def branches(x, y, a: float, n: int = 2, negative: int = 0):
    made = x * a + y * 2.0
    if op.ReduceSum(x, keepdims=0) > 0.0:  # noqa: SIM108  onnxscript reads this form
        found = op.Neg(made)
    else:
        found = op.Neg(made + 1.0)
    return found


def called(x: Any, y: Any, a: float, n: int = 2, negative: bool = False) -> Any:
    return scripted(x, y, a=a, n=n)


def in_a_domain(x: Any, y: Any, a: float, n: int = 2, negative: bool = False) -> Any:
    return onnxscript.values.Op(custom, "Mixed")(x, y, a=a, negative=int(negative))
