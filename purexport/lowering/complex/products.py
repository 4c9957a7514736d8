"""Matrix products, reductions and norms of complex tensors.

A product of two complex operands is four products of real ones, (ac - bd) + (ad + bc) i, each by the ordinary rule.
Where one operand is real, two products are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import (
    Operand,
    complex_add,
    complex_mul,
    conj,
    is_nonzero,
    magnitude,
    result_code,
)
from purexport.lowering.complex.by_parts import giving_parts
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.linalg import einsum, products
from purexport.lowering.reduce import reductions
from purexport.lowering.support.common import axis_of, reshape
from purexport.lowering.support.pairs import Pair, operand, pair_of
from purexport.lowering.tensor.slices import slice_axis

Product = Callable[[Emitter, Value, Value], Value]


def product(op: Emitter, multiply: Product, one: Operand, other: Operand) -> Pair:
    """The complex form of `multiply(op, one, other)`, a product of real tensors that is linear in both operands."""
    op = giving_parts(op)
    if not isinstance(one, Pair):
        assert isinstance(other, Pair), "one of the operands is complex"
        return other.map(lambda part: multiply(op, one, part))
    if not isinstance(other, Pair):
        return one.map(lambda part: multiply(op, part, other))
    real = op.Sub(multiply(op, one.real, other.real), multiply(op, one.imag, other.imag))
    return Pair(real, op.Add(multiply(op, one.real, other.imag), multiply(op, one.imag, other.real)))


@lower_complex("aten::matmul", "aten::linalg_matmul")
def matmul(op: Emitter, self: Operand, other: Operand) -> Pair:
    """aten::matmul(Tensor self, Tensor other) -> Tensor"""
    return product(op, products.multiply, self, other)


@lower_complex("aten::mm", "aten::bmm")
def mm(op: Emitter, self: Operand, mat2: Operand) -> Pair:
    """aten::mm(Tensor self, Tensor mat2) -> Tensor"""
    return product(op, products.multiply, self, mat2)


@lower_complex("aten::mv")
def mv(op: Emitter, self: Operand, vec: Operand) -> Pair:
    """aten::mv(Tensor self, Tensor vec) -> Tensor"""
    return product(op, products.multiply, self, vec)


@lower_complex("aten::dot")
def dot(op: Emitter, self: Operand, tensor: Operand) -> Pair:
    """aten::dot(Tensor self, Tensor tensor) -> Tensor

    Not conjugated: `vdot` conjugates its first operand.
    """
    return product(op, products.multiply, self, tensor)


@lower_complex("aten::vdot")
def vdot(op: Emitter, self: Pair, other: Pair) -> Pair:
    """aten::vdot(Tensor self, Tensor other) -> Tensor

    The first operand is conjugated.
    """
    return product(op, products.multiply, conj(op, self), other)


@lower_complex("aten::linalg_vecdot", promote="x y")
def linalg_vecdot(op: Emitter, x: Operand, y: Operand, dim: int = -1) -> Pair:
    """aten::linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor

    The first operand is conjugated.
    """
    first = conj(op, x) if isinstance(x, Pair) else x
    return product(op, lambda op, one, other: products.linalg_vecdot(op, one, other, dim), first, y)


@lower_complex("aten::outer", "aten::ger", promote="self vec2")
def outer(op: Emitter, self: Operand, vec2: Operand) -> Pair:
    """aten::outer(Tensor self, Tensor vec2) -> Tensor"""
    return product(op, products.outer, self, vec2)


@lower_complex("aten::kron", promote="self other")
def kron(op: Emitter, self: Operand, other: Operand) -> Pair:
    """aten::kron(Tensor self, Tensor other) -> Tensor"""
    return product(op, products.kron, self, other)


@lower_complex("aten::linear")
def linear(op: Emitter, input: Operand, weight: Operand, bias: Operand | None = None) -> Operand:
    """aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"""
    found = product(op, products.linear, input, weight)
    return found if bias is None else complex_add(op, found, bias)


@lower_complex("aten::einsum")
def einsum_rule(op: Emitter, equation: str, tensors: Any, path: Any = None) -> Operand:
    """aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor

    One operand is permuted and summed, two are multiplied. More than two complex operands are refused.
    """
    if len(tensors) == 1:
        (only,) = tensors
        of_parts = giving_parts(op)
        return Pair(*(einsum.einsum_rule(of_parts, equation, [part]) for part in (only.real, only.imag)))
    if len(tensors) > 2:
        raise UnsupportedForm(
            "of more than two complex tensors has no rule; write it as einsums of two", code="complex-tensor"
        )
    return product(op, lambda op, one, other: einsum.einsum_rule(op, equation, [one, other]), *tensors)


# Products added to something ----------------------------------------------------------------------------------------


def _added(op: Emitter, self: Operand, found: Operand, beta: Any, alpha: Any) -> Operand:
    """`beta * self + alpha * found`. With `beta` 0 `self` is ignored, so that its NaN does not reach the result."""
    if alpha != 1:
        found = complex_mul(op, found, operand(op, alpha, found.dtype or dtypes.FLOAT))
    if beta == 0:
        return found
    return complex_add(
        op, self if beta == 1 else complex_mul(op, self, operand(op, beta, self.dtype or dtypes.FLOAT)), found
    )


@lower_complex("aten::addmm")
def addmm(op: Emitter, self: Operand, mat1: Operand, mat2: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    """aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    return _added(op, self, mm(op, mat1, mat2), beta, alpha)


@lower_complex("aten::baddbmm")
def baddbmm(op: Emitter, self: Operand, batch1: Operand, batch2: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    """aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    return _added(op, self, mm(op, batch1, batch2), beta, alpha)


@lower_complex("aten::addbmm")
def addbmm(op: Emitter, self: Operand, batch1: Operand, batch2: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    """aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    summed = mm(op, batch1, batch2).map(lambda part: op.ReduceSum(part, axes=[0], keepdims=0))
    return _added(op, self, summed, beta, alpha)


@lower_complex("aten::addmv")
def addmv(op: Emitter, self: Operand, mat: Operand, vec: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    """aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    return _added(op, self, mm(op, mat, vec), beta, alpha)


# Reductions ---------------------------------------------------------------------------------------------------------


@lower_complex("aten::prod", "aten::prod.dim_int")
def prod(op: Emitter, self: Operand, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Operand:
    """aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor

    Neighbouring elements are multiplied until one is left, so the size of the axis must be known.
    """
    value = pair_of(op, self, result_code(op))
    if value.rank == 0:
        return value
    if dim is None:
        flat = value.map(lambda part: reshape(op, part, [-1]))
        return prod_along(op, flat, 0, keepdim=False)
    return prod_along(op, value, axis_of(dim, value.rank), keepdim=keepdim)


def _known_size(op: Emitter, value: Pair, axis: int) -> int:
    size = op.dim(value.real, axis)
    if not isinstance(size, int):
        raise UnsupportedForm(
            "along a dynamic axis of complex tensors has no rule; declare that axis static", code="size-not-known"
        )
    return size


def prod_along(op: Emitter, value: Pair, axis: int, *, keepdim: bool) -> Operand:
    """The product along an axis of known size; 1 for an empty one."""
    size = _known_size(op, value, axis)
    if size == 0:
        nothing = op.ReduceSum(value.real, axes=[axis], keepdims=int(keepdim))
        return Pair(op.Add(nothing, op.like(1, nothing)), nothing)
    rows: list[Operand] = [_row(op, value, axis, at) for at in range(size)]
    while len(rows) > 1:
        rest = rows[len(rows) // 2 * 2 :]
        rows = [complex_mul(op, *pair) for pair in zip(rows[::2], rows[1::2], strict=False)] + rest
    (found,) = rows
    assert isinstance(found, Pair), "a product of pairs is one"
    return found.map(lambda part: op.Unsqueeze(part, [axis])) if keepdim else found


def _row(op: Emitter, value: Pair, axis: int, at: int) -> Pair:
    return value.map(lambda part: op.Gather(part, op.const(at), axis=axis))


@lower_complex("aten::cumprod")
def cumprod(op: Emitter, self: Operand, dim: int, dtype: Any = None) -> Operand:
    """aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor

    Each step multiplies by the element that lies 1, 2, 4, ... positions before, so the size of the axis must be known.
    """
    value = pair_of(op, self, result_code(op))
    if value.rank == 0:
        return value
    axis = axis_of(dim, value.rank)
    size = _known_size(op, value, axis)
    step = 1
    while step < size:
        value = _shifted_product(op, value, axis, size, step)
        step *= 2
    return value


def _shifted_product(op: Emitter, value: Pair, axis: int, size: int, step: int) -> Pair:
    head = value.map(lambda part: slice_axis(op, part, axis, 0, step))
    tail = value.map(lambda part: slice_axis(op, part, axis, step, size))
    earlier = value.map(lambda part: slice_axis(op, part, axis, 0, size - step))
    moved = complex_mul(op, tail, earlier)
    assert isinstance(moved, Pair)
    return Pair(op.Concat(head.real, moved.real, axis=axis), op.Concat(head.imag, moved.imag, axis=axis))


@lower_complex("aten::linalg_vector_norm")
def linalg_vector_norm(
    op: Emitter, self: Pair, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    """aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *,
    ScalarType? dtype=None) -> Tensor

    The norm of the magnitudes.
    """
    return reductions.linalg_vector_norm(op, magnitude(op, self), ord, dim, keepdim)


@lower_complex("aten::norm.Scalar", "aten::norm.ScalarOpt_dim")
def complex_norm(op: Emitter, self: Pair, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Value:
    """aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor

    The norm of the magnitudes.
    """
    return reductions.norm_rule(op, magnitude(op, self), p, dim, keepdim)


@lower_complex("aten::var.correction")
def var(op: Emitter, self: Pair, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    """aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor

    The mean of |difference|**2, which is the sum of the variances of both parts, and real.
    """
    return op.Add(*(reductions.var(op, part, dim, correction, keepdim) for part in (self.real, self.imag)))


@lower_complex("aten::std.correction")
def std(op: Emitter, self: Pair, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    """aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor"""
    return op.Sqrt(var(op, self, dim, correction, keepdim))


@lower_complex("aten::var_mean.correction")
def var_mean(
    op: Emitter, self: Pair, dim: Any = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Value, Pair]:
    """aten::var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)
    -> (Tensor, Tensor)
    """
    found = [reductions.var_mean(op, part, dim, correction, keepdim) for part in (self.real, self.imag)]
    (one, real), (other, imag) = found
    return op.Add(one, other), Pair(real, imag)


@lower_complex("aten::count_nonzero", "aten::count_nonzero.dim_IntList")
def count_nonzero(op: Emitter, self: Pair, dim: Any = None) -> Value:
    """aten::count_nonzero(Tensor self, int? dim=None) -> Tensor

    An element counts where either part is not zero.
    """
    return reductions.count_nonzero(op, is_nonzero(op, self), dim)


@lower_complex("aten::any", "aten::any.dim", "aten::any.dims")
def any_rule(op: Emitter, self: Pair, dim: Any = None, keepdim: bool = False) -> Value:
    """aten::any(Tensor self) -> Tensor"""
    return reductions.any_rule(op, is_nonzero(op, self), dim, keepdim)


@lower_complex("aten::all", "aten::all.dim", "aten::all.dims")
def all_rule(op: Emitter, self: Pair, dim: Any = None, keepdim: bool = False) -> Value:
    """aten::all(Tensor self) -> Tensor"""
    return reductions.all_rule(op, is_nonzero(op, self), dim, keepdim)
