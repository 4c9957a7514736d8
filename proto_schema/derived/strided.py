"""Elements of a file that do not lie in row-major order: a transposed, sliced or expanded tensor of a checkpoint.

Strategy: the result is made in blocks of at most BLOCK bytes. If the bytes of the file between the first and the last
element of a block are only a few more than are wanted, they are read at once. Otherwise the block is halved along the
axis of the largest step, until they are. So a transposed matrix is read in runs of a block's width, and memory stays
bounded.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from proto_schema.external.payload import CHUNK, BytesLike, Payload, RangePayload, pieces

Array: TypeAlias = "np.ndarray[Any, Any]"

BLOCK = 1 << 24  # bytes of the result that are held; a matrix of 8192 rows is read in runs of 2 KB then
BAND = 32  # columns that are copied at once
READ = 1 << 23  # bytes that are read at once
SMALL = 1 << 18  # this many are read at once, however few are wanted: fewer calls, measured to be quicker


class StridedPayload(Payload):
    """Items of `itemsize` bytes in row-major order of `shape`, whose steps in the file are `strides`, in items.

    The first is at item `start` of `base`. All lie within it; the caller has checked that.
    """

    def __init__(
        self, base: RangePayload, itemsize: int, shape: Sequence[int], strides: Sequence[int], start: int = 0
    ) -> None:
        self.base = base
        self.itemsize = itemsize
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.start = start

    @property
    def nbytes(self) -> int:
        size = self.itemsize
        for extent in self.shape:
            size *= extent
        return size

    @property
    def identity(self) -> object:
        return (self.base.identity, self.itemsize, self.shape, self.strides, self.start)

    def permuted(self, permutation: Sequence[int]) -> StridedPayload:
        """The same with its axes in another order."""
        shape = [self.shape[axis] for axis in permutation]
        strides = [self.strides[axis] for axis in permutation]
        return StridedPayload(self.base, self.itemsize, shape, strides, self.start)

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.base,)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """Raises OSError where the file cannot be read, ExternalDataError where it has changed, EOFError if cut."""
        if not self.nbytes:
            return
        kind = np.dtype(f"V{self.itemsize}") if self.itemsize not in (1, 2, 4, 8) else np.dtype(f"u{self.itemsize}")
        with self.base.open() as file:
            for corner, shape in blocks(self.shape, max(BLOCK // self.itemsize, 1)):
                block = np.empty(shape, kind)
                at = self.start + sum(index * step for index, step in zip(corner, self.strides, strict=True))
                self._fill(file, block, at * self.itemsize)
                yield from pieces(block.reshape(-1).view(np.uint8).data, limit)
                del block  # before the next one is made

    def _fill(self, file: io.RawIOBase, block: Array, at: int) -> None:
        """Reads a block whose first item is `at` bytes into the base."""
        steps = [step * self.itemsize for step in self.strides]
        spans = [(extent - 1) * step for extent, step in zip(block.shape, steps, strict=True)]
        extent = sum(spans) + self.itemsize
        if extent <= max(min(2 * block.nbytes, READ), SMALL):
            data = self._read(file, at, extent)
            fill(block, np.ndarray(block.shape, block.dtype, data, strides=steps))
            return
        axis = spans.index(max(spans))
        half = block.shape[axis] // 2
        whole = (slice(None),) * axis
        first, second = (*whole, slice(half)), (*whole, slice(half, None))
        self._fill(file, block[first], at)
        self._fill(file, block[second], at + half * steps[axis])

    def _read(self, file: io.RawIOBase, at: int, length: int) -> bytearray:
        data = bytearray(length)
        file.seek(self.base.offset + at)
        view, left = memoryview(data), length
        while left:
            count = file.readinto(view[length - left :])
            if not count:
                raise EOFError(f"{self.base.name}: {left} of {length} bytes at {self.base.offset + at} are missing")
            left -= count
        return data


def fill(block: Array, source: Array) -> None:
    """Copies elements that lie in another order: in bands along the last axis where its step is not the least.

    The lines of memory that a band reads and writes stay in the cache; measured, that is 4 to 12 times as quick.
    """
    steps = [abs(step) for step, extent in zip(source.strides, source.shape, strict=True) if extent > 1]
    if len(steps) < 2 or not steps[-1] or steps[-1] <= min(steps) or source.shape[-1] == 1:
        block[...] = source
        return
    for at in range(0, source.shape[-1], BAND):
        block[..., at : at + BAND] = source[..., at : at + BAND]


def blocks(shape: tuple[int, ...], most: int) -> Iterator[tuple[list[int], list[int]]]:
    """(corner, shape) of blocks of at most `most` items that make up `shape` in row-major order."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= most:
        axis -= 1
        inner *= shape[axis]
    if not axis:
        yield [0] * len(shape), list(shape)
        return
    axis -= 1  # the axis that is cut; those before it are walked one by one, those behind are whole
    step = most // inner
    behind = len(shape) - axis - 1
    for index in np.ndindex(*shape[:axis]):
        for first in range(0, shape[axis], step):
            extent = min(step, shape[axis] - first)
            yield [*index, first, *[0] * behind], [*[1] * axis, extent, *shape[axis + 1 :]]


def row_major(shape: Sequence[int]) -> list[int]:
    """The steps of row-major order, in items."""
    steps = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    return steps


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether these steps are those of row-major order; an axis of one item may have any."""
    expected = 1
    for extent, step in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and step != expected:
            return False
        expected *= extent
    return True
