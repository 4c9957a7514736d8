"""A tensor whose parts lie in different places of files: its bytes in row-major order, made of those of its boxes.

Strategy: the tensor is made in blocks of whole rows, of at most `BLOCK` bytes. Between two places where a part begins
or ends on the first axis, the same parts make up each row. Rows of a part are a range of its file, or strided. A row
that is larger than a block is made like a tensor of its own. So memory is bounded, and each part is read once, from
its beginning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from proto_schema.derived.strided import BLOCK, StridedPayload, is_contiguous
from proto_schema.external.payload import CHUNK, BytesLike, Payload, RangePayload, pieces
from proto_schema.wire.records import dataclass
from purexport.weights.boxes import Box


@dataclass(frozen=True)
class Piece:
    """A part of a tensor: its place, and its items of `width` bytes in a range of a file."""

    box: Box
    base: RangePayload
    width: int
    start: int
    strides: tuple[int, ...]

    def payload(self) -> Payload:
        """Its bytes, in row-major order."""
        shape = self.box.sizes
        if is_contiguous(shape, self.strides):
            return self.base.part(self.start * self.width, math.prod(shape) * self.width)
        return StridedPayload(self.base, self.width, shape, self.strides, self.start)

    def rows(self, first: int, end: int) -> Piece:
        """Rows of the tensor, which the part has."""
        offsets, sizes = self.box.offsets, self.box.sizes
        box = Box((first, *offsets[1:]), (end - first, *sizes[1:]))
        return replace(self, box=box, start=self.start + (first - offsets[0]) * self.strides[0])

    def row(self, index: int) -> Piece:
        """One row of the tensor, as a part of a tensor with an axis less."""
        one = self.rows(index, index + 1)
        return replace(one, box=Box(one.box.offsets[1:], one.box.sizes[1:]), strides=self.strides[1:])


class ChunkedPayload(Payload):
    """The bytes of a tensor of `shape`, of which each element is in one of the pieces."""

    def __init__(self, shape: Sequence[int], found: Sequence[Piece]) -> None:
        self.shape = tuple(shape)
        self.pieces = tuple(found)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.pieces[0].width

    @property
    def identity(self) -> object:
        return (self.shape, tuple((piece.box, piece.payload().identity) for piece in self.pieces))

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return tuple(piece.payload() for piece in self.pieces)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """Raises OSError where a file cannot be read, ExternalDataError where it has changed, EOFError if cut."""
        return _chunks(self.shape, self.pieces, limit)


def joined(shape: Sequence[int], found: Sequence[Piece]) -> Payload:
    """The bytes of a tensor that is made of these pieces."""
    return found[0].payload() if len(found) == 1 else ChunkedPayload(shape, found)


def _chunks(shape: tuple[int, ...], found: Sequence[Piece], limit: int) -> Iterator[memoryview]:
    if len(found) == 1:
        yield from found[0].payload().chunks(limit)
        return
    row = math.prod(shape[1:]) * found[0].width
    for first, end, there in _bands(found):
        if len(there) == 1:
            yield from there[0].rows(first, end).payload().chunks(limit)
            continue
        if row > BLOCK:
            for index in range(first, end):
                yield from _chunks(shape[1:], [piece.row(index) for piece in there], limit)
            continue
        step = max(BLOCK // row, 1)
        for at in range(first, end, step):
            yield from pieces(_block(shape[1:], [piece.rows(at, min(at + step, end)) for piece in there]), limit)


def _bands(found: Sequence[Piece]) -> Iterator[tuple[int, int, list[Piece]]]:
    """(first row, end, the pieces that make up these rows), from the first row to the last."""
    waiting = sorted(found, key=lambda piece: piece.box.offsets[0], reverse=True)
    there: list[Piece] = []
    at = 0
    while waiting or there:
        there = [piece for piece in there if piece.box.offsets[0] + piece.box.sizes[0] > at]
        while waiting and waiting[-1].box.offsets[0] <= at:
            there.append(waiting.pop())
        if not there:
            return
        end = min(piece.box.offsets[0] + piece.box.sizes[0] for piece in there)
        end = min(end, waiting[-1].box.offsets[0]) if waiting else end
        yield at, end, there
        at = end


def _block(inner: tuple[int, ...], found: Sequence[Piece]) -> memoryview:
    """Rows that are made of several pieces."""
    width = found[0].width
    block = np.empty((found[0].box.sizes[0], *inner, width), np.uint8)
    for piece in found:
        box = piece.box
        inside = (slice(at, at + size) for at, size in zip(box.offsets[1:], box.sizes[1:], strict=True))
        where = (slice(None), *inside)
        data = b"".join(piece.payload().chunks())
        block[where] = np.frombuffer(data, np.uint8).reshape(*box.sizes, width)
    return block.reshape(-1).data
