"""Elementwise operators: one row where ONNX has the same, a short function where it has not.

Type promotion has happened before a rule runs.  Traps are about NaN, integers and rounding; a comment line says what
torch does.
"""

from __future__ import annotations

import math
from typing import Any

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.common import maximum, minimum
from purexport.lowering.emitter import Emitter
from purexport.lowering.registry import binary, lower, unary

for _name, _op_type in {
    "relu": "Relu",
    "abs": "Abs",
    "neg": "Neg",
    "ceil": "Ceil",
    "floor": "Floor",
    "sign": "Sign",
}.items():
    unary(f"aten::{_name}", _op_type)

for _name, _op_type in {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "reciprocal": "Reciprocal",
}.items():
    unary(f"aten::{_name}", _op_type, to_float=True)

binary("Less", "aten::lt.Tensor", "aten::lt.Scalar")
binary("Greater", "aten::gt.Tensor", "aten::gt.Scalar")


# Arithmetic ---------------------------------------------------------------------------------------------------------


@lower("aten::add.Tensor", "aten::add.Scalar", promote="self other")
def add(op: Emitter, self: Value, other: Value, alpha: Any = 1) -> Value:
    if self.dtype == dtypes.BOOL:
        return op.Or(self, other)  # torch adds booleans as "or"
    return op.Add(self, _scaled(op, other, alpha))


@lower("aten::sub.Tensor", "aten::sub.Scalar", promote="self other")
def sub(op: Emitter, self: Value, other: Value, alpha: Any = 1) -> Value:
    return op.Sub(self, _scaled(op, other, alpha))


@lower("aten::rsub.Tensor", "aten::rsub.Scalar", promote="self other")
def rsub(op: Emitter, self: Value, other: Value, alpha: Any = 1) -> Value:
    return op.Sub(other, _scaled(op, self, alpha))


def _scaled(op: Emitter, value: Value, alpha: Any) -> Value:
    return value if not isinstance(alpha, Value) and alpha == 1 else op.Mul(value, op.like(alpha, value))


@lower("aten::mul.Tensor", "aten::mul.Scalar", "aten::multiply.Tensor", promote="self other")
def mul(op: Emitter, self: Value, other: Value) -> Value:
    return op.And(self, other) if self.dtype == dtypes.BOOL else op.Mul(self, other)


@lower("aten::div.Tensor", "aten::div.Scalar", "aten::divide.Tensor", promote="self other", to_float=True)
def div(op: Emitter, self: Value, other: Value) -> Value:
    return op.Div(self, other)


@lower("aten::div.Tensor_mode", "aten::div.Scalar_mode", promote="self other")
def div_mode(op: Emitter, self: Value, other: Value, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return op.Div(op.cast(self, op.result_dtype), op.cast(other, op.result_dtype))
    return floor_divide(op, self, other) if rounding_mode == "floor" else _trunc_divide(op, self, other)


@lower("aten::floor_divide", "aten::floor_divide.Scalar", promote="self other")
def floor_divide(op: Emitter, self: Value, other: Value) -> Value:
    if dtypes.is_floating(self.dtype):
        return op.Floor(op.Div(self, other))
    # ONNX Div truncates integers: take one off where signs differ and something is left over
    quotient = op.Div(self, other)
    left = op.Sub(self, op.Mul(quotient, other))
    zero = op.like(0, self)
    differs = op.Xor(op.Less(left, zero), op.Less(other, zero))
    down = op.And(op.Not(op.Equal(left, zero)), differs)
    return op.Sub(quotient, op.cast(down, self.dtype))


def _trunc_divide(op: Emitter, self: Value, other: Value) -> Value:
    quotient = op.Div(self, other)
    return trunc(op, quotient) if dtypes.is_floating(self.dtype) else quotient


@lower("aten::trunc", "aten::fix")
def trunc(op: Emitter, self: Value) -> Value:
    if not dtypes.is_floating(self.dtype):
        return self
    return op.Mul(op.Sign(self), op.Floor(op.Abs(self)))


@lower("aten::pow.Tensor_Tensor", "aten::pow.Scalar", promote="self exponent")
def pow_tensor(op: Emitter, self: Value, exponent: Value) -> Value:
    if op.takes("Pow", self.dtype):
        return op.Pow(self, exponent)
    wide = op.Pow(op.cast(self, dtypes.DOUBLE), op.cast(exponent, dtypes.DOUBLE))
    return op.cast(wide, self.dtype)


@lower("aten::pow.Tensor_Scalar", promote="self exponent")
def pow_scalar(op: Emitter, self: Value, exponent: Value) -> Value:
    number = exponent.const.item() if exponent.const is not None else None
    if number == 2:
        return op.Mul(self, self)
    if number == 0.5:
        return op.Sqrt(self)
    return pow_tensor(op, self, exponent)


@lower("aten::square")
def square(op: Emitter, self: Value) -> Value:
    return op.Mul(self, self)


@lower("aten::rsqrt", promote="self", to_float=True)
def rsqrt(op: Emitter, self: Value) -> Value:
    return op.Reciprocal(op.Sqrt(self))


# Comparison and logic -----------------------------------------------------------------------------------------------


@lower("aten::eq.Tensor", "aten::eq.Scalar", promote="self other")
def eq(op: Emitter, self: Value, other: Value) -> Value:
    if op.takes("Equal", self.dtype):
        return op.Equal(self, other)
    # older Equal takes no floats: neither less nor greater, and no NaN
    ordered = op.Or(op.Less(self, other), op.Greater(self, other))
    return op.Not(op.Or(ordered, op.Or(op.IsNaN(self), op.IsNaN(other))))


@lower("aten::ne.Tensor", "aten::ne.Scalar", promote="self other")
def ne(op: Emitter, self: Value, other: Value) -> Value:
    return op.Not(eq(op, self, other))


@lower("aten::le.Tensor", "aten::le.Scalar", promote="self other")
def le(op: Emitter, self: Value, other: Value) -> Value:
    if op.has("LessOrEqual"):
        return op.LessOrEqual(self, other)
    return op.Or(op.Less(self, other), eq(op, self, other))


@lower("aten::ge.Tensor", "aten::ge.Scalar", promote="self other")
def ge(op: Emitter, self: Value, other: Value) -> Value:
    if op.has("GreaterOrEqual"):
        return op.GreaterOrEqual(self, other)
    return op.Or(op.Greater(self, other), eq(op, self, other))


@lower("aten::logical_not")
def logical_not(op: Emitter, self: Value) -> Value:
    return op.Not(op.cast(self, dtypes.BOOL))


@lower("aten::logical_and")
def logical_and(op: Emitter, self: Value, other: Value) -> Value:
    return op.And(op.cast(self, dtypes.BOOL), op.cast(other, dtypes.BOOL))


@lower("aten::logical_or")
def logical_or(op: Emitter, self: Value, other: Value) -> Value:
    return op.Or(op.cast(self, dtypes.BOOL), op.cast(other, dtypes.BOOL))


@lower(
    "aten::where.self", "aten::where.ScalarSelf", "aten::where.ScalarOther", "aten::where.Scalar", promote="self other"
)
def where(op: Emitter, condition: Value, self: Value, other: Value) -> Value:
    return op.Where(op.cast(condition, dtypes.BOOL), self, other)


@lower("aten::masked_fill.Scalar", "aten::masked_fill.Tensor")
def masked_fill(op: Emitter, self: Value, mask: Value, value: Any) -> Value:
    return op.Where(mask, op.like(value, self), self)


# Bounds -------------------------------------------------------------------------------------------------------------


@lower("aten::clamp", "aten::clamp.Tensor", "aten::clip", promote="self min max")
def clamp(op: Emitter, self: Value, min: Value | None = None, max: Value | None = None) -> Value:
    scalars = all(bound is None or (bound.const is not None and bound.const.dim() == 0) for bound in (min, max))
    if scalars and op.takes("Clip", self.dtype):
        return op.Clip(self, min=min, max=max)
    result = self if min is None else maximum(op, self, min)
    return result if max is None else minimum(op, result, max)


@lower("aten::clamp_min", "aten::clamp_min.Tensor", promote="self min")
def clamp_min(op: Emitter, self: Value, min: Value) -> Value:
    return clamp(op, self, min=min)


@lower("aten::clamp_max", "aten::clamp_max.Tensor", promote="self max")
def clamp_max(op: Emitter, self: Value, max: Value) -> Value:
    return clamp(op, self, max=max)


@lower("aten::hardtanh")
def hardtanh(op: Emitter, self: Value, min_val: Any = -1, max_val: Any = 1) -> Value:
    return clamp(op, self, op.like(min_val, self), op.like(max_val, self))


@lower("aten::relu6")
def relu6(op: Emitter, self: Value) -> Value:
    return hardtanh(op, self, 0, 6)


@lower("aten::maximum", "aten::max.other", promote="self other")
def maximum_rule(op: Emitter, self: Value, other: Value) -> Value:
    return maximum(op, self, other)


@lower("aten::minimum", "aten::min.other", promote="self other")
def minimum_rule(op: Emitter, self: Value, other: Value) -> Value:
    return minimum(op, self, other)


# Activations --------------------------------------------------------------------------------------------------------


@lower("aten::gelu")
def gelu(op: Emitter, self: Value, approximate: str = "none") -> Value:
    if op.has("Gelu"):
        return op.Gelu(self, approximate=approximate)
    half = op.Mul(self, op.like(0.5, self))
    if approximate == "tanh":
        cubed = op.Mul(op.Mul(op.Mul(self, self), self), op.like(0.044715, self))
        bend = op.Tanh(op.Mul(op.Add(self, cubed), op.like(math.sqrt(2 / math.pi), self)))
    else:
        bend = op.Erf(op.Mul(self, op.like(math.sqrt(0.5), self)))
    return op.Mul(half, op.Add(bend, op.like(1, self)))


@lower("aten::silu")
def silu(op: Emitter, self: Value) -> Value:
    return op.Mul(self, op.Sigmoid(self))


@lower("aten::hardsigmoid")
def hardsigmoid(op: Emitter, self: Value) -> Value:
    return op.HardSigmoid(self, alpha=1 / 6, beta=0.5)


@lower("aten::hardswish")
def hardswish(op: Emitter, self: Value) -> Value:
    if op.has("HardSwish"):
        return op.HardSwish(self)
    return op.Mul(self, hardsigmoid(op, self))


@lower("aten::leaky_relu")
def leaky_relu(op: Emitter, self: Value, negative_slope: Any = 0.01) -> Value:
    return op.LeakyRelu(self, alpha=negative_slope)


@lower("aten::elu")
def elu(op: Emitter, self: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    # the input's scale bends the negative half only
    negative = op.Elu(_scaled(op, self, input_scale), alpha=alpha)
    if input_scale != 1:
        negative = op.Where(op.Greater(self, op.like(0, self)), self, negative)
    return _scaled(op, negative, scale)


@lower("aten::softplus")
def softplus(op: Emitter, self: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    scaled = _scaled(op, self, beta)
    soft = op.Div(op.Softplus(scaled), op.like(beta, self))
    return op.Where(op.Greater(scaled, op.like(threshold, self)), self, soft)
