"""Constants in eight bits with a scale for the whole, or for each channel along an axis: read in bounded pieces.

A constant lies as [outer, channels, inner]. A piece is some whole rows of channels, or some whole channels where there
is one row, so that the scales of a piece broadcast over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from proto_schema.derived.source import source_of
from proto_schema.external.payload import CHUNK, BytesLike, Payload, byte_view, pieces
from proto_schema.external.threads import in_order
from proto_schema.onnx import TensorProto
from proto_schema.quantization.codes import integers
from proto_schema.quantization.codes.elements import Floats, cut, singles
from proto_schema.quantization.codes.integers import Grid
from proto_schema.tensors.dtypes import DTYPES

PIECE = 1 << 18  # elements


class Source:
    """A constant whose elements are read in pieces, each with the numbers of its channels."""

    def __init__(
        self, payload: Payload, dtype: int, shape: Sequence[int], axis: int | None, threads: int | None
    ) -> None:
        self.payload = payload
        self.dtype = dtype
        self.threads = threads
        self.elements = prod(shape)
        if axis is None:
            self.channels, self.inner, unit = 1, 1, 1
        else:
            self.channels, self.inner = shape[axis], prod(shape[axis + 1 :])
            unit = self.inner if prod(shape[:axis]) == 1 else self.inner * self.channels
        self.step = max(PIECE // max(unit, 1), 1) * max(unit, 1)

    @classmethod
    def of(cls, tensor: TensorProto, axis: int | None, threads: int | None) -> Source:
        """That of a float32 tensor."""
        return cls(source_of(tensor), TensorProto.FLOAT, tuple(tensor.dims), axis, threads)

    def pieces(self) -> Iterator[tuple[memoryview, int]]:
        """The bytes of each piece, and the number of its first element."""
        width = DTYPES[self.dtype].bits // 8
        firsts = range(0, self.elements, self.step)
        sizes = [min(self.step, self.elements - first) * width for first in firsts]
        yield from zip(cut(self.payload.chunks(), sizes), firsts, strict=True)

    def arranged(self, data: memoryview, first: int) -> tuple[Floats, slice]:
        """The numbers of a piece as [outer, channels, inner], and which channels these are."""
        values = singles(data, self.dtype)
        if self.channels == 1:
            return values.reshape(1, 1, -1), slice(0, 1)
        start = first // self.inner % self.channels
        count = min(values.size // self.inner, self.channels)
        return values.reshape(-1, count, self.inner), slice(start, start + count)

    def extremes(self) -> integers.Extremes:
        """The least and the greatest number of each channel."""
        least = np.full(self.channels, np.inf, np.float32)
        greatest = np.full(self.channels, -np.inf, np.float32)

        def work(data: memoryview, first: int) -> tuple[Any, Any, slice]:
            values, where = self.arranged(data, first)
            return values.min((0, 2)), values.max((0, 2)), where

        for low, high, where in in_order(self.pieces(), work, self.threads):
            least[where], greatest[where] = np.minimum(least[where], low), np.maximum(greatest[where], high)
        return least, greatest


class Codes(Payload):
    """The codes of a constant."""

    def __init__(self, source: Source, grid: Grid, scales: Floats, zeros: Floats) -> None:
        self.source = source
        self.grid = grid
        self.scales = scales
        self.zeros = zeros

    @property
    def nbytes(self) -> int:
        return self.source.elements

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.source.payload,)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        def work(data: memoryview, first: int) -> bytes:
            values, where = self.source.arranged(data, first)
            scales, zeros = self.scales[where, None], self.zeros[where, None]
            return integers.encoded(values, scales, zeros, self.grid, "even", values).tobytes()

        for data in in_order(self.source.pieces(), work, self.source.threads):
            yield from pieces(byte_view(data), limit)
