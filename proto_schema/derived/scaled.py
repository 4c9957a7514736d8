"""The floats of a payload, each times the factor of its channel, made when they are written, in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema.derived.cast import STEP
from proto_schema.external.payload import CHUNK, BytesLike, Payload, pieces, whole
from proto_schema.external.threads import in_order
from proto_schema.tensors.dtypes import DTYPES

_SMALL = 4 * STEP  # elements for which threads do not pay


class ScaledPayload(Payload):
    """Elements of a float type of numpy in row-major order: `inner` of them share a factor, then the next one counts.

    After the last factor the first one follows. The products are those of float64, rounded once.
    """

    def __init__(self, source: Payload, dtype: int, factors: npt.NDArray[np.float64], inner: int) -> None:
        self.source = source
        self.dtype = np.dtype(DTYPES[dtype].numpy)
        self.factors = factors
        self.inner = max(inner, 1)

    @property
    def nbytes(self) -> int:
        return self.source.nbytes

    @property
    def identity(self) -> object:
        source = self.source.identity
        return None if source is None else (type(self.source), source, self.factors.tobytes(), self.inner)

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.source,)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        width = self.dtype.itemsize

        def placed() -> Iterator[tuple[memoryview, int]]:
            start = 0
            for part in whole(self.source, STEP * width, width):
                yield part, start
                start += part.nbytes // width

        alone = 1 if self.nbytes <= _SMALL * width else None
        for made in in_order(placed(), self._scaled, alone):
            yield from pieces(made, limit)

    def _scaled(self, part: memoryview, start: int) -> memoryview:
        values: npt.NDArray[Any] = np.frombuffer(part, self.dtype)
        places = np.arange(start, start + values.size) // self.inner % len(self.factors)
        with np.errstate(over="ignore", invalid="ignore"):
            return (values * self.factors[places]).astype(self.dtype).view(np.uint8).data
