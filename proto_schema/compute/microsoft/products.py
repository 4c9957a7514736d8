"""Rows of products with weights in codes, and of fused products.

Codes and zero points become float32, which is what the kernels multiply unless `accuracy_level` lets them round the
other operand to int8; here it never is.
"""

from __future__ import annotations

import numpy as np

from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.microsoft import costs
from proto_schema.compute.microsoft.numbers import DOMAIN, dynamic, in_blocks, like, number, real, unpacked
from proto_schema.compute.nn.numbers import rounded_to, wide
from proto_schema.compute.rows import row


@row("MatMulNBits", domain=DOMAIN, cost=costs.of_bits)
def matmul_of_bits(
    call: Call,
    data: Array,
    codes: Array,
    scales: Array,
    zeros: Array | None = None,
    groups: Array | None = None,
    bias: Array | None = None,
) -> Typed:
    """A W' with W [N, K] in blocks along K: codes [N, blocks, bytes], low bits first; no zero point is the middle."""
    rows, size = call.attribute("N", 0), call.attribute("K", 0)
    bits, block = call.attribute("bits", 4), call.attribute("block_size", 32)
    if rows < 1 or size < 1 or block < 1 or bits not in (2, 4, 8):
        call.fail(f"N={rows}, K={size}, bits={bits} and block_size={block} do not describe a weight")
    blocks = -(-size // block)
    whole = unpacked(codes.reshape(rows, -1), bits, blocks * block)
    spread = wide(scales).reshape(rows, blocks)
    points: Array | float = float(1 << bits - 1)
    if zeros is not None:
        packed = call.dtype(3) == 2
        points = unpacked(zeros.reshape(rows, -1), bits, blocks) if packed else wide(zeros).reshape(rows, blocks)
    if groups is not None:
        places = groups[:size].astype(np.int64)
        spread = spread[:, places]
        points = points if isinstance(points, float) else points[:, places]
        weight = in_blocks(whole[:, :size], spread, points, 1)
    else:
        weight = in_blocks(whole[:, :size], spread, points, block)
    result = np.matmul(wide(data), weight.T)
    return like(call, result if bias is None else result + wide(bias))


@row("GatherBlockQuantized", domain=DOMAIN, cost=costs.of_table)
def gather_of_bits(call: Call, data: Array, places: Array, scales: Array, zeros: Array | None = None) -> Typed:
    """Rows of a table in blocks along `quantize_axis`, as numbers. Bytes of uint8 hold 4 bits twice, or 8 once."""
    block, bits = call.attribute("block_size", 128), call.attribute("bits", 4)
    packed = call.dtype(0) == 2 and bits == 4
    rank = data.ndim
    axis, along = call.axis(call.attribute("gather_axis", 0), rank), call.axis(call.attribute("quantize_axis", 1), rank)
    if packed and along != rank - 1:
        call.fail("packed codes have their blocks along the last axis")
    codes = unpacked(data, 4, 2 * data.shape[-1]) if packed else data
    points: Array | float = 0.0
    if call.dtype(0) == 2:
        points = float(1 << bits - 1)
    if zeros is not None:
        points = unpacked(zeros, 4, scales.shape[-1]) if packed else np.moveaxis(zeros, along, -1)
    turned = np.moveaxis(codes, along, -1)
    table = np.moveaxis(in_blocks(turned, np.moveaxis(wide(scales), along, -1), points, block), -1, along)
    return like(call, np.take(table, places, axis=axis), 2)


@row("DynamicQuantizeMatMul", domain=DOMAIN, cost=costs.of_product)
def matmul_with_rounding(
    call: Call, data: Array, codes: Array, scale: Array, zero: Array | None = None, bias: Array | None = None
) -> Array:
    """A B with A rounded to uint8 over its own range."""
    left, step, point = dynamic(data)
    right = codes.astype(np.float32) - (np.float32(0) if zero is None else zero.astype(np.float32))
    result = _product(left - point, right) * (step * scale.astype(np.float32))
    return np.asarray(result if bias is None else result + bias, np.float32)


@row("MatMulIntegerToFloat", domain=DOMAIN, cost=costs.of_product)
def matmul_to_float(
    call: Call,
    one: Array,
    other: Array,
    scale: Array,
    other_scale: Array,
    zero: Array | None = None,
    other_zero: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """The product of integers, times both scales."""
    left = one.astype(np.float32) - (np.float32(0) if zero is None else zero.astype(np.float32))
    right = other.astype(np.float32) - (np.float32(0) if other_zero is None else other_zero.astype(np.float32))
    result = _product(left, right) * (scale.astype(np.float32) * other_scale.astype(np.float32))
    return np.asarray(result if bias is None else result + bias, np.float32)


def _product(one: Array, other: Array) -> Array:
    """Of integers, exactly, as float32."""
    return np.asarray(np.matmul(one.astype(np.float64), other.astype(np.float64)).astype(np.float32))


@row("QGemm", domain=DOMAIN, cost=costs.of_gemm)
def gemm_of_codes(
    call: Call,
    one: Array,
    scale: Array,
    zero: Array,
    other: Array,
    other_scale: Array,
    other_zero: Array,
    bias: Array | None = None,
    result_scale: Array | None = None,
    result_zero: Array | None = None,
) -> Array:
    """alpha A B + C with C in steps of both scales; codes where the result has a scale, else float32."""
    left = real(call, one, np.ones((), np.float32), zero)
    right = other.astype(np.float32) - other_zero.astype(np.float32).reshape(
        (-1, 1) if call.attribute("transB", 0) and other_zero.size > 1 else (1, -1)
    )
    left, right = (left.T if call.attribute("transA", 0) else left), (right.T if call.attribute("transB", 0) else right)
    total = np.matmul(left.astype(np.float64), right.astype(np.float64))
    if bias is not None:
        total = total + bias
    values = (total * (call.attribute("alpha", 1.0) * number(call, scale) * other_scale.astype(np.float32))).astype(
        np.float32
    )
    if result_scale is None:
        return np.asarray(values)
    return rounded_to(np.rint(values / number(call, result_scale)) + number(call, result_zero), one.dtype)


@row("FusedMatMul", domain=DOMAIN, cost=costs.of_product)
def matmul_fused(call: Call, one: Array, other: Array) -> Typed:
    """alpha A B, either turned in its last two axes."""
    left = wide(one).swapaxes(-1, -2) if call.attribute("transA", 0) and one.ndim > 1 else wide(one)
    right = wide(other).swapaxes(-1, -2) if call.attribute("transB", 0) and other.ndim > 1 else wide(other)
    if call.attribute("transBatchA", 0) or call.attribute("transBatchB", 0):
        call.fail("transBatchA and transBatchB are not computed here")
    return like(call, np.matmul(left, right) * left.dtype.type(call.attribute("alpha", 1.0)))
