"""Payloads behind each other, and rows of several payloads in turns; each is read once, from its beginning.

Some rows of each part are held at a time, so that memory is bounded, whatever the parts are made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from proto_schema.external.payload import CHUNK, BytesLike, Payload, pieces

_HELD = 1 << 20  # bytes of each part that are held, if a row is not longer


class _Parts(Payload):
    """The bytes of several payloads, in an order that the class says."""

    def __init__(self, parts: Sequence[Payload]) -> None:
        self.parts = tuple(parts)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def identity(self) -> object:
        found = tuple(part.identity for part in self.parts)
        return None if None in found else (type(self), found)

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return self.parts


class JoinedPayload(_Parts):
    """The bytes of payloads behind each other."""

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        for part in self.parts:
            yield from part.chunks(limit)


class TurnsPayload(_Parts):
    """The first rows of all parts, their second rows, and so on; a row has `row` bytes, and parts have equally many."""

    def __init__(self, parts: Sequence[Payload], row: int) -> None:
        super().__init__(parts)
        self.row = row

    @property
    def identity(self) -> object:
        found = super().identity
        return None if found is None else (found, self.row)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        size = max(_HELD // self.row, 1) * self.row
        for together in zip(*(_even(part, size) for part in self.parts), strict=True):
            rows = np.stack([np.frombuffer(data, np.uint8).reshape(-1, self.row) for data in together], axis=1)
            yield from pieces(rows.reshape(-1).data, limit)


def _even(source: Payload, size: int) -> Iterator[bytearray]:
    """The bytes in pieces of `size`, of which the last may be shorter."""
    held = bytearray()
    for chunk in source.chunks(min(size, CHUNK)):
        held += chunk
        while len(held) >= size:
            yield held[:size]
            del held[:size]
    if held:
        yield held
