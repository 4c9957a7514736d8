"""Rows of axes: attributes that became inputs, negative axes, and Softmax over several axes at once."""

from __future__ import annotations

from collections.abc import Sequence

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, Row, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import BOOL, Writer
from proto_schema.ir import Value
from proto_schema.onnx import TensorProto

# Attributes that became inputs ----------------------------------------------------------------------------------------


def to_input(name: str, place: int) -> Row:
    """Upwards: the attribute becomes a constant."""

    def row(node: VersionedNode, op: Writer) -> Result:
        if not node.given(name):
            return None
        inputs = [*node.inputs, *[None] * (place + 1 - len(node.inputs))]
        inputs[place] = op.ints(node.attribute(name))
        return node.with_(inputs=inputs, drop=name)

    return row


def to_attribute(name: str, place: int) -> Row:
    """Downwards: an input whose elements are known becomes an attribute."""

    def row(node: VersionedNode, op: Writer) -> Result:
        if not node.has(place):
            return None
        known = node.need_ints(place)
        inputs = [*node.inputs[:place], *node.inputs[place + 1 :]]
        # without axes means all axes there, and here an empty list does
        return node.with_(inputs=inputs, also={name: known or None})

    return row


def moved(*names: str, version: int, name: str, place: int) -> None:
    """Declare that an attribute of these operators became an input."""
    up(*names, version=version)(to_input(name, place))
    down(*names, version=version)(to_attribute(name, place))


moved("Squeeze", version=13, name="axes", place=1)
moved("Unsqueeze", version=13, name="axes", place=1)

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip
up("ReduceSum", version=13)(to_input("axes", 1))
up(*REDUCTIONS, version=18)(to_input("axes", 1))


@down("ReduceSum", version=13)
@down(*REDUCTIONS, version=18)
def reduce_axes(node: VersionedNode, op: Writer) -> Result:
    """Axes as an attribute; before, there is no way to reduce nothing, so that is written out."""
    axes = None
    if node.has(1):
        known = node.ints(1)
        if known is None and node[1].dim(0) != 0:
            raise RefusedError("its axes are computed when the model runs")
        axes = known or []
    if node.attribute("noop_with_empty_axes") and not axes:
        return _elementwise(node, op)
    return node.with_(inputs=node.inputs[:1], drop="noop_with_empty_axes", axes=axes or None)


@down("ReduceMax", "ReduceMin", version=20)
def extremes_of_truth(node: VersionedNode, op: Writer) -> Result:
    """Truth values are counted, because a sum over nothing is 0."""
    if node.need_dtype(0) != BOOL:
        return None
    largest = node.schema.name == "ReduceMax"
    counted = op.Cast(node[0] if largest else op.Not(node[0]), to=TensorProto.INT32)
    kept = {name: node.attribute(name) for name in ("keepdims", "noop_with_empty_axes")}
    some = op.Cast(op.ReduceSum(counted, node.input(1), **kept), to=BOOL)
    return some if largest else op.Not(some)


@down("ReduceMax", "ReduceMin", version=12)
def extremes_of_bytes(node: VersionedNode, op: Writer) -> Result:
    """Integers of 8 bits in 32; the extreme of nothing is that of the narrow type."""
    ends = {TensorProto.INT8: (-128, 127), TensorProto.UINT8: (0, 255)}.get(node.need_dtype(0))
    if ends is None:
        return None
    name = node.schema.name
    kept = {key: node.attribute(key) for key in ("axes", "keepdims") if node.given(key)}
    wide = getattr(op.at(11), name)(op.Cast(node[0], to=TensorProto.INT32), **kept)
    inside = op.Max(wide, ends[0]) if name == "ReduceMax" else op.Min(wide, ends[1])
    return op.Cast(inside, to=node[0].dtype)


def _elementwise(node: VersionedNode, op: Writer) -> Value:
    """What a reduction over no axes computes of each element."""
    x, name = node[0], node.schema.name
    forms = {
        "ReduceL1": lambda: op.Abs(x),
        "ReduceL2": lambda: op.Abs(x),
        "ReduceLogSum": lambda: op.Log(x),
        "ReduceSumSquare": lambda: op.Mul(x, x),
    }
    return forms[name]() if name in forms else op.Identity(x)


# Negative axes came with opset 11 -------------------------------------------------------------------------------------


def positive(values: Sequence[int], rank: int | None) -> list[int]:
    """Axes counted from the front. Raises RefusedError for a negative one of an unknown rank."""
    if all(value >= 0 for value in values):
        return list(values)
    if rank is None:
        raise RefusedError("an axis is negative, and the rank of its input is not known")
    return [value + rank if value < 0 else value for value in values]


@down("ArgMax", "ArgMin", "Compress", "Concat", "Flatten", "Hardmax", "LogSoftmax", "Softmax", "Split", version=11)
def one_axis(node: VersionedNode, op: Writer) -> Result:
    """A negative axis, counted from the front."""
    axis = node.attribute("axis")
    if axis is None or axis >= 0:
        return None
    rank = next((item.rank for item in node.inputs if item is not None and item.rank is not None), None)
    return node.with_(axis=positive([axis], rank)[0])


@down("ReduceSum", "Squeeze", *REDUCTIONS, version=11)
def several_axes(node: VersionedNode, op: Writer) -> Result:
    """Negative axes, counted from the front."""
    axes = node.attribute("axes")
    if axes is None or min(axes, default=0) >= 0:
        return None
    return node.with_(axes=positive(axes, node[0].rank))


@down("Unsqueeze", version=11)
def axes_of_result(node: VersionedNode, op: Writer) -> Result:
    """Negative axes, counted from the front of the result."""
    axes = node.attribute("axes", [])
    rank = node[0].rank
    return node.with_(axes=positive(axes, None if rank is None else rank + len(axes)))


# Softmax over all axes from one on, before opset 13 -------------------------------------------------------------------


@down("Hardmax", "LogSoftmax", "Softmax", version=13)
def softmax_of_rows(node: VersionedNode, op: Writer) -> Result:
    """Over one axis: that axis goes last, where both forms mean the same."""
    axis, rank = node.attribute("axis"), node[0].rank
    if axis == -1 or (rank is not None and axis == rank - 1):
        return node.with_(axis=axis if rank is None else rank - 1)
    if rank is None:
        raise RefusedError("the rank of its input is not known")
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    last = getattr(op.at(12), node.schema.name)(op.Transpose(node[0], perm=order), axis=rank - 1)
    return op.Transpose(last, perm=order)


@up("Hardmax", "LogSoftmax", "Softmax", version=13)
def softmax_of_matrix(node: VersionedNode, op: Writer) -> Result:
    """Over all axes from one on, which are flattened to one."""
    axis, rank = node.attribute("axis"), node[0].rank
    if axis == -1 or (rank is not None and axis == rank - 1):
        return node.with_(axis=-1)
    shape = op.shape(node[0])
    flat = getattr(op.at(13), node.schema.name)(op.Flatten(node[0], axis=axis), axis=-1)
    return op.Reshape(flat, shape)
