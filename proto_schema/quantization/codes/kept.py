"""A weight whose codes are kept: what `streams.Quantized` makes of floats is there already, in another order.

Codes are unsigned where they come from. A signed type has them less the middle of their range, and so are its zero
points. Zero points that all are the middle need not be written, but for an unsigned type and `DequantizeLinear`, which
takes 0 then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from proto_schema.external.payload import LazyPayload, Payload
from proto_schema.quantization.codes.coded import Coded, CodedFloats, CodedPayload, Codes
from proto_schema.quantization.codes.elements import filled, packed, stored
from proto_schema.quantization.codes.streams import Layout
from proto_schema.quantization.scheme import Kind
from proto_schema.tensors.dtypes import DTYPES

_LONGEST_BLOCK = 256  # that ONNX Runtime's kernels have


def fits_bits_product(source: CodedPayload) -> bool:
    """Whether MatMulNBits has blocks like these."""
    block = source.block
    return 16 <= block <= _LONGEST_BLOCK and not block & (block - 1) and source.bits in (2, 4, 8)


def needs_zeros(source: CodedPayload) -> bool:
    """Whether a zero point is not the middle."""
    return bool((source.zeros() != 1 << source.bits - 1).any())


class Kept:
    """The codes and scales of a coded weight, as its new nodes want them: the face of `Quantized`."""

    source: Coded
    whole: float | None = None
    codes: Payload
    scales: Payload
    zeros: Payload | None = None

    def __init__(self, source: Coded, kind: Kind, layout: Layout, dtype: int) -> None:
        """`dtype` is that of the scales; what reads the weight sums over the rows of the source."""
        self.kind = kind
        self.layout = layout
        self.scale_dtype = dtype
        self._identity = source.identity

    def _part(self, part: str, size: int, made: Callable[[], object]) -> Payload:
        found = self._identity
        kinds = self.kind, self.layout, self.scale_dtype, part
        return LazyPayload(
            size, made, None if found is None else (found, *kinds), f"the {part} of a weight", (self.source,)
        )

    def error(self) -> float:
        """Nothing is rounded."""
        return 0.0


class KeptFloats(Kept):
    """Small floats; scales that are small floats have a scale of their own."""

    source: CodedFloats

    def __init__(self, source: CodedFloats, kind: Kind, layout: Layout, dtype: int) -> None:
        super().__init__(source, kind, layout, dtype)
        self.source = source
        self.codes = self._part("codes", (source.rows * source.length * kind.bits + 7) // 8, self._codes)
        own = source.scale_codes() if kind.scales else None
        if own is not None:
            self.scale_dtype = own[0]
            self.whole = own[2]
        size = DTYPES[self.scale_dtype].nbytes(source.rows * source.blocks)
        self.scales = self._part("scales", size, self._scales)

    def _codes(self) -> Iterator[bytes]:
        bits = self.kind.bits
        if self.layout.across:
            yield packed(np.ascontiguousarray(np.concatenate(list(self.source.codes())).T).reshape(-1), bits)
            return
        waiting = np.empty(0, np.uint8)
        for codes in self.source.codes():
            together = np.concatenate([waiting, codes.reshape(-1)])
            end = together.size // 8 * 8
            waiting = together[end:]
            yield packed(together[:end], bits)
        yield packed(waiting, bits)

    def _scales(self) -> bytes:
        own = self.source.scale_codes() if self.kind.scales else None
        if own is not None:
            return np.ascontiguousarray(own[1].T if self.layout.across else own[1]).tobytes()
        scales = self.source.scales()
        return stored(np.ascontiguousarray(scales.T if self.layout.across else scales), self.scale_dtype).tobytes()


class KeptIntegers(Kept):
    """Integers, and their zero points."""

    source: CodedPayload

    def __init__(self, source: CodedPayload, kind: Kind, layout: Layout, dtype: int) -> None:
        super().__init__(source, kind, layout, dtype)
        self.source = source
        self._middle = 1 << source.bits - 1
        self._signed = kind.signed and not layout.padded
        bits, count = source.bits, source.rows * source.blocks
        width = source.blocks * layout.block if layout.padded else source.length
        size = (source.rows * width * bits + 7) // 8
        self.codes = self._part("codes", size, self._codes)
        self.scales = self._part("scales", DTYPES[dtype].nbytes(count), self._scales)
        if needs_zeros(source) or not (kind.signed or layout.padded):
            size = source.rows * ((source.blocks * bits + 7) // 8) if layout.padded else (count * bits + 7) // 8
            self.zeros = self._part("zero points", size, self._zeros)

    def _codes(self) -> Iterator[bytes]:
        bits, layout = self.source.bits, self.layout
        if layout.across:
            yield packed(self._own(np.concatenate(list(self.source.codes())).T).reshape(-1), bits)
            return
        waiting = np.empty(0, np.uint8)
        for codes in self.source.codes():
            if layout.padded:
                yield packed(filled(codes, layout.block, 0).reshape(-1), bits)
                continue
            together = np.concatenate([waiting, self._own(codes).reshape(-1)])
            end = together.size // 8 * 8
            waiting = together[end:]
            yield packed(together[:end], bits)
        yield packed(waiting, bits)

    def _scales(self) -> bytes:
        scales = self.source.scales()
        return stored(np.ascontiguousarray(scales.T if self.layout.across else scales), self.scale_dtype).tobytes()

    def _zeros(self) -> bytes:
        bits, zeros = self.source.bits, self.source.zeros()
        if self.layout.padded:
            return packed(filled(zeros, 8 // bits, self._middle).reshape(-1), bits)
        return packed(self._own(zeros.T if self.layout.across else zeros).reshape(-1), bits)

    def _own(self, codes: Codes) -> Codes:
        """Codes as the type has them, in the low bits."""
        if not self._signed:
            return np.ascontiguousarray(codes)
        mask = np.uint8((1 << self.source.bits) - 1)
        made: npt.NDArray[np.uint8] = (codes - np.uint8(self._middle)) & mask
        return made
