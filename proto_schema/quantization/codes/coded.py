"""Weights that are codes already: a payload of floats that knows the codes, scales and zero points it is made of.

Whoever reads it gets the floats. `quantize` asks it for its codes instead, so that a weight that was quantized before
keeps its numbers exactly. What is put around such a payload on its way (a cast, a transposition, other weights behind
it) is looked through.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.derived.cast import CastPayload
from proto_schema.derived.joined import JoinedPayload
from proto_schema.derived.transposed import TransposedPayload
from proto_schema.external.payload import CHUNK, Payload, byte_view, pieces
from proto_schema.onnx import TensorProto
from proto_schema.quantization.codes.floats import values_of

Codes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]


class CodedMatrix(Payload):
    """The float32 elements of a matrix [rows, length] of codes, of which `block` neighbours of a row share a scale."""

    def __init__(self, rows: int, length: int, block: int) -> None:
        self.rows = rows
        self.length = length
        self.block = block

    @property
    def blocks(self) -> int:
        """The number of scales of a row."""
        return -(-self.length // self.block)

    @property
    def nbytes(self) -> int:
        return self.rows * self.length * 4

    @property
    @abstractmethod
    def kind(self) -> int:
        """What tells codes from others of the same bytes: their bits, or their type."""

    @property
    @abstractmethod
    def sources(self) -> tuple[Payload, ...]:
        """What codes, scales and zero points, where there are some, are read from."""

    @property
    def identity(self) -> object:
        found = tuple(source.identity for source in self.sources)
        return None if None in found else (type(self), found, self.kind, self.block)

    @abstractmethod
    def scales(self) -> Floats:
        """[rows, blocks]."""

    @abstractmethod
    def codes(self) -> Iterator[Codes]:
        """Some rows at a time, all in order: [some, length]."""


class CodedPayload(CodedMatrix):
    """The float32 elements of a matrix [rows, length] of unsigned codes: (code - zero point) * scale.

    `block` neighbours of a row share a scale and a zero point; the last block of a row may be shorter. `groups` names
    the scale of each element of a row where these are no neighbours; such a weight is read as floats only.
    """

    def __init__(self, rows: int, length: int, bits: int, block: int) -> None:
        super().__init__(rows, length, block)
        self.bits = bits

    @property
    def kind(self) -> int:
        return self.bits

    @abstractmethod
    def zeros(self) -> Codes:
        """[rows, blocks]."""

    def groups(self) -> npt.NDArray[np.int64] | None:
        """The scale of each element of a row; None where blocks of neighbours share one."""
        return None

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        scales, zeros, first = self.scales(), self.zeros(), 0
        places = self.groups()
        if places is None:
            places = np.arange(self.length) // self.block
        with np.errstate(invalid="ignore", over="ignore"):  # scales of any bits, as hostile files have them
            for codes in self.codes():
                rows = slice(first, first + len(codes))
                first += len(codes)
                values = codes.astype(np.float32)
                values -= zeros[rows][:, places]
                values *= scales[rows][:, places]
                yield from pieces(byte_view(values.astype("<f4", copy=False)), limit)


class CodedFloats(CodedMatrix):
    """The float32 elements of a matrix [rows, length] of small floats: their numbers times scales.

    `code` is the type of the floats. `block` neighbours of a row share a scale; the last block may be shorter.
    """

    def __init__(self, rows: int, length: int, code: int, block: int) -> None:
        super().__init__(rows, length, block)
        self.code = code

    @property
    def kind(self) -> int:
        return self.code

    def scale_codes(self) -> tuple[int, Codes, float] | None:
        """Where scales are small floats: their type, their codes [rows, blocks], and what all are multiplied with."""
        return None

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        scales, first = self.scales(), 0
        for codes in self.codes():
            wide = scales[first : first + len(codes)]
            first += len(codes)
            with np.errstate(invalid="ignore", over="ignore"):  # scales of any bits, as hostile files have them
                if wide.shape[1] > 1:
                    wide = np.repeat(wide, self.block, axis=1)[:, : self.length]
                values = values_of(codes, self.code) * wide
            yield from pieces(byte_view(values.astype("<f4", copy=False)), limit)


class JoinedCodes(CodedPayload):
    """The rows of several such matrices behind each other; they are alike in everything but the number of rows."""

    def __init__(self, parts: Sequence[CodedPayload]) -> None:
        first = parts[0]
        super().__init__(sum(part.rows for part in parts), first.length, first.bits, first.block)
        self.parts = tuple(parts)

    @property
    def sources(self) -> tuple[Payload, ...]:
        return self.parts

    def scales(self) -> Floats:
        return np.concatenate([part.scales() for part in self.parts])

    def zeros(self) -> Codes:
        return np.concatenate([part.zeros() for part in self.parts])

    def codes(self) -> Iterator[Codes]:
        for part in self.parts:
            yield from part.codes()


class JoinedFloats(CodedFloats):
    """The rows of several matrices of small floats behind each other, whose scales are floats."""

    def __init__(self, parts: Sequence[CodedFloats]) -> None:
        first = parts[0]
        super().__init__(sum(part.rows for part in parts), first.length, first.code, first.block)
        self.parts = tuple(parts)

    @property
    def sources(self) -> tuple[Payload, ...]:
        return self.parts

    def scales(self) -> Floats:
        return np.concatenate([part.scales() for part in self.parts])

    def codes(self) -> Iterator[Codes]:
        for part in self.parts:
            yield from part.codes()


Coded: TypeAlias = "CodedPayload | CodedFloats"


def codes_of(payload: Payload) -> tuple[Coded, bool] | None:
    """(the codes that a payload of floats stands for, whether it has them transposed); None where it has none.

    A cast that would round the scales hides them, and so do groups of elements that are no neighbours.
    """
    if isinstance(payload, CodedFloats):
        return payload, False
    if isinstance(payload, CodedPayload):
        return None if payload.groups() is not None else (payload, False)
    if isinstance(payload, CastPayload):
        return codes_of(payload.source) if _keeps_scales(payload) else None
    if isinstance(payload, TransposedPayload) and len(payload.axes) == 2:
        found = codes_of(payload.source)
        return None if found is None else (found[0], found[1] != (payload.axes == (1, 0)))
    if isinstance(payload, JoinedPayload):
        return _joined([codes_of(part) for part in payload.parts])
    return None


def _keeps_scales(cast: CastPayload) -> bool:
    """Whether the scales are of the type that the floats are cast to."""
    if cast.before != TensorProto.FLOAT or cast.after not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        return False
    found = codes_of(cast.source)
    if found is None:
        return False
    if isinstance(found[0], CodedFloats) and found[0].scale_codes() is not None:
        return True  # the file multiplies them in float32
    scales = found[0].scales()
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.array_equal(scales.astype(np.float16).astype(np.float32), scales))


def _joined(parts: Sequence[tuple[Coded, bool] | None]) -> tuple[Coded, bool] | None:
    known = [part[0] for part in parts if part is not None and not part[1]]
    if len(known) < len(parts):
        return None
    integers = [part for part in known if isinstance(part, CodedPayload)]
    floats = [part for part in known if isinstance(part, CodedFloats) and part.scale_codes() is None]
    if len(integers) == len(parts) and len({(part.length, part.bits, part.block) for part in integers}) == 1:
        return JoinedCodes(integers), False
    if len(floats) == len(parts) and len({(part.length, part.code, part.block) for part in floats}) == 1:
        return JoinedFloats(floats), False
    return None
