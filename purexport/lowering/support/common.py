"""What rules of several themes need: reshaping to sizes that may be computed, and tensors of one number.

`Dims` are sizes as rules hold them: Python ints where a size cannot change, values where it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.sizes import Dim
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.reshaping import reshaped, size_of
from purexport.lowering.support.sizes import computed_size

Dims = Sequence[Any]
INT64_MAX = 2**63 - 1


def axis_of(dim: int, rank: int) -> int:
    """`dim` counted from the front; a zero-dim tensor has one axis, as in torch."""
    return dim % max(rank, 1)


def squeezed_axes(rank: int, dim: Any) -> list[int]:
    """The axes that `squeeze` removes where their size is 1: all, or those of `dim`."""
    dims = range(rank) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
    return sorted({axis_of(item, rank) for item in dims})


def each_axis(items: Sequence[int], count: int) -> list[int]:
    """One number for each of `count` axes: a single number stands for all of them."""
    return list(items) * count if len(items) == 1 else list(items)


def dims_of(op: Emitter, value: Value) -> list[Any]:
    """The sizes of `value`: ints where they cannot change, else computed values."""
    return [op.dim(value, axis) for axis in range(value.rank)]


def reshape(op: Emitter, value: Value, sizes: Dims) -> Value:
    """`value` reshaped to `sizes`: ints, values or expressions, at most one -1.

    The rule that writes the -1 refuses nothing: it is for what has elements, or for a size that no other one decides.
    """
    return _reshape(op, value, [size_of(size) for size in sizes], sizes)


def reshape_to_result(op: Emitter, value: Value, sizes: Dims | None = None) -> Value:
    """`value` in the shape that torch gives for the result of the call.

    `sizes` are the sizes that the call itself gives, if it gives any, as `reshape` takes them. Raises UnsupportedForm
    when a size cannot be computed.
    """
    shape = op.result.shape
    if shape is None:
        if sizes is None:
            raise UnsupportedForm("its result has an unknown rank", code="result-size-unknown")
        return reshape(op, value, sizes)
    if value.shape == shape and None not in shape:
        return value
    given = list(sizes) if sizes is not None and len(sizes) == len(shape) else [None] * len(shape)
    known = [size_of(item) if size is None else size for size, item in zip(shape, given, strict=True)]
    return _reshape(op, value, known, given)


def _reshape(op: Emitter, value: Value, known: Sequence[Dim | None], sizes: Dims) -> Value:
    """`known` is what is known of the sizes, `sizes` what the call says of them: None where it says nothing."""

    def computed(place: int) -> Any:
        return _size(op, value, known[place], sizes[place])

    if 0 in known:
        # an empty tensor has no elements to keep; ONNX Reshape would copy the size of the input for a 0
        return full(op, [computed(place) for place in range(len(known))], 0, value.dtype or dtypes.FLOAT)
    left_over = next((place for place, size in enumerate(sizes) if isinstance(size, int) and size == -1), None)
    return reshaped(op, value, known, left_over, computed)


def _size(op: Emitter, value: Value, size: Dim | None, given: Any) -> Any:
    """A size as an int or a value, by what is known of it or by what the call gives."""
    if isinstance(size, int):
        return size
    if isinstance(given, Value) or (size is None and given is not None):
        return given
    if size is None:
        raise UnsupportedForm("a size of its result is not known", code="result-size-unknown")
    if value.shape is not None and size in value.shape:
        return op.dim(value, value.shape.index(size))
    found = computed_size(op, size)
    if found is not None:
        return found
    if given is not None:  # a number by now: what decides the size is a constant of the model
        return given
    raise UnsupportedForm(f"its result's size {size!r} cannot be computed in the graph", code="result-size-unknown")


def permute(op: Emitter, value: Value, order: Sequence[int]) -> Value:
    """`value` with its axes in another order; `value` itself if the order stays."""
    if list(order) == list(range(len(order))):
        return value
    return op.Transpose(value, perm=list(order))


def swap_last(op: Emitter, value: Value) -> Value:
    """The last two axes exchanged: a batched matrix transpose."""
    order = list(range(value.rank))
    order[-1], order[-2] = order[-2], order[-1]
    return permute(op, value, order)


def beside_product(op: Emitter, number: Value, like: Value) -> Value:
    """A zero-dim number that multiplies or divides `like`, which goes into a matrix product or comes out of it.

    ONNX Runtime (1.31) fuses a constant of one element there into the product and rounds it to float32: a double is
    written once for each element of the last axis.
    """
    size = op.dim(like, -1)
    if number.dtype != dtypes.DOUBLE or size == 1:
        return number
    if isinstance(size, int) and number.const is not None:
        return op.const(number.const.expand(size).contiguous())
    return op.Expand(number, op.ints([size]))


def full(op: Emitter, sizes: Dims, number: Any, dtype: int) -> Value:
    """A tensor of one number. Small ones of known size are constants, others are a node."""
    if isinstance(number, Value):
        return op.Expand(op.cast(number, dtype), op.ints(list(sizes)))
    shape = op.ints(list(sizes))
    if isinstance(shape, list) and torch.Size(shape).numel() <= 256:
        return op.const(torch.full(shape, number, dtype=dtypes.torch_dtype(dtype)))
    filler = torch.tensor([number], dtype=dtypes.torch_dtype(dtype))
    return op.ConstantOfShape(shape, value=filler)
