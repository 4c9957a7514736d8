"""Taking elements by position or by mask: `x[index]`, gather, index_select, embedding, nonzero.

Several index tensors become one: the indexed axes are moved together and flattened, and the positions are combined. So
one Gather (and for writing, one replacement along an axis) serves every form at every opset. A mask becomes the
positions of its true elements. ONNX Gather counts negative positions from the end since opset 11; they are made
positive here, so that older opsets agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.sizes import nonnegative, numbers_below, times, value_of
from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.support.common import axis_of, dims_of, permute, reshape
from purexport.lowering.support.kernels import widened_dtype
from purexport.lowering.support.positions import replace_along, scatter_add_along

_MASKS = (dtypes.BOOL, 2)  # bool, and uint8 as in older code


@dataclass
class _Indexed:
    """A tensor whose indexed axes are one axis: `flat`, the `axis`, and the positions with their own shape.

    `order` is the permutation that moved the `count` indexed axes together; `dims` are the sizes of the axes then.
    """

    flat: Value
    axis: int
    positions: Value
    order: list[int]
    dims: list[Any]
    count: int


@lower("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def index(op: Emitter, self: Value, indices: Sequence[Value | None]) -> Value:
    """aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor

    The index tensors are broadcast together. Their axes replace the indexed axes where these are adjacent, otherwise
    they come first.
    """
    if all(item is None for item in indices):
        return self
    found = _indexed(op, self, indices)
    return op.Gather(found.flat, found.positions, axis=found.axis)


def _indexed(op: Emitter, value: Value, indices: Sequence[Value | None]) -> _Indexed:
    given = _without_masks(op, indices)
    axes = list(given)
    neighbours = axes == list(range(axes[0], axes[0] + len(axes)))
    rest = [axis for axis in range(value.rank) if axis not in given]
    axis = axes[0] if neighbours else 0
    order = [*rest[:axis], *axes, *rest[axis:]]
    moved = permute(op, value, order)
    dims = [op.dim(value, place) for place in order]
    sizes = dims[axis : axis + len(axes)]
    positions = _combined(op, list(given.values()), sizes)
    flat = moved
    if len(axes) > 1:
        merged = times(op, *sizes)
        flat = reshape(op, moved, [*dims[:axis], merged, *dims[axis + len(axes) :]])
    return _Indexed(flat, axis, positions, order, dims, len(axes))


def _without_masks(op: Emitter, indices: Sequence[Value | None]) -> dict[int, Value]:
    """The positions by axis; a mask of several axes gives one list of positions for each."""
    found: dict[int, Value] = {}
    axis = 0
    for item in indices:
        if item is None:
            axis += 1
        elif item.dtype in _MASKS:
            for column in _set_places(op, item):
                found[axis] = column
                axis += 1
        else:
            found[axis] = item
            axis += 1
    return found


def _set_places(op: Emitter, mask: Value) -> list[Value]:
    """The positions of the true elements: one list for each axis of the mask."""
    if not mask.rank:
        raise UnsupportedForm("with a mask of no axes has no rule; use torch.where", code="form-without-rule")
    places = op.NonZero(op.cast(mask, dtypes.BOOL))
    return [op.Gather(places, op.const(axis), axis=0) for axis in range(mask.rank)]


def _combined(op: Emitter, items: Sequence[Value], sizes: Sequence[Any]) -> Value:
    """The position in the flattened axes, from a position in each of them."""
    places = [nonnegative(op, item, size) for item, size in zip(items, sizes, strict=True)]
    result: Value = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        result = op.Add(op.Mul(result, value_of(op, size)), place)
    return result


@lower("aten::index_put", "aten::_unsafe_index_put")
def index_put(
    op: Emitter, self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor

    With `accumulate` the values are added, and at equal positions all of them count.
    """
    values = op.cast(values, self.dtype)
    one = _one_mask(indices)
    if one is not None and not accumulate and _is_one_number(values):
        return _where(op, self, one[0], one[1], values)
    found = _indexed(op, self, indices)
    before, after = found.dims[: found.axis], found.dims[found.axis + found.count :]
    shape = op.Concat(_sizes(op, before), op.Shape(found.positions), _sizes(op, after), axis=0)
    wide = op.Expand(values, shape)
    row = op.Reshape(found.positions, op.const([-1]))
    one_axis = _merged(op, wide, found, [*before, op.dim(row, 0), *after])
    if accumulate:
        new = _added(op, found.flat, found.axis, row, one_axis)
    else:
        new = replace_along(op, found.flat, found.axis, row, one_axis)
    back = new if found.count == 1 else reshape(op, new, found.dims)
    return permute(op, back, [found.order.index(axis) for axis in range(self.rank)])


def _merged(op: Emitter, wide: Value, found: _Indexed, dims: Sequence[Any]) -> Value:
    """`wide` with the axes of the positions as one axis."""
    shape = found.positions.shape
    if shape is not None and len(shape) == 1:
        return wide
    if shape == ():
        return op.Unsqueeze(wide, [found.axis])
    return reshape(op, wide, dims)


def _sizes(op: Emitter, dims: Sequence[Any]) -> Value:
    found = op.ints(dims) if dims else []
    return found if isinstance(found, Value) else op.const(found)


def _added(op: Emitter, flat: Value, axis: int, row: Value, values: Value) -> Value:
    """Values added along an axis; at equal positions they add up."""
    rank = len(values.shape or ())
    thin = op.Reshape(row, op.const([-1 if place == axis else 1 for place in range(rank)]))
    return scatter_add_along(op, flat, axis, op.Expand(thin, op.Shape(values)), values)


def _one_mask(indices: Sequence[Value | None]) -> tuple[int, Value] | None:
    given = [(axis, item) for axis, item in enumerate(indices) if item is not None]
    return given[0] if len(given) == 1 and given[0][1].dtype in _MASKS else None


def _is_one_number(values: Value) -> bool:
    return values.shape is not None and all(size == 1 for size in values.shape)


def _where(op: Emitter, value: Value, axis: int, mask: Value, number: Value) -> Value:
    """One number at the true elements of a mask that covers some of the axes."""
    mask = op.cast(mask, dtypes.BOOL)
    after = value.rank - axis - mask.rank
    if after:
        mask = op.Unsqueeze(mask, list(range(mask.rank, mask.rank + after)))
    return _chosen(op, mask, reshape(op, number, []), value)


def _chosen(op: Emitter, mask: Value, one: Value, other: Value) -> Value:
    """Where, in a dtype that it has a kernel for."""
    dtype = widened_dtype(op, "Where", other.dtype, 1)
    return op.cast(op.Where(mask, op.cast(one, dtype), op.cast(other, dtype)), other.dtype)


# Along one axis -------------------------------------------------------------------------------------------------------


@lower("aten::index_select")
def index_select(op: Emitter, self: Value, dim: int, index: Value) -> Value:
    """aten::index_select(Tensor self, int dim, Tensor index) -> Tensor

    `index` may have rank 0.
    """
    if not self.rank:
        return self
    axis = axis_of(dim, self.rank)
    row = index if index.rank else reshape(op, index, [1])
    return op.Gather(self, op.cast(row, dtypes.INT64), axis=axis)


@lower("aten::embedding")
def embedding(
    op: Emitter,
    weight: Value,
    indices: Value,
    padding_idx: Any = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    """aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False,
    bool sparse=False) -> Tensor

    `padding_idx`, `scale_grad_by_freq` and `sparse` concern gradients only.
    """
    return op.Gather(weight, indices, axis=0)


@lower("aten::gather")
def gather(op: Emitter, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor

    The other axes of `index` may be smaller than those of `self`.
    """
    axis = axis_of(dim, self.rank)
    places = op.cast(index, dtypes.INT64)
    if not self.rank:
        return self if not index.rank else op.Expand(self, op.shape(index))
    if not index.rank:
        return reshape(op, gather(op, self, dim, reshape(op, places, [1])), [])
    return op.GatherElements(self, places, axis=axis)


@lower("aten::take")
def take(op: Emitter, self: Value, index: Value) -> Value:
    """aten::take(Tensor self, Tensor index) -> Tensor

    Positions in the flattened tensor; negative ones count from the end.
    """
    size = times(op, *dims_of(op, self))
    return op.Gather(reshape(op, self, [-1]), nonnegative(op, index, size), axis=0)


@lower("aten::take_along_dim")
def take_along_dim(op: Emitter, self: Value, indices: Value, dim: int | None = None) -> Value:
    """aten::take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor

    gather after broadcasting the other axes. Without `dim` both tensors are flattened.
    """
    if dim is None:
        flat = reshape(op, self, [-1])
        return op.GatherElements(flat, op.cast(reshape(op, indices, [-1]), dtypes.INT64), axis=0)
    axis = axis_of(dim, self.rank)
    data = self
    if self.shape != indices.shape:
        data = op.Expand(self, _shape_but(op, indices, axis))
        indices = op.Expand(indices, _shape_but(op, self, axis))
    return op.GatherElements(data, op.cast(indices, dtypes.INT64), axis=axis)


def _shape_but(op: Emitter, value: Value, axis: int) -> Value:
    sizes = dims_of(op, value)
    sizes[axis] = 1
    return _sizes(op, sizes)


# By masks -----------------------------------------------------------------------------------------------------------


@lower("aten::masked_select")
def masked_select(op: Emitter, self: Value, mask: Value) -> Value:
    """aten::masked_select(Tensor self, Tensor mask) -> Tensor"""
    wide = op.cast(mask, dtypes.BOOL)
    data = self
    if self.shape != mask.shape or None in (self.shape or (None,)):
        data = op.Expand(self, op.shape(mask)) if mask.rank else self
        wide = op.Expand(wide, op.Shape(data))
    row = op.const([-1])
    return op.Compress(op.Reshape(data, row), op.Reshape(wide, row), axis=0)


@lower("aten::nonzero", "aten::argwhere")
def nonzero(op: Emitter, self: Value) -> Value:
    """aten::nonzero(Tensor self) -> Tensor

    [n, rank]: the position of each element that is not zero. For a zero-dim tensor the rows have no columns.
    """
    if not self.rank:
        found = op.NonZero(_not_zero(op, reshape(op, self, [1])))
        return op.Slice(op.Transpose(found, perm=[1, 0]), [0], [0], axes=[1])
    return op.Transpose(op.NonZero(_not_zero(op, self)), perm=[1, 0])


def _not_zero(op: Emitter, value: Value) -> Value:
    return op.cast(value, dtypes.BOOL)


@lower("aten::nonzero_numpy", "aten::where")
def nonzero_numpy(op: Emitter, self: Value | None = None, condition: Value | None = None) -> list[Value]:
    """aten::nonzero_numpy(Tensor self) -> Tensor[]"""
    value = self if self is not None else condition
    assert value is not None
    return _set_places(op, _not_zero(op, value if value.rank else reshape(op, value, [1])))


# Repeated positions ---------------------------------------------------------------------------------------------------


@lower("aten::repeat_interleave.Tensor")
def repeat_interleave_counts(op: Emitter, repeats: Value, output_size: Any = None) -> Value:
    """aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor

    [2, 0, 1] gives [0, 0, 2]: each position as often as its element says.
    """
    return op.cast(_repeated(op, repeats), op.result_dtype)


def _repeated(op: Emitter, repeats: Value) -> Value:
    sums = op.CumSum(op.cast(repeats, dtypes.INT64), op.const(0))
    total = op.Gather(op.Concat(op.const([0]), sums, axis=0), op.const(-1), axis=0)
    places = op.Unsqueeze(numbers_below(op, total), [1])
    passed = op.Not(op.Less(places, op.Unsqueeze(sums, [0])))
    result: Value = op.ReduceSum(op.cast(passed, dtypes.INT64), axes=[1], keepdims=0)
    return result


@lower("aten::repeat_interleave.self_Tensor")
def repeat_interleave_each(
    op: Emitter, self: Value, repeats: Any, dim: int | None = None, output_size: Any = None
) -> Value:
    """aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None)
    -> Tensor

    Each slice as often as its own element of `repeats`.
    """
    repeats = value_of(op, repeats)
    data = reshape(op, self, [-1]) if dim is None else self
    axis = 0 if dim is None else axis_of(dim, self.rank)
    if not repeats.rank or repeats.shape == (1,):
        size = times(op, *dims_of(op, self)) if dim is None else op.dim(self, axis)
        repeats = op.Expand(reshape(op, repeats, [1]), reshape(op, value_of(op, size), [1]))
    return op.Gather(data, _repeated(op, repeats), axis=axis)
