"""Rows of arithmetic: operands that broadcast, bounds, powers, running sums, products by letters."""

from __future__ import annotations

import functools

import numpy as np

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, Row, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import FLOAT, INT64, Writer, is_float
from proto_schema.inference.types import Tensor
from proto_schema.ir import Value
from proto_schema.legalization.elements import LARGEST
from proto_schema.onnx import TensorProto

DOUBLE = TensorProto.DOUBLE

# Operands of several shapes -------------------------------------------------------------------------------------------


@down("Max", "Mean", "Min", "Sum", version=8)
def same_shapes(node: VersionedNode, op: Writer) -> Result:
    """Operands of one shape: before opset 8 they do not broadcast."""
    values = [item for item in node.inputs if item is not None]
    shapes = [item.shape for item in values]
    if len(values) == 1 or all(shape is not None and shape == shapes[0] for shape in shapes):
        return None
    if node.schema.name == "Sum":
        return functools.reduce(op.Add, values)
    if node.schema.name == "Mean":
        total = functools.reduce(op.Add, values)
        return op.Div(total, float(len(values)))
    known = [item.sizes for item in values]
    if any(item is None for item in known):
        raise RefusedError("its operands broadcast")
    shape = np.broadcast_shapes(*[item for item in known if item is not None])
    return node.with_(inputs=[item if item.sizes == shape else op.Expand(item, list(shape)) for item in values])


@up("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "PRelu", "Sub", "Xor", version=7)
def broadcast_by_rank(node: VersionedNode, op: Writer) -> Result:
    """The second operand was laid beside an axis by attributes, and is laid beside the last axes now."""
    axis = node.attribute("axis")
    if axis is None or not node.attribute("broadcast"):
        return node.with_(drop="axis broadcast")
    rank, own = node.need_rank(0), node.need_rank(1)
    axis = axis + rank if axis < 0 else axis
    behind = rank - axis - own
    other = op.Unsqueeze(node[1], list(range(own, own + behind))) if behind > 0 else node[1]
    return node.with_(inputs=[node[0], other], drop="axis broadcast")


# Clip -----------------------------------------------------------------------------------------------------------------


@up("Clip", version=11)
def clip_by_inputs(node: VersionedNode, op: Writer) -> Result:
    """The bounds become constants. Without an attribute the bound was the largest float32 number."""
    bounds: list[Value | None] = []
    for name in ("min", "max"):
        value = node.attribute(name)
        if not node.given(name) and node[0].dtype not in (FLOAT, DOUBLE):
            bounds.append(None)  # no number of the type lies past it
        else:
            bounds.append(op.like(value, node[0]))
    return node.with_(inputs=[node[0], *bounds], drop="min max")


@down("Clip", version=11)
def clip_by_attributes(node: VersionedNode, op: Writer) -> Result:
    """The bounds as attributes where both are known, and float32 holds them."""
    bounds = [None if not node.has(place) else node[place].number() for place in (1, 2)]
    if any(bound is None for bound in bounds):
        return None
    low, high = (float(bound) for bound in bounds if bound is not None)
    edge = LARGEST[FLOAT]
    rounded = node[0].dtype == DOUBLE and any(float(np.float32(item)) != item for item in (low, high))
    if rounded or abs(low) > edge or abs(high) > edge:
        return None
    return node.with_(inputs=node.inputs[:1], min=low, max=high)


# Powers ---------------------------------------------------------------------------------------------------------------


@down("Pow", version=12)
def power(node: VersionedNode, op: Writer) -> Result:
    """An exponent of the base's type. Powers of integers are products, or exact in double precision."""
    base, exponent = node[0], node[1]
    dtype = node.need_dtype(0)
    if is_float(dtype):
        if exponent.dtype == dtype:
            return None
        if dtype == TensorProto.DOUBLE or not is_float(node.need_dtype(1)):
            return node.with_(inputs=[base, op.cast(exponent, dtype)])
        wide = op.Pow(op.cast(base, DOUBLE), op.cast(exponent, DOUBLE))
        return op.cast(wide, dtype)
    number = exponent.number()
    if number is not None and not exponent.rank and float(number).is_integer() and 1 <= number <= 8:
        return functools.reduce(op.Mul, [base] * int(number))
    if dtype == INT64:
        raise RefusedError("powers of int64 numbers are not exact in older operators")
    return op.cast(op.Pow(op.cast(base, DOUBLE), op.cast(exponent, DOUBLE)), dtype)


# Running sums and products --------------------------------------------------------------------------------------------

_WHERE = 9
"""The opset since which the form that doubles can be written; before it a Scan along the first axis can."""


def _running(op_type: str, start: float) -> Row:
    def row(node: VersionedNode, op: Writer) -> Result:
        if op.target >= _WHERE:
            return None
        x, dtype = node[0], node.need_dtype(0)
        rank, axes = node.need_rank(0), node.need_ints(1)
        axis = axes[0] + rank if axes[0] < 0 else axes[0]
        sizes = [op.size(x, place) for place in range(rank) if place != axis]
        first = op.like(start, x)
        if sizes:
            first = op.Expand(first, op.joined(*sizes))
        left = tuple(size for place, size in enumerate(x.shape or ()) if place != axis)
        with op.body(("total", Tensor(dtype, left)), ("item", Tensor(dtype, left))) as body:
            total, item = body.inputs
            after = getattr(op, op_type)(total, item)
            shown = op.Identity(total) if node.attribute("exclusive") else op.Identity(after)
            body.outputs = [after, shown]
        backwards = int(bool(node.attribute("reverse")))
        types = [Tensor(dtype, left), Tensor(dtype, x.shape)]
        made = op.looped(
            "Scan", [first, x], types, body=body, num_scan_inputs=1, scan_input_axes=[axis],
            scan_output_axes=[axis], scan_input_directions=[backwards], scan_output_directions=[backwards],
        )  # fmt: skip
        return made[1]

    return row


down("CumSum", version=11)(_running("Add", 0))
down("CumProd", version=26)(_running("Mul", 1))
