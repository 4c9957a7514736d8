"""Rows of products of matrices, and sums of products by an equation (Einsum).

Products of integers are computed in the float type that holds all their sums exactly, where there is one: BLAS has
none for integers.
"""

from __future__ import annotations

import re
from math import inf, prod
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, products
from proto_schema.compute.nn.numbers import exact, rounded_to, wide
from proto_schema.compute.rows import row


def _fitting(call: Call, one: Array, other: Array) -> None:
    if not one.ndim or not other.ndim or one.shape[-1] != other.shape[max(other.ndim - 2, 0)]:
        call.fail(f"shapes {one.shape} and {other.shape} have no product of matrices")


def product_cost(one: Array, other: Array, kind: Any) -> Cost:
    """Leading axes broadcast; operands of another type are converted, and results rounded."""
    left = one.shape if one.ndim > 1 else (1, *one.shape)
    right = other.shape if other.ndim > 1 else (*other.shape, 1)
    rank = max(len(left), len(right)) - 2
    lead = [(1,) * (rank + 2 - len(shape)) + shape[:-2] for shape in (left, right)]
    count = prod(max(pair) for pair in zip(*lead, strict=True)) * left[-2] * right[-1]
    width = max(4, one.itemsize)
    work = products(count * left[-1], kind) + 2 * count + one.size + other.size
    return Cost(work, count * width, 2 * WIDE * (one.size + other.size) + 2 * count * WIDE)


def _matmul_cost(call: Call, one: Array, other: Array) -> Cost:
    return product_cost(one, other, one.dtype)


def _integer_cost(call: Call, one: Array, other: Array, *zeros: Array | None) -> Cost:
    found = product_cost(one, other, np.float32)
    return Cost(found.work, found.results, 2 * found.scratch + 2 * found.results)


def _quantized_cost(call: Call, one: Array, scale: Array, zero: Array, other: Array, *more: Array) -> Cost:
    return _integer_cost(call, one, other)


def _gemm_cost(call: Call, one: Array, other: Array, bias: Array | None = None) -> Cost:
    if one.ndim != 2 or other.ndim != 2:
        return Cost()  # the row refuses it
    left, right = one.T if call.attribute("transA", 0) else one, other.T if call.attribute("transB", 0) else other
    found = product_cost(left, right, one.dtype)
    added = 0 if bias is None else bias.size
    return Cost(found.work + added, found.results, found.scratch + found.results + 2 * WIDE * added)


_FLOPS = re.compile(r"Optimized FLOP count: *([0-9.e+]+)")
_LARGEST = re.compile(r"Largest intermediate: *([0-9.e+]+)")


def _einsum_cost(call: Call, *operands: Array) -> Cost:
    """What numpy says of the path that it takes, and at least one pass over all places of the equation."""
    equation = call.text("equation").replace(" ", "")
    held = sum(operand.size for operand in operands)
    greedy = len(operands) > 1 and operands[0].dtype.kind == "f"
    try:
        told = str(np.einsum_path(equation, *operands, optimize="greedy" if greedy else False)[1])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        call.fail(f"equation {equation!r}: {error}")
    flops, largest = (float(found[1]) if (found := form.search(told)) else inf for form in (_FLOPS, _LARGEST))
    if not max(flops, largest) < 2.0**62:
        return Cost(2**62, 2**62)
    count = int(largest)
    return Cost(int(flops) + held, WIDE * count, 4 * WIDE * (count + held))


@row("MatMul", cost=_matmul_cost)
def matmul(call: Call, one: Array, other: Array) -> Array:
    """numpy's matmul: leading axes broadcast, vectors are rows or columns."""
    _fitting(call, one, other)
    return np.asarray(np.matmul(wide(one), wide(other)))


@row("MatMulInteger", cost=_integer_cost)
def matmul_integer(
    call: Call, one: Array, other: Array, zero: Array | None = None, other_zero: Array | None = None
) -> Array:
    """The product of 8-bit integers less their zero points, as int32. The zero points are for rows and for columns."""
    _fitting(call, one, other)
    return _of_integers(one, zero, other, other_zero).astype(np.int32)


def _of_integers(one: Array, zero: Array | None, other: Array, other_zero: Array | None) -> Array:
    """The product of integers less their zero points, in floats."""
    left = _shifted(one.astype(np.float32), zero, -1)
    right = _shifted(other.astype(np.float32), other_zero, -2)
    return np.asarray(np.matmul(*exact(left, right, (max(right.ndim - 2, 0),))))


def _shifted(values: Array, zero: Array | None, axis: int) -> Array:
    """Less the zero point, which is one number, one for each row (axis -1) or column (axis -2), or fits already."""
    if zero is None:
        return values
    return np.asarray(values - _along(zero, axis, values.ndim).astype(values.dtype))


def _along(numbers: Array, axis: int, rank: int) -> Array:
    if numbers.ndim != 1 or numbers.size == 1:
        return numbers.reshape(()) if numbers.size == 1 else numbers
    return numbers[:, None] if axis == -1 and rank > 1 else numbers


@row("QLinearMatMul", cost=_quantized_cost)
def matmul_quantized(
    call: Call,
    one: Array,
    scale: Array,
    zero: Array,
    other: Array,
    other_scale: Array,
    other_zero: Array,
    made_scale: Array,
    made_zero: Array,
) -> Array:
    """The product of quantized matrices, quantized again."""
    _fitting(call, one, other)
    sums = _of_integers(one, zero, other, other_zero)
    factor = wide(_along(scale, -1, sums.ndim)) * wide(_along(other_scale, -2, sums.ndim))
    factor = factor / wide(_along(made_scale, -1, sums.ndim))
    point = _along(made_zero, -1, sums.ndim).astype(np.float32)
    if made_zero.dtype.kind == "f":  # float8, to which the evaluator rounds
        return np.asarray(sums.astype(np.float32) * factor + point)
    return rounded_to(np.rint(sums.astype(np.float32) * factor) + point, made_zero.dtype)


@row("Gemm", cost=_gemm_cost)
def gemm(call: Call, one: Array, other: Array, bias: Array | None = None) -> Array:
    """alpha * A' B' + beta * C, with A' and B' transposed if asked, and C broadcast.

    Integers are computed as float64 where alpha and beta may be fractions, and cut to the type.
    """
    kind = one.dtype
    left = one.T if call.attribute("transA", 0) else one
    right = other.T if call.attribute("transB", 0) else other
    if one.ndim != 2 or other.ndim != 2:
        call.fail(f"shapes {one.shape} and {other.shape}: Gemm takes matrices")
    _fitting(call, left, right)
    if kind.kind in "iu":
        return _integers(call, left, right, bias, kind)
    result = np.matmul(wide(left), wide(right))
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    if alpha != 1:
        result *= result.dtype.type(alpha)
    if bias is not None and beta != 0:
        added = wide(bias) if beta == 1 else wide(bias) * result.dtype.type(beta)
        if np.broadcast_shapes(result.shape, added.shape) != result.shape:
            call.fail(f"a bias of shape {bias.shape} does not broadcast to {result.shape}")
        result += added
    return np.asarray(result)


def _integers(call: Call, left: Array, right: Array, bias: Array | None, kind: np.dtype[np.generic]) -> Array:
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    result: Array = np.matmul(left, right)
    if alpha != 1:
        result = (result * alpha).astype(kind)
    if bias is None or beta == 0:
        return result
    return np.asarray(result + (bias if beta == 1 else (bias * beta).astype(kind)))


@row("Einsum", cost=_einsum_cost)
def einsum(call: Call, *operands: Array) -> Array:
    """numpy's einsum. Two operands and more go through products of matrices where their equation is one."""
    equation = call.text("equation").replace(" ", "")
    values = [wide(operand) for operand in operands]
    try:
        if len(values) == 1 or values[0].dtype.kind != "f":
            return np.array(np.einsum(equation, *values))
        return np.array(np.einsum(equation, *values, optimize="greedy"))
    except ValueError as error:
        call.fail(f"equation {equation!r}: {error}")
