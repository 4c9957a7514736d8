"""Finds the bytes of a checkpoint behind the memory of a tensor, so that a writer copies them from the checkpoint.

A tensor over a mapped file is recognized by its address.  A contiguous tensor is a range of the file, which a writer
copies without reading it here.  The bytes of a strided tensor (a transposed weight) are produced in bounded chunks.
After each chunk the touched pages are released, so that exporting a large model needs little memory.
"""

from __future__ import annotations

import bisect
import mmap
from collections.abc import Iterator

import torch

from proto_schema.external.payload import CHUNK, FileRange, Payload
from proto_schema.wire.records import dataclass
from purexport.graph.payloads import TensorPayload, payload


@dataclass(frozen=True)
class _Place:
    """Memory from `start` to `stop` that contains the bytes of a payload; pages of `mapping` may be released."""

    start: int
    stop: int
    source: Payload
    mapping: mmap.mmap | None = None
    first: int = 0  # where the bytes begin in the mapping


class Origins:
    """The places in memory that contain bytes of checkpoints."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self._starts: list[int] = []

    def add(self, tensor: torch.Tensor, source: Payload, mapping: mmap.mmap | None = None, first: int = 0) -> None:
        """Note that the contiguous `tensor` contains the bytes of `source`."""
        start = tensor.data_ptr()
        place = _Place(start, start + source.nbytes, source, mapping, first)
        if source.nbytes and start not in self._places:
            bisect.insort(self._starts, start)
            self._places[start] = place

    def payload(self, tensor: torch.Tensor) -> memoryview | Payload:
        """A tensor's bytes for `TensorProto.raw_data`, taken from the checkpoint if they are there."""
        plain = tensor.detach()
        place = None if plain.is_conj() or plain.is_neg() else self._place(plain)
        if place is None:
            return payload(tensor)
        if plain.is_contiguous():
            return _part(place, plain) or payload(tensor)
        return payload(tensor) if place.mapping is None else _StridedPayload(plain, place)

    def _place(self, tensor: torch.Tensor) -> _Place | None:
        if tensor.layout != torch.strided or tensor.is_meta or not tensor.numel():
            return None
        start, size = tensor.data_ptr(), tensor.element_size()
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        stop = start + size * (1 + sum((length - 1) * stride for length, stride in steps))
        index = bisect.bisect_right(self._starts, start) - 1
        place = self._places[self._starts[index]] if index >= 0 else None
        return place if place is not None and stop <= place.stop else None


def _part(place: _Place, tensor: torch.Tensor) -> Payload | None:
    """The bytes of a contiguous tensor within a place."""
    length, offset = tensor.numel() * tensor.element_size(), tensor.data_ptr() - place.start
    source = place.source
    if length == source.nbytes:
        return source
    if isinstance(source, FileRange):
        return FileRange(source.source, source.offset + offset, length, source.stamp)
    return None


class _StridedPayload(TensorPayload):
    """A strided view of mapped memory."""

    def __init__(self, tensor: torch.Tensor, place: _Place) -> None:
        super().__init__(tensor)
        self._within = place

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """The bytes in chunks; the pages that were read for one chunk are released before the next."""
        for piece in super().chunks(limit):
            yield piece
            self._release()

    def _release(self) -> None:
        mapping = self._within.mapping
        if mapping is not None and hasattr(mapping, "madvise"):
            first = self._within.first - self._within.first % mmap.PAGESIZE
            mapping.madvise(mmap.MADV_DONTNEED, first, self._within.first + self._within.source.nbytes - first)
