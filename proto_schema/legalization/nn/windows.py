"""Forms of pooling: the elements of each window are gathered by position, on an axis of their own, and reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from proto_schema.legalization.operators import (
    BOOL,
    FLOAT,
    INT8,
    INT32,
    UINT8,
    Operators,
    RefusedError,
    Value,
    dtype_of,
    is_float,
    rank_of,
)
from proto_schema.legalization.sizes import minus, numbers_below, plus, quotient, times, value_of
from proto_schema.legalization.table import older
from proto_schema.tensors.dtypes import DTYPES


class PoolWindows:
    """The windows of one call: pads before and behind, which include what windows reach past the end."""

    def __init__(self, op: Operators, x: Value, kernel: Sequence[int], named: dict[str, Any]) -> None:
        """Raises RefusedError where the pads follow from a size that is not known."""
        rank = len(kernel)
        self.rank = rank
        self.kernel = list(kernel)
        self.strides = list(named.get("strides") or [1] * rank)
        self.dilations = list(named.get("dilations") or [1] * rank)
        self.plain = list(named.get("pads") or [0] * (2 * rank))
        self.sizes = [op.dim(x, 2 + axis) for axis in range(rank_of(x) - 2)]
        self.before, self.after = self.plain[:rank], self.plain[rank:]
        auto, is_ceil = named.get("auto_pad", "NOTSET"), bool(named.get("ceil_mode"))
        if auto == "VALID":
            self.before, self.after = [0] * rank, [0] * rank
        for axis in range(rank) if is_ceil or auto.startswith("SAME") else ():
            size, step = self.sizes[axis], self.strides[axis]
            if not isinstance(size, int):
                raise RefusedError("the size of its input is not known")
            if auto.startswith("SAME"):
                total = max((-(-size // step) - 1) * step + self.reach(axis) - size, 0)
                less, more = total // 2, total - total // 2
                self.before[axis], self.after[axis] = (less, more) if auto == "SAME_UPPER" else (more, less)
            elif auto != "VALID":
                whole = size + self.before[axis] + self.after[axis] - self.reach(axis)
                number = -(-whole // step) + 1
                if (number - 1) * step >= size + self.before[axis]:
                    number -= 1  # the last window would begin past the end
                self.after[axis] += max((number - 1) * step - whole, 0)

    def reach(self, axis: int) -> int:
        """How many elements a window spans."""
        return int((self.kernel[axis] - 1) * self.dilations[axis] + 1)

    @property
    def have_gaps(self) -> bool:
        """Whether elements of a window are apart."""
        return any(item != 1 for item in self.dilations)

    @property
    def are_small(self) -> bool:
        """Whether each window has an element that is no padding."""
        return all(max(pads) < size for *pads, size in zip(self.before, self.after, self.kernel, strict=True))

    def places(self, op: Operators, axis: int) -> Value:
        """The elements of each window along an axis with its pads, [windows, elements]."""
        whole = plus(op, self.sizes[axis], self.before[axis] + self.after[axis])
        number = plus(op, quotient(op, minus(op, whole, self.reach(axis)), self.strides[axis]), 1)
        offsets = np.arange(self.kernel[axis]) * self.dilations[axis]
        if isinstance(number, int):
            return op.const(np.arange(number)[:, None] * self.strides[axis] + offsets)
        starts = op.Mul(op.Unsqueeze(numbers_below(op, number), [1]), op.const(self.strides[axis]))
        return op.Add(starts, op.const(offsets[None, :]))

    def gathered(self, op: Operators, x: Value, fill: float) -> tuple[Value, list[Value], list[int]]:
        """x with an axis of elements behind each axis of windows, the positions, and these axes."""
        if any((*self.before, *self.after)):
            x = op.Pad(x, op.ints([0, 0, *self.before, 0, 0, *self.after]), op.like(fill, x))
        places = [self.places(op, axis) for axis in range(self.rank)]
        for axis in range(self.rank - 1, -1, -1):
            x = op.Gather(x, places[axis], axis=2 + axis)
        return x, places, [3 + 2 * axis for axis in range(self.rank)]


@older("MaxPool", before=10)
def max_pool(
    op: Operators, X: Value, kernel_shape: Sequence[int], storage_order: int = 0, outputs: int = 1, **named: Any
) -> Value | tuple[Value, ...]:
    """The largest of each window; its place is the first in the window that is no padding."""
    dtype = dtype_of(X)
    if dtype in (INT8, UINT8):  # which float32 holds
        named = {"kernel_shape": kernel_shape, "storage_order": storage_order, **named}
        found, *places = op.multi("MaxPool", op.cast(X, FLOAT), outputs=outputs, **named)
        return (op.cast(found, dtype), *places)
    if outputs > 1 and storage_order:
        raise RefusedError("its places are counted by columns")
    windows = PoolWindows(op, X, kernel_shape, named)
    lowest = -math.inf if is_float(dtype) else int(np.iinfo(DTYPES[dtype].numpy).min)
    values, places, elements = windows.gathered(op, X, lowest)
    if outputs == 1:
        return op.ReduceMax(values, elements, keepdims=0)
    rank = windows.rank
    flat, inside = op.const(0), op.const(True, BOOL)
    for axis, size in enumerate(windows.sizes):
        others = [place for place in range(2 * rank) if place not in (axis, rank + axis)]
        own = op.Unsqueeze(op.Sub(places[axis], op.const(windows.before[axis])), others)
        flat = op.Add(flat, op.Mul(own, value_of(op, times(op, *windows.sizes[axis + 1 :]))))
        last = op.Sub(value_of(op, size), op.const(1))
        inside = op.And(inside, op.Not(op.Or(op.Less(own, op.const(0)), op.Less(last, own))))
    behind = op.Transpose(values, perm=[0, 1, *range(2, 2 + 2 * rank, 2), *elements])
    taken = op.Reshape(behind, op.ints([*[0] * (2 + rank), -1]))
    largest = op.ReduceMax(taken, [2 + rank], keepdims=1)
    flat, inside = (op.Reshape(item, op.ints([*[0] * rank, -1])) for item in (flat, inside))
    best = op.ArgMax(op.cast(op.And(op.Equal(taken, largest), inside), INT32), axis=2 + rank, keepdims=1)
    lead = [op.dim(X, axis) for axis in range(2)]
    numbers = op.Reshape(numbers_below(op, times(op, *lead)), op.ints([*lead, *[1] * rank]))
    planes = op.Mul(numbers, value_of(op, times(op, *windows.sizes)))
    found = op.Squeeze(op.GatherElements(op.Expand(flat, op.shape(taken)), best, axis=2 + rank), [2 + rank])
    return op.Squeeze(largest, [2 + rank]), op.Add(found, planes)


@older("AveragePool", before=19)
def average_with_gaps(op: Operators, X: Value, kernel_shape: Sequence[int], **named: Any) -> Value | None:
    """Windows with gaps: sums over how many elements count."""
    return average(op, X, kernel_shape, **named) if any(item != 1 for item in named.get("dilations") or ()) else None


@older("AveragePool", before=10)
def average(op: Operators, X: Value, kernel_shape: Sequence[int], count_include_pad: int = 0, **named: Any) -> Value:
    """Windows past the end: sums over how many elements count, which is known."""
    windows = PoolWindows(op, X, kernel_shape, named)
    counts = np.ones((), np.float64)
    for axis, size in enumerate(windows.sizes):
        places = windows.places(op, axis).array()
        if places is None:
            raise RefusedError("the size of its input is not known")
        low, high = windows.before[axis], windows.before[axis] + size
        if count_include_pad:
            behind = windows.plain[windows.rank + axis] if named.get("ceil_mode") else windows.after[axis]
            low, high = 0, high + behind
        counts = counts[..., None] * ((places >= low) & (places < high)).sum(1)
    values, _, elements = windows.gathered(op, X, 0.0)
    return op.Div(op.ReduceSum(values, elements, keepdims=0), op.const(counts, dtype_of(X)))


@older("LpPool", before=18)
def norm_of_windows(op: Operators, X: Value, kernel_shape: Sequence[int], p: int = 2, **named: Any) -> Value:
    """Windows with gaps, or past the end."""
    values, _, elements = PoolWindows(op, X, kernel_shape, named).gathered(op, op.Pow(op.Abs(X), float(p)), 0.0)
    return op.Pow(op.ReduceSum(values, elements, keepdims=0), 1.0 / p)
