"""What rules of several themes need: reshaping to sizes that may be computed, and tensors of one number.

`Dims` are sizes as rules hold them: Python ints where a size cannot change, values where it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.sizes import Size, symbol
from proto_schema.sizes.size import less
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
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


def times(op: Emitter, one: Any, other: Any) -> Any:
    """The product of two sizes: an int where both are, else a computed value."""
    if isinstance(one, int) and isinstance(other, int):
        return one * other
    first, second = (op.const(size) if isinstance(size, int) else size for size in (one, other))
    return op.Mul(first, second)


def reshape(op: Emitter, value: Value, sizes: Dims) -> Value:
    """`value` reshaped to `sizes` (ints or values, at most one -1), with as few nodes as possible."""
    known = [op.known(size) for size in sizes]
    computed = {position: size for position, size in enumerate(known) if not isinstance(size, int)}
    numbers = [size for size in known if isinstance(size, int)]
    if 0 in numbers:
        # an empty tensor has no elements to keep; ONNX Reshape would copy the size of the input for a 0
        return full(op, known, 0, value.dtype or dtypes.FLOAT)
    if -1 in numbers:
        return op.Reshape(value, op.ints(known))
    zeros = [place for place, size in computed.items() if _may_be_zero(op, size)]
    left = zeros or list(computed)
    if len(left) == 1:
        known[left[0]] = -1  # the one size that Reshape computes from the others
    if len(zeros) < 2 or all(_is_size_of(value, place, computed[place]) for place in zeros):
        return op.Reshape(value, op.ints(known))
    # a 0 would mean the size of `value` at its place
    if op.has("Reshape", "allowzero"):
        return op.Reshape(value, op.ints(known), allowzero=1)
    op.remark(
        "has computed sizes that may be 0, which Reshape can say from opset 14 on; where one is 0, the file stops with "
        "an error"
    )
    return op.Reshape(value, op.ints(known))


def _may_be_zero(op: Emitter, size: Value) -> bool:
    """Whether a computed size can be 0, if the axes of the inputs have elements."""
    axes = [dim for item in op.builder.inputs for dim in item.shape or () if isinstance(dim, Size)]
    filled = {name: symbol(name, low=1) for axis in axes for name in axis.symbols}
    content = size.content
    return content is None or any(isinstance(n, Size) and less(0, n.replaced(filled)) is not True for n in content)


def _is_size_of(value: Value, place: int, size: Value) -> bool:
    return value.shape is not None and place < value.rank and size.content == (value.shape[place],)


def reshape_to_result(op: Emitter, value: Value, sizes: Dims | None = None) -> Value:
    """`value` in the shape that torch gives for the result of the call.

    `sizes` are the sizes that the call itself gives, if it gives any. Raises UnsupportedForm when a size cannot be
    computed.
    """
    shape = op.result.shape
    if shape is None:
        if sizes is None:
            raise UnsupportedForm("its result has an unknown rank", code="result-size-unknown")
        return reshape(op, value, sizes)
    if value.shape == shape and None not in shape:
        return value
    changing = [position for position, size in enumerate(shape) if not isinstance(size, int)]
    if len(changing) <= 1 and 0 not in shape:
        return reshape(op, value, [-1 if position in changing else size for position, size in enumerate(shape)])
    return reshape(op, value, [_size(op, value, position, size, sizes) for position, size in enumerate(shape)])


def _size(op: Emitter, value: Value, position: int, size: Any, sizes: Dims | None) -> Any:
    if isinstance(size, int):
        return size
    given = sizes[position] if sizes is not None and position < len(sizes) else None
    if given is not None and (size is None or isinstance(given, Value) or given == -1):
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
