"""Parts of tensors as boxes: an offset and a size on each axis.

A box is what a process of a group holds of a tensor, or a chunk of one in a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from proto_schema.wire.records import dataclass

_PAIRWISE = 4096  # boxes that are compared each with each other; more of them must be cut axis by axis


@dataclass(frozen=True)
class Box:
    """Offset and size on each axis."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)


def why_incomplete(shape: tuple[int, ...], boxes: Sequence[Box]) -> str:
    """Why these boxes, all different and within `shape`, do not make up the whole tensor exactly once; '' if so."""
    boxes = [box for box in boxes if box.count]
    found, wanted = sum(box.count for box in boxes), math.prod(shape)
    if found < wanted:
        return f"only {found} of its {wanted} elements are held"
    if len(boxes) > _PAIRWISE:
        return "" if _cut_in_turn(boxes, 0, len(shape)) else "its parts overlap, or are too many to be compared"
    if len(boxes) > 1 and shape:
        starts = np.array([box.offsets for box in boxes])
        ends = starts + np.array([box.sizes for box in boxes])
        for start, end in zip(starts, ends, strict=True):
            if (np.all((starts < end) & (ends > start), axis=1)).sum() > 1:
                return f"two parts that overlap, but are not the same, hold its element {start.tolist()}"
    return ""


def _cut_in_turn(boxes: Sequence[Box], axis: int, rank: int) -> bool:
    """Whether no two boxes overlap, as far as one axis after the other shows it."""
    if len(boxes) == 1:
        return True
    if axis == rank:
        return False
    groups: dict[tuple[int, int], list[Box]] = {}
    for box in boxes:
        groups.setdefault((box.offsets[axis], box.sizes[axis]), []).append(box)
    end = 0
    for (offset, size), group in sorted(groups.items()):
        if offset < end or not _cut_in_turn(group, axis + 1, rank):
            return False
        end = offset + size
    return True


def run_starts(shape: tuple[int, ...], box: Box, item: int) -> tuple[int, Iterator[int]]:
    """(bytes of a run, offsets of all runs) of a box in a row-major tensor with `item` bytes per element."""
    inner = len(shape)
    while inner and box.sizes[inner - 1] == shape[inner - 1]:
        inner -= 1
    split = max(inner - 1, 0)  # the axes from here on lie together
    strides = [item * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    base = sum(offset * stride for offset, stride in zip(box.offsets, strides, strict=True))
    outer = product(*(range(size) for size in box.sizes[:split]))
    starts = (base + sum(i * stride for i, stride in zip(index, strides, strict=False)) for index in outer)
    return item * math.prod(box.sizes[split:]), starts


def assembled(shape: tuple[int, ...], item: int, parts: Sequence[tuple[Box, bytes]]) -> bytes:
    """The row-major bytes of a tensor, made of the bytes of its parts. They must cover it."""
    whole = np.zeros((*shape, item), np.uint8)
    for box, data in parts:
        where = tuple(slice(at, at + size) for at, size in zip(box.offsets, box.sizes, strict=True))
        whole[where] = np.frombuffer(data, np.uint8).reshape(*box.sizes, item)
    return whole.tobytes()
