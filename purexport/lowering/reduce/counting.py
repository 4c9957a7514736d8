"""Counting: unique values and runs, bins and histograms, one-hot, and sums of segments and bags.

Runs of equal values are found where neighbours differ, so NaN is a run of its own, as in torch. Segments, bags and bins
are the rows of a table of ones, which says which element belongs to which; sums are then one product with it.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.sizes import minus, numbers_below, times, value_of
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.elementwise.compare import eq, ge, le, lt, ne
from purexport.lowering.reduce.cumulative import running_sum
from purexport.lowering.reduce.reductions import linalg_vector_norm
from purexport.lowering.reduce.sorting import top_k
from purexport.lowering.support.common import axis_of, full, permute, reshape
from purexport.lowering.tensor.indexing import nonzero
from purexport.lowering.tensor.scatter import index_add, scatter_add
from purexport.lowering.tensor.slices import slice_axis

_END = 2**63 - 1


def _flat(op: Emitter, value: Value) -> Value:
    return value if value.rank == 1 else reshape(op, value, [times(op, *(op.dim(value, i) for i in range(value.rank)))])


# Unique -------------------------------------------------------------------------------------------------------------


def _runs(op: Emitter, rows: Value, size: Any, wanted: Sequence[bool]) -> tuple[Value, Value, Value]:
    """(first positions of the runs of equal neighbours, the run of each element, the lengths of the runs)
    along axis 0.
    """
    differs = ne(op, slice_axis(op, rows, 0, 1, _END), slice_axis(op, rows, 0, 0, -1))
    if rows.rank > 1:
        differs = op.ReduceMax(op.cast(differs, dtypes.FLOAT), axes=list(range(1, rows.rank)), keepdims=0)
    later = op.cast(differs, dtypes.INT64)
    # the first element, if there is one, starts a run
    first = slice_axis(op, full(op, [size], 1, dtypes.INT64), 0, 0, 1)
    starts = op.Concat(first, later, axis=0)
    places = op.Reshape(op.NonZero(op.cast(starts, dtypes.BOOL)), [-1])
    nothing = op.const([])
    inverse = op.Sub(running_sum(op, starts, 0), op.const(1)) if wanted[0] else nothing
    ends = op.Concat(slice_axis(op, places, 0, 1, _END), op.Reshape(value_of(op, size), [1]), axis=0)
    # an empty axis has an end but no first position
    ends = slice_axis(op, ends, 0, 0, op.Gather(op.Shape(places), op.const(0), axis=0))
    counts = op.Sub(ends, places) if wanted[1] else nothing
    return places, inverse, counts


@lower("aten::unique_consecutive")
def unique_consecutive(
    op: Emitter, self: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Value, Value, Value]:
    """aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None)
    -> (Tensor, Tensor, Tensor)

    (values, inverse, counts), with one value for each run of equal neighbours. Along an axis torch returns all three in
    any case.
    """
    wanted = (return_inverse, return_counts) if dim is None else (True, True)
    axis = 0 if dim is None else axis_of(dim, self.rank)
    value = _flat(op, self) if dim is None or self.rank == 0 else self
    order = [axis, *[i for i in range(value.rank) if i != axis]]
    places, inverse, counts = _runs(op, permute(op, value, order), op.dim(value, axis), wanted)
    if dim is None and return_inverse:
        inverse = reshape(op, inverse, [op.dim(self, i) for i in range(self.rank)])
    return op.Gather(value, places, axis=axis), inverse, counts


@lower("aten::_unique2", "aten::_unique")
def unique(
    op: Emitter, self: Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Value, ...]:
    """aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor,
    Tensor, Tensor)

    (values, inverse, counts). The values are sorted, and each NaN is unique.
    """
    flat = _flat(op, self)
    size = op.dim(flat, 0)
    ordered, order = (flat, numbers_below(op, size)) if size == 0 else top_k(op, flat, size, 0, greatest=False)
    places, inverse, counts = _runs(op, ordered, size, (return_inverse, return_counts))
    if return_inverse:
        inverse = op.ScatterElements(inverse, order, inverse, axis=0)
        inverse = reshape(op, inverse, [op.dim(self, i) for i in range(self.rank)])
    found = op.Gather(ordered, places, axis=0)
    return (found, inverse) if op.target == "aten::_unique" else (found, inverse, counts)


@lower("aten::unique_dim")
def unique_dim(
    op: Emitter, self: Value, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Value, Value, Value]:
    """aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False)
    -> (Tensor, Tensor, Tensor)

    (values, inverse, counts), with the slices along `dim` in lexicographic order.
    """
    axis = axis_of(dim, self.rank)
    dtype = self.dtype if self.dtype in _UNIQUE else dtypes.DOUBLE if self.dtype == dtypes.FLOAT16 else dtypes.INT64
    found, _, inverse, counts = op.multi("Unique", op.cast(self, dtype), outputs=4, axis=axis, sorted=1)
    return op.cast(found, self.dtype), inverse, counts


_UNIQUE = (dtypes.FLOAT, dtypes.DOUBLE, dtypes.INT64, dtypes.INT8)


# Bins ---------------------------------------------------------------------------------------------------------------


@lower("aten::bincount")
def bincount(op: Emitter, self: Value, weights: Value | None = None, minlength: Any = 0) -> Value:
    """aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor

    The number (or total weight) of each of 0, 1, ... up to the largest value or `minlength` - 1.
    """
    places = op.cast(self, dtypes.INT64)
    least = op.ints([minus(op, minlength, 1)])
    last = op.ReduceMax(
        op.Concat(places, least if isinstance(least, Value) else op.const(least), axis=0), axes=[0], keepdims=0
    )
    size = op.Add(last, op.const(1))
    parts = full(op, [op.dim(self, 0)], 1, op.result_dtype) if weights is None else op.cast(weights, op.result_dtype)
    empty = full(op, [size], 0, op.result_dtype)
    return index_add(op, empty, 0, places, parts)


@lower("aten::one_hot")
def one_hot(op: Emitter, self: Value, num_classes: int | Value = -1) -> Value:
    """aten::one_hot(Tensor self, int num_classes=-1) -> Tensor

    With a negative number the number of classes is the largest value plus one.
    """
    classes: Any = num_classes
    if isinstance(num_classes, Value):
        numbers = op.Concat(op.cast(_flat(op, self), dtypes.INT64), op.const([0]), axis=0)  # there may be none
        largest = op.ReduceMax(numbers, axes=[0], keepdims=0)
        classes = op.Where(op.Less(num_classes, op.const(0)), op.Add(largest, op.const(1)), num_classes)
    elif num_classes < 0:
        classes = op.Add(op.ReduceMax(_flat(op, self), axes=[0], keepdims=0), op.const(1))
    column = op.Unsqueeze(op.cast(self, dtypes.INT64), [self.rank])
    return op.cast(eq(op, column, numbers_below(op, classes)), dtypes.INT64)


@lower("aten::nonzero_static")
def nonzero_static(op: Emitter, self: Value, size: int, fill_value: int = -1) -> Value:
    """aten::nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor

    The first `size` positions of nonzero elements, filled up with `fill_value`.
    """
    found = nonzero(op, self)
    filled = op.Concat(found, full(op, [size, self.rank], fill_value, dtypes.INT64), axis=0)
    return slice_axis(op, filled, 0, 0, size)


def _edges(op: Emitter, value: Value, bins: int, bounds: Sequence[float] | None) -> Value:
    """bins + 1 numbers between the smallest and the largest value, or between the given bounds. They are computed from
    both ends, as in torch's linspace.
    """
    if bounds is not None:
        low, high = (op.like(bound, value) for bound in bounds)
    else:
        low, high = op.ReduceMin(value, axes=[0], keepdims=0), op.ReduceMax(value, axes=[0], keepdims=0)
    alone = op.Mul(op.cast(op.Not(op.Less(low, high)), value.dtype), op.like(0.5, value))
    low, high = op.Sub(low, alone), op.Add(high, alone)
    step = op.Div(op.Sub(high, low), op.like(bins, value))
    front = op.const([float(i) for i in range(bins + 1)], value.dtype or dtypes.FLOAT)
    back = op.const([float(bins - i) for i in range(bins + 1)], value.dtype or dtypes.FLOAT)
    is_front = op.const([i < (bins + 1) // 2 for i in range(bins + 1)], dtypes.BOOL)
    return op.Where(is_front, op.Add(low, op.Mul(front, step)), op.Sub(high, op.Mul(back, step)))


def _in_bins(op: Emitter, value: Value, edges: Value) -> Value:
    """[elements, bins] of zeros and ones; the last bin includes its upper edge."""
    column = op.Unsqueeze(value, [1])
    low, high = slice_axis(op, edges, 0, 0, -1), slice_axis(op, edges, 0, 1, _END)
    count = edges.sizes[0] - 1
    last = op.const([i == count - 1 for i in range(count)], dtypes.BOOL)
    below = op.Or(lt(op, column, high), op.And(last, le(op, column, high)))
    return op.cast(op.And(ge(op, column, low), below), value.dtype)


@lower("aten::histogram.bin_ct", "aten::histogram.bins_tensor")
def histogram(
    op: Emitter,
    self: Value,
    bins: int | Value,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> tuple[Value, Value]:
    """aten::histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None,
    bool density=False) -> (Tensor hist, Tensor bin_edges)

    (counts, edges of the bins). The last bin includes its upper edge.
    """
    flat = _flat(op, self)
    edges = bins if isinstance(bins, Value) else _edges(op, flat, bins, range)
    counts, _ = _histogram(op, [flat], [edges], None if weight is None else _flat(op, weight), density)
    return counts, edges


@lower("aten::histogramdd", "aten::histogramdd.int_bins", "aten::histogramdd.TensorList_bins")
def histogramdd(
    op: Emitter,
    self: Value,
    bins: Any,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> tuple[Value, list[Value]]:
    """aten::histogramdd(Tensor self, int[] bins, float[]? range=None, Tensor? weight=None, bool density=False)
    -> (Tensor hist, Tensor[] bin_edges)

    (counts, edges of each axis). The last axis of `self` holds the coordinates of a point.
    """
    width = op.dim(self, -1)
    if not isinstance(width, int):
        raise UnsupportedForm(
            "with a dynamic number of coordinates has no rule; declare that axis static", code="size-not-known"
        )
    points = reshape(op, self, [-1, width])
    columns = [op.Gather(points, op.const(axis), axis=1) for axis in builtins.range(width)]
    counts = [bins] * width if isinstance(bins, int) else list(bins)
    edges = [
        item if isinstance(item, Value) else _edges(op, column, item, None if not range else range[2 * i : 2 * i + 2])
        for i, (item, column) in enumerate(zip(counts, columns, strict=True))
    ]
    found, _ = _histogram(op, columns, edges, None if weight is None else _flat(op, weight), density)
    return found, edges


def _histogram(
    op: Emitter, columns: Sequence[Value], edges: Sequence[Value], weight: Value | None, density: bool
) -> tuple[Value, int]:
    """The counts in the boxes between the edges of each axis, as a product of tables of ones."""
    tables = [_in_bins(op, column, edge) for column, edge in zip(columns, edges, strict=True)]
    sizes = [edge.sizes[0] - 1 for edge in edges]
    total = tables[0] if weight is None else op.Mul(tables[0], op.Unsqueeze(op.cast(weight, tables[0].dtype), [1]))
    boxes = sizes[0]
    for table, size in zip(tables[1:], sizes[1:], strict=True):
        pairs = op.Mul(op.Unsqueeze(total, [2]), op.Unsqueeze(table, [1]))
        boxes *= size
        total = op.Reshape(pairs, [-1, boxes])
    counts = op.Reshape(op.ReduceSum(total, axes=[0], keepdims=0), sizes)
    if density:
        everything = op.ReduceSum(counts, axes=list(range(len(sizes))), keepdims=0)
        counts = op.Div(counts, everything)
        for axis, edge in enumerate(edges):
            width = op.Sub(slice_axis(op, edge, 0, 1, _END), slice_axis(op, edge, 0, 0, -1))
            counts = op.Div(counts, op.Reshape(width, [-1, *[1] * (len(sizes) - axis - 1)]))
    return counts, boxes


# Segments and bags --------------------------------------------------------------------------------------------------


def _members(op: Emitter, starts: Value, ends: Value, size: Any) -> Value:
    """[segments, elements]: true where the element belongs to the segment."""
    place = op.Unsqueeze(numbers_below(op, size), [0])
    return op.And(ge(op, place, op.Unsqueeze(starts, [1])), lt(op, place, op.Unsqueeze(ends, [1])))


def _extremes(op: Emitter, members: Value, rows: Value, op_type: str, neutral: float) -> Value:
    """The largest or smallest member of each segment: [segments, ...] from rows [elements, ...]."""
    inside = members
    for axis in range(2, rows.rank + 1):
        inside = op.Unsqueeze(inside, [axis])
    masked = op.Where(inside, op.Unsqueeze(rows, [0]), op.like(neutral, rows))
    result: Value = op.emit(op_type, masked, axes=[1], keepdims=0)
    return result


@lower("aten::segment_reduce")
def segment_reduce(
    op: Emitter,
    data: Value,
    reduce: str,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Value:
    """aten::segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None,
    Tensor? offsets=None, int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor

    One result for each run of elements of the first axis; the runs are given by `lengths` or `offsets`.
    """
    if axis != 0 or (lengths is None) == (offsets is None) or indices is not None:
        raise UnsupportedForm(
            "has a rule for lengths or offsets of the first axis only; transpose the data before",
            code="form-without-rule",
        )
    if offsets is not None:
        bounds = op.cast(offsets, dtypes.INT64)
        starts, ends = slice_axis(op, bounds, 0, 0, -1), slice_axis(op, bounds, 0, 1, _END)
    else:
        assert lengths is not None
        ends = running_sum(op, op.cast(lengths, dtypes.INT64), 0)
        starts = op.Sub(ends, op.cast(lengths, dtypes.INT64))
    members = _members(op, starts, ends, op.dim(data, 0))
    op_type, neutral = _REDUCTIONS[reduce]
    start = neutral if initial is None else initial
    total = _extremes(op, members, data, op_type, neutral)
    begin = op.like(start, data)
    if reduce in ("max", "min"):
        return op.emit(reduce.capitalize(), total, begin)
    if reduce == "prod":
        return op.Mul(total, begin)
    total = op.Add(total, begin)
    if reduce == "sum":
        return total
    number = op.cast(op.Sub(ends, starts), data.dtype)
    number = reshape(op, number, [-1, *[1] * (data.rank - 1)])
    if initial is not None:  # the mean of an empty segment is then `initial`
        number = op.Max(number, op.like(1, data))
    return op.Div(total, number)


_REDUCTIONS = {
    "sum": ("ReduceSum", 0.0),
    "mean": ("ReduceSum", 0.0),
    "prod": ("ReduceProd", 1.0),
    "max": ("ReduceMax", -math.inf),
    "min": ("ReduceMin", math.inf),
}


@lower(
    "aten::embedding_bag",
    "aten::embedding_bag.padding_idx",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
)
def embedding_bag(
    op: Emitter,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Any, ...]:
    """aten::embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0,
    bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False) -> (Tensor, Tensor, Tensor,
    Tensor)

    The sum (`mode` 0), mean (1) or maximum (2) of the rows of each bag. An empty bag gives zeros.
    """
    places, starts = op.cast(indices, dtypes.INT64), op.cast(offsets, dtypes.INT64)
    size = op.dim(indices, 0)
    if include_last_offset:
        starts, ends = slice_axis(op, starts, 0, 0, -1), slice_axis(op, starts, 0, 1, _END)
    else:
        last = op.Reshape(value_of(op, size), [1])
        ends = op.Concat(slice_axis(op, starts, 0, 1, _END), last, axis=0)
    members = _members(op, starts, ends, size)
    # in the overload without an optional padding_idx, -1 means none
    if padding_idx is not None and (padding_idx >= 0 or op.target.endswith(".padding_idx")):
        members = op.And(members, op.Unsqueeze(ne(op, places, _row(op, weight, padding_idx)), [0]))
    rows = op.Gather(weight, places, axis=0)
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(per_sample_weights, [1]))
    table = op.cast(members, weight.dtype)
    number = op.ReduceSum(table, axes=[1], keepdims=1)
    if mode == 2:
        found = _extremes(op, members, rows, "ReduceMax", -math.inf)
        found = op.Where(op.Greater(number, op.like(0, weight)), found, op.like(0, weight))
    else:
        found = op.MatMul(table, rows)
    if mode == 1:
        found = op.Div(found, op.Max(number, op.like(1, weight)))
    bag_of = op.ArgMax(op.cast(members, dtypes.FLOAT), axis=0, keepdims=0)
    return found, bag_of, op.cast(op.Squeeze(number, [1]), dtypes.INT64), []


def _row(op: Emitter, weight: Value, index: int) -> Value:
    """The number of a row, counted from the front."""
    if index >= 0:
        return op.const(index)
    result: Value = op.Add(value_of(op, op.dim(weight, 0)), op.const(index))
    return result


# Others that gather or scatter --------------------------------------------------------------------------------------


@lower("aten::pdist", "aten::_pdist_forward")
def pdist(op: Emitter, self: Value, p: float = 2.0) -> Value:
    """aten::pdist(Tensor self, float p=2.) -> Tensor

    The distances of all pairs of rows: of the first row to each later one, then of the second, and so on.
    """
    place = numbers_below(op, op.dim(self, 0))
    before = op.Less(op.Unsqueeze(place, [1]), op.Unsqueeze(place, [0]))
    pairs = op.NonZero(before)
    one, other = (op.Gather(self, op.Gather(pairs, op.const(side), axis=0), axis=0) for side in (0, 1))
    difference = op.Sub(one, other)
    return linalg_vector_norm(op, difference, p, [1])


@lower("aten::max_pool2d_with_indices_backward")
def max_pool2d_with_indices_backward(
    op: Emitter,
    grad_output: Value,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Value,
) -> Value:
    """aten::max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride,
    int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor

    The gradient of max_pool2d: each gradient is added at the position of its maximum.
    """
    front = [op.dim(self, axis) for axis in range(self.rank - 2)]
    flat = times(op, op.dim(self, -2), op.dim(self, -1))
    windows = times(op, op.dim(indices, -2), op.dim(indices, -1))
    places, parts = (reshape(op, value, [*front, windows]) for value in (indices, grad_output))
    found = scatter_add(op, full(op, [*front, flat], 0, self.dtype or dtypes.FLOAT), -1, places, parts)
    return reshape(op, found, [*front, op.dim(self, -2), op.dim(self, -1)])
