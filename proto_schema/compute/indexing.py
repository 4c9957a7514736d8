"""Operators that write elements at positions into a copy of a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import passes
from proto_schema.compute.rows import row
from proto_schema.compute.slicing import checked

_REDUCTIONS: Mapping[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _written(call: Call, x: Array, places: tuple[Array, ...], updates: Array) -> Array:
    """A copy with the updates, which replace what is there or are reduced with it, one after the other."""
    found: Array = x.copy()
    reduction = call.text("reduction", "none")
    if reduction == "none":
        found[places] = updates
    elif reduction in _REDUCTIONS:
        _REDUCTIONS[reduction].at(found, places, updates)
    else:
        call.fail(f"the reduction {reduction!r} is none of none, {', '.join(_REDUCTIONS)}")
    return found


@row("Scatter", "ScatterElements", cost=passes(64))
def scatter_elements(call: Call, x: Array, indices: Array, updates: Array) -> Any:
    """For each index the update at its place, at the position along the axis that the index says."""
    axis = call.axis(call.attribute("axis", 0), x.ndim)
    if indices.shape != updates.shape:
        call.fail(f"indices {list(indices.shape)} and updates {list(updates.shape)} differ in shape")
    places: tuple[Array, ...] = np.indices(indices.shape, sparse=True)
    at = checked(call, indices, x.shape[axis])
    return _written(call, x, tuple(at if place == axis else grid for place, grid in enumerate(places)), updates)


@row("ScatterND", cost=passes(64))
def scatter_nd(call: Call, x: Array, indices: Array, updates: Array) -> Any:
    """Updates at positions, whose numbers lie along the last axis of the indices."""
    depth = indices.shape[-1]
    if depth > x.ndim:
        call.fail(f"positions of {depth} numbers do not fit rank {x.ndim}")
    places = tuple(checked(call, indices[..., at], x.shape[at]) for at in range(depth))
    wanted = indices.shape[:-1] + x.shape[depth:]
    if updates.shape != wanted:
        call.fail(f"updates have the shape {list(updates.shape)}, not {list(wanted)}")
    return _written(call, x, places, updates)


@row("TensorScatter", cost=passes(32))
def tensor_scatter(call: Call, past: Array, update: Array, write_indices: Array | None = None) -> Any:
    """The update written into each sample's cache from its index on, around the end where the mode is circular."""
    axis = call.axis(call.attribute("axis", -2), past.ndim)
    size, count = past.shape[axis], update.shape[axis]
    starts = np.zeros(past.shape[0], np.int64) if write_indices is None else write_indices.astype(np.int64)
    places = starts[:, None] + np.arange(count)
    if call.text("mode", "linear") == "circular":
        places = places % size
    elif places.size and (places.min() < 0 or places.max() >= size):
        call.fail(f"the update ends at {int(places.max())} in a cache of size {size}")
    found = np.moveaxis(past.copy(), axis, 1)
    found[np.arange(past.shape[0])[:, None], places] = np.moveaxis(update, axis, 1)
    return np.ascontiguousarray(np.moveaxis(found, 1, axis))
