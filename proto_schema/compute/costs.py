"""What rows ask for before they run: their `Cost`, from the shapes of their inputs and their attributes.

A row states it beside its name: `@row("Conv", cost=_conv_cost)`. The function takes what the row takes. It may raise
MisuseError for what the row would refuse, and looks into an input only where its elements are sizes or counts. Numbers
are bounds, not measurements: the tests compare them with the memory that rows really take.

A row that says nothing costs `elementwise`: it makes one result of the broadcast shape, in some passes over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call, Typed

__all__ = [
    "TEXT",
    "WIDE",
    "CostOf",
    "characters",
    "copied",
    "elements",
    "elementwise",
    "free",
    "made",
    "passes",
    "pieces",
    "products",
    "sizes_in",
    "sorted_",
    "weight",
]

CostOf = Callable[..., Cost]

WIDE = 8
"""Bytes of the widest element but for complex ones."""
TEXT = 64
"""Bytes of a str, beside its characters."""
_PASSES = 6  # over the result of a formula, with an array for each
_AT_ONCE = 4  # products and sums of floats in a unit
_PYTHON = 2_000
"""Units for what Python does with one element or one piece."""


def weight(value: Any) -> int:
    """The bytes of a value: of an array, of a sequence or map with all that is in it."""
    if isinstance(value, np.ndarray):
        return value.nbytes if value.dtype != object else value.nbytes + TEXT * value.size + characters(value)
    if isinstance(value, Typed):
        return weight(value.array)
    if isinstance(value, list):
        return sum(map(weight, value)) + WIDE * len(value)
    if isinstance(value, dict):
        return 2 * TEXT * len(value)
    return 0


def characters(array: Array) -> int:
    """The characters of a tensor of strings."""
    return sum(len(item) for item in array.reshape(-1).tolist() if isinstance(item, str))


def elements(inputs: Iterable[Any]) -> int:
    """The elements of what arrays broadcast to; of those that do not, all together."""
    shapes = [item.shape for item in inputs if isinstance(item, np.ndarray)]
    if len(shapes) == 1:
        return prod(shapes[0])
    rank = max(map(len, shapes), default=0)
    total = 1
    for sizes in zip(*[(1,) * (rank - len(shape)) + shape for shape in shapes], strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            return sum(map(prod, shapes))
        total *= wide.pop() if wide else 1
    return total


def _width(inputs: Iterable[Any]) -> int:
    """The bytes of an element while it is computed."""
    return max((item.dtype.itemsize for item in inputs if isinstance(item, np.ndarray)), default=4)


def elementwise(call: Call, *inputs: Any) -> Cost:
    """A formula over the broadcast shape, with a new array for each of its steps."""
    count, width = elements(inputs), max(4, _width(inputs))
    return Cost((_PASSES + len(inputs)) * count, count * width, _PASSES * count * width)


def passes(times: int) -> CostOf:
    """So many bytes of scratch for each element of the inputs, beside a result of their size."""

    def cost(call: Call, *inputs: Any) -> Cost:
        count = sum(item.size for item in inputs if isinstance(item, np.ndarray))
        held = sum(map(weight, inputs))
        return Cost(times * count, max(held, WIDE * count), times * count + held)

    return cost


def free(call: Call, *inputs: Any) -> Cost:
    """Nothing that grows: the sizes of a tensor, a branch whose nodes count for themselves."""
    return Cost()


def copied(call: Call, *inputs: Any) -> Cost:
    """All inputs once more, as one result or as several."""
    held = sum(map(weight, inputs))
    return Cost(held, held)


def sorted_(call: Call, *inputs: Any) -> Cost:
    """Elements in order, with their places."""
    count, held = sum(item.size for item in inputs if isinstance(item, np.ndarray)), sum(map(weight, inputs))
    return Cost(100 * count, held + 3 * WIDE * count, held + 6 * WIDE * count)


def made(shape: Sequence[int], width: int = WIDE, times: int = 1, scratch: int = 1) -> Cost:
    """A result of this shape, in so many passes, with so many more of its size meanwhile."""
    count = prod(max(0, int(size)) for size in shape)
    return Cost(times * count, count * width, scratch * count * width)


def products(count: int, dtype: Any) -> int:
    """The units of so many products of numbers that are added: BLAS does many at once, and has none for integers."""
    return count // _AT_ONCE if np.dtype(dtype).kind == "f" else count


def sizes_in(numbers: Any) -> list[int]:
    """The elements of an input that says sizes; none for one that is not there."""
    return [] if numbers is None else [int(item) for item in np.asarray(numbers).reshape(-1)]


def pieces(count: int) -> int:
    """The units for so many elements or pieces that Python handles."""
    return _PYTHON * count
