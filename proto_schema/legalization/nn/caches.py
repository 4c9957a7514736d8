"""The form of TensorScatter."""

from __future__ import annotations

from proto_schema.legalization.operators import Operators, Value, rank_of
from proto_schema.legalization.sizes import numbers_below, value_of
from proto_schema.legalization.table import older


@older("TensorScatter", before=24)
def tensor_scatter(
    op: Operators,
    past_cache: Value,
    update: Value,
    write_indices: Value | None = None,
    axis: int = -2,
    mode: str = "linear",
) -> Value:
    """Each row of the update at its place: ScatterElements along the axis."""
    rank = rank_of(past_cache)
    axis %= rank
    places = op.Reshape(numbers_below(op, op.dim(update, axis)), [-1 if place == axis else 1 for place in range(rank)])
    if write_indices is not None:
        places = op.Add(places, op.Reshape(write_indices, [-1, *[1] * (rank - 1)]))
    if mode == "circular":
        places = op.Mod(places, value_of(op, op.dim(past_cache, axis)))
    return op.ScatterElements(past_cache, op.Expand(places, op.shape(update)), update, axis=axis)
