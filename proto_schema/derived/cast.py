"""The elements of a payload in another float type, made when they are written, in bounded pieces, by threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from proto_schema.external.payload import CHUNK, BytesLike, Payload, pieces, whole
from proto_schema.external.threads import in_order
from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import to_array
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.tensors.minifloat import bfloat16_codes

BFLOAT16, FLOAT16 = TensorProto.BFLOAT16, TensorProto.FLOAT16
STEP = 1 << 18  # elements that are converted at once
_SMALL = 4 * STEP  # elements of a source for which threads do not pay


class CastPayload(Payload):
    """The elements of a payload, each as another type; as many bytes at a time as `STEP` elements have.

    With `largest`, finite elements beyond it become plus or minus that number; without, they overflow to infinity.
    """

    def __init__(self, source: Payload, before: int, after: int, largest: float | None = None) -> None:
        self.source = source
        self.before = before
        self.after = after
        self.largest = largest

    @property
    def nbytes(self) -> int:
        return self.source.nbytes // (DTYPES[self.before].bits // 8) * (DTYPES[self.after].bits // 8)

    @property
    def identity(self) -> object:
        source = self.source.identity
        return None if source is None else (type(self.source), source, self.before, self.after, self.largest)

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.source,)

    def section(self, start: int, stop: int) -> CastPayload | None:
        before, after = DTYPES[self.before].bits // 8, DTYPES[self.after].bits // 8
        if start % after or stop % after:
            return None
        source = self.source.section(start // after * before, stop // after * before)
        return None if source is None else CastPayload(source, self.before, self.after, self.largest)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        width = DTYPES[self.before].bits // 8
        parts = ((part, 0) for part in whole(self.source, STEP * width, width))
        alone = 1 if self.source.nbytes <= _SMALL * width else None

        def work(part: memoryview, _: int) -> memoryview:
            return _converted(part, self.before, self.after, self.largest)

        for made in in_order(parts, work, alone):
            yield from pieces(made, limit)


def _converted(data: memoryview, before: int, after: int, largest: float | None) -> memoryview:
    count = data.nbytes // (DTYPES[before].bits // 8)
    values = to_array(TensorProto(data_type=before, dims=[count], raw_data=data))
    if largest is not None:
        values = np.where(np.isfinite(values), np.clip(values, -largest, largest), values)
    with np.errstate(over="ignore", invalid="ignore"):
        if after == BFLOAT16:
            return bfloat16_codes(values).astype("<u2", copy=False).view(np.uint8).data
        if values.dtype.itemsize == 8 and after == FLOAT16:
            values = values.astype(np.float32)
        return values.astype(DTYPES[after].numpy, copy=False).view(np.uint8).data
