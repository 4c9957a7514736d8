"""Rows of quantization: scales of tensors, axes and blocks, and the operators of integers written in plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.conversion.adapters.axes import positive
from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import FLOAT, Writer
from proto_schema.ir import Value
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES

INT32, UINT8, DOUBLE = TensorProto.INT32, TensorProto.UINT8, TensorProto.DOUBLE


def _range(dtype: int) -> tuple[int, int]:
    row = DTYPES[dtype]
    if "INT" not in row.name:
        raise RefusedError(f"it quantizes to {row.name}, which older operators do not round to", row.since and 19)
    return (0, (1 << row.bits) - 1) if row.name[0] == "U" else (-(1 << row.bits - 1), (1 << row.bits - 1) - 1)


def _aligned(node: VersionedNode, op: Writer, value: Value) -> Value:
    """A scale or zero point in a shape that broadcasts to the data: of the tensor, of an axis, or of blocks."""
    if value.rank is None:
        raise RefusedError("the rank of its scale is not known")
    block = node.attribute("block_size", 0)
    if value.rank == 0 or value.sizes == (1,):
        return value if value.rank == 0 else op.Reshape(value, op.ints([]))
    rank = node.need_rank(0)
    axis = positive([node.attribute("axis", 1)], rank)[0]
    if value.rank == 1 and not block:
        form = [1] * rank
        form[axis] = -1
        return op.Reshape(value, form)
    if not block:
        raise RefusedError("its scale has several axes and no blocks")
    wide = op.Unsqueeze(value, [axis + 1])
    sizes: list[Any] = [op.size(value, place) for place in range(rank)]
    repeated = op.Expand(wide, op.joined(*sizes[: axis + 1], [block], *sizes[axis + 1 :]))
    count = op.Mul(sizes[axis], op.ints([block]))
    flat = op.Reshape(repeated, op.joined(*sizes[:axis], count, *sizes[axis + 1 :]))
    return op.Slice(flat, [0], op.size(node[0], axis), [axis])


def _plain_scale(node: VersionedNode) -> bool:
    """Whether the scale is that of the whole tensor, as in opset 10."""
    return node[1].rank == 0 or node[1].sizes == (1,)


def _quantized(node: VersionedNode, op: Writer) -> Value:
    """round(x / scale) + zero point, as far as the type goes."""
    wanted = node.attribute("output_dtype", 0) or (node.need_dtype(2) if node.has(2) else UINT8)
    low, high = _range(wanted)
    precision = node.attribute("precision", 0) or node.need_dtype(1)
    wide = FLOAT if precision == INT32 else precision
    x = op.cast(node[0], wide)
    made = op.Round(op.Div(x, op.cast(_aligned(node, op, node[1]), wide)))
    if node.has(2):
        made = op.Add(op.cast(made, FLOAT), op.cast(_aligned(node, op, node[2]), FLOAT))
    made = op.cast(made, FLOAT)
    return op.cast(op.Clip(made, float(low), float(high)), wanted)


def _dequantized(node: VersionedNode, op: Writer) -> Value:
    """(x - zero point) * scale, in the type of the scale."""
    node.need_dtype(0)
    wanted = node.attribute("output_dtype", 0) or node.need_dtype(1)
    wide = INT32 if DTYPES[node[0].dtype].bits <= 32 and "INT" in DTYPES[node[0].dtype].name else FLOAT
    x = op.cast(node[0], wide)
    if node.has(2):
        x = op.Sub(x, op.cast(_aligned(node, op, node[2]), wide))
    made = op.Mul(op.cast(x, FLOAT), op.cast(_aligned(node, op, node[1]), FLOAT))
    return op.cast(made, wanted)


@down("QuantizeLinear", version=23)
@down("QuantizeLinear", version=21)
@down("QuantizeLinear", version=19)
@down("DequantizeLinear", version=23)
@down("DequantizeLinear", version=21)
def newer_forms(node: VersionedNode, op: Writer) -> Result:
    """Blocks, types and precisions that the older version does not know, written out."""
    version = node.schema.since_version
    quantizes = node.schema.name == "QuantizeLinear"
    gone = {23: "precision" if quantizes else "output_dtype", 21: "block_size output_dtype", 19: "saturate"}
    names = gone[max(item for item in gone if item <= version)].split()
    wanted = node.attribute("output_dtype", 0)
    if quantizes and wanted and not node.has(2) and "output_dtype" in names:
        if node[1].rank is None or _range(wanted) is None or wanted != UINT8:
            zero = op.const(np.array(0), wanted)
            like = zero if node[1].rank == 0 else op.Expand(zero, op.shape(node[1]))
            node = node.with_(inputs=[node[0], node[1], like])
        node = node.with_(drop="output_dtype")
    if quantizes and wanted and node.has(2) and node[2].dtype == wanted:
        node = node.with_(drop="output_dtype")
    if not quantizes and wanted and wanted == node[1].dtype:
        node = node.with_(drop="output_dtype")
    saturates = "saturate" in names and node.has(2) and node[2].dtype < 17
    used = any(node.attribute(name) for name in names if name != "saturate")
    if used and node.schema.since_version >= 21:
        return _quantized(node, op) if quantizes else _dequantized(node, op)
    return node.with_(drop=" ".join(names)) if names != ["saturate"] or saturates or not node.has(2) else None


@down("QuantizeLinear", version=13)
def quantize_axes(node: VersionedNode, op: Writer) -> Result:
    """Scales of an axis, written out."""
    return node.with_(drop="axis") if _plain_scale(node) else _quantized(node, op)


@down("DequantizeLinear", version=13)
def dequantize_axes(node: VersionedNode, op: Writer) -> Result:
    """Scales of an axis, written out."""
    return node.with_(drop="axis") if _plain_scale(node) else _dequantized(node, op)


@down("QuantizeLinear", version=10)
def quantize(node: VersionedNode, op: Writer) -> Result:
    """Written out."""
    return _quantized(node, op)


@down("DequantizeLinear", version=10)
def dequantize(node: VersionedNode, op: Writer) -> Result:
    """Written out."""
    return _dequantized(node, op)


@down("DynamicQuantizeLinear", version=11)
def dynamic_quantize(node: VersionedNode, op: Writer) -> Result:
    """The scale from the least and the largest number, 0 included."""
    x = node[0]
    axes = list(range(node.need_rank(0)))
    low = op.Min(op.ReduceMin(x, axes, keepdims=0), 0.0)
    high = op.Max(op.ReduceMax(x, axes, keepdims=0), 0.0)
    scale = op.Div(op.Sub(high, low), 255.0)
    zero = op.Clip(op.Round(op.Div(op.Neg(low), scale)), 0.0, 255.0)
    made = op.Clip(op.Add(op.Round(op.Div(x, scale)), zero), 0.0, 255.0)
    return [op.cast(made, UINT8), scale, op.cast(zero, UINT8)]


# Products of integers -------------------------------------------------------------------------------------------------


def _without_zero(op: Writer, value: Value, zero: Value | None, form: list[int] | None = None) -> Value:
    wide = op.cast(value, INT32)
    if zero is None:
        return wide
    moved = op.cast(zero, INT32)
    if form is not None and zero.rank == 1 and zero.sizes != (1,):
        moved = op.Reshape(moved, form)
    elif zero.rank == 1:
        moved = op.Reshape(moved, op.ints([])) if zero.sizes == (1,) else moved
    return op.Sub(wide, moved)


@down("MatMulInteger", version=10)
def mat_mul_integer(node: VersionedNode, op: Writer) -> Result:
    """The product of integers of 32 bits."""
    return _int_product(node, op, node[0], node.input(2), node[1], node.input(3))


def _int_product(
    node: VersionedNode, op: Writer, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None
) -> Value:
    left = _without_zero(op, a, a_zero, [-1, 1])
    right = _without_zero(op, b, b_zero)
    return op.MatMul(left, right)


def _convolved(
    node: VersionedNode, op: Writer, x: Value, x_zero: Value | None, w: Value, w_zero: Value | None
) -> Value:
    """A convolution in floats that hold all sums exactly."""
    sizes = w.sizes
    rank = w.rank
    if rank is None:
        raise RefusedError("the rank of its weight is not known")
    terms = int(np.prod(sizes[1:])) if sizes is not None else 1 << 30
    wide = FLOAT if terms * 255 * 255 < 1 << 24 else DOUBLE
    left = op.cast(_without_zero(op, x, x_zero), wide)
    right = op.cast(_without_zero(op, w, w_zero, [-1, *[1] * (rank - 1)]), wide)
    given = {name: node.attribute(name) for name in _OF_CONV if node.given(name)}
    return op.Conv(left, right, **given)


_OF_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


@down("ConvInteger", version=10)
def conv_integer(node: VersionedNode, op: Writer) -> Result:
    """A convolution in floats that hold all sums exactly."""
    return op.cast(_convolved(node, op, node[0], node.input(2), node[1], node.input(3)), INT32)


def _requantized(op: Writer, total: Value, scale: Value, wanted: Value) -> Value:
    low, high = _range(wanted.dtype)
    made = op.Round(op.Mul(op.cast(total, FLOAT), scale))
    made = op.Add(made, op.cast(wanted if wanted.rank == 0 else op.Reshape(wanted, op.ints([])), FLOAT))
    return op.cast(op.Clip(made, float(low), float(high)), wanted.dtype)


@down("QLinearMatMul", version=10)
def quantized_product(node: VersionedNode, op: Writer) -> Result:
    """The product of integers, scaled and rounded."""
    if any(node[place].rank != 0 and node[place].sizes != (1,) for place in (1, 2, 4, 5, 6, 7)):
        raise RefusedError("it has scales of rows or columns")
    total = _int_product(node, op, node[0], node[2], node[3], node[5])
    scale = op.Div(op.Mul(op.cast(node[1], FLOAT), op.cast(node[4], FLOAT)), op.cast(node[6], FLOAT))
    return _requantized(op, total, op.Reshape(scale, op.ints([])), node[7])


@down("QLinearConv", version=10)
def quantized_convolution(node: VersionedNode, op: Writer) -> Result:
    """The convolution of integers, scaled and rounded."""
    total = _convolved(node, op, node[0], node[2], node[3], node[5])
    rank = node.need_rank(3)
    if node.has(8):
        total = op.Add(total, op.Reshape(op.cast(node[8], total.dtype), [1, -1, *[1] * (rank - 2)]))
    scale = op.Div(op.Mul(node[1], node[4]), node[6])
    if scale.rank == 1 and scale.sizes != (1,):
        scale = op.Reshape(scale, [1, -1, *[1] * (rank - 2)])
    return _requantized(op, total, scale, node[7])
