"""Matrix products, reductions and norms of complex tensors.

A product of two operands is four of real ones, (ac - bd) + (ad + bc) i, each by the ordinary rule; two where one
operand is real.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import Operand, conj, is_nonzero, magnitude, plus, result_code, times
from purexport.lowering.complex.by_parts import part_results
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.linalg import einsum, products
from purexport.lowering.reduce import reductions
from purexport.lowering.support.common import axis_of, reshape
from purexport.lowering.support.pairs import Pair, operand, pair_of
from purexport.lowering.tensor.slices import slice_axis

Product = Callable[[Value, Value], Value]


def product(op: Emitter, multiply: Product, one: Operand, other: Operand) -> Pair:
    """The complex form of a product of real tensors that is linear in both."""
    with part_results(op):
        return _product(op, multiply, one, other)


def _product(op: Emitter, multiply: Product, one: Operand, other: Operand) -> Pair:
    if not isinstance(one, Pair):
        assert isinstance(other, Pair), "one of the operands is complex"
        return other.map(lambda part: multiply(one, part))
    if not isinstance(other, Pair):
        return one.map(lambda part: multiply(part, other))
    real = op.Sub(multiply(one.real, other.real), multiply(one.imag, other.imag))
    return Pair(real, op.Add(multiply(one.real, other.imag), multiply(one.imag, other.real)))


def _multiply(op: Emitter) -> Product:
    return lambda one, other: products.multiply(op, one, other)


@lower_complex("aten::matmul", "aten::linalg_matmul")
def matmul(op: Emitter, self: Operand, other: Operand) -> Pair:
    return product(op, _multiply(op), self, other)


@lower_complex("aten::mm", "aten::bmm")
def mm(op: Emitter, self: Operand, mat2: Operand) -> Pair:
    return product(op, _multiply(op), self, mat2)


@lower_complex("aten::mv")
def mv(op: Emitter, self: Operand, vec: Operand) -> Pair:
    return product(op, _multiply(op), self, vec)


@lower_complex("aten::dot")
def dot(op: Emitter, self: Operand, tensor: Operand) -> Pair:
    return product(op, _multiply(op), self, tensor)


@lower_complex("aten::vdot")
def vdot(op: Emitter, self: Pair, other: Pair) -> Pair:
    return product(op, _multiply(op), conj(op, self), other)


@lower_complex("aten::linalg_vecdot", promote="x y")
def linalg_vecdot(op: Emitter, x: Operand, y: Operand, dim: int = -1) -> Pair:
    first = conj(op, x) if isinstance(x, Pair) else x
    return product(op, lambda one, other: products.linalg_vecdot(op, one, other, dim), first, y)


@lower_complex("aten::outer", "aten::ger", promote="self vec2")
def outer(op: Emitter, self: Operand, vec2: Operand) -> Pair:
    return product(op, lambda one, other: products.outer(op, one, other), self, vec2)


@lower_complex("aten::kron", promote="self other")
def kron(op: Emitter, self: Operand, other: Operand) -> Pair:
    return product(op, lambda one, two: products.kron(op, one, two), self, other)


@lower_complex("aten::linear")
def linear(op: Emitter, input: Operand, weight: Operand, bias: Operand | None = None) -> Operand:
    found = product(op, lambda one, other: products.linear(op, one, other), input, weight)
    return found if bias is None else plus(op, found, bias)


@lower_complex("aten::einsum")
def einsum_rule(op: Emitter, equation: str, tensors: Any, path: Any = None) -> Operand:
    """Two operands at a time is what a product is; one moves and adds up; more are refused."""
    if len(tensors) == 1:
        with part_results(op):
            (only,) = tensors
            return Pair(*(einsum.einsum(op, equation, [part]) for part in (only.real, only.imag)))
    if len(tensors) > 2:
        raise UnsupportedForm(
            "of more than two complex tensors has no rule; write it as einsums of two", code="complex-tensor"
        )
    return product(op, lambda one, other: einsum.einsum(op, equation, [one, other]), *tensors)


# Products added to something ----------------------------------------------------------------------------------------


def _added(op: Emitter, self: Operand, found: Operand, beta: Any, alpha: Any) -> Operand:
    """beta * self + alpha * found; with beta 0 nothing of self counts, not even NaN."""
    if alpha != 1:
        found = times(op, found, operand(op, alpha, found.dtype or dtypes.FLOAT))
    if beta == 0:
        return found
    return plus(op, self if beta == 1 else times(op, self, operand(op, beta, self.dtype or dtypes.FLOAT)), found)


@lower_complex("aten::addmm")
def addmm(op: Emitter, self: Operand, mat1: Operand, mat2: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    return _added(op, self, mm(op, mat1, mat2), beta, alpha)


@lower_complex("aten::baddbmm")
def baddbmm(op: Emitter, self: Operand, batch1: Operand, batch2: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    return _added(op, self, mm(op, batch1, batch2), beta, alpha)


@lower_complex("aten::addbmm")
def addbmm(op: Emitter, self: Operand, batch1: Operand, batch2: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    summed = mm(op, batch1, batch2).map(lambda part: op.ReduceSum(part, axes=[0], keepdims=0))
    return _added(op, self, summed, beta, alpha)


@lower_complex("aten::addmv")
def addmv(op: Emitter, self: Operand, mat: Operand, vec: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    return _added(op, self, mm(op, mat, vec), beta, alpha)


# Reductions ---------------------------------------------------------------------------------------------------------


@lower_complex("aten::prod", "aten::prod.dim_int")
def prod(op: Emitter, self: Operand, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Operand:
    """Halves are multiplied until one is left; the axis must be of a known size."""
    value = pair_of(op, self, result_code(op))
    if value.rank == 0:
        return value
    if dim is None:
        flat = value.map(lambda part: reshape(op, part, [-1]))
        return _product_along(op, flat, 0, keepdim=False)
    return _product_along(op, value, axis_of(dim, value.rank), keepdim=keepdim)


def _known_size(op: Emitter, value: Pair, axis: int) -> int:
    size = op.dim(value.real, axis)
    if not isinstance(size, int):
        raise UnsupportedForm(
            "along a dynamic axis of complex tensors has no rule; declare that axis static", code="size-not-known"
        )
    return size


def _product_along(op: Emitter, value: Pair, axis: int, *, keepdim: bool) -> Operand:
    size = _known_size(op, value, axis)
    if size == 0:
        raise UnsupportedForm("over an empty axis of complex tensors has no rule", code="complex-tensor")
    rows: list[Operand] = [_row(op, value, axis, at) for at in range(size)]
    while len(rows) > 1:
        rest = rows[len(rows) // 2 * 2 :]
        rows = [times(op, *pair) for pair in zip(rows[::2], rows[1::2], strict=False)] + rest
    (found,) = rows
    assert isinstance(found, Pair), "a product of pairs is one"
    return found.map(lambda part: op.Unsqueeze(part, [axis])) if keepdim else found


def _row(op: Emitter, value: Pair, axis: int, at: int) -> Pair:
    return value.map(lambda part: op.Gather(part, op.const(at), axis=axis))


@lower_complex("aten::cumprod")
def cumprod(op: Emitter, self: Operand, dim: int, dtype: Any = None) -> Operand:
    """Each step multiplies by what lies 1, 2, 4, ... places before."""
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
    moved = times(op, tail, earlier)
    assert isinstance(moved, Pair)
    joined = Pair(op.Concat(head.real, moved.real, axis=axis), op.Concat(head.imag, moved.imag, axis=axis))
    joined.real.shape = joined.imag.shape = value.shape
    return joined


@lower_complex("aten::linalg_vector_norm")
def linalg_vector_norm(
    op: Emitter, self: Pair, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    return reductions.linalg_vector_norm(op, magnitude(op, self), ord, dim, keepdim)


@lower_complex("aten::norm.Scalar", "aten::norm.ScalarOpt_dim")
def norm(op: Emitter, self: Pair, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Value:
    return reductions.norm(op, magnitude(op, self), p, dim, keepdim)


@lower_complex("aten::var.correction")
def var(op: Emitter, self: Pair, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    """The mean of the squared sizes of the differences: the variances of both parts together."""
    return op.Add(*(reductions.var(op, part, dim, correction, keepdim) for part in (self.real, self.imag)))


@lower_complex("aten::std.correction")
def std(op: Emitter, self: Pair, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    return op.Sqrt(var(op, self, dim, correction, keepdim))


@lower_complex("aten::var_mean.correction")
def var_mean(
    op: Emitter, self: Pair, dim: Any = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Value, Pair]:
    found = [reductions.var_mean(op, part, dim, correction, keepdim) for part in (self.real, self.imag)]
    (one, real), (other, imag) = found
    return op.Add(one, other), Pair(real, imag)


@lower_complex("aten::count_nonzero", "aten::count_nonzero.dim_IntList")
def count_nonzero(op: Emitter, self: Pair, dim: Any = None) -> Value:
    return reductions.count_nonzero(op, is_nonzero(op, self), dim)


@lower_complex("aten::any", "aten::any.dim", "aten::any.dims")
def any_rule(op: Emitter, self: Pair, dim: Any = None, keepdim: bool = False) -> Value:
    return reductions.any_rule(op, is_nonzero(op, self), dim, keepdim)


@lower_complex("aten::all", "aten::all.dim", "aten::all.dims")
def all_rule(op: Emitter, self: Pair, dim: Any = None, keepdim: bool = False) -> Value:
    return reductions.all_rule(op, is_nonzero(op, self), dim, keepdim)
