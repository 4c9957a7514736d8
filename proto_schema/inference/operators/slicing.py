"""The row of Slice.

How many elements a slice takes is exact for all values of the symbols, also where an axis has size 0.  A bound is
clipped by minimum and maximum; where its sign depends on the symbols, so does whether it counts from the end.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from proto_schema.inference.given import array_of, content_from, given, is_given, numbers, quotient_up, size_or_none
from proto_schema.inference.rows import row
from proto_schema.inference.site import Site
from proto_schema.inference.types import Element, Type
from proto_schema.sizes import Dim, Size, maximum, minimum
from proto_schema.sizes.size import less
from proto_schema.sizes.symbols import Symbol

_FAR = 2**31 - 1  # a bound that stands for the end of an axis
_FEW = 4  # the largest number that a symbolic bound may lie below 0 for its values to be tried


@row("Slice")
def sliced(site: Site) -> Type | None:
    """A part of some axes, from a start to an end; negative bounds count from the end of the axis."""
    shape = site.shape(0)
    if shape is None:
        return site.out(None)
    starts, ends = given(site, "starts", 1), given(site, "ends", 2)
    count = next((len(item) for item in (starts, ends) if item is not None), None)
    axes = numbers(given(site, "axes", 3)) if is_given(site, "axes", 3) else list(range(count or 0))
    if axes is None or count is None:
        chosen = range(len(shape)) if axes is None or not is_given(site, "axes", 3) else site.axes(axes, len(shape))
        return site.out(tuple([site.fresh() if axis in chosen else size for axis, size in enumerate(shape)]))
    axes = site.axes(axes, len(shape))
    steps = given(site, "steps", 4) if is_given(site, "steps", 4) else (1,) * len(axes)
    bounds = [(None,) * len(axes) if item is None else item for item in (starts, ends, steps)]
    if any(len(item) != len(axes) for item in bounds):
        site.fail(f"there are {len(axes)} axes, {len(bounds[0])} starts, {len(bounds[1])} ends, {len(bounds[2])} steps")
    made = list(shape)
    array = array_of(site, 0)
    for axis, start, end, step in zip(axes, *bounds, strict=True):
        if isinstance(step, int) and step == 0:
            site.fail(f"the step of axis {axis} is 0")
        made[axis] = _slice_size(site, shape[axis], *map(size_or_none, (start, end, step)))
        array = _slice_content(array, axis, start, end, step)
    return site.out(tuple(made), content=content_from(array))


def _slice_size(site: Site, size: Dim, start: Dim | None, end: Dim | None, step: Dim | None) -> Dim:
    """How many elements a slice takes of an axis of this size."""
    if isinstance(size, int) and size == 0:
        return 0
    if step is None or start is None or end is None:
        return site.fresh()
    low, high = (step, step) if isinstance(step, int) else (step.low, step.high)
    if low is not None and low > 0:
        start, end = _clipped(_counted(start, size), size), _clipped(_counted(end, size), size)
        return quotient_up(_span(start, end, size), step)
    if high is not None and high < 0:
        return quotient_up(_span_back(site, _counted(start, size), _counted(end, size), size), -step)
    return site.fresh()


def _counted(bound: Dim, size: Dim) -> Dim:
    """A bound counted from the front.  Where its sign depends on the symbols, so does what is added."""
    low, high = (bound, bound) if isinstance(bound, int) else (bound.low, bound.high)
    if low is not None and low >= 0:
        return bound
    if isinstance(bound, int) and bound <= -_FAR:
        return bound
    if high is not None and high < 0:
        return bound + size
    if _stays_before(bound, size):
        return bound
    return bound + size * minimum(maximum(-bound, 0), 1)


def _stays_before(bound: Dim, size: Dim) -> bool:
    """Whether a bound that is negative for a few values of the symbols then lies before the axis, counted either way.

    So it is with `seq - 1` for an axis of size `seq`: the bound is -1 only where the size is 0.
    """
    if not isinstance(bound, Size) or bound.low is None or bound.low < -_FEW:
        return False
    least = -bound.terms.get((), 0)
    names = sorted(bound.symbols)
    if least > _FEW**2 or least ** len(names) > _FEW**2 or not _grows(bound):
        return False
    for values in itertools.product(range(least), repeat=len(names)):
        known = dict(zip(names, values, strict=True))
        before = bound.at(known)
        whole = size.replaced(known) if isinstance(size, Size) else size
        if before < 0 and less(before + whole, 0) is not True:
            return False
    return True


def _grows(bound: Size) -> bool:
    """Whether it is a sum of symbols from 0 upwards, and of a constant: beyond the constant, none makes it negative."""
    return all(
        count > 0 and len(product_) == 1 and isinstance(product_[0], Symbol) and product_[0].low == 0
        for product_, count in bound.terms.items()
        if product_
    )


def _clipped(bound: Dim, size: Dim) -> Dim:
    """A bound that lies far beyond an end of the axis, as that end."""
    if isinstance(bound, int):
        return 0 if bound < 0 else size if bound >= _FAR else bound
    return bound


def _span(start: Dim, end: Dim, size: Dim) -> Dim:
    """min(end, size) - max(start, 0), and no less than 0."""
    if isinstance(start, int) and start == 0 and end == size:
        return size
    ends = (end,) if end == size else (end, size)
    low = start if isinstance(start, int) else start.low
    before = () if low is not None and low >= 0 else ends  # where the start may lie before the axis
    return maximum(minimum(*before, *[item - start for item in ends]), 0)


def _span_back(site: Site, start: Dim, end: Dim, size: Dim) -> Dim:
    """min(max(start, 0), size - 1) - max(end, -1), and no less than 0."""
    last = size - 1
    less = site.scope.equations.less
    if less(start, last) is False or (isinstance(start, int) and start >= _FAR):
        first = last
    else:
        first = minimum(maximum(start, 0), last)
    stop = -1 if isinstance(end, int) and end < 0 else maximum(end, -1)
    return maximum(first - stop, 0)


def _slice_content(array: Any, axis: int, start: Element, end: Element, step: Element) -> Any:
    if array is None or not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int)):
        return None
    size = array.shape[axis]
    if step > 0:
        return np.take(array, range(*slice(start, end, step).indices(size)), axis)
    start, end = (bound + size if -_FAR < bound < 0 else bound for bound in (start, end))
    first = min(max(start, 0), size - 1)
    return np.take(array, range(first, max(end, -1), step), axis)
