"""Operators that take parts of a tensor: slices, gathered elements, the largest, the unique, those of a mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, copied, made, passes, sizes_in, sorted_
from proto_schema.compute.moving import ints
from proto_schema.compute.rows import row

__all__ = ["checked"]


def checked(call: Call, indices: Array, size: int) -> Array:
    """Indices counted from the front. Raises MisuseError for one outside of an axis of this size."""
    if indices.size and (indices.min() < -size or indices.max() >= size):
        bad = int(indices.min()) if indices.min() < -size else int(indices.max())
        call.fail(f"the index {bad} is outside of an axis of size {size}")
    wide = indices.astype(np.int64)
    return np.where(wide < 0, wide + size, wide)


@row("Slice", cost=copied)
def slice_(
    call: Call,
    x: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Any:
    """From the starts to the ends of some axes. What lies outside of the tensor is left out."""
    first, last = ints(call, "starts", starts) or [], ints(call, "ends", ends) or []
    places = ints(call, "axes", axes)
    by = ints(call, "steps", steps) or [1] * len(first)
    cut = [slice(None)] * x.ndim
    for at, place in enumerate(range(len(first)) if places is None else places):
        if by[at] == 0:
            call.fail("a step is 0")
        cut[call.axis(place, x.ndim)] = slice(first[at], last[at], by[at])
    return x[tuple(cut)]


def _gather_cost(call: Call, x: Array, indices: Array) -> Cost:
    axis = call.axis(call.attribute("axis", 0), x.ndim)
    found = made([indices.size, *x.shape[:axis], *x.shape[axis + 1 :]], x.itemsize, scratch=0)
    return Cost(found.work + 3 * indices.size, found.results, 3 * WIDE * indices.size)


@row("Gather", cost=_gather_cost)
def gather(call: Call, x: Array, indices: Array) -> Any:
    """The parts along an axis that the indices name."""
    axis = call.axis(call.attribute("axis", 0), x.ndim)
    return np.take(x, checked(call, indices, x.shape[axis]), axis=axis)


def _elements_cost(call: Call, x: Array, indices: Array) -> Cost:
    return made(indices.shape, x.itemsize + WIDE, times=10, scratch=6)


@row("GatherElements", cost=_elements_cost)
def gather_elements(call: Call, x: Array, indices: Array) -> Any:
    """For each index the element at its place, whose position along the axis is the index."""
    axis = call.axis(call.attribute("axis", 0), x.ndim)
    places: tuple[Array, ...] = np.indices(indices.shape, sparse=True)
    at = checked(call, indices, x.shape[axis])
    return x[tuple(at if place == axis else grid for place, grid in enumerate(places))]


def _gather_nd_cost(call: Call, x: Array, indices: Array) -> Cost:
    rest = x.shape[call.attribute("batch_dims", 0) + indices.shape[-1] :] if indices.ndim else ()
    found = made([*indices.shape[:-1], *rest], x.itemsize)
    return Cost(found.work + 10 * indices.size, found.results, found.scratch + 6 * WIDE * indices.size)


@row("GatherND", cost=_gather_nd_cost)
def gather_nd(call: Call, x: Array, indices: Array) -> Any:
    """The parts at positions, whose numbers lie along the last axis of the indices."""
    shared = call.attribute("batch_dims", 0)
    depth = indices.shape[-1]
    if shared + depth > x.ndim:
        call.fail(f"positions of {depth} numbers behind {shared} axes do not fit rank {x.ndim}")
    around: tuple[Array, ...] = np.indices(indices.shape[:shared], sparse=True)
    between = (1,) * (indices.ndim - 1 - shared)
    first = tuple(grid.reshape(grid.shape + between) for grid in around)
    rest = tuple(checked(call, indices[..., at], x.shape[shared + at]) for at in range(depth))
    return x[first + rest]


def _non_zero_cost(call: Call, x: Array) -> Cost:
    return made([x.size, max(1, x.ndim)], WIDE, times=3, scratch=2)


@row("NonZero", cost=_non_zero_cost)
def non_zero(call: Call, x: Array) -> Any:
    """The positions of the elements that are not zero, one in each column."""
    if x.ndim == 0:
        return np.zeros((0, int(bool(x))), np.int64)
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@row("Compress", cost=passes(16))
def compress(call: Call, x: Array, condition: Array) -> Any:
    """The parts along an axis, or the elements, at which the condition holds."""
    axis = call.attribute("axis")
    return np.compress(condition, x, axis=None if axis is None else call.axis(axis, x.ndim))


@row("TopK", cost=sorted_)
def top_k(call: Call, x: Array, k: Array | None = None) -> Any:
    """The largest or smallest elements along an axis, and their indices. Of equal ones the first comes first."""
    count = int(call.attribute("k")) if k is None else int(np.asarray(k).reshape(-1)[0])
    axis = call.axis(call.attribute("axis", -1), x.ndim)
    size = x.shape[axis]
    if not 0 <= count <= size:
        call.fail(f"k = {count} is outside of 0 to the size of the axis, {size}")
    if call.attribute("largest", 1):
        order = size - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    places = np.take(order, np.arange(count), axis=axis)
    return np.take_along_axis(x, places, axis=axis), places.astype(np.int64)


@row("Unique", cost=sorted_)
def unique(call: Call, x: Array) -> Any:
    """The elements or parts without repetition, where each is first, which each is, and how often each is there."""
    axis = call.attribute("axis")
    if axis is None:
        x = x.reshape(-1)
    else:
        axis = call.axis(axis, x.ndim)
    _, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    order = np.arange(len(first)) if call.attribute("sorted", 1) else np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    found = np.take(x, first[order], axis=0 if axis is None else axis)
    return found, first[order].astype(np.int64), place[inverse].astype(np.int64), counts[order].astype(np.int64)


def _one_hot_cost(call: Call, indices: Array, depth: Array, values: Array) -> Cost:
    found = made([indices.size, *sizes_in(depth)[:1]], values.itemsize + 1, times=2)
    return Cost(found.work, found.results, found.scratch + WIDE * (3 * indices.size + max([0, *sizes_in(depth)])))


@row("OneHot", cost=_one_hot_cost)
def one_hot(call: Call, indices: Array, depth: Array, values: Array) -> Any:
    """The second value at the index along a new axis, the first elsewhere."""
    size = int(np.asarray(depth).reshape(-1)[0])
    axis = call.axis(call.attribute("axis", -1), indices.ndim + 1)
    wide = indices.astype(np.int64)
    wide = np.where(wide < 0, wide + size, wide)
    grid = np.arange(size).reshape((-1,) + (1,) * (indices.ndim - axis))
    return np.where(np.expand_dims(wide, axis) == grid, values[1], values[0])
