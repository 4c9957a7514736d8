"""Weights of bitsandbytes, in 4 bits by a table of numbers, and in 8 bits by rows.

    P.weight, P.weight.absmax, P.weight.quant_map, P.weight.quant_state.bitsandbytes__nf4, ...   4 bits
    P.weight [rows, length] of INT8, P.SCB [rows]                                                8 bits

Of 4 bits there are two codes a byte, a table of 16 numbers, and a largest number for each block.

The codes are those of the elements in order, the first one of a byte in its high half. The largest numbers may be codes
of 8 bits themselves, of a table of 256 numbers, in blocks with a largest number each, and less an offset. The sizes are
in a JSON text, which is a tensor of bytes in the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from proto_schema.external.payload import CHUNK, Payload, byte_view, pieces, whole
from proto_schema.onnx import TensorProto
from proto_schema.quantization.codes.coded import CodedPayload, Codes, Floats
from proto_schema.tensors.dtypes import element_count
from purexport.errors import WeightsError
from purexport.weights.stored import Stored, shown, size_of

_LONGEST = 1 << 16  # bytes of the JSON text
_STEP = 1 << 18  # elements that are made at once, a multiple of every block
_BLOCKS = tuple(1 << power for power in range(5, 13))


class Blocks4(Payload):
    """The numbers of such a weight as float32."""

    def __init__(
        self, count: int, codes: Stored, table: Stored, largest: Stored, block: int, nested: _Nested | None
    ) -> None:
        self._count, self._codes, self._table, self._largest = count, codes, table, largest
        self._block, self._nested = block, nested

    @classmethod
    def stored(cls, found: Mapping[str, Stored], name: str, state: str) -> Stored:
        """The weight that these tensors stand for. WeightsError says what does not fit."""
        said = _state(found[state])
        shape, block = said.get("shape"), said.get("blocksize")
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            raise _error(found[state], f"has the shape {shown(shape)}, which is not a list of sizes")
        if block not in _BLOCKS:
            raise _error(found[state], f"has the block size {shown(block)}, which is none of {list(_BLOCKS)}")
        size_of(TensorProto.FLOAT, tuple(shape))
        count = element_count(shape)
        blocks = -(-count // block)
        codes = _part(found, name, TensorProto.UINT8, -(-count // 2), name)
        table = _part(found, f"{name}.quant_map", TensorProto.FLOAT, 16, name)
        nested = None
        if "nested_blocksize" in said:
            inner, offset = said["nested_blocksize"], said.get("nested_offset")
            if inner not in _BLOCKS or not isinstance(offset, float):
                raise _error(found[state], f"has blocks of {shown(inner)} scales with the offset {shown(offset)}")
            nested = _Nested(
                _part(found, f"{name}.nested_quant_map", TensorProto.FLOAT, 256, name),
                _part(found, f"{name}.nested_absmax", TensorProto.FLOAT, -(-blocks // inner), name),
                inner,
                float(offset),
            )
        dtype = TensorProto.FLOAT if nested is None else TensorProto.UINT8
        largest = _part(found, f"{name}.absmax", dtype, blocks, name)
        made = cls(count, codes, table, largest, block, nested)
        return Stored(name, TensorProto.FLOAT, tuple(shape), made, codes.origin)

    @property
    def nbytes(self) -> int:
        return self._count * 4

    @property
    def sources(self) -> tuple[Payload, ...]:
        """What the numbers are made of."""
        parts = (self._codes, self._table, self._largest, *(self._nested.parts if self._nested else ()))
        return tuple(part.payload for part in parts)

    @property
    def identity(self) -> object:
        found = tuple(source.identity for source in self.sources)
        offset = self._nested and self._nested.offset
        return None if None in found else (type(self), found, self._block, self._count, offset)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        table, left, first = _floats(self._table), self._count, 0
        largest = _floats(self._largest) if self._nested is None else self._nested.numbers(self._largest)
        for part in whole(self._codes.payload, _STEP // 2, 1):
            octets = np.frombuffer(part, np.uint8)
            codes = np.stack([octets >> 4, octets & 15], 1).reshape(-1)[:left]
            values = table[codes]
            blocks = -(-values.size // self._block)
            with np.errstate(invalid="ignore", over="ignore"):
                values *= np.repeat(largest[first : first + blocks], self._block)[: values.size]
            first += blocks
            left -= values.size
            yield from pieces(byte_view(values.astype("<f4", copy=False)), limit)


class _Nested:
    """How the largest numbers are stored in 8 bits."""

    def __init__(self, table: Stored, largest: Stored, block: int, offset: float) -> None:
        self.parts = (table, largest)
        self.offset = offset
        self._block = block

    def numbers(self, codes: Stored) -> Floats:
        """The numbers that codes of them stand for."""
        found = _floats(self.parts[0])[np.frombuffer(codes.payload.tobytes(), np.uint8)]
        with np.errstate(invalid="ignore", over="ignore"):
            found *= np.repeat(_floats(self.parts[1]), self._block)[: found.size]
            found += np.float32(self.offset)
        return found


def rows_of(found: Mapping[str, Stored], prefix: str) -> Stored:
    """The weight in 8 bits with that prefix. WeightsError says what does not fit."""
    weight, scales = found[prefix + "weight"], found[prefix + "SCB"]
    if len(weight.shape) != 2 or scales.dtype != TensorProto.FLOAT or scales.shape != weight.shape[:1]:
        raise _error(scales, f"must be FLOAT [rows] of {shown(weight.name)}, and is {list(scales.shape)}")
    form = found.get(prefix + "weight_format")
    if form is not None and any(form.payload.tobytes()):
        raise _error(form, "says that the weight is not stored by rows; ")
    return Stored(weight.name, TensorProto.FLOAT, weight.shape, Int8Rows(weight, scales), weight.origin)


class Int8Rows(CodedPayload):
    """Signed bytes, and for each row the largest number, which is 127."""

    def __init__(self, weight: Stored, scales: Stored) -> None:
        super().__init__(weight.shape[0], weight.shape[1], 8, max(weight.shape[1], 1))
        self._weight, self._scale = weight, scales

    @property
    def sources(self) -> tuple[Payload, ...]:
        return (self._weight.payload, self._scale.payload)

    def scales(self) -> Floats:
        scales: Floats = _floats(self._scale) / np.float32(127)
        return scales.reshape(-1, 1)

    def zeros(self) -> Codes:
        return np.full((self.rows, 1), 128, np.uint8)

    def codes(self) -> Iterator[Codes]:
        step = max(_STEP // max(self.length, 1), 1) * max(self.length, 1)
        for part in self._weight.payload.chunks(step):
            signed = np.frombuffer(part, np.uint8)
            yield (signed ^ np.uint8(128)).reshape(-1, self.length)


def _floats(item: Stored) -> Floats:
    return np.frombuffer(item.payload.tobytes(), "<f4").astype(np.float32)


def _part(found: Mapping[str, Stored], name: str, dtype: int, count: int, weight: str) -> Stored:
    """A tensor of so many elements."""
    item = found.get(name)
    if item is None:
        raise _error(found[weight] if weight in found else next(iter(found.values())), f"needs a tensor {shown(name)}")
    if item.dtype != dtype or element_count(item.shape) != count:
        raise _error(item, f"must have {count} elements of its type, and is {list(item.shape)}")
    return item


def _state(item: Stored) -> dict[str, Any]:
    if item.dtype != TensorProto.UINT8 or item.nbytes > _LONGEST:
        raise _error(item, f"must be a text of at most {_LONGEST} bytes")
    try:
        found = json.loads(item.payload.tobytes().decode())
    except (ValueError, RecursionError):
        raise _error(item, "is not JSON text") from None
    if not isinstance(found, dict):
        raise _error(item, "is not a JSON object")
    return found


def _error(item: Stored, reason: str) -> WeightsError:
    again = "write the checkpoint again with the library that quantized it"
    return WeightsError(f"{item.origin}: tensor {shown(item.name)} {reason}; {again}", code="weights-do-not-fit")
