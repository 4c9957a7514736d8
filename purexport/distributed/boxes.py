"""Parts of tensors: where they lie in the whole tensor, and where their bytes go.

A box is the part of a tensor that a process holds: an offset and a size on each axis. The box of a DTensor follows from
its placements: the mesh's axes cut an axis of the tensor one after the other, each as `torch.chunk` cuts. A strided
shard (FSDP over tensor parallelism) is cut after those on its right.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

from proto_schema.external.payload import chunks
from purexport.graph.payloads import payload


@dataclass(frozen=True)
class Box:
    """Offset and size on each axis."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Part:
    """A piece of a tensor of the size `shape`: `tensor` lies at `offsets` in it."""

    tensor: torch.Tensor
    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes, at, shape = tuple(self.tensor.shape), tuple(self.offsets), tuple(self.shape)
        if not len(sizes) == len(at) == len(shape) or any(
            start < 0 or start + size > whole for start, size, whole in zip(at, sizes, shape, strict=True)
        ):
            raise ValueError(
                f"a part of size {list(sizes)} at {list(at)} does not lie in a tensor of size {list(shape)}"
            )

    @property
    def box(self) -> Box:
        """Where it lies."""
        return Box(tuple(self.offsets), tuple(self.tensor.shape))


def parts_of(value: Any) -> list[Part]:
    """What this process holds of a tensor; a plain tensor is held whole. ValueError says why a value cannot be taken.

    `value` is a tensor, a DTensor, a Part, or a sequence of Parts of the same tensor.
    """
    if isinstance(value, Part):
        return [value]
    if isinstance(value, Sequence) and all(isinstance(item, Part) for item in value):
        return list(value)
    if isinstance(value, torch.Tensor):
        if not hasattr(value, "placements"):
            return [Part(value.detach(), (0,) * value.dim(), tuple(value.shape))]
        return _of_dtensor(value)
    raise ValueError(f"it is a {type(value).__name__}; give a tensor, a DTensor, or purexport.distributed.Part")


def _of_dtensor(value: Any) -> list[Part]:
    mesh, shape = value.device_mesh, tuple(value.shape)
    here = mesh.get_coordinate()
    if here is None:
        return []
    local = value.to_local().detach()
    offsets, sizes = [0] * len(shape), list(shape)
    for mesh_axis in _cutting_order(value.placements, mesh):
        axis, count = value.placements[mesh_axis].dim, mesh.size(mesh_axis)
        step = -(-sizes[axis] // count)
        start = min(step * here[mesh_axis], sizes[axis])
        offsets[axis] += start
        sizes[axis] = min(step, sizes[axis] - start)
    if tuple(local.shape) != tuple(sizes):
        raise ValueError(
            f"its local part has size {list(local.shape)}, and {value.placements} of {list(shape)} is {sizes} here; "
            "give it as purexport.distributed.Part(local, offsets, shape)"
        )
    return [Part(local, tuple(offsets), shape)]


def _cutting_order(placements: Sequence[Any], mesh: Any) -> list[int]:
    """The axes of the mesh that cut the tensor, in the order of the cuts."""
    plain: list[int] = []
    strided: list[int] = []
    for mesh_axis, placement in enumerate(placements):
        if placement.is_replicate():
            continue
        if placement.is_partial() or not hasattr(placement, "dim"):
            raise ValueError(f"its placement {placement} holds no part of its values; give value.full_tensor()")
        (strided if hasattr(placement, "split_factor") else plain).append(mesh_axis)
    for mesh_axis in strided:
        placement = placements[mesh_axis]
        right = [other for other in plain if other > mesh_axis and placements[other].dim == placement.dim]
        if len(strided) > 1 or math.prod(mesh.size(other) for other in right) != placement.split_factor:
            raise ValueError(
                f"its placements {tuple(placements)} are nested in a way that is not known here; give it as "
                "purexport.distributed.Part(local, offsets, shape)"
            )
    return plain + strided


def why_incomplete(shape: tuple[int, ...], boxes: Sequence[Box]) -> str:
    """Why these boxes, all different, do not make up the whole tensor exactly once; '' if they do."""
    boxes = [box for box in boxes if box.count]
    found, wanted = sum(box.count for box in boxes), math.prod(shape)
    if found < wanted:
        return f"only {found} of its {wanted} elements are held"
    if len(boxes) > 1 and shape:
        starts = np.array([box.offsets for box in boxes])
        ends = starts + np.array([box.sizes for box in boxes])
        for start, end in zip(starts, ends, strict=True):
            if (np.all((starts < end) & (ends > start), axis=1)).sum() > 1:
                return f"two parts that overlap, but are not the same, hold its element {start.tolist()}"
    return ""


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


def write_part(descriptor: int, base: int, part: Part) -> int:
    """Writes a part's bytes to their places in the tensor that begins at `base` of an open file; returns how many.

    Raises OSError.
    """
    run, starts = run_starts(part.shape, part.box, part.tensor.element_size())
    left, at = 0, 0
    for chunk in chunks(payload(part.tensor)):
        view = chunk
        while view:
            if not left:
                left, at = run, base + next(starts)
            count = min(left, len(view))
            write_at(descriptor, view[:count], at)
            view = view[count:]
            at += count
            left -= count
    return part.tensor.numel() * part.tensor.element_size()


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """Writes all of `data` to a place of an open file."""
    while data:
        count = os.pwrite(descriptor, data, offset)
        data = data[count:]
        offset += count


def assembled(shape: tuple[int, ...], item: int, parts: Sequence[tuple[Box, bytes]]) -> bytes:
    """The row-major bytes of a tensor, made of the bytes of its parts. They must cover it."""
    whole = np.zeros((*shape, item), np.uint8)
    for box, data in parts:
        where = tuple(slice(at, at + size) for at, size in zip(box.offsets, box.sizes, strict=True))
        whole[where] = np.frombuffer(data, np.uint8).reshape(*box.sizes, item)
    return whole.tobytes()
