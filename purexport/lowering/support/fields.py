"""Arithmetic of real and of complex tensors: what linear algebra and rules of complex tensors are written with.

The field of a tensor is its Python type: a real tensor is a `Value`, a complex one a `Pair`. Each function here takes
either, so an algorithm that is written with these functions is written once. A function of one tensor gives one of the
same field. Of two operands one may be real where the other is complex: the result is complex, and a product costs one
multiplication for each part. torch converts a real operand to complex first, which makes a difference for infinities
only: there `2*(inf+0j)` has NaN as its imaginary part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import swap_last
from purexport.lowering.support.pairs import Pair

Operand = Pair | Value
T = TypeVar("T", bound=Operand)


def map_parts(value: T, function: Callable[[Value], Value]) -> T:
    """`function` of a real tensor, or of each part of a complex one."""
    return cast(T, value.map(function) if isinstance(value, Pair) else function(value))


def real_part(value: Operand) -> Value:
    """The real part; a real tensor itself."""
    return value.real if isinstance(value, Pair) else value


def with_real_part(value: T, real: Value) -> T:
    """`value` with another real part."""
    return cast(T, Pair(real, value.imag) if isinstance(value, Pair) else real)


def in_field_of(op: Emitter, real: Value, like: T) -> T:
    """A tensor of finite real numbers in the field of `like`."""
    return cast(T, Pair(real, op.Mul(real, op.like(0, real))) if isinstance(like, Pair) else real)


def empty_result(op: Emitter, like: T) -> T:
    """The empty tensor that stands for a result that was not asked for."""
    nothing = op.const(torch.empty(0, dtype=dtypes.torch_dtype(like.dtype or dtypes.FLOAT)))
    return map_parts(like, lambda part: nothing)


# Sums and products --------------------------------------------------------------------------------------------------


def neg(op: Emitter, value: T) -> T:
    """`value` with the opposite sign."""
    return map_parts(value, op.Neg)


def add(op: Emitter, one: T, other: Operand) -> T:
    """The sum."""
    if isinstance(one, Pair) and isinstance(other, Pair):
        return cast(T, Pair(op.Add(one.real, other.real), op.Add(one.imag, other.imag)))
    if isinstance(one, Pair):
        return cast(T, Pair(op.Add(one.real, other), spread(op, one.imag, real_part(other))))
    return cast(T, add(op, other, one) if isinstance(other, Pair) else op.Add(one, other))


def spread(op: Emitter, part: Value, other: Value) -> Value:
    """`part`, broadcast to the shape that it and `other` have together."""
    if other.rank == 0 or (part.shape == other.shape and None not in (part.shape or (None,))):
        return part
    if part.is_static and other.is_static:
        sizes = tuple(torch.broadcast_shapes(part.sizes, other.sizes))  # type: ignore[no-untyped-call]
        if sizes == part.shape:
            return part
    return op.Expand(part, op.shape(other))


def sub(op: Emitter, one: T, other: Operand) -> T:
    """The difference."""
    if isinstance(one, Pair) and isinstance(other, Pair):
        return cast(T, Pair(op.Sub(one.real, other.real), op.Sub(one.imag, other.imag)))
    if isinstance(one, Pair) or isinstance(other, Pair):
        return add(op, one, neg(op, other))
    return cast(T, op.Sub(one, other))


def mul(op: Emitter, one: T, other: Operand) -> T:
    """The product of each element."""
    if not isinstance(other, Pair):
        return map_parts(one, lambda part: op.Mul(part, other))
    if not isinstance(one, Pair):
        return cast(T, other.map(lambda part: op.Mul(part, one)))
    crossed = op.Add(op.Mul(one.real, other.imag), op.Mul(one.imag, other.real))
    return cast(T, Pair(op.Sub(op.Mul(one.real, other.real), op.Mul(one.imag, other.imag)), crossed))


def div(op: Emitter, one: T, other: Operand) -> T:
    """The quotient.

    A complex divisor is first divided by the larger of its two parts, so that the square of its magnitude neither
    overflows nor underflows.
    """
    if not isinstance(other, Pair):
        return map_parts(one, lambda part: op.Div(part, other))
    largest = op.Max(op.Abs(other.real), op.Abs(other.imag))
    unit = other.map(lambda part: op.Div(part, largest))
    square = op.Add(op.Mul(other.real, unit.real), op.Mul(other.imag, unit.imag))
    turned = cast(Pair, mul(op, one, conj(op, unit)))
    return cast(T, turned.map(lambda part: op.Div(part, square)))


def product_along(op: Emitter, value: T, axis: int, *, keepdim: bool = False) -> T:
    """The product along an axis, whose size must be known for complex tensors; 1 for an empty one."""
    if not isinstance(value, Pair):
        return cast(T, op.ReduceProd(value, axes=[axis], keepdims=int(keepdim)))
    size = known_size(op, value, axis)
    if size == 0:
        nothing = op.ReduceSum(value.real, axes=[axis], keepdims=int(keepdim))
        return cast(T, Pair(op.Add(nothing, op.like(1, nothing)), nothing))
    places = [op.const(at) for at in range(size)]
    rows = [Pair(*(op.Gather(part, at, axis=axis) for part in (value.real, value.imag))) for at in places]
    while len(rows) > 1:
        rest = rows[len(rows) // 2 * 2 :]
        rows = [mul(op, *pair) for pair in zip(rows[::2], rows[1::2], strict=False)] + rest
    return cast(T, rows[0].map(lambda part: op.Unsqueeze(part, [axis])) if keepdim else rows[0])


def known_size(op: Emitter, value: Pair, axis: int) -> int:
    """The size of an axis. Raises UnsupportedForm where it can change."""
    size = op.dim(value.real, axis)
    if not isinstance(size, int):
        raise UnsupportedForm(
            "along a dynamic axis of complex tensors has no rule; declare that axis static", code="size-not-known"
        )
    return size


def by_products(op: Emitter, multiply: Callable[..., Value], *operands: Any) -> Any:
    """`multiply(op, *operands)`, a rule that is linear in each of its one or two operands, in the field of these.

    A product of two complex operands is four products of real ones, (ac - bd) + (ad + bc) i.
    """
    if not any(isinstance(item, Pair) for item in operands):
        return multiply(op, *operands)
    op = giving_parts(op)
    one, other = operands if len(operands) == 2 else (None, operands[0])
    if one is None:
        return other.map(lambda part: multiply(op, part))
    if not isinstance(one, Pair):
        return other.map(lambda part: multiply(op, one, part))
    if not isinstance(other, Pair):
        return one.map(lambda part: multiply(op, part, other))
    real = op.Sub(multiply(op, one.real, other.real), multiply(op, one.imag, other.imag))
    return Pair(real, op.Add(multiply(op, one.real, other.imag), multiply(op, one.imag, other.real)))


def giving_parts(op: Emitter) -> Emitter:
    """The `op` for which complex results of the call have the dtype of their parts, as a rule of real ones expects."""
    return op.giving(
        type_ and (replace(type_, dtype=type_.dtype.to_real()) if type_.dtype.is_complex else type_)
        for type_ in op.results
    )


# Conjugates and sizes -----------------------------------------------------------------------------------------------


def conj(op: Emitter, value: T) -> T:
    """The conjugate; a real tensor itself."""
    return cast(T, Pair(value.real, op.Neg(value.imag)) if isinstance(value, Pair) else value)


def transposed(op: Emitter, value: T) -> T:
    """The last two axes exchanged."""
    return map_parts(value, lambda part: swap_last(op, part))


def adjoint(op: Emitter, value: T) -> T:
    """The conjugate of the transpose; a tensor of rank below 2 is only conjugated."""
    return conj(op, transposed(op, value) if value.rank > 1 else value)


def square_of_size(op: Emitter, value: Operand) -> Value:
    """The square of the magnitude."""
    if isinstance(value, Pair):
        return op.Add(op.Mul(value.real, value.real), op.Mul(value.imag, value.imag))
    return op.Mul(value, value)


def size_of_pivot(op: Emitter, value: Operand) -> Value:
    """What LAPACK compares pivots by: |re| + |im| (icamax), which need not order them as the magnitude does."""
    if isinstance(value, Pair):
        return op.Add(op.Abs(value.real), op.Abs(value.imag))
    return op.Abs(value)


def magnitude(op: Emitter, value: Operand) -> Value:
    """The absolute value."""
    return hypotenuse(op, value.real, value.imag) if isinstance(value, Pair) else op.Abs(value)


def hypotenuse(op: Emitter, one: Value, other: Value) -> Value:
    """The root of the sum of squares, which are taken in double: those of float32 numbers do not overflow there."""
    wide = wider_float(one.dtype)
    first, second = op.cast(one, wide), op.cast(other, wide)
    return op.cast(op.Sqrt(op.Add(op.Mul(first, first), op.Mul(second, second))), one.dtype)


def wider_float(dtype: int | None) -> int:
    """The dtype in which squares of floats and differences of nearly equal ones are taken: double, but bfloat16 for
    itself.
    """
    return dtypes.BFLOAT16 if dtype == dtypes.BFLOAT16 else dtypes.DOUBLE


def sign(op: Emitter, value: T) -> T:
    """The number of magnitude 1 at the same angle, and 0 for 0."""
    if not isinstance(value, Pair):
        return cast(T, op.Sign(value))
    size, zero = magnitude(op, value), op.like(0, value.real)
    somewhere = op.cast(size, dtypes.BOOL)
    return map_parts(value, lambda part: op.Where(somewhere, op.Div(part, size), zero))


# Choices and blocks -------------------------------------------------------------------------------------------------


def where(op: Emitter, condition: Value, one: T, other: T) -> T:
    """`one` where the condition holds and `other` elsewhere."""
    if isinstance(one, Pair) and isinstance(other, Pair):
        return cast(T, Pair(op.Where(condition, one.real, other.real), op.Where(condition, one.imag, other.imag)))
    return cast(T, op.Where(condition, one, other))


def block_matrix(op: Emitter, matrix: Pair) -> Value:
    """The real block matrix [[A, -B], [B, A]] of A + Bi: sums and products of such blocks are those of the complex
    matrices.
    """
    rank = matrix.rank
    upper = op.Concat(matrix.real, op.Neg(matrix.imag), axis=rank - 1)
    return op.Concat(upper, op.Concat(matrix.imag, matrix.real, axis=rank - 1), axis=rank - 2)


def flat_parts(values: Sequence[Operand]) -> list[Value]:
    """The real tensors, and the two parts of the complex ones, in their order."""
    return [part for item in values for part in ((item.real, item.imag) if isinstance(item, Pair) else (item,))]


def grouped_parts(parts: Sequence[Value], like: Sequence[Operand]) -> list[Operand]:
    """The tensors, in the fields of `like`, of which these are the parts."""
    left = iter(parts)
    return [Pair(next(left), next(left)) if isinstance(item, Pair) else next(left) for item in like]
