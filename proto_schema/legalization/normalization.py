"""Forms of normalizations."""

from __future__ import annotations

from proto_schema.legalization.operators import FLOAT, Operators, Value, dtype_of, rank_of
from proto_schema.legalization.table import older


@older("RMSNormalization", before=23)
def rms_normalization(
    op: Operators, X: Value, scale: Value, axis: int = -1, epsilon: float = 1e-5, stash_type: int = FLOAT
) -> Value:
    """x / sqrt(mean of squares + epsilon) over the last axes, computed in the stash type; then scale."""
    axes = list(range(axis % rank_of(X), rank_of(X)))
    given, wide = dtype_of(X), op.cast(X, stash_type)
    root = op.Sqrt(op.Add(op.ReduceMean(op.Mul(wide, wide), axes, keepdims=1), epsilon))
    return op.Mul(op.cast(op.Div(wide, root), given), op.cast(scale, given))
