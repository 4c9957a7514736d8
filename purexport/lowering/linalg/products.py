"""Matrix products of real and complex tensors. A transposed weight becomes a Transpose node: runtimes fold it, and the
file holds the weight once.

ONNX Runtime has no Gemm or MatMul of small integers: those are computed in int32, which wraps to the same bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import times
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_over_fields
from purexport.lowering.support.common import axis_of, beside_product, dims_of, full, reshape, swap_last
from purexport.lowering.support.fields import Operand, add, by_products, conj, map_parts, mul, real_part
from purexport.lowering.support.kernels import largest
from purexport.lowering.support.pairs import Pair, operand

_MULTIPLIED = (dtypes.FLOAT, dtypes.DOUBLE, dtypes.FLOAT16, dtypes.BFLOAT16, dtypes.INT32, dtypes.INT64)


def multiply(op: Emitter, one: Value, other: Value) -> Value:
    """The matrix product of real tensors, as numpy and torch.matmul define it for any rank above 0."""
    if one.is_static and other.is_static and one.sizes[-1] == 0:
        # ONNX Runtime (1.31) leaves some results of sums over an empty axis uninitialized
        shapes = [torch.empty(value.sizes, device="meta") for value in (one, other)]
        return full(op, torch.matmul(*shapes).shape, 0, one.dtype or dtypes.FLOAT)
    if one.dtype in _MULTIPLIED:
        return op.MatMul(one, other)
    product = op.MatMul(op.cast(one, dtypes.INT32), op.cast(other, dtypes.INT32))
    return op.cast(product, one.dtype)


def product(op: Emitter, one: Operand, other: Operand) -> Operand:
    """The matrix product of two operands, of which one or both may be complex."""
    found: Operand = by_products(op, multiply, one, other)
    return found


@lower_over_fields("aten::linear")
def linear(op: Emitter, input: Operand, weight: Operand, bias: Operand | None = None) -> Operand:
    """aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"""
    if isinstance(input, Pair) or isinstance(weight, Pair):
        found: Operand = by_products(op, _linear, input, weight)
        return found if bias is None else add(op, found, bias)
    assert not isinstance(bias, Pair), "torch takes a bias of the dtype of the weight"
    return _linear(op, input, weight, bias)


def _linear(op: Emitter, input: Value, weight: Value, bias: Value | None = None) -> Value:
    if input.rank == 2 and weight.rank == 2 and dtypes.is_floating(input.dtype) and op.takes("Gemm", input.dtype):
        return op.Gemm(input, weight, bias if bias is not None else _no_bias(op, input), transB=1)
    product = multiply(op, input, swap_last(op, weight) if weight.rank > 1 else weight)
    return product if bias is None else op.Add(product, bias)


def _no_bias(op: Emitter, value: Value) -> Value | None:
    """Zero as the operand C of Gemm before opset 11, None where C is optional."""
    return None if op.optional("Gemm", "C") else op.like(0, value)


@lower_over_fields("aten::matmul", "aten::linalg_matmul")
def matmul(op: Emitter, self: Operand, other: Operand) -> Operand:
    """aten::matmul(Tensor self, Tensor other) -> Tensor"""
    return product(op, self, other)


@lower_over_fields("aten::mm", "aten::bmm")
def mm(op: Emitter, self: Operand, mat2: Operand) -> Operand:
    """aten::mm(Tensor self, Tensor mat2) -> Tensor"""
    return product(op, self, mat2)


@lower_over_fields("aten::mv")
def mv(op: Emitter, self: Operand, vec: Operand) -> Operand:
    """aten::mv(Tensor self, Tensor vec) -> Tensor"""
    return product(op, self, vec)


@lower_over_fields("aten::dot")
def dot(op: Emitter, self: Operand, tensor: Operand) -> Operand:
    """aten::dot(Tensor self, Tensor tensor) -> Tensor

    Not conjugated: `vdot` conjugates its first operand.
    """
    return product(op, self, tensor)


@lower_over_fields("aten::vdot")
def vdot(op: Emitter, self: Operand, other: Operand) -> Operand:
    """aten::vdot(Tensor self, Tensor other) -> Tensor

    The first operand is conjugated.
    """
    return product(op, conj(op, self), other)


@lower_over_fields("aten::linalg_vecdot", promote="x y")
def linalg_vecdot(op: Emitter, x: Operand, y: Operand, dim: int = -1) -> Operand:
    """aten::linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor

    The first operand is conjugated.
    """
    rank = max(x.rank, y.rank)
    found = mul(op, conj(op, x), y)
    axes = [axis_of(dim, rank)]
    return map_parts(found, lambda part: op.ReduceSum(part, axes=axes, keepdims=0)) if rank else found


@lower_over_fields("aten::outer", "aten::ger", promote="self vec2")
def outer(op: Emitter, self: Operand, vec2: Operand) -> Operand:
    """aten::outer(Tensor self, Tensor vec2) -> Tensor"""
    return mul(op, map_parts(self, lambda part: op.Reshape(part, [-1, 1])), vec2)


# Products added to something ----------------------------------------------------------------------------------------


@lower_over_fields("aten::addmm")
def addmm(op: Emitter, self: Operand, mat1: Operand, mat2: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    """aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor

    With `beta` 0, NaN in `self` does not reach the result.
    """
    if not (isinstance(self, Value) and isinstance(mat1, Value) and isinstance(mat2, Value)):
        return _added(op, self, product(op, mat1, mat2), beta, alpha)
    plain = not isinstance(beta, Value) and not isinstance(alpha, Value) and beta != 0
    if not _is(beta, 1) and op.dim(mat1, 1) == 0:
        plain = False  # ONNX Runtime's Gemm ignores beta where the summed axis is empty
    if self.dtype == dtypes.DOUBLE and not (_is(beta, 1) and _is(alpha, 1)):
        plain = False  # the attributes would be rounded to float32
    if plain and dtypes.is_floating(self.dtype) and op.takes("Gemm", self.dtype):
        return op.Gemm(mat1, mat2, self, alpha=float(alpha), beta=float(beta))
    return _added(op, self, multiply(op, mat1, mat2), beta, alpha)


def _added(op: Emitter, self: Operand, found: Operand, beta: Any, alpha: Any) -> Operand:
    """`beta * self + alpha * found`. With `beta` 0 `self` is ignored, so that its NaN does not reach the result."""
    if not _is(alpha, 1):
        factor = operand(op, alpha, found.dtype or dtypes.FLOAT)
        found = mul(op, found, map_parts(factor, lambda part: beside_product(op, part, real_part(found))))
    if _is(beta, 0):
        return found
    return add(op, self if _is(beta, 1) else mul(op, self, operand(op, beta, self.dtype or dtypes.FLOAT)), found)


def _is(number: Any, wanted: int) -> bool:
    return not isinstance(number, Value) and bool(number == wanted)


@lower_over_fields("aten::baddbmm")
def baddbmm(op: Emitter, self: Operand, batch1: Operand, batch2: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    """aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    return _added(op, self, product(op, batch1, batch2), beta, alpha)


@lower_over_fields("aten::addbmm")
def addbmm(op: Emitter, self: Operand, batch1: Operand, batch2: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    """aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    summed = map_parts(product(op, batch1, batch2), lambda part: op.ReduceSum(part, axes=[0], keepdims=0))
    return _added(op, self, summed, beta, alpha)


@lower_over_fields("aten::addmv")
def addmv(op: Emitter, self: Operand, mat: Operand, vec: Operand, beta: Any = 1, alpha: Any = 1) -> Operand:
    """aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    return _added(op, self, product(op, mat, vec), beta, alpha)


@lower("aten::addr")
def addr(op: Emitter, self: Value, vec1: Value, vec2: Value, beta: Any = 1, alpha: Any = 1) -> Operand:
    """aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    return _added(op, self, outer(op, vec1, vec2), beta, alpha)


# Products of several ------------------------------------------------------------------------------------------------


@lower("aten::chain_matmul")
def chain_matmul(op: Emitter, matrices: Sequence[Value]) -> Value:
    """aten::chain_matmul(Tensor[] matrices) -> Tensor"""
    return functools.reduce(functools.partial(multiply, op), matrices)


@lower("aten::linalg_multi_dot")
def linalg_multi_dot(op: Emitter, tensors: Sequence[Value]) -> Value:
    """aten::linalg_multi_dot(Tensor[] tensors) -> Tensor"""
    return functools.reduce(functools.partial(multiply, op), tensors)


@lower_over_fields("aten::kron", promote="self other")
def kron(op: Emitter, self: Operand, other: Operand) -> Operand:
    """aten::kron(Tensor self, Tensor other) -> Tensor

    Every element of `self` times all of `other`: the axes of both are interleaved, then each pair becomes one axis.
    """
    rank = max(self.rank, other.rank)
    one, two = (
        map_parts(item, lambda part: op.Unsqueeze(part, list(range(rank - part.rank)))) if item.rank < rank else item
        for item in (self, other)
    )
    sizes = zip(dims_of(op, real_part(one)), dims_of(op, real_part(two)), strict=True)
    if rank:
        one = map_parts(one, lambda part: op.Unsqueeze(part, list(range(1, 2 * rank, 2))))
        two = map_parts(two, lambda part: op.Unsqueeze(part, list(range(0, 2 * rank, 2))))
    spread, merged = mul(op, one, two), [times(op, a, b) for a, b in sizes]
    return map_parts(spread, lambda part: reshape(op, part, merged))


# Vectors ------------------------------------------------------------------------------------------------------------


@lower("aten::trace")
def trace(op: Emitter, self: Value) -> Value:
    """aten::trace(Tensor self) -> Tensor"""
    rows, columns = (_counted(op, self, axis) for axis in (0, 1))
    diagonal = op.Equal(op.Unsqueeze(rows, [1]), op.Unsqueeze(columns, [0]))
    value = op.cast(self, op.result_dtype)
    return op.ReduceSum(op.Where(diagonal, value, op.like(0, value)), axes=[0, 1], keepdims=0)


def _counted(op: Emitter, value: Value, axis: int) -> Value:
    size = op.dim(value, axis)
    return op.Range(op.const(0), op.const(size) if isinstance(size, int) else size, op.const(1))


@lower("aten::cross", promote="self other")
def cross(op: Emitter, self: Value, other: Value, dim: int | None = None) -> Value:
    """aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor

    Without `dim` it is the first axis of size 3.
    """
    sizes = self.shape or ()
    if dim is None and 3 not in sizes:
        raise UnsupportedForm("has no axis whose size is known to be 3; give dim", code="value-not-known")
    return linalg_cross(op, self, other, sizes.index(3) if dim is None else dim)


@lower("aten::linalg_cross", promote="self other")
def linalg_cross(op: Emitter, self: Value, other: Value, dim: int = -1) -> Value:
    """aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor"""
    rank = max(self.rank, other.rank)
    back = axis_of(dim, rank) - rank

    def turned(value: Value, order: list[int]) -> Value:
        return op.Gather(value, op.const(order), axis=value.rank + back)

    one = op.Mul(turned(self, [1, 2, 0]), turned(other, [2, 0, 1]))
    return op.Sub(one, op.Mul(turned(self, [2, 0, 1]), turned(other, [1, 2, 0])))


@lower("aten::cosine_similarity", promote="x1 x2")
def cosine_similarity(op: Emitter, x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    """aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor

    Each norm is at least `eps`.
    """
    rank = max(x1.rank, x2.rank)
    back = axis_of(dim, rank) - rank
    if not _same_size(op, x1, x2, back):  # torch takes the norms after broadcasting
        x1, x2 = _wide(op, x1, x2), _wide(op, x2, x1)
    units = []
    for value in (x1, x2):
        norm = op.ReduceL2(value, axes=[value.rank + back], keepdims=1) if value.rank else op.Abs(value)
        units.append(op.Div(value, largest(op, norm, op.like(eps, value))))
    product = op.Mul(*units)
    similarity = op.ReduceSum(product, axes=[rank + back], keepdims=0) if rank else product
    return op.cast(similarity, op.result_dtype)  # the norm of a tensor without axes has a wider dtype in torch


def _wide(op: Emitter, value: Value, other: Value) -> Value:
    """`value`, broadcast to the shape that it and `other` have together."""
    return op.Expand(value, op.shape(other)) if other.rank else value


def _same_size(op: Emitter, one: Value, other: Value, axis: int) -> bool:
    """Whether both have this axis (negative), with the same known size."""
    if min(one.rank, other.rank) < max(-axis, 1):
        return one.rank == other.rank == 0
    sizes = [op.dim(value, value.rank + axis) for value in (one, other)]
    return isinstance(sizes[0], int) and sizes[0] == sizes[1]


@lower("aten::pairwise_distance", promote="x1 x2")
def pairwise_distance(
    op: Emitter, x1: Value, x2: Value, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Value:
    """aten::pairwise_distance(Tensor x1, Tensor x2, float p=2., float eps=9.9999999999999995e-07, bool keepdim=False)
    -> Tensor

    `eps` is added to each difference, not to the norm. Differences of integers wrap.
    """
    apart = op.Sub(x1, x2)
    apart = apart if dtypes.is_floating(apart.dtype) else op.cast(apart, dtypes.FLOAT)
    difference = op.Add(apart, op.like(eps, apart))
    if x1.rank == x2.rank == 0 and p:
        return op.Abs(difference)
    return _norm(op, difference, max(x1.rank, x2.rank) - 1, p, keepdim)


@lower("aten::cdist", "aten::_cdist_forward", promote="x1 x2")
def cdist(op: Emitter, x1: Value, x2: Value, p: float = 2, compute_mode: Any = None) -> Value:
    """aten::cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor

    `compute_mode` is ignored: it changes the speed and the rounding only.
    """
    one, other = op.Unsqueeze(x1, [x1.rank - 1]), op.Unsqueeze(x2, [x2.rank - 2])
    return _norm(op, op.Sub(one, other), max(x1.rank, x2.rank), p, False)


def _norm(op: Emitter, value: Value, axis: int, p: float, keepdim: bool) -> Value:
    options: dict[str, Any] = {"axes": [axis], "keepdims": int(keepdim)}
    if p in (1, 2):
        return op.emit(f"ReduceL{int(p)}", value, **options)
    size = op.Abs(value)
    if p == math.inf:
        return op.ReduceMax(size, **options)
    if p == 0:
        return op.ReduceSum(op.cast(op.Greater(size, op.like(0, value)), value.dtype), **options)
    return op.Pow(op.ReduceSum(op.Pow(size, op.like(p, value)), **options), op.like(1 / p, value))
