"""Forms of functions of single elements."""

from __future__ import annotations

import math

from proto_schema.legalization.operators import DOUBLE, Operators, Value, dtype_of, is_integer
from proto_schema.legalization.table import older


@older("Gelu", before=20, of_dtypes=[DOUBLE])  # its function holds the factors as float32
def gelu(op: Operators, X: Value, approximate: str = "none") -> Value:
    """x / 2 * (1 + erf(x / sqrt(2))), or the approximation by tanh."""
    if approximate == "tanh":
        cube = op.Mul(op.Mul(op.Mul(X, X), X), 0.044715)
        bend = op.Tanh(op.Mul(op.Add(X, cube), math.sqrt(2 / math.pi)))
    else:
        bend = op.Erf(op.Mul(X, math.sqrt(0.5)))
    return op.Mul(op.Mul(X, 0.5), op.Add(bend, 1.0))


@older("Mish", before=18)
def mish(op: Operators, X: Value) -> Value:
    """x * tanh(softplus(x))."""
    return op.Mul(X, op.Tanh(op.Softplus(X)))


@older("HardSwish", before=14)
def hard_swish(op: Operators, X: Value) -> Value:
    """x * HardSigmoid(x) with a slope of 1/6."""
    return op.Mul(X, op.HardSigmoid(X, alpha=1 / 6, beta=0.5))


@older("Swish", before=24)
def swish(op: Operators, X: Value, alpha: float = 1.0) -> Value:
    """x * sigmoid(alpha * x)."""
    return op.Mul(X, op.Sigmoid(X if alpha == 1.0 else op.Mul(X, alpha)))


@older("SwiGLU", before=28)
def swiglu(op: Operators, A: Value, B: Value, alpha: float = 1.0) -> Value:
    """The Swish of the gate A, times B."""
    return op.Mul(swish(op, A, alpha), B)


@older("Celu", before=12)
def celu(op: Operators, X: Value, alpha: float = 1.0) -> Value:
    """alpha * elu(x / alpha)."""
    return op.Mul(op.Elu(op.Div(X, alpha), alpha=1.0), alpha)


@older("ThresholdedRelu", before=10)
def thresholded_relu(op: Operators, X: Value, alpha: float = 1.0) -> Value:
    """x where it is past alpha, else 0."""
    return op.Where(op.Greater(X, alpha), X, op.like(0, X))


@older("Relu", before=14)
def relu(op: Operators, X: Value) -> Value | None:
    """Integers: the larger of x and 0."""
    return op.Max(X, 0) if is_integer(dtype_of(X)) else None
