"""QuantizeLinear and DequantizeLinear: how quantized tensors are written.

A quantized tensor of torch has integers, a scale and a zero point in one object. Here it is a `Quantized`, which is not
a `Value`: a rule for plain tensors cannot take one by accident. Where an opset has no kernel for a dtype, or for a
scale for each channel, the same is computed by Round, Clip and Cast, and by Sub and Mul.

torch multiplies by the inverse of the scale where ONNX divides by the scale, and `aten::quantize_per_tensor` adds the
zero point before it rounds. So a number that is a tie up to its last bit may be rounded to the other side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.dtypes import FLOAT, INT8, INT16, INT32, INT64, UINT8, UINT16
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import reshape

Limits = tuple[int, int]

_CARRIERS = (INT8, UINT8, INT16, UINT16, INT32)


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A quantized tensor: `(integers - zero_point) * scale`.

    `scale` (float32) and `zero_point` (in the dtype of the integers) are zero-dim, or have one axis with a number for
    each channel. The zero points of embeddings are float32.
    """

    integers: Value
    scale: Value
    zero_point: Value
    axis: int | None = None

    def with_integers(self, integers: Value) -> Quantized:
        """Other integers with the same scale and zero point."""
        return replace(self, integers=integers)


def integer_limits(dtype: int) -> Limits:
    """The smallest and the largest number of an integer dtype."""
    info = torch.iinfo(dtypes.torch_dtype(dtype))
    return info.min, info.max


def integer_dtype_for(limits: Limits) -> int:
    """The smallest integer dtype that holds the range. Raises UnsupportedForm when it needs more than 32 bits."""
    for code in _CARRIERS:
        low, high = integer_limits(code)
        if low <= limits[0] and limits[1] <= high:
            return code
    raise UnsupportedForm(f"quantizes to {limits[0]} .. {limits[1]}, which is more than 32 bits", code="no-onnx-form")


def qparam(op: Emitter, item: Any, dtype: int, axis: int | None = None) -> Value:
    """A scale or zero point in `dtype`: zero-dim, or one number for each channel where `axis` is given."""
    if not isinstance(item, Value):
        return op.const(item, dtype)
    if item.const is not None:
        tensor = item.const.to(dtypes.torch_dtype(dtype))
        return op.const(tensor.reshape([] if axis is None else [-1]), name=item.name)
    value = op.cast(item, dtype)
    if axis is None and value.shape == ():
        return value
    return op.Reshape(value, op.const(torch.tensor([] if axis is None else [-1], dtype=torch.int64)))


def quantized_constant(op: Emitter, tensor: torch.Tensor, name: str = "") -> Quantized:
    """A quantized tensor that the graph holds: its integers are stored as they are."""
    stored = dtypes.stored_dtype(tensor.dtype)
    axis = None
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale, zero_point = torch.tensor(tensor.q_scale()), torch.tensor(tensor.q_zero_point())
    else:
        axis = tensor.q_per_channel_axis()
        scale, zero_point = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    # copies: the tensors may be views of a packed weight, whose memory is freed with it
    zero = zero_point.to(torch.float32 if zero_point.is_floating_point() else stored, copy=True)
    scale = scale.to(torch.float32, copy=True)
    return Quantized(op.const(tensor.int_repr(), name=name), op.const(scale), op.const(zero), axis)


# Values to integers and back ------------------------------------------------------------------------------------------


def quantize(
    op: Emitter, value: Value, scale: Value, zero_point: Value, axis: int | None = None, limits: Limits | None = None
) -> Value:
    """Integers in the dtype of the zero point, within `limits` where these are narrower than the dtype."""
    dtype = zero_point.dtype
    assert dtype is not None
    whole = integer_limits(dtype) if dtype in _CARRIERS else None
    if limits == whole:
        limits = None
    value = op.cast(value, FLOAT)
    if not _native(op, "QuantizeLinear", dtype, 2, axis):
        return _quantize_by_steps(op, value, scale, zero_point, axis, limits or whole)
    if limits is not None:
        value = _limited(op, value, scale, zero_point, axis, limits)
    return op.QuantizeLinear(value, scale, zero_point, axis=axis)


def dequantize(op: Emitter, integers: Value, scale: Value, zero_point: Value | None, axis: int | None = None) -> Value:
    """The float32 numbers that the integers represent."""
    dtype = integers.dtype
    if dtype in (INT32, INT64) and zero_point is not None and _is_zero(zero_point):
        zero_point = None
    plain = zero_point is None or (dtype != INT32 and zero_point.dtype == dtype)
    if plain and _native(op, "DequantizeLinear", dtype, 0, axis):
        return op.DequantizeLinear(integers, scale, zero_point, axis=axis)
    number = op.cast(integers, FLOAT)
    if zero_point is not None:
        number = op.Sub(number, _along(op, op.cast(zero_point, FLOAT), axis, integers.rank))
    return op.Mul(number, _along(op, scale, axis, integers.rank))


def dequantized(op: Emitter, tensor: Quantized) -> Value:
    """The float32 numbers of a quantized tensor."""
    return dequantize(op, tensor.integers, tensor.scale, tensor.zero_point, tensor.axis)


def requantized(op: Emitter, value: Value, like: Quantized) -> Quantized:
    """`value` quantized with the scale and zero point of `like`."""
    return like.with_integers(quantize(op, value, like.scale, like.zero_point, like.axis))


def as_quantized(op: Emitter, value: Value, scale: Any, zero_point: Any, dtype: int) -> Quantized:
    """`value` quantized with one scale and zero point, in integers of `dtype`."""
    factor, zero = qparam(op, scale, FLOAT), qparam(op, zero_point, dtype)
    return Quantized(quantize(op, value, factor, zero), factor, zero)


def quantized_steps(op: Emitter, value: Value, scale: Value, zero_point: Value, axis: int | None = None) -> Value:
    """`round(value / scale) + zero_point` in float32, not clipped to any range."""
    zero = _along(op, op.cast(zero_point, FLOAT), axis, value.rank)
    return op.Add(_rounded(op, value, scale, axis), zero)


def _rounded(op: Emitter, value: Value, scale: Value, axis: int | None) -> Value:
    """`round(value / scale)`, as a product with the inverse of the scale as in torch."""
    inverse = op.Reciprocal(scale) if scale.const is None else op.const(1 / scale.const)
    return op.Round(op.Mul(value, _along(op, inverse, axis, value.rank)))


def _native(op: Emitter, op_type: str, dtype: int | None, argument: int, axis: int | None) -> bool:
    return op.takes(op_type, dtype, argument) and (axis is None or op.has(op_type, "axis"))


def _quantize_by_steps(
    op: Emitter, value: Value, scale: Value, zero_point: Value, axis: int | None, limits: Limits | None
) -> Value:
    dtype = zero_point.dtype
    if dtype != INT32:
        found = quantized_steps(op, value, scale, zero_point, axis)
        if limits is not None:
            found = op.Clip(found, min=float(limits[0]), max=float(limits[1]))
        return op.cast(found, dtype)
    # float32 does not represent all of these integers
    found = op.cast(_rounded(op, value, scale, axis), INT64)
    found = op.Add(found, _along(op, op.cast(zero_point, INT64), axis, value.rank))
    assert limits is not None
    return op.cast(op.Min(op.Max(found, limits[0]), limits[1]), INT32)


def _limited(op: Emitter, value: Value, scale: Value, zero_point: Value, axis: int | None, limits: Limits) -> Value:
    """`value` clipped to the numbers of the limits: numbers beyond them round to the same integers."""
    if axis is None and scale.const is not None and zero_point.const is not None:
        bounds = [(float(item) - zero_point.const.float()) * scale.const for item in limits]
        return op.Clip(value, min=op.const(bounds[0]), max=op.const(bounds[1]))
    zero = op.cast(zero_point, FLOAT)
    low, high = (_along(op, op.Mul(op.Sub(float(item), zero), scale), axis, value.rank) for item in limits)
    return op.Min(op.Max(value, low), high)


def _is_zero(zero_point: Value) -> bool:
    return zero_point.const is not None and not bool(zero_point.const.any())


def _along(op: Emitter, value: Value, axis: int | None, rank: int) -> Value:
    """One number for each channel, in a shape that broadcasts along `axis`."""
    if axis is None or rank == 1:
        return value
    return reshape(op, value, [-1 if position == axis % rank else 1 for position in range(rank)])
