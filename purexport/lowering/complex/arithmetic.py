"""Complex tensors: making them, taking them apart, arithmetic and comparison.

Operands are pairs, or single values where they are real (`support.fields`).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import Rule, add, lower_complex
from purexport.lowering.elementwise import arithmetic, compare
from purexport.lowering.support import fields
from purexport.lowering.support.common import full
from purexport.lowering.support.fields import Operand
from purexport.lowering.support.pairs import (
    Pair,
    from_interleaved,
    operand,
    pair_of,
    part_code,
    to_interleaved,
    zero_part,
)
from purexport.lowering.tensor import layout
from purexport.lowering.tensor.create import identity_rule

# for a real tensor the result is the tensor itself
add(Rule(identity_rule, ("self",)), *(f"aten::{name}" for name in ("real", "conj_physical", "_conj_physical")))


def result_code(op: Emitter) -> int:
    """The ONNX dtype of the real and imaginary part of the result, or of the result itself where it is real."""
    return part_code(op.result.dtype)


# Forms --------------------------------------------------------------------------------------------------------------


@lower_complex("aten::view_as_complex", "aten::view_as_complex_copy")
def view_as_complex(op: Emitter, self: Value) -> Pair:
    """aten::view_as_complex(Tensor(a) self) -> Tensor(a)

    The last axis of `self` has size 2 and holds the real and the imaginary part.
    """
    return from_interleaved(op, self)


@lower_complex("aten::view_as_real", "aten::view_as_real_copy")
def view_as_real(op: Emitter, self: Pair) -> Value:
    """aten::view_as_real(Tensor(a) self) -> Tensor(a)"""
    return to_interleaved(op, self)


@lower_complex("aten::complex")
def complex_rule(op: Emitter, real: Value, imag: Value) -> Pair:
    """aten::complex(Tensor real, Tensor imag) -> Tensor

    The two parts broadcast against each other.
    """
    return Pair(fields.spread(op, real, imag), fields.spread(op, imag, real))


@lower_complex("aten::polar")
def polar(op: Emitter, abs: Value, angle: Value) -> Pair:
    """aten::polar(Tensor abs, Tensor angle) -> Tensor"""
    return Pair(op.Mul(abs, op.Cos(angle)), op.Mul(abs, op.Sin(angle)))


@lower_complex("aten::real")
def real(op: Emitter, self: Pair) -> Value:
    """aten::real(Tensor(a) self) -> Tensor(a)"""
    return self.real


@lower_complex("aten::imag")
def imag(op: Emitter, self: Pair) -> Value:
    """aten::imag(Tensor(a) self) -> Tensor(a)"""
    return self.imag


@lower_complex("aten::conj", "aten::_conj", "aten::conj_physical", "aten::_conj_physical")
def conj(op: Emitter, self: Pair) -> Pair:
    """aten::conj(Tensor(a) self) -> Tensor(a)"""
    return fields.conj(op, self)


@lower_complex("aten::mH", "aten::adjoint")
def adjoint(op: Emitter, self: Pair) -> Pair:
    """aten::mH(Tensor(a) self) -> Tensor(a)

    The transpose of the last two axes, conjugated. A tensor of rank below 2 is only conjugated.
    """
    return fields.adjoint(op, self)


@lower_complex("aten::size.int", "aten::sym_size.int")
def size_int(op: Emitter, self: Pair, dim: int) -> Any:
    """aten::size.int(Tensor self, int dim) -> int"""
    return op.dim(self.real, dim)


@lower_complex("aten::sym_numel")
def numel(op: Emitter, self: Pair) -> Any:
    """aten::sym_numel(Tensor self) -> SymInt"""
    return layout.numel(op, self.real)


@lower_complex("aten::to.dtype", "aten::to.device", "aten::to.dtype_layout", "aten::_to_copy")
def to(op: Emitter, self: Operand, dtype: Any = None) -> Operand:
    """aten::to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False,
    MemoryFormat? memory_format=None) -> Tensor(a)

    A conversion to a real dtype keeps the real part. A conversion to bool is true where either part is not zero.
    """
    if op.result.dtype.is_complex:
        return pair_of(op, self, result_code(op))
    assert isinstance(self, Pair), "of a real result the operand is complex"
    if op.result.dtype is torch.bool:
        return is_nonzero(op, self)
    return op.cast(self.real, result_code(op))


@lower_complex("aten::to.other", "aten::type_as")
def to_other(op: Emitter, self: Operand, other: Operand) -> Operand:
    """aten::to.other(Tensor(a) self, Tensor other, bool non_blocking=False, bool copy=False,
    MemoryFormat? memory_format=None) -> Tensor(a)
    """
    return to(op, self) if isinstance(self, Pair) or op.result.dtype.is_complex else self


@lower_complex("aten::ones", "aten::new_ones")
def ones(op: Emitter, size: Any, self: Any = None, dtype: Any = None) -> Pair:
    """aten::ones(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return _real_only(op, full(op, list(size), 1, result_code(op)))


@lower_complex("aten::ones_like")
def ones_like(op: Emitter, self: Operand, dtype: Any = None) -> Operand:
    """aten::ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
    """
    like = self.real if isinstance(self, Pair) else self
    filled = op.ConstantOfShape(op.shape(like), value=_one(op))
    return _real_only(op, filled) if op.result.dtype.is_complex else filled


def _one(op: Emitter) -> torch.Tensor:
    return torch.ones(1, dtype=dtypes.torch_dtype(result_code(op)))


def _real_only(op: Emitter, value: Value) -> Pair:
    return Pair(value, zero_part(op, value))


# Arithmetic ---------------------------------------------------------------------------------------------------------


def _alpha(op: Emitter, other: Operand, alpha: Any) -> Operand:
    if not isinstance(alpha, (Value, Pair)) and alpha == 1:
        return other
    return fields.mul(op, other, operand(op, alpha, other.dtype or dtypes.FLOAT))


def _complex(op: Emitter, found: Operand) -> Pair:
    """The result as a pair, also where both operands are real and only the dtype or `alpha` is complex."""
    return pair_of(op, found, result_code(op))


@lower_complex("aten::add.Tensor", "aten::add.Scalar", promote="self other")
def add_rule(op: Emitter, self: Operand, other: Operand, alpha: Any = 1) -> Pair:
    """aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    return _complex(op, fields.add(op, self, _alpha(op, other, alpha)))


@lower_complex(
    "aten::sub.Tensor", "aten::sub.Scalar", "aten::subtract.Tensor", "aten::subtract.Scalar", promote="self other"
)
def sub(op: Emitter, self: Operand, other: Operand, alpha: Any = 1) -> Pair:
    """aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    return _complex(op, fields.sub(op, self, _alpha(op, other, alpha)))


@lower_complex("aten::rsub.Tensor", "aten::rsub.Scalar", promote="self other")
def rsub(op: Emitter, self: Operand, other: Operand, alpha: Any = 1) -> Pair:
    """aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor

    `other - alpha * self`.
    """
    return sub(op, other, self, alpha)


@lower_complex(
    "aten::mul.Tensor", "aten::mul.Scalar", "aten::multiply.Tensor", "aten::multiply.Scalar", promote="self other"
)
def mul(op: Emitter, self: Operand, other: Operand) -> Pair:
    """aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"""
    return _complex(op, fields.mul(op, self, other))


@lower_complex(
    "aten::div.Tensor",
    "aten::div.Scalar",
    "aten::divide.Tensor",
    "aten::divide.Scalar",
    "aten::true_divide.Tensor",
    "aten::true_divide.Scalar",
    promote="self other",
)
def div(op: Emitter, self: Operand, other: Operand) -> Pair:
    """aten::div.Tensor(Tensor self, Tensor other) -> Tensor"""
    return _complex(op, fields.div(op, self, other))


@lower_complex("aten::reciprocal")
def reciprocal(op: Emitter, self: Pair) -> Operand:
    """aten::reciprocal(Tensor self) -> Tensor"""
    return fields.div(op, op.like(1, self.real), self)


@lower_complex("aten::square")
def square(op: Emitter, self: Pair) -> Operand:
    """aten::square(Tensor self) -> Tensor"""
    return fields.mul(op, self, self)


@lower_complex("aten::ldexp.Tensor")
def ldexp(op: Emitter, self: Operand, other: Operand) -> Operand:
    """aten::ldexp.Tensor(Tensor self, Tensor other) -> Tensor

    `self * 2**other`.
    """
    dtype = result_code(op)
    power: Operand
    if isinstance(other, Pair):
        angle = op.Mul(op.cast(other.imag, dtype), op.const(math.log(2), dtype))
        size = op.Pow(op.const(2.0, dtype), op.cast(other.real, dtype))
        power = Pair(op.Mul(size, op.Cos(angle)), op.Mul(size, op.Sin(angle)))
    else:
        power = op.Pow(op.const(2.0, dtype), op.cast(other, dtype))
    return _complex(op, fields.mul(op, operand(op, self, dtype), power))


# Magnitude and angle ------------------------------------------------------------------------------------------------


@lower_complex("aten::abs", "aten::absolute")
def magnitude(op: Emitter, self: Pair) -> Value:
    """aten::abs(Tensor self) -> Tensor

    The square root of the sum of squares, which is computed in double: the squares of float32 numbers do not overflow
    there.
    """
    return fields.magnitude(op, self)


@lower_complex("aten::angle")
def angle(op: Emitter, self: Pair) -> Value:
    """aten::angle(Tensor self) -> Tensor

    In radians, from -pi to pi. A negative zero as imaginary part counts as below the real axis.
    """
    return arithmetic.atan2(op, self.imag, self.real)


@lower_complex("aten::sgn")
def sgn(op: Emitter, self: Pair) -> Pair:
    """aten::sgn(Tensor self) -> Tensor

    The number of magnitude 1 at the same angle, and 0 for 0.
    """
    return fields.sign(op, self)


# Comparison ---------------------------------------------------------------------------------------------------------


def is_nonzero(op: Emitter, value: Pair) -> Value:
    """True where the real or the imaginary part is not zero."""
    return op.Or(op.cast(value.real, dtypes.BOOL), op.cast(value.imag, dtypes.BOOL))


@lower_complex("aten::eq.Tensor", "aten::eq.Scalar", promote="self other")
def eq(op: Emitter, self: Operand, other: Operand) -> Value:
    """aten::eq.Tensor(Tensor self, Tensor other) -> Tensor"""
    one, two = (pair_of(op, item, item.dtype or dtypes.FLOAT) for item in (self, other))
    return op.And(compare.eq(op, one.real, two.real), compare.eq(op, one.imag, two.imag))


@lower_complex(
    "aten::ne.Tensor", "aten::ne.Scalar", "aten::not_equal.Tensor", "aten::not_equal.Scalar", promote="self other"
)
def ne(op: Emitter, self: Operand, other: Operand) -> Value:
    """aten::ne.Tensor(Tensor self, Tensor other) -> Tensor"""
    return op.Not(eq(op, self, other))


@lower_complex("aten::isnan")
def isnan(op: Emitter, self: Pair) -> Value:
    """aten::isnan(Tensor self) -> Tensor

    True where either part is NaN.
    """
    return op.Or(op.IsNaN(self.real), op.IsNaN(self.imag))


@lower_complex("aten::isinf")
def isinf(op: Emitter, self: Pair) -> Value:
    """aten::isinf(Tensor self) -> Tensor

    True where either part is infinite, even if the other is NaN.
    """
    return op.Or(compare.isinf(op, self.real), compare.isinf(op, self.imag))


@lower_complex("aten::isfinite")
def isfinite(op: Emitter, self: Pair) -> Value:
    """aten::isfinite(Tensor self) -> Tensor

    True where both parts are finite.
    """
    return op.And(compare.isfinite(op, self.real), compare.isfinite(op, self.imag))


@lower_complex("aten::isreal")
def isreal(op: Emitter, self: Pair) -> Value:
    """aten::isreal(Tensor self) -> Tensor

    True where the imaginary part is zero.
    """
    return compare.eq(op, self.imag, op.like(0, self.imag))


def _truth(op: Emitter, value: Operand) -> Value:
    return is_nonzero(op, value) if isinstance(value, Pair) else op.cast(value, dtypes.BOOL)


@lower_complex("aten::logical_and")
def logical_and(op: Emitter, self: Operand, other: Operand) -> Value:
    """aten::logical_and(Tensor self, Tensor other) -> Tensor"""
    return op.And(_truth(op, self), _truth(op, other))


@lower_complex("aten::logical_or")
def logical_or(op: Emitter, self: Operand, other: Operand) -> Value:
    """aten::logical_or(Tensor self, Tensor other) -> Tensor"""
    return op.Or(_truth(op, self), _truth(op, other))


@lower_complex("aten::logical_xor")
def logical_xor(op: Emitter, self: Operand, other: Operand) -> Value:
    """aten::logical_xor(Tensor self, Tensor other) -> Tensor"""
    return op.Xor(_truth(op, self), _truth(op, other))


@lower_complex("aten::logical_not")
def logical_not(op: Emitter, self: Pair) -> Value:
    """aten::logical_not(Tensor self) -> Tensor"""
    return op.Not(is_nonzero(op, self))
