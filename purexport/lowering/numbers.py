"""Arithmetic on numbers that the graph computes: sizes of dynamic axes and what follows from them.

Numbers are zero-dim int64 (or float, bool) values.  Where every operand is known, the lowering computed the result
before it came here.  Python's ``//`` and ``%`` round towards minus infinity, ONNX's integer Div towards zero.
"""

from __future__ import annotations

from typing import Any

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.compare import eq, ge, le
from purexport.lowering.elementwise import floor_divide
from purexport.lowering.emitter import Emitter
from purexport.lowering.kernels import largest, smallest
from purexport.lowering.registry import lower


def _pair(op: Emitter, a: Any, b: Any) -> tuple[Value, Value]:
    """Both operands as values of one dtype: float when either is."""
    floats = any(
        isinstance(item, float) or (isinstance(item, Value) and dtypes.is_floating(item.dtype)) for item in (a, b)
    )
    dtype = dtypes.FLOAT if floats else dtypes.INT64
    return op.like(a, Value(dtype)), op.like(b, Value(dtype))


@lower("aten::add.int", "aten::add.float", "aten::add")
def add(op: Emitter, a: Any, b: Any) -> Value:
    return op.Add(*_pair(op, a, b))


@lower("aten::sub.int", "aten::sub.float", "aten::sub")
def sub(op: Emitter, a: Any, b: Any) -> Value:
    return op.Sub(*_pair(op, a, b))


@lower("aten::mul.int", "aten::mul.float", "aten::mul")
def mul(op: Emitter, a: Any, b: Any) -> Value:
    return op.Mul(*_pair(op, a, b))


@lower("aten::div.int", "aten::div.float", "aten::div")
def div(op: Emitter, a: Any, b: Any) -> Value:
    as_float = Value(dtypes.FLOAT)
    return op.Div(op.like(a, as_float), op.like(b, as_float))


@lower("aten::floordiv.int", "aten::floordiv.float", "aten::floordiv")
def floordiv(op: Emitter, a: Any, b: Any) -> Value:
    return floor_divide(op, *_pair(op, a, b))


@lower("aten::remainder.int", "aten::remainder.float")
def remainder(op: Emitter, a: Any, b: Any) -> Value:
    one, other = _pair(op, a, b)
    return op.Sub(one, op.Mul(floor_divide(op, one, other), other))


@lower("aten::neg.int", "aten::neg.float")
def neg(op: Emitter, a: Any) -> Value:
    return op.Neg(a)


@lower("aten::eq.int", "aten::eq.float")
def eq_int(op: Emitter, a: Any, b: Any) -> Value:
    return eq(op, *_pair(op, a, b))


@lower("aten::ne.int", "aten::ne.float")
def ne_int(op: Emitter, a: Any, b: Any) -> Value:
    return op.Not(eq(op, *_pair(op, a, b)))


@lower("aten::lt.int", "aten::lt.float")
def lt_int(op: Emitter, a: Any, b: Any) -> Value:
    return op.Less(*_pair(op, a, b))


@lower("aten::gt.int", "aten::gt.float")
def gt_int(op: Emitter, a: Any, b: Any) -> Value:
    return op.Greater(*_pair(op, a, b))


@lower("aten::le.int", "aten::le.float")
def le_int(op: Emitter, a: Any, b: Any) -> Value:
    return le(op, *_pair(op, a, b))


@lower("aten::ge.int", "aten::ge.float")
def ge_int(op: Emitter, a: Any, b: Any) -> Value:
    return ge(op, *_pair(op, a, b))


@lower("prim::max.int", "prim::max.float")
def max_int(op: Emitter, a: Any, b: Any) -> Value:
    return largest(op, *_pair(op, a, b))


@lower("prim::min.int", "prim::min.float")
def min_int(op: Emitter, a: Any, b: Any) -> Value:
    return smallest(op, *_pair(op, a, b))


@lower("aten::Int.Scalar", "aten::Int.Tensor", "aten::IntImplicit")
def to_int(op: Emitter, a: Any) -> Value:
    return op.cast(a, dtypes.INT64)


@lower("aten::Float.Scalar", "aten::Float.Tensor", "aten::FloatImplicit")
def to_float(op: Emitter, a: Any) -> Value:
    return op.cast(a, dtypes.FLOAT)


@lower("aten::ScalarImplicit")
def to_number(op: Emitter, a: Any) -> Value:
    return a if isinstance(a, Value) else op.const(a, dtypes.FLOAT)
