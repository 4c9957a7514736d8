"""Rows of operators that reduce axes.

The content of small integer tensors is followed through sum, product, minimum and maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from proto_schema.inference.given import Array, array_of, given, is_given, numbers, size_or_none
from proto_schema.inference.rows import row
from proto_schema.inference.site import Site
from proto_schema.inference.types import Content, Element, Shape, Type
from proto_schema.sizes import Dim, maximum, minimum


@row(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def reduced(site: Site) -> Type | None:
    """Without the axes, or with size 1 there; all axes where none are given."""
    shape, keep = site.shape(0), bool(site.attribute("keepdims", 1))
    asked: Content = given(site, "axes", 1) if is_given(site, "axes", 1) else ()
    if asked is None or shape is None:
        rank = None if shape is None or not keep else len(shape)
        return site.out(None if rank is None else site.unknown(rank))
    values = numbers(asked)
    if values is None:
        return site.out(site.unknown(len(shape) if keep else len(shape) - len(asked)))
    if not values and site.attribute("noop_with_empty_axes", 0):
        # the operator is then applied to each element by itself
        single = site.schema.name in _PAIRS
        return site.out(shape, content=site.content(0) if single else None)
    axes = site.axes(values, len(shape)) or list(range(len(shape)))
    return site.out(_without(shape, axes, keep), content=_content(site, axes))


@row("ArgMax", "ArgMin")
def arg_reduced(site: Site) -> Type | None:
    """One axis reduced."""
    shape, keep = site.shape(0), bool(site.attribute("keepdims", 1))
    if shape is None:
        return site.out(None)
    return site.out(_without(shape, [site.axis(site.attribute("axis", 0), len(shape))], keep))


def _without(shape: Sequence[Dim], axes: Sequence[int], keep: bool) -> Shape:
    if keep:
        return tuple([1 if axis in axes else size for axis, size in enumerate(shape)])
    return tuple([size for axis, size in enumerate(shape) if axis not in axes])


def _sum(one: Dim, other: Dim) -> Dim:
    return one + other


def _product(one: Dim, other: Dim) -> Dim:
    return one * other


# how two elements become one, and what no elements become
_PAIRS: dict[str, tuple[Callable[[Dim, Dim], Dim], Element]] = {
    "ReduceSum": (_sum, 0),
    "ReduceProd": (_product, 1),
    "ReduceMin": (minimum, None),
    "ReduceMax": (maximum, None),
}


def _content(site: Site, axes: Sequence[int]) -> Content:
    pair = _PAIRS.get(site.schema.name)
    array = array_of(site, 0) if pair is not None else None
    if array is None or pair is None:
        return None
    left = [axis for axis in range(array.ndim) if axis not in axes]
    rows = _rows(array.transpose([*left, *axes]), len(left))
    return tuple([_folded(row_, *pair) for row_ in rows])


def _rows(array: Array, kept: int) -> list[list[Element]]:
    count = int(np.prod(array.shape[:kept], dtype=np.int64))
    width = int(np.prod(array.shape[kept:], dtype=np.int64))
    return [list(items) for items in array.reshape(count, width).tolist()]


def _folded(items: Sequence[Element], pair: Callable[[Dim, Dim], Dim], empty: Element) -> Element:
    sizes = [size_or_none(item) for item in items]
    if not sizes:
        return empty
    total = sizes[0]
    for size in sizes[1:]:
        if total is None or size is None:
            return None
        total = pair(total, size)
    return total
