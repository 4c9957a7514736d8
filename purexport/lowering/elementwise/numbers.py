"""Arithmetic on numbers that the graph computes: sizes of dynamic axes and what follows from them.

Numbers are zero-dim int64, float64 or bool values. Where every operand is known, the lowering has computed the result
already. Python's `//` and `%` round towards minus infinity, ONNX's integer Div towards zero.
"""

from __future__ import annotations

from typing import Any

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.elementwise.arithmetic import ceil, floor, floor_divide, round_rule
from purexport.lowering.elementwise.compare import eq, ge, le
from purexport.lowering.support.kernels import largest, smallest


def _forms(base: str) -> list[str]:
    """The overloads of an operator of two numbers."""
    return [f"{base}.{kinds}" for kinds in ("int", "float", "int_float", "float_int")]


def _pair(op: Emitter, a: Any, b: Any) -> tuple[Value, Value]:
    """Both operands as values of one dtype: float when either is."""
    floats = any(
        isinstance(item, float) or (isinstance(item, Value) and dtypes.is_floating(item.dtype)) for item in (a, b)
    )
    dtype = dtypes.DOUBLE if floats else dtypes.INT64
    return op.like(a, Value(dtype)), op.like(b, Value(dtype))


@lower(*_forms("aten::add"), "aten::add")
def add(op: Emitter, a: Any, b: Any) -> Value:
    """aten::add.int(int a, int b) -> int"""
    return op.Add(*_pair(op, a, b))


@lower(*_forms("aten::sub"), "aten::sub")
def sub(op: Emitter, a: Any, b: Any) -> Value:
    """aten::sub.int(int a, int b) -> int"""
    return op.Sub(*_pair(op, a, b))


@lower(*_forms("aten::mul"), "aten::mul")
def mul(op: Emitter, a: Any, b: Any) -> Value:
    """aten::mul.int(int a, int b) -> int"""
    return op.Mul(*_pair(op, a, b))


@lower("aten::div.int", "aten::div.float", "aten::div")
def div(op: Emitter, a: Any, b: Any) -> Value:
    """aten::div.int(int a, int b) -> float

    True division: the result is a float64 number.
    """
    as_float = Value(dtypes.DOUBLE)
    return op.Div(op.like(a, as_float), op.like(b, as_float))


@lower(*_forms("aten::floordiv"), "aten::floordiv")
def floordiv(op: Emitter, a: Any, b: Any) -> Value:
    """aten::floordiv.int(int a, int b) -> int

    Rounds towards minus infinity, as Python does.
    """
    return floor_divide(op, *_pair(op, a, b))


@lower(*_forms("aten::remainder"), "aten::remainder")
def remainder_number(op: Emitter, a: Any, b: Any) -> Value:
    """aten::remainder.int(int a, int b) -> int

    The result has the sign of `b`, as in Python.
    """
    one, other = _pair(op, a, b)
    if not dtypes.is_floating(one.dtype):
        return op.Mod(one, other)
    return op.Sub(one, op.Mul(floor_divide(op, one, other), other))


@lower("aten::pow.int", "aten::pow.float", "aten::pow.int_float", "aten::pow.float_int", "aten::pow.Scalar_Scalar")
def pow_number(op: Emitter, a: Any, b: Any) -> Value:
    """aten::pow.int(int a, int b) -> float

    The result is a float64 number.
    """
    as_float = Value(dtypes.DOUBLE)
    return op.Pow(op.like(a, as_float), op.like(b, as_float))


@lower("aten::pow.int_to_int")
def pow_int(op: Emitter, a: Any, b: Any) -> Value:
    """aten::pow.int_to_int(int a, int b) -> int

    Computed in double, which is exact up to 2**53.
    """
    as_double = Value(dtypes.DOUBLE)
    return op.cast(op.Pow(op.like(a, as_double), op.like(b, as_double)), dtypes.INT64)


@lower("aten::sqrt.int", "aten::sqrt.float", "aten::sqrt.Scalar")
def sqrt(op: Emitter, a: Any) -> Value:
    """aten::sqrt.int(int a) -> float"""
    return op.Sqrt(op.cast(a, dtypes.DOUBLE))


@lower("aten::exp.int", "aten::exp.float", "aten::exp.Scalar")
def exp(op: Emitter, a: Any) -> Value:
    """aten::exp.int(int a) -> float"""
    return op.Exp(op.cast(a, dtypes.DOUBLE))


@lower("aten::log.int", "aten::log.float", "aten::log.Scalar")
def log(op: Emitter, a: Any) -> Value:
    """aten::log.int(int a) -> float"""
    return op.Log(op.cast(a, dtypes.DOUBLE))


@lower("aten::fabs.int", "aten::fabs.float", "aten::fabs.Scalar")
def fabs(op: Emitter, a: Any) -> Value:
    """aten::fabs.int(int a) -> float"""
    return op.Abs(op.cast(a, dtypes.DOUBLE))


@lower("aten::floor.int", "aten::floor.float", "aten::floor.Scalar")
def floor_number(op: Emitter, a: Any) -> Value:
    """aten::floor.int(int a) -> int"""
    return op.cast(floor(op, a), dtypes.INT64)


@lower("aten::ceil.int", "aten::ceil.float", "aten::ceil.Scalar")
def ceil_number(op: Emitter, a: Any) -> Value:
    """aten::ceil.int(int a) -> int"""
    return op.cast(ceil(op, a), dtypes.INT64)


@lower("aten::round.int", "aten::round.float", "aten::round.Scalar")
def round_number(op: Emitter, a: Any) -> Value:
    """aten::round.int(int a) -> float

    Ties go to the even number.
    """
    return round_rule(op, op.cast(a, dtypes.DOUBLE))


@lower("prim::abs.int", "prim::abs.float", "prim::abs.Scalar")
def abs_number(op: Emitter, a: Any) -> Value:
    """prim::abs.int(int a) -> int"""
    return op.Abs(a)


@lower("aten::__not__")
def not_number(op: Emitter, self: Any) -> Value:
    """aten::__not__(bool self) -> bool"""
    return op.Not(self)


@lower("aten::__and__.bool")
def and_number(op: Emitter, a: Any, b: Any) -> Value:
    """aten::__and__.bool(bool a, bool b) -> bool"""
    as_bool = Value(dtypes.BOOL)
    return op.And(op.like(a, as_bool), op.like(b, as_bool))


@lower("aten::__or__.bool")
def or_number(op: Emitter, a: Any, b: Any) -> Value:
    """aten::__or__.bool(bool a, bool b) -> bool"""
    as_bool = Value(dtypes.BOOL)
    return op.Or(op.like(a, as_bool), op.like(b, as_bool))


@lower("aten::Bool.int", "aten::Bool.float", "aten::Bool.Tensor")
def to_bool(op: Emitter, a: Any) -> Value:
    """aten::Bool.int(int a) -> bool"""
    return op.cast(_zero_dim(op, a), dtypes.BOOL)


@lower("aten::neg.int", "aten::neg.float")
def neg(op: Emitter, a: Any) -> Value:
    """aten::neg.int(int a) -> int"""
    return op.Neg(a)


@lower(*_forms("aten::eq"), "aten::eq")
def eq_int(op: Emitter, a: Any, b: Any) -> Value:
    """aten::eq.int(int a, int b) -> bool"""
    return eq(op, *_pair(op, a, b))


@lower(*_forms("aten::ne"), "aten::ne")
def ne_int(op: Emitter, a: Any, b: Any) -> Value:
    """aten::ne.int(int a, int b) -> bool"""
    return op.Not(eq(op, *_pair(op, a, b)))


@lower(*_forms("aten::lt"), "aten::lt")
def lt_int(op: Emitter, a: Any, b: Any) -> Value:
    """aten::lt.int(int a, int b) -> bool"""
    return op.Less(*_pair(op, a, b))


@lower(*_forms("aten::gt"), "aten::gt")
def gt_int(op: Emitter, a: Any, b: Any) -> Value:
    """aten::gt.int(int a, int b) -> bool"""
    return op.Greater(*_pair(op, a, b))


@lower(*_forms("aten::le"), "aten::le")
def le_int(op: Emitter, a: Any, b: Any) -> Value:
    """aten::le.int(int a, int b) -> bool"""
    return le(op, *_pair(op, a, b))


@lower(*_forms("aten::ge"), "aten::ge")
def ge_int(op: Emitter, a: Any, b: Any) -> Value:
    """aten::ge.int(int a, int b) -> bool"""
    return ge(op, *_pair(op, a, b))


@lower(*_forms("prim::max"), "prim::max")
def max_int(op: Emitter, a: Any, b: Any) -> Value:
    """prim::max.int(int a, int b) -> int"""
    return largest(op, *_pair(op, a, b))


@lower(*_forms("prim::min"), "prim::min")
def min_int(op: Emitter, a: Any, b: Any) -> Value:
    """prim::min.int(int a, int b) -> int"""
    return smallest(op, *_pair(op, a, b))


@lower("aten::Int.Scalar", "aten::Int.Tensor", "aten::IntImplicit")
def to_int(op: Emitter, a: Any) -> Value:
    """aten::Int.Scalar(Scalar a) -> int

    A tensor of one element may have any rank.
    """
    return op.cast(_zero_dim(op, a), dtypes.INT64)


@lower("aten::item", "aten::_local_scalar_dense")
def item(op: Emitter, self: Value) -> Value:
    """aten::item(Tensor self) -> Scalar

    The result is int64, float64 or bool, as all numbers are here.
    """
    scalar: Value = _zero_dim(op, self)
    if self.dtype == dtypes.BOOL:
        return scalar
    return op.cast(scalar, dtypes.DOUBLE if dtypes.is_floating(self.dtype) else dtypes.INT64)


@lower("aten::Float.Scalar", "aten::Float.Tensor", "aten::FloatImplicit")
def to_float(op: Emitter, a: Any) -> Value:
    """aten::Float.Scalar(Scalar a) -> float"""
    return op.cast(_zero_dim(op, a), dtypes.DOUBLE)


@lower("aten::ScalarImplicit")
def to_number(op: Emitter, a: Any) -> Value:
    """aten::ScalarImplicit(Tensor a) -> Scalar"""
    scalar: Value = _zero_dim(op, a) if isinstance(a, Value) else op.const(a, dtypes.DOUBLE)
    return scalar


def _zero_dim(op: Emitter, a: Any) -> Any:
    """A number as it is; of a tensor its only element, whatever the rank."""
    return op.Reshape(a, op.const([], dtypes.INT64)) if isinstance(a, Value) and a.shape != () else a
