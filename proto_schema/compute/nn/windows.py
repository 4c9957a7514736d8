"""Windows that move along the spatial axes of (N, C, sizes): where they stand, and the data below them.

`KernelWindows` reads the attributes of a convolution or a pool. Data is padded once; what lies below the windows is a
strided view of it, so that nothing is copied before it is needed.

Sizes follow the specification of Conv and MaxPool: `(size + pads - width) // stride + 1` places, where the width is
that of the dilated kernel. With `ceil_mode` the quotient is rounded up, and a window must not start in the padding
behind the data (opset 22; ONNX Runtime at every opset).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from proto_schema.compute.call import Array, Call

__all__ = ["KernelWindows", "behind", "numbers", "offsets", "padded", "windows"]


@dataclass(frozen=True, slots=True)
class KernelWindows:
    """Kernel, strides, dilations, pads (before, after) and places, one number an axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """The length of the dilated kernel."""
        return tuple((size - 1) * dilation + 1 for size, dilation in zip(self.kernel, self.dilations, strict=True))

    @property
    def reach(self) -> tuple[int, ...]:
        """How much of the padded data the windows cover."""
        return tuple(
            (count - 1) * stride + width
            for count, stride, width in zip(self.places, self.strides, self.widths, strict=True)
        )

    def padded(self, data: Array, fill: Any = 0) -> Array:
        """The data with its padding, as far as the windows reach; the data itself where that is nothing."""
        return padded(data, self.before, self.reach, fill)

    def below(self, data: Array) -> Array:
        """A view of padded data (N, C, sizes) as (N, C, kernel, places)."""
        steps = data.strides[2:]
        inner = tuple(step * dilation for step, dilation in zip(steps, self.dilations, strict=True))
        outer = tuple(step * stride for step, stride in zip(steps, self.strides, strict=True))
        shape = (*data.shape[:2], *self.kernel, *self.places)
        return as_strided(data, shape, (*data.strides[:2], *inner, *outer), writeable=False)

    def at(self, place: Sequence[int]) -> tuple[slice, ...]:
        """The slices of the padded spatial axes on which one element of the kernel lies, over all places."""
        starts = [index * dilation for index, dilation in zip(place, self.dilations, strict=True)]
        return tuple(
            slice(start, start + (count - 1) * stride + 1, stride) if count else slice(0, 0)
            for start, count, stride in zip(starts, self.places, self.strides, strict=True)
        )


def numbers(call: Call, name: str, count: int, default: int) -> tuple[int, ...]:
    """A list attribute with that many numbers, the default for each where the node has none."""
    found = call.attribute(name)
    if not found:
        return (default,) * count
    if len(found) != count:
        call.fail(f"{name} has {len(found)} numbers, and {count} are needed")
    if name != "pads" and min(found) < 1:
        call.fail(f"{name} are {list(found)}, and must be above 0")
    return tuple(found)


def windows(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> KernelWindows:
    """The windows of a node over data with these spatial sizes."""
    count = len(sizes)
    if len(kernel) != count:
        call.fail(f"the kernel has {len(kernel)} sizes, and the data has {count} spatial axes")
    strides, dilations = numbers(call, "strides", count, 1), numbers(call, "dilations", count, 1)
    pads = numbers(call, "pads", 2 * count, 0)
    before, after = list(pads[:count]), list(pads[count:])
    automatic = call.text("auto_pad", "NOTSET")
    ceil = bool(call.attribute("ceil_mode", 0))
    places = []
    for axis, size in enumerate(sizes):
        stride, width = strides[axis], (kernel[axis] - 1) * dilations[axis] + 1
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            found = -(-size // stride)
            total = max(0, (found - 1) * stride + width - size)
            less = total // 2
            before[axis] = less if automatic == "SAME_UPPER" else total - less
            after[axis] = total - before[axis]
        else:
            if automatic == "VALID":
                before[axis] = after[axis] = 0
            found = _places(size, before[axis], after[axis], width, stride, ceil)
        if found < 0:
            call.fail(
                f"the window of {width} along spatial axis {axis} does not fit into {size} with pads {before[axis]} "
                f"and {after[axis]}"
            )
        places.append(found)
    return KernelWindows(tuple(kernel), strides, dilations, tuple(before), tuple(after), tuple(places))


def _places(size: int, before: int, after: int, width: int, stride: int, ceil: bool) -> int:
    room = size + before + after - width
    if room < 0 and not ceil:
        return -1 if size else 0
    if not ceil:
        return room // stride + 1
    found = -(-room // stride) + 1
    return found - 1 if (found - 1) * stride >= size + before else found


def padded(data: Array, before: Sequence[int], sizes: Sequence[int], fill: Any = 0) -> Array:
    """The spatial axes with `before` elements of padding in front and cut or filled to `sizes`.

    A negative padding cuts. Returns the data itself where nothing changes.
    """
    if not any(before) and tuple(data.shape[2:]) == tuple(sizes):
        return data
    result = np.full((*data.shape[:2], *sizes), fill, data.dtype)
    into, out_of = [slice(None)] * 2, [slice(None)] * 2
    for front, size, old in zip(before, sizes, data.shape[2:], strict=True):
        start, stop = max(front, 0), min(front + old, size)
        into.append(slice(start, max(start, stop)))
        out_of.append(slice(start - front, max(start, stop) - front))
    result[tuple(into)] = data[tuple(out_of)]
    return result


def offsets(kernel: Sequence[int]) -> product[tuple[int, ...]]:
    """All places in a kernel."""
    return product(*[range(size) for size in kernel])


def behind(places: Sequence[int | slice]) -> tuple[Any, ...]:
    """An index of the last axes."""
    return (Ellipsis, *places)
