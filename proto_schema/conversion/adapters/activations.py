"""Rows of functions of single elements that older opsets write with others."""

from __future__ import annotations

import math

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import FLOAT, Writer, is_integer
from proto_schema.ir import Value
from proto_schema.onnx import TensorProto

LARGEST = {
    TensorProto.FLOAT: 3.4028234663852886e38,
    TensorProto.DOUBLE: 1.7976931348623157e308,
    TensorProto.FLOAT16: 65504.0,
    TensorProto.BFLOAT16: 3.3895313892515355e38,
}
"""The largest finite number of a data type."""


@down("Gelu", version=20)
def gelu(node: VersionedNode, op: Writer) -> Result:
    """x / 2 * (1 + erf(x / sqrt(2))), or the approximation by tanh."""
    x = node[0]
    if node.text("approximate") == "tanh":
        cube = op.Mul(op.Mul(x, x), x)
        inner = op.Mul(op.Add(x, op.Mul(cube, 0.044715)), math.sqrt(2 / math.pi))
        return op.Mul(op.Mul(x, 0.5), op.Add(op.Tanh(inner), 1.0))
    return op.Mul(op.Mul(x, 0.5), op.Add(op.Erf(op.Mul(x, math.sqrt(0.5))), 1.0))


@down("Mish", version=18)
def mish(node: VersionedNode, op: Writer) -> Result:
    """x * tanh(softplus(x))."""
    return op.Mul(node[0], op.Tanh(op.Softplus(node[0])))


@down("HardSwish", version=14)
def hard_swish(node: VersionedNode, op: Writer) -> Result:
    """x * HardSigmoid(x) with a slope of 1/6."""
    return op.Mul(node[0], op.HardSigmoid(node[0], alpha=1 / 6, beta=0.5))


@down("Swish", version=24)
def swish(node: VersionedNode, op: Writer) -> Result:
    """x * sigmoid(alpha * x)."""
    alpha = node.attribute("alpha")
    inner = node[0] if alpha == 1.0 else op.Mul(node[0], alpha)
    return op.Mul(node[0], op.Sigmoid(inner))


@down("SwiGLU", version=28)
def swiglu(node: VersionedNode, op: Writer) -> Result:
    """The Swish of the gate, times the other."""
    return op.Mul(op.Swish(node[0], alpha=node.attribute("alpha")), node[1])


@down("Celu", version=12)
def celu(node: VersionedNode, op: Writer) -> Result:
    """alpha * elu(x / alpha)."""
    alpha = node.attribute("alpha")
    return op.Mul(op.Elu(op.Div(node[0], alpha), alpha=1.0), alpha)


@down("ThresholdedRelu", version=10)
def thresholded_relu(node: VersionedNode, op: Writer) -> Result:
    """x where it is past alpha, else 0."""
    return op.Where(op.Greater(node[0], node.attribute("alpha")), node[0], op.like(0, node[0]))


@down("Relu", version=14)
def relu_of_integers(node: VersionedNode, op: Writer) -> Result:
    """Integers: the larger of x and 0."""
    made: Value | None = op.Max(node[0], 0) if is_integer(node[0].dtype) else None
    return made


# Clip -----------------------------------------------------------------------------------------------------------------


@up("Clip", version=11)
def clip_by_inputs(node: VersionedNode, op: Writer) -> Result:
    """The bounds become constants. Without an attribute the bound was the largest float32 number."""
    bounds: list[Value | None] = []
    for name in ("min", "max"):
        value = node.attribute(name)
        if not node.given(name) and node[0].dtype not in (FLOAT, TensorProto.DOUBLE):
            bounds.append(None)  # no number of the type lies past it
        else:
            bounds.append(op.like(value, node[0]))
    return node.with_(inputs=[node[0], *bounds], drop="min max")


@down("Clip", version=12)
def clip_integers(node: VersionedNode, op: Writer) -> Result:
    """Integers: the larger, then the smaller one."""
    return _bounded(node, op) if is_integer(node[0].dtype) else None


@down("Clip", version=11)
def clip_by_attributes(node: VersionedNode, op: Writer) -> Result:
    """The bounds as attributes where both are known; else by Max and Min, which have no bound of their own."""
    bounds = [None if not node.has(place) else node[place].number() for place in (1, 2)]
    if any(bound is None for bound in bounds):
        return _bounded(node, op)
    low, high = (float(bound) for bound in bounds if bound is not None)
    if node[0].dtype == TensorProto.DOUBLE and any(_single(item) != item for item in (low, high)):
        return _bounded(node, op)
    edge = LARGEST[TensorProto.FLOAT]
    return (
        node.with_(inputs=node.inputs[:1], min=max(low, -edge) if low != high else low, max=min(high, edge))
        if (abs(low) <= edge and abs(high) <= edge)
        else _bounded(node, op)
    )


def _bounded(node: VersionedNode, op: Writer) -> Value:
    made = node[0]
    if node.has(1):
        made = op.Max(made, node[1])
    if node.has(2):
        made = op.Min(made, node[2])
    return made


def _single(value: float) -> float:
    import numpy as np

    return float(np.float32(value))


# Which numbers these are ----------------------------------------------------------------------------------------------


@down("IsInf", version=10)
def is_infinite(node: VersionedNode, op: Writer) -> Result:
    """Past the largest finite number."""
    x = node[0]
    edge = LARGEST.get(node.need_dtype(0))
    if edge is None:
        raise RefusedError("its data type has no infinite numbers that older operators compare")
    parts = []
    if node.attribute("detect_positive"):
        parts.append(op.Greater(x, edge))
    if node.attribute("detect_negative"):
        parts.append(op.Less(x, -edge))
    if not parts:
        return op.And(op.Greater(x, edge), op.Less(x, -edge))
    return parts[0] if len(parts) == 1 else op.Or(*parts)


@down("IsNaN", version=9)
def is_not_a_number(node: VersionedNode, op: Writer) -> Result:
    """Neither below infinity nor above its negative."""
    x = node[0]
    return op.Not(op.Or(op.Less(x, math.inf), op.Greater(x, -math.inf)))


@down("Sign", version=9)
def sign(node: VersionedNode, op: Writer) -> Result:
    """1 above 0, less 1 below."""
    x, dtype = node[0], node.need_dtype(0)
    return op.Sub(op.cast(op.Greater(x, 0), dtype), op.cast(op.Less(x, 0), dtype))


@down("Round", version=11)
def half_to_even(node: VersionedNode, op: Writer) -> Result:
    """To the nearest whole number, halves to the even one."""
    x, dtype = node[0], node.need_dtype(0)
    below = op.Floor(x)
    left = op.Sub(x, below)
    odd = op.Greater(op.Sub(below, op.Mul(op.Floor(op.Mul(below, 0.5)), 2.0)), 0.5)
    tie = op.Not(op.Or(op.Less(left, 0.5), op.Greater(left, 0.5)))
    up_ = op.cast(op.Or(op.Greater(left, 0.5), op.And(tie, odd)), dtype)
    # infinity less infinity is NaN
    return op.Where(op.Less(op.Abs(x), math.inf), op.Add(below, up_), x)
