"""Reductions and norms of complex tensors."""

from __future__ import annotations

from typing import Any

from purexport.graph.ir import Value
from purexport.lowering.complex.arithmetic import is_nonzero, result_code
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower_complex
from purexport.lowering.reduce import reductions
from purexport.lowering.support import fields
from purexport.lowering.support.common import axis_of, reshape
from purexport.lowering.support.fields import Operand, magnitude
from purexport.lowering.support.pairs import Pair, pair_of
from purexport.lowering.tensor.slices import slice_axis


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
        return fields.product_along(op, flat, 0)
    return fields.product_along(op, value, axis_of(dim, value.rank), keepdim=keepdim)


@lower_complex("aten::cumprod")
def cumprod(op: Emitter, self: Operand, dim: int, dtype: Any = None) -> Operand:
    """aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor

    Each step multiplies by the element that lies 1, 2, 4, ... positions before, so the size of the axis must be known.
    """
    value = pair_of(op, self, result_code(op))
    if value.rank == 0:
        return value
    axis = axis_of(dim, value.rank)
    size = fields.known_size(op, value, axis)
    step = 1
    while step < size:
        value = _shifted_product(op, value, axis, size, step)
        step *= 2
    return value


def _shifted_product(op: Emitter, value: Pair, axis: int, size: int, step: int) -> Pair:
    head = value.map(lambda part: slice_axis(op, part, axis, 0, step))
    tail = value.map(lambda part: slice_axis(op, part, axis, step, size))
    earlier = value.map(lambda part: slice_axis(op, part, axis, 0, size - step))
    moved = fields.mul(op, tail, earlier)
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
