"""Numbers, text and bytes between Python and the wire: the one place for ranges, NaN bits and packed lists.

Decoding functions take bytes and raise DecodeError at an offset in the whole input; encoding functions raise
TypeError or ValueError with the reason alone, and the caller adds the field's path. All of it goes value by value;
`runs` has what numpy does with many.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from operator import index
from typing import Any

from proto_schema.errors import DecodeError
from proto_schema.external.payload import BytesLike, Payload, byte_view
from proto_schema.wire import MASK64, signed, varint
from proto_schema.wire.fields import DOUBLE, FLOAT, INT64, UINT64, Field, FieldType

_FLOAT, _DOUBLE, _BITS32, _BITS64 = (struct.Struct(code) for code in ("<f", "<d", "<I", "<Q"))

# (lowest, highest) value that a field of the kind may hold
RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, MASK64)}
RANGES["enum"] = RANGES["int32"]


def from_varint(kind: FieldType, value: int) -> int:
    """What a varint (below 2**64) means in a field of `kind`; int32 drops the high bits, as protobuf does."""
    if kind is UINT64:
        return value
    return signed(value, 64 if kind is INT64 else 32)


def checked_int(field: Field, value: Any) -> int:
    """`value` as an int that the field can hold. TypeError for a float or str, ValueError out of range."""
    number = index(value)
    lowest, highest = RANGES[field.kind.name]
    if not lowest <= number <= highest:
        raise ValueError(f"{number} does not fit an {field.kind.name} field ({lowest} to {highest})")
    if field.enum is not None and number not in enum_values(field.enum):
        raise ValueError(f"{number} is not a value of {field.enum.__qualname__}")
    return number


@cache
def enum_values(enum: type[Any]) -> frozenset[int]:
    """The numbers of an enum's members."""
    return frozenset(int(member) for member in enum)


def float_from_bytes(data: bytes) -> float:
    """A little-endian float32, widened with all its bits: a signalling NaN stays one, which a C cast would quieten."""
    value: float = _FLOAT.unpack(data)[0]
    if not math.isnan(value):
        return value
    bits = _BITS32.unpack(data)[0]
    wide = (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
    return float(_DOUBLE.unpack(_BITS64.pack(wide))[0])


def float_to_bytes(value: Any) -> bytes:
    """Rounded to float32; beyond its range an infinity, as C and protobuf have it; NaN bits kept."""
    if math.isnan(value):
        bits = _BITS64.unpack(_DOUBLE.pack(value))[0]
        return _BITS32.pack((bits >> 63) << 31 | 0x7F800000 | (bits >> 29 & 0x7FFFFF or 1 << 22))
    try:
        return _FLOAT.pack(value)
    except OverflowError:
        return _FLOAT.pack(math.copysign(math.inf, value))


def double_from_bytes(data: bytes) -> float:
    """A little-endian float64."""
    return float(_DOUBLE.unpack(data)[0])


def double_to_bytes(value: Any) -> bytes:
    """Little-endian float64."""
    return _DOUBLE.pack(value)


def text_to_bytes(value: Any) -> bytes:
    """UTF-8 of a str; bytes as they are, which is how text that is no UTF-8 was decoded."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"expected str, not {type(value).__name__}")


def payload_piece(value: Any) -> tuple[int, BytesLike]:
    """(size, the object to write) of a bytes-like object or Payload, without copying."""
    if isinstance(value, Payload):
        return value.nbytes, value
    if isinstance(value, bytes):
        return len(value), value
    if isinstance(value, str):
        raise TypeError("expected bytes, not str")
    view = byte_view(value)
    return view.nbytes, view


def unpack(kind: FieldType, data: bytes, offset: int) -> list[Any]:
    """The values of a packed field; `offset` is where `data` lies, for errors."""
    if kind in (FLOAT, DOUBLE):
        return _unpack_floats(kind, data, offset)
    values = varints(data, offset)
    return values if kind is UINT64 else [from_varint(kind, value) for value in values]


def _unpack_floats(kind: FieldType, data: bytes, offset: int) -> list[float]:
    width = 4 if kind is FLOAT else 8
    count, rest = divmod(len(data), width)
    if rest:
        raise DecodeError(
            f"a packed {kind.name} field of {len(data)} bytes, which is not a multiple of {width}", offset
        )
    values = list(struct.unpack(f"<{count}{'f' if kind is FLOAT else 'd'}", data))
    if kind is FLOAT and not math.isfinite(sum(values)):
        for at, value in enumerate(values):
            if math.isnan(value):
                values[at] = float_from_bytes(data[4 * at : 4 * at + 4])
    return values


def varints(data: bytes, offset: int) -> list[int]:
    """Packed varints as unsigned 64-bit numbers."""
    values = []
    value = shift = start = 0
    for at, byte in enumerate(data):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value & MASK64)
            value = shift = 0
            start = at + 1
        elif shift == 70:
            raise DecodeError("varint of more than 10 bytes", offset + start)
    if shift:
        raise DecodeError("truncated varint in a packed field", offset + start)
    return values


def pack(field: Field, values: Sequence[Any]) -> bytes:
    """The body of a packed field. TypeError or ValueError for what the field cannot hold."""
    if field.kind is FLOAT:
        return _pack_floats(values)
    if field.kind is DOUBLE:
        return struct.pack(f"<{len(values)}d", *values)
    return b"".join([varint(checked_int(field, value) & MASK64) for value in values])


def _pack_floats(values: Sequence[Any]) -> bytes:
    try:
        if math.isfinite(sum(values)):
            return struct.pack(f"<{len(values)}f", *values)
    except OverflowError:  # a value beyond float32
        pass
    return b"".join([float_to_bytes(value) for value in values])


READ_FLOAT: dict[str, Callable[[bytes], float]] = {"float": float_from_bytes, "double": double_from_bytes}
WRITE_FLOAT: dict[str, Callable[[Any], bytes]] = {"float": float_to_bytes, "double": double_to_bytes}

__all__ = [
    "RANGES",
    "READ_FLOAT",
    "WRITE_FLOAT",
    "checked_int",
    "enum_values",
    "from_varint",
    "pack",
    "payload_piece",
    "text_to_bytes",
    "unpack",
    "varints",
]
