"""How the results of torch's kernels lie in memory, from how the operands do.

Elementwise kernels go by torch's TensorIterator: the axes of the result are ordered as those of the operands.  Many
others keep a memory format that the input seems to have.
Source: `aten/src/ATen/TensorIterator.cpp` and `c10/core/MemoryFormat.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

Numbers = tuple[int, ...]

_CHANNELS_LAST = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}  # by number of axes: the axes, the innermost first


def contiguous(shape: Sequence[int]) -> Numbers:
    """The strides where the last axis is the innermost."""
    return _packed(shape, range(len(shape) - 1, -1, -1), 1)


def channels_last(shape: Sequence[int]) -> Numbers:
    """The strides of a tensor whose channels are the innermost axis."""
    return _packed(shape, _CHANNELS_LAST[len(shape)], 0)


def _packed(shape: Sequence[int], order: Sequence[int], least: int) -> Numbers:
    """The strides for an order of the axes, the innermost first; a size counts as `least` at least."""
    found = [0] * len(shape)
    step = 1
    for axis in order:
        found[axis] = step
        step *= max(shape[axis], least)
    return tuple(found)


def seems_channels_last(x: torch.Tensor) -> bool:
    """Whether torch takes a tensor for one whose channels are the innermost axis; not where it may be contiguous."""
    sizes, strides = x.shape, x.stride()
    order = _CHANNELS_LAST.get(len(sizes))
    if order is None or strides[1] == 0:
        return False
    least = 0
    for axis in order:
        if sizes[axis] == 0 or strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * max(sizes[axis], 1)
    return True


def is_dense(x: torch.Tensor) -> bool:
    """Whether the elements fill a block of memory, each once."""
    if x.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(x.shape, x.stride(), strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def suggested(x: torch.Tensor, shape: Sequence[int]) -> Numbers:
    """The strides of a new tensor of this shape, in the format that a tensor seems to have."""
    return channels_last(shape) if seems_channels_last(x) else contiguous(shape)


def preserved(x: torch.Tensor) -> Numbers:
    """The strides of a new tensor like this one: its own, or those of its elements without gaps."""
    return tuple(x.stride()) if is_dense(x) else _ordered([x.stride()], x.shape, 1)


def iterated(operands: Sequence[torch.Tensor], shape: Sequence[int], common: torch.dtype) -> Numbers:
    """The strides of the result of an elementwise kernel.

    The operands are broadcast to this shape, and those that do not have the common dtype are cast before.
    """
    same = [
        item if item.dtype == common else torch.empty_strided(item.shape, preserved(item), device="meta")
        for item in operands
    ]
    strides = [item.stride() for item in same]
    first = strides[0]
    if all(item.shape == shape for item in same):
        if all(item.is_contiguous() for item in same):
            return contiguous(shape)
        if len(shape) == 4 and all(item.is_contiguous(memory_format=torch.channels_last) for item in same):
            return channels_last(shape)
        if all(item == first for item in strides) and is_dense(same[0]):
            return tuple(first)
    return _ordered([_broadcast(*item, shape) for item in zip(same, strides, strict=True)], shape, 0)


def _ordered(strides: Sequence[Sequence[int]], shape: Sequence[int], least: int) -> Numbers:
    """The strides for the order of axes that the operands have, those that come first deciding first."""

    def is_outer(one: int, other: int) -> bool | None:
        """Whether one axis comes after the other; None where nothing says so."""
        for item in strides:
            if item[one] == 0 or item[other] == 0:
                continue
            if item[one] != item[other]:
                return item[one] > item[other]
            if shape[one] > shape[other]:
                return True
        return None

    order = list(range(len(shape) - 1, -1, -1))
    for start in range(1, len(shape)):
        place = start
        for before in range(start - 1, -1, -1):
            answer = is_outer(order[before], order[place])
            if answer:
                order[before], order[place] = order[place], order[before]
                place = before
            elif answer is False:
                break
    if all(one == other + 1 for one, other in pairwise(order)):
        return contiguous(shape)
    return _packed(shape, order, least)


def _broadcast(x: torch.Tensor, strides: Sequence[int], shape: Sequence[int]) -> Numbers:
    """The strides of an operand along the axes of the result: 0 where an element is repeated."""
    added = len(shape) - x.dim()
    own = zip(x.shape, strides, shape[added:], strict=True)
    return (0,) * added + tuple(0 if size == 1 != wanted else stride for size, stride, wanted in own)
