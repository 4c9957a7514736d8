"""Rows of operators that look elements up: Gather, Scatter, OneHot, TopK, ArgMax, Unique, NonMaxSuppression."""

from __future__ import annotations

import numpy as np

from proto_schema.conversion.adapters.axes import positive
from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import BOOL, INT64, Writer, is_float, is_unsigned
from proto_schema.inference.types import Tensor
from proto_schema.ir import Value

# Gather ---------------------------------------------------------------------------------------------------------------


def _from_front(op: Writer, indices: Value, size: Value) -> Value:
    """Indices that count from the end, counted from the front. Known ones need nothing when the model runs."""
    known = indices.array()
    if (known is not None and (known >= 0).all()) or is_unsigned(indices.dtype):
        return indices
    count = size.ints()
    if known is not None and count is not None:
        return op.const(np.where(known < 0, known + count[0], known))
    limit = op.cast(size, indices.dtype) if not size.rank else op.cast(op.Squeeze(size, [0]), indices.dtype)
    return op.Where(op.Less(indices, 0), op.Add(indices, limit), indices)


@down("Gather", version=11)
def gather(node: VersionedNode, op: Writer) -> Result:
    """Indices and axes that count from the end came with opset 11."""
    axis = node.attribute("axis")
    axis = positive([axis], node[0].rank)[0]
    node.need_dtype(1)
    indices = _from_front(op, node[1], op.size(node[0], axis))
    if indices is node[1] and not node.given("axis"):
        return None
    return node.with_(inputs=[node[0], indices], axis=axis if node.given("axis") else None)


def _places(op: Writer, x: Value, indices: Value, axis: int, rank: int) -> Value:
    """The place of each element in the flattened tensor, where its axis `axis` is said by `indices`."""
    total: Value | None = None
    strides = _strides(op, x, rank)
    for other in range(rank):
        if other == axis:
            own = _from_front(op, indices, op.size(x, axis))
        else:
            steps = op.Range(op.scalar(0), _number(op, op.size(indices, other)), op.scalar(1))
            own = op.Reshape(steps, [-1 if place == other else 1 for place in range(rank)])
        part = op.Mul(own, strides[other])
        total = part if total is None else op.Add(total, part)
    assert total is not None
    return total


def _strides(op: Writer, x: Value, rank: int) -> list[Value]:
    """How many elements a step along each axis skips."""
    found: list[Value] = [op.ints([1])]
    for axis in range(rank - 1, 0, -1):
        size, last = op.size(x, axis), found[0]
        known, inner = size.ints(), last.ints()
        found.insert(0, op.ints([known[0] * inner[0]]) if known and inner else op.Mul(size, last))
    return found


def _number(op: Writer, size: Value) -> Value:
    known = size.ints()
    return op.scalar(known[0]) if known is not None else op.Squeeze(size, [0])


@down("GatherND", version=12)
def gather_of_batches(node: VersionedNode, op: Writer) -> Result:
    """Places of the batch axes before the indices."""
    batch = node.attribute("batch_dims")
    if not batch:
        return None
    return op.GatherND(node[0], _with_batch(node, op, batch))


def _with_batch(node: VersionedNode, op: Writer, batch: int) -> Value:
    indices, rank = op.cast(node[1], INT64), node.need_rank(1)
    sizes = [op.size(indices, axis) for axis in range(rank - 1)]
    parts = []
    for axis in range(batch):
        steps = op.Range(op.scalar(0), _number(op, op.size(indices, axis)), op.scalar(1))
        form = op.Reshape(steps, [-1 if place == axis else 1 for place in range(rank)])
        parts.append(op.Expand(form, op.joined(*sizes, [1])))
    return op.Concat(*parts, indices, axis=rank - 1)


@down("GatherND", version=11)
def gather_nd(node: VersionedNode, op: Writer) -> Result:
    """From a tensor whose indexed axes are flattened to one."""
    x, indices = node[0], op.cast(node[1], INT64)
    rank, deep = node.need_rank(0), indices.dim(-1)
    if not isinstance(deep, int):
        raise RefusedError("the number of axes that it indexes is not known")
    flat = _flat_places(op, x, indices, deep)
    rows = op.Reshape(x, op.joined([-1], *[op.size(x, axis) for axis in range(deep, rank)]))
    return op.Gather(rows, flat, axis=0)


def _flat_places(op: Writer, x: Value, indices: Value, deep: int) -> Value:
    """Tuples of indices as places among the rows of a tensor whose first axes are flattened to one."""
    last = len(indices.shape or ()) - 1
    total: Value | None = None
    strides = _strides(op, x, deep)
    for axis in range(deep):
        own = op.Squeeze(op.Slice(indices, [axis], [axis + 1], [last]), [last])
        own = op.Mul(_from_front(op, own, op.size(x, axis)), op.Squeeze(strides[axis], [0]))
        total = own if total is None else op.Add(total, own)
    assert total is not None
    return total


# Scatter --------------------------------------------------------------------------------------------------------------


@up("Scatter", version=11)
def scatter(node: VersionedNode, op: Writer) -> Result:
    """The operator has another name."""
    return node.with_(op_type="ScatterElements")


@down("ScatterElements", version=18)
@down("ScatterND", version=18)
def no_extremes(node: VersionedNode, op: Writer) -> Result:
    """The largest and the smallest came with opset 18."""
    if node.text("reduction") not in ("max", "min"):
        return None
    if node.schema.name == "ScatterElements":
        return _one_by_one(node, op)
    return _rows_one_by_one(node, op)


@down("ScatterElements", version=16)
@down("ScatterND", version=16)
def no_reduction(node: VersionedNode, op: Writer) -> Result:
    """Sums and products came with opset 16."""
    if node.text("reduction") == "none":
        return node.with_(drop="reduction")
    if node.schema.name == "ScatterElements":
        return _one_by_one(node, op)
    return _rows_one_by_one(node, op)


_REDUCED = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def _one_by_one(node: VersionedNode, op: Writer) -> Value:
    """Each update in its turn, on the flattened tensor, in a Loop: there may be no update at all."""
    x, rank = node[0], node.need_rank(0)
    axis = positive([node.attribute("axis")], rank)[0]
    places = op.Reshape(_places(op, x, op.cast(node[1], INT64), axis, rank), [-1, 1])
    updates = op.Reshape(node[2], [-1, 1])
    return _scanned(node, op, op.Reshape(x, [-1]), places, updates)


def _rows_one_by_one(node: VersionedNode, op: Writer) -> Value:
    x, indices = node[0], op.cast(node[1], INT64)
    rank, deep = node.need_rank(0), indices.dim(-1)
    if not isinstance(deep, int):
        raise RefusedError("the number of axes that it indexes is not known")
    rest = [op.size(x, axis) for axis in range(deep, rank)]
    rows = op.Reshape(x, op.joined([-1], *rest))
    places = op.Reshape(_flat_places(op, x, indices, deep), [-1, 1])
    updates = op.Reshape(node[2], op.joined([-1, 1], *rest))
    return _scanned(node, op, rows, places, updates)


def _scanned(node: VersionedNode, op: Writer, rows: Value, places: Value, updates: Value) -> Value:
    reduced = _REDUCED[node.text("reduction")]
    rank = len(rows.shape or ())
    count = _number(op, op.size(places, 0))
    with op.body(("turn", Tensor(INT64, ())), ("go", Tensor(BOOL, ())), ("rows", rows.type)) as body:
        turn, go, now = body.inputs
        at = op.Reshape(turn, [1])
        place, update = op.Gather(places, at, axis=0), op.Gather(updates, at, axis=0)
        place, update = op.Reshape(place, [1]), op.Squeeze(update, [1])
        after = getattr(op, reduced)(op.Gather(now, place, axis=0), update)
        index = op.Reshape(place, [1] * rank)
        if rank > 1:
            index = op.Expand(index, op.shape(update))
        body.outputs = [go, op.ScatterElements(now, index, after, axis=0)]
    made = op.looped("Loop", [count, op.const(np.array(True)), rows], [rows.type], body=body)[0]
    return op.Reshape(made, op.shape(node[0]))


@down("ScatterND", version=11)
def scatter_nd(node: VersionedNode, op: Writer) -> Result:
    """On a tensor whose indexed axes are flattened to one, row by row."""
    x, indices = node[0], op.cast(node[1], INT64)
    rank, deep = node.need_rank(0), indices.dim(-1)
    if not isinstance(deep, int):
        raise RefusedError("the number of axes that it indexes is not known")
    rest = [op.size(x, axis) for axis in range(deep, rank)]
    rows = op.Reshape(x, op.joined([-1], *rest))
    updates = op.Reshape(node[2], op.joined([-1], *rest))
    places = op.Reshape(_flat_places(op, x, indices, deep), [-1, *[1] * len(rest)])
    if rest:
        places = op.Expand(places, op.shape(updates))
    return op.Reshape(op.ScatterElements(rows, places, updates, axis=0), op.shape(x))


@down("ScatterElements", version=11)
def scatter_elements(node: VersionedNode, op: Writer) -> Result:
    """The operator had another name, and indices from the front."""
    axis = positive([node.attribute("axis")], node[0].rank)[0]
    node.need_dtype(1)
    indices = _from_front(op, node[1], op.size(node[0], axis))
    return node.with_(op_type="Scatter", inputs=[node[0], indices, node[2]], axis=axis)


# OneHot ---------------------------------------------------------------------------------------------------------------


@up("OneHot", version=11)
def one_hot_from_end(node: VersionedNode, op: Writer) -> Result:
    """A negative index was outside, and came to count from the end: it becomes the depth, which is outside."""
    indices = node[0]
    known = indices.array()
    if is_unsigned(indices.dtype) or (known is not None and (known >= 0).all()):
        return None
    node.need_dtype(0)
    depth = op.cast(op.Reshape(node[1], op.ints([])), indices.dtype)
    outside = op.Where(op.Less(indices, 0), depth, indices)
    return node.with_(inputs=[outside, *node.inputs[1:]])


@down("OneHot", version=11)
def one_hot_from_front(node: VersionedNode, op: Writer) -> Result:
    """Indices that count from the end, counted from the front."""
    axis = node.attribute("axis")
    if axis < -1:
        axis = positive([axis], None if node[0].rank is None else node[0].rank + 1)[0]
    indices, known = node[0], node[0].array()
    node.need_dtype(0)
    if not is_unsigned(indices.dtype) and (known is None or (known < 0).any()):
        depth = op.cast(op.Reshape(node[1], op.ints([])), indices.dtype)
        # what is outside on this side stays outside
        counted = op.Where(op.Less(indices, op.Neg(depth)), depth, op.Add(indices, depth))
        indices = op.Where(op.Less(indices, 0), counted, indices)
    return node.with_(inputs=[indices, *node.inputs[1:]], axis=axis)


# Order ----------------------------------------------------------------------------------------------------------------


@down("ArgMax", "ArgMin", version=12)
def last_of_equals(node: VersionedNode, op: Writer) -> Result:
    """The last of equals: the first from the other end."""
    if not node.attribute("select_last_index"):
        return node.with_(drop="select_last_index")
    x, rank = node[0], node.need_rank(0)
    axis = positive([node.attribute("axis")], rank)[0]
    back = op.Slice(x, [-1], [-(1 << 62)], [axis], [-1])
    found = getattr(op, node.schema.name)(back, axis=axis, keepdims=node.attribute("keepdims"))
    return op.Sub(
        op.Sub(op.size(x, axis), op.ints([1])) if found.rank else _number(op, op.Sub(op.size(x, axis), op.ints([1]))),
        found,
    )


@up("TopK", version=10)
def count_as_input(node: VersionedNode, op: Writer) -> Result:
    """The count becomes an input."""
    return node.with_(inputs=[node[0], op.ints([node.attribute("k")])], drop="k")


@down("TopK", version=11)
def largest_only(node: VersionedNode, op: Writer) -> Result:
    """The largest floats."""
    is_plain = node.attribute("largest") and is_float(node.need_dtype(0))
    return node.with_(drop="largest sorted") if is_plain else None


@down("TopK", version=10)
def count_as_attribute(node: VersionedNode, op: Writer) -> Result:
    """A known count as an attribute."""
    known = node.ints(1)
    return None if known is None else node.with_(inputs=[node[0]], k=known[0])


@down("ReverseSequence", version=10)
def reverse_sequence(node: VersionedNode, op: Writer) -> Result:
    """Gather in the other order as far as each sequence goes."""
    x, rank = node[0], node.need_rank(0)
    batch, time = node.attribute("batch_axis"), node.attribute("time_axis")
    steps = op.Range(op.scalar(0), _number(op, op.size(x, time)), op.scalar(1))
    form = [1] * rank
    form[time] = -1
    places = op.Reshape(steps, form)
    form[time], form[batch] = 1, -1
    lengths = op.Reshape(node[1], form)
    turned = op.Where(op.Less(places, lengths), op.Sub(op.Sub(lengths, 1), places), places)
    return op.GatherElements(x, op.Expand(turned, op.shape(x)), axis=time)


@down("Compress", version=9)
def compress(node: VersionedNode, op: Writer) -> Result:
    """Known conditions: Gather."""
    known = node[1].array()
    if known is None:
        raise RefusedError("its condition is computed when the model runs", 9)
    places = [int(place) for place in np.flatnonzero(known)]
    axis = node.attribute("axis")
    x = op.Reshape(node[0], [-1]) if axis is None else node[0]
    return op.Gather(x, places, axis=axis or 0)
