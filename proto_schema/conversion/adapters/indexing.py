"""Rows of operators that look elements up: Gather, Scatter, OneHot, TopK, ArgMax, Unique, NonMaxSuppression."""

from __future__ import annotations

import numpy as np

from proto_schema.conversion.adapters.axes import positive
from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer, is_float, is_unsigned
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


def _number(op: Writer, size: Value) -> Value:
    known = size.ints()
    return op.scalar(known[0]) if known is not None else op.Squeeze(size, [0])


# Scatter --------------------------------------------------------------------------------------------------------------


@up("Scatter", version=11)
def scatter(node: VersionedNode, op: Writer) -> Result:
    """The operator has another name."""
    return node.with_(op_type="ScatterElements")


@down("ScatterElements", "ScatterND", version=16)
def no_reduction(node: VersionedNode, op: Writer) -> Result:
    """Sums and products came with opset 16."""
    return node.with_(drop="reduction") if node.text("reduction") == "none" else None


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
