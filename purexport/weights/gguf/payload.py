"""The numbers that blocks of a file stand for, as float32, made when they are written, in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from proto_schema.payload import CHUNK, Payload, pieces, whole
from purexport.weights.gguf.types import Type

STEP = 1 << 18  # elements that are made at once


class BlocksPayload(Payload):
    """The elements of blocks as little-endian float32. `source` holds whole blocks of `kind`."""

    def __init__(self, source: Payload, kind: Type) -> None:
        self.source = source
        self.kind = kind

    @property
    def nbytes(self) -> int:
        return self.source.nbytes // self.kind.size * self.kind.elements * 4

    @property
    def identity(self) -> object:
        source = self.source.identity
        return None if source is None else (type(self), source, self.kind.code)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        kind = self.kind
        assert kind.decode is not None
        for part in whole(self.source, STEP // kind.elements * kind.size, kind.size):
            blocks = np.frombuffer(part, np.uint8).reshape(-1, kind.size)
            with np.errstate(invalid="ignore", over="ignore"):  # scales of any bits, as hostile files have them
                values = kind.decode(blocks)
            made = np.ascontiguousarray(values, "<f4").reshape(-1)
            yield from pieces(made.view(np.uint8).data, limit)
