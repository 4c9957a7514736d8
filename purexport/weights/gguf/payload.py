"""The numbers that blocks of a file stand for, as float32, made when they are written, in bounded pieces.

A matrix whose blocks are integers and scales alone knows these, too, so that a quantization can keep them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from proto_schema.external.payload import CHUNK, BytesLike, Payload, pieces, whole
from proto_schema.quantization.codes.coded import CodedPayload, Codes
from purexport.weights.gguf.bits import Blocks, Floats, Parts
from purexport.weights.gguf.types import GgufType

STEP = 1 << 18  # elements that are made at once


class BlocksPayload(Payload):
    """The elements of blocks as little-endian float32. `source` holds whole blocks of `kind`."""

    def __init__(self, source: Payload, kind: GgufType) -> None:
        self.source = source
        self.kind = kind

    @property
    def nbytes(self) -> int:
        return self.source.nbytes // self.kind.size * self.kind.elements * 4

    @property
    def identity(self) -> object:
        source = self.source.identity
        return None if source is None else (type(self), source, self.kind.code)

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.source,)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        assert self.kind.decode is not None
        for blocks in blocks_of(self.source, self.kind, 1):
            with np.errstate(invalid="ignore", over="ignore"):  # scales of any bits, as hostile files have them
                values = self.kind.decode(blocks)
            made = np.ascontiguousarray(values, "<f4").reshape(-1)
            yield from pieces(made.view(np.uint8).data, limit)


class CodedBlocks(CodedPayload):
    """The same of a matrix [rows, length] whose type has `parts`; zero points are the middle of `bits`."""

    def __init__(self, source: Payload, kind: GgufType, rows: int, length: int) -> None:
        assert kind.parts is not None
        scales = kind.parts(np.zeros((1, kind.size), np.uint8))[1].shape[1]
        super().__init__(rows, length, kind.bits, kind.elements // scales)
        self._floats = BlocksPayload(source, kind)
        self._parts = kind.parts

    @property
    def sources(self) -> tuple[Payload, ...]:
        return (self._floats,)

    def scales(self) -> Floats:
        found = [scales for _, scales in self._taken_apart()]
        return np.concatenate(found).reshape(self.rows, self.blocks)

    def zeros(self) -> Codes:
        return np.full((self.rows, self.blocks), 1 << self.bits - 1, np.uint8)

    def codes(self) -> Iterator[Codes]:
        middle = np.int16(1 << self.bits - 1)
        for integers, _ in self._taken_apart():
            yield (integers.astype(np.int16) + middle).astype(np.uint8).reshape(-1, self.length)

    def _taken_apart(self) -> Iterator[Parts]:
        """Integers and scales of whole rows."""
        kind = self._floats.kind
        for blocks in blocks_of(self._floats.source, kind, self.length // kind.elements):
            with np.errstate(invalid="ignore", over="ignore"):
                yield self._parts(blocks)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        return self._floats.chunks(limit)


def blocks_of(source: Payload, kind: GgufType, together: int) -> Iterator[Blocks]:
    """Some blocks at a time, as rows of bytes; `together` say how many are not to be parted."""
    unit = together * kind.size
    for part in whole(source, max(STEP // kind.elements // together, 1) * unit, unit):
        yield np.frombuffer(part, np.uint8).reshape(-1, kind.size)
