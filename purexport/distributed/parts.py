"""Parts of tensors: where they lie in the whole tensor, and where their bytes go.

The box of a DTensor (`weights/boxes.py` has boxes) follows from its placements: the mesh's axes cut an axis of the
tensor one after the other, each as `torch.chunk` cuts. A strided shard (FSDP over tensor parallelism) is cut after
those on its right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from proto_schema.external.payload import chunks
from purexport.graph.payloads import payload
from purexport.weights.boxes import Box, run_starts


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


def places_of(part: Part, base: int) -> Iterator[tuple[int, memoryview]]:
    """The bytes of a part, with their offsets in the file in which the whole tensor begins at `base`."""
    run, starts = run_starts(part.shape, part.box, part.tensor.element_size())
    left, at = 0, 0
    for chunk in chunks(payload(part.tensor)):
        view = chunk
        while view:
            if not left:
                left, at = run, base + next(starts)
            count = min(left, len(view))
            yield at, view[:count]
            view = view[count:]
            at += count
            left -= count
