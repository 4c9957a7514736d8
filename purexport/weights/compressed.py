"""Weights of compressed-tensors and of ModelOpt: integers in words or bytes, and floats of 4 bits.

    P.weight_packed INT32 [rows, ceil(columns * bits / 32)], P.weight_scale [rows, groups], P.weight_shape [2]
    P.weight_zero_point INT32 [ceil(rows * bits / 32), groups], P.weight_g_idx [columns]             pack-quantized
    P.weight INT8 [rows, columns], P.weight_scale [rows, groups], P.weight_zero_point INT8           int-quantized
    P.weight_packed UINT8 [rows, columns / 2], P.weight_scale E4M3 [rows, columns / 16],
    P.weight_global_scale [1]                                                                 nvfp4-pack-quantized
    P.weight UINT8 [rows, columns / 2], P.weight_scale E4M3 [rows, columns / 16], P.weight_scale_2 []    ModelOpt

Integers are signed in words, too: a code there is the integer plus half of the range, and the bits of a row's codes are
one stream, low bits first, that fills whole words. Zero points have their stream along a column. A number is the
integer less its zero point, times its scale. Floats of 4 bits have the first of two in the low bits. Their scale is
that of the block, divided by `weight_global_scale`, or times `weight_scale_2`.

What has floats of 8 bits (float-quantized, naive-quantized, FP8) is read by `float8`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema.external.payload import Payload, whole
from proto_schema.onnx import TensorProto
from proto_schema.quantization.codes.coded import CodedFloats, CodedPayload, Codes, Floats
from proto_schema.quantization.codes.elements import FLOATS, singles
from proto_schema.quantization.codes.floats import values_of
from proto_schema.tensors.dtypes import element_count, type_name
from purexport.errors import WeightsError
from purexport.weights.stored import Stored, shown

PACKED, SCALE, SCALE_2 = ".weight_packed", ".weight_scale", ".weight_scale_2"
PARTS = ("packed", "scale", "shape", "zero_point", "g_idx", "global_scale", "scale_2")
INPUTS = ("input_scale", "input_global_scale", "input_zero_point")
FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mixed-precision",
    "dense",
)
_STEP = 1 << 20  # codes that are unpacked at once
_BITS = (4, 8, 2, 3, 5, 6, 7, 1)
_BLOCK4 = 16  # elements that share a scale in floats of 4 bits


def parts_of(prefix: str) -> list[str]:
    """The names of all tensors that may belong to a weight; `prefix` ends with a dot."""
    return [prefix + "weight", *(f"{prefix}weight_{part}" for part in PARTS), *(prefix + part for part in INPUTS)]


def compressed(found: Mapping[str, Stored], prefix: str, config: Mapping[str, Any]) -> Stored | None:
    """The weight with that prefix; None where it is none of these. WeightsError for what does not fit."""
    packed, scales = found.get(f"{prefix}weight_packed"), found.get(f"{prefix}weight_scale")
    codes = packed or found.get(f"{prefix}weight")
    if codes is None or scales is None or codes.dtype not in _DTYPES:
        return None
    form = config.get("format")
    if str(config.get("quant_method")).lower() == "compressed-tensors" and form not in (None, *FORMATS):
        raise _error(codes, f"has the format {shown(str(form))}, and {', '.join(FORMATS)} can be read")
    if f"{prefix}pre_quant_scale" in found:
        raise _error(codes, "has inputs that are multiplied with a pre_quant_scale, which is not known here")
    if len(codes.shape) != 2:
        raise _error(codes, f"must be a matrix, and has the shape {list(codes.shape)}")
    if codes.dtype == TensorProto.INT32:
        return _in_words(found, prefix, config) if packed is not None else None
    if codes.dtype == TensorProto.UINT8:
        return _in_floats(found, prefix, codes, scales)
    return _in_bytes(found, prefix, codes, scales, config) if packed is None else None


_DTYPES = (TensorProto.INT32, TensorProto.UINT8, TensorProto.INT8)


def _in_words(found: Mapping[str, Stored], prefix: str, config: Mapping[str, Any]) -> Stored:
    packed, scales = found[f"{prefix}weight_packed"], found[f"{prefix}weight_scale"]
    shape = _shape(found, prefix)
    rows, length = shape
    fitting = [bits for bits in _BITS if (rows, -(-length * bits // 32)) == packed.shape]
    told = _told(config, "num_bits")
    bits = next((bits for bits in fitting if not told or bits in told), None)
    if bits is None:
        raise _error(packed, f"has the shape {list(packed.shape)}, which codes of {list(shape)} do not fill")
    places = found.get(f"{prefix}weight_g_idx")
    if places is not None and (places.dtype != TensorProto.INT32 or places.shape != (length,)):
        raise _error(places, f"must be INT32 [{length}], and is {type_name(places.dtype)} {list(places.shape)}")
    zeros = found.get(f"{prefix}weight_zero_point")
    groups = _groups(scales, rows, length)
    if zeros is not None and (zeros.dtype, zeros.shape) != (TensorProto.INT32, (-(-rows * bits // 32), groups)):
        raise _error(zeros, f"must be INT32 words of {rows} x {groups} codes, and is {list(zeros.shape)}")
    return _stored(
        packed, prefix, shape, Words(packed, scales, zeros, places, shape, bits, _block(length, groups, config))
    )


def _in_bytes(
    found: Mapping[str, Stored], prefix: str, codes: Stored, scales: Stored, config: Mapping[str, Any]
) -> Stored:
    rows, length = codes.shape
    groups = _groups(scales, rows, length)
    zeros = found.get(f"{prefix}weight_zero_point")
    if zeros is not None and (zeros.dtype != TensorProto.INT8 or zeros.shape != scales.shape):
        raise _error(zeros, f"must be INT8 {list(scales.shape)}, and is {type_name(zeros.dtype)} {list(zeros.shape)}")
    return _stored(codes, prefix, codes.shape, Octets(codes, scales, zeros, _block(length, groups, config)))


def _in_floats(found: Mapping[str, Stored], prefix: str, codes: Stored, scales: Stored) -> Stored | None:
    divisor, factor = found.get(f"{prefix}weight_global_scale"), found.get(f"{prefix}weight_scale_2")
    over = divisor or factor
    if over is None:
        return None
    rows, length = codes.shape[0], codes.shape[1] * 2
    if (scales.dtype, scales.shape) != (TensorProto.FLOAT8E4M3FN, (rows, length // _BLOCK4)) or length % _BLOCK4:
        raise _error(
            scales,
            f"must be FLOAT8E4M3FN [{rows}, {length // _BLOCK4}], and is {type_name(scales.dtype)} "
            f"{list(scales.shape)}",
        )
    if over.dtype != TensorProto.FLOAT or element_count(over.shape) != 1:
        raise _error(over, f"must be one FLOAT, and is {type_name(over.dtype)} {list(over.shape)}")
    return _stored(codes, prefix, (rows, length), Floats4(codes, scales, over, divisor is not None))


def _stored(codes: Stored, prefix: str, shape: Sequence[int], payload: Payload) -> Stored:
    return Stored(f"{prefix}weight", TensorProto.FLOAT, tuple(shape), payload, codes.origin)


def _shape(found: Mapping[str, Stored], prefix: str) -> tuple[int, int]:
    """The shape that is written beside the words."""
    packed, item = found[f"{prefix}weight_packed"], found.get(f"{prefix}weight_shape")
    if item is None:
        raise _error(packed, f"needs a tensor {shown(f'{prefix}weight_shape')}")
    width = {TensorProto.INT64: "<i8", TensorProto.INT32: "<i4"}.get(item.dtype)
    if width is None or item.shape != (2,):
        raise _error(item, f"must be INT64 [2], and is {type_name(item.dtype)} {list(item.shape)}")
    rows, length = (int(size) for size in np.frombuffer(item.payload.tobytes(), width))
    if rows < 1 or length < 1:
        raise _error(item, f"says {[rows, length]}")
    return rows, length


def _told(config: Mapping[str, Any], key: str) -> set[int]:
    """What a config says of the weights of its groups."""
    groups = config.get("config_groups")
    rows = groups.values() if isinstance(groups, Mapping) else ()
    weights = [row.get("weights") for row in rows if isinstance(row, Mapping)]
    found = [item.get(key) for item in weights if isinstance(item, Mapping)]
    return {number for number in found if isinstance(number, int) and number > 0}


def _groups(scales: Stored, rows: int, length: int) -> int:
    """The number of scales of a row."""
    if scales.dtype not in FLOATS[:3]:
        raise _error(scales, f"must be floats, and is {type_name(scales.dtype)}")
    if element_count(scales.shape) == 1:
        return 1
    shape = scales.shape if len(scales.shape) == 2 else (*scales.shape, 1)
    if len(shape) != 2 or shape[0] != rows or not 0 < shape[1] <= length:
        raise _error(scales, f"has the shape {list(scales.shape)} for a weight of {[rows, length]}")
    return shape[1]


def _block(length: int, groups: int, config: Mapping[str, Any]) -> int:
    """How many neighbours share a scale; the last group of a row may be shorter, where the config gives the size."""
    if groups == 1:
        return length
    given = next((size for size in sorted(_told(config, "group_size")) if -(-length // size) == groups), None)
    return given or -(-length // groups)


def _floats(item: Stored, rows: int, groups: int) -> Floats:
    found = singles(memoryview(item.payload.tobytes()), item.dtype)
    return np.ascontiguousarray(np.broadcast_to(found.reshape(-1, groups), (rows, groups)))


class _Integers(CodedPayload):
    """Codes with scales, and zero points where there are any."""

    def __init__(
        self, codes: Stored, scales: Stored, zeros: Stored | None, shape: tuple[int, int], bits: int, block: int
    ) -> None:
        super().__init__(shape[0], shape[1], bits, block)
        self._codes, self._scale, self._zeros = codes, scales, zeros

    @property
    def sources(self) -> tuple[Payload, ...]:
        found = (self._codes, self._scale, self._zeros)
        return tuple(item.payload for item in found if item is not None)

    @property
    def identity(self) -> object:
        found = super().identity
        return None if found is None else (found, self._zeros is None, self.rows, self.length)

    def scales(self) -> Floats:
        return _floats(self._scale, self.rows, self.blocks)

    def zeros(self) -> Codes:
        if self._zeros is None:
            return np.full((self.rows, self.blocks), 1 << self.bits - 1, np.uint8)
        return np.ascontiguousarray(np.broadcast_to(self._zero_codes(self._zeros), (self.rows, self.blocks)))

    @abstractmethod
    def _zero_codes(self, zeros: Stored) -> Codes:
        """[rows, blocks], or what broadcasts to that."""


class Words(_Integers):
    """Codes of a row as a stream of bits in words; `places` says the group of each, where it is given."""

    def __init__(
        self,
        codes: Stored,
        scales: Stored,
        zeros: Stored | None,
        places: Stored | None,
        shape: tuple[int, int],
        bits: int,
        block: int,
    ) -> None:
        super().__init__(codes, scales, zeros, shape, bits, block)
        self._places = places

    @property
    def sources(self) -> tuple[Payload, ...]:
        return super().sources + (() if self._places is None else (self._places.payload,))

    def codes(self) -> Iterator[Codes]:
        width = self._codes.shape[1] * 4
        step = max(_STEP // self.length, 1) * width
        for part in whole(self._codes.payload, step, width):
            yield _unpacked(np.frombuffer(part, np.uint8).reshape(-1, width), self.bits, self.length)

    def groups(self) -> npt.NDArray[np.int64] | None:
        if self._places is None:
            return None
        found = np.frombuffer(self._places.payload.tobytes(), "<i4").astype(np.int64)
        if found.size and not 0 <= found.min() <= found.max() < self.blocks:
            raise _error(self._places, f"names groups from {found.min()} to {found.max()} of {self.blocks}")
        return None if np.array_equal(found, np.arange(self.length) // self.block) else found

    def _zero_codes(self, zeros: Stored) -> Codes:
        words = np.frombuffer(zeros.payload.tobytes(), "<u4").reshape(zeros.shape)
        octets = np.ascontiguousarray(words.T).view(np.uint8)
        return np.ascontiguousarray(_unpacked(octets, self.bits, self.rows).T)


class Octets(_Integers):
    """Signed bytes."""

    def __init__(self, codes: Stored, scales: Stored, zeros: Stored | None, block: int) -> None:
        super().__init__(codes, scales, zeros, (codes.shape[0], codes.shape[1]), 8, block)

    def codes(self) -> Iterator[Codes]:
        if self.rows and self.length:
            step = max(_STEP // self.length, 1) * self.length
            for part in whole(self._codes.payload, step, self.length):
                yield (np.frombuffer(part, np.uint8) ^ np.uint8(128)).reshape(-1, self.length)

    def _zero_codes(self, zeros: Stored) -> Codes:
        found: Codes = np.frombuffer(zeros.payload.tobytes(), np.uint8) ^ np.uint8(128)
        return found.reshape(-1, self.blocks)


class Floats4(CodedFloats):
    """Floats of 4 bits in blocks of 16, whose scales are floats of 8 bits with a scale of their own."""

    def __init__(self, codes: Stored, scales: Stored, over: Stored, divides: bool) -> None:
        super().__init__(codes.shape[0], codes.shape[1] * 2, TensorProto.FLOAT4E2M1, _BLOCK4)
        self._codes, self._scale, self._over, self._divides = codes, scales, over, divides

    @property
    def sources(self) -> tuple[Payload, ...]:
        return (self._codes.payload, self._scale.payload, self._over.payload)

    @property
    def identity(self) -> object:
        found = super().identity
        return None if found is None else (found, self._divides)

    def codes(self) -> Iterator[Codes]:
        width = self.length // 2
        if self.rows and width:
            for part in whole(self._codes.payload, max(_STEP // width, 1) * width, width):
                octets = np.frombuffer(part, np.uint8).reshape(-1, width)
                yield np.stack([octets & np.uint8(15), octets >> 4], axis=2).reshape(-1, self.length)

    def scale_codes(self) -> tuple[int, Codes, float]:
        """Their type, [rows, blocks] of codes, and the number that all are multiplied with."""
        over = np.frombuffer(self._over.payload.tobytes(), "<f4")[0]
        with np.errstate(divide="ignore"):
            number = np.float32(1) / over if self._divides else over
        found = np.frombuffer(self._scale.payload.tobytes(), np.uint8).reshape(self._scale.shape)
        return self._scale.dtype, found, float(number)

    def scales(self) -> Floats:
        dtype, found, over = self.scale_codes()
        with np.errstate(invalid="ignore", over="ignore"):
            made: Floats = values_of(found, dtype) * np.float32(over)
        return made


def _unpacked(octets: Codes, bits: int, count: int) -> Codes:
    """The first codes of each row of bytes, which are a stream of bits, low bits first."""
    if bits in (2, 4, 8):
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        made: Codes = (octets[:, :, None] >> shifts & np.uint8((1 << bits) - 1)).reshape(len(octets), -1)
        return made[:, :count]
    lanes = np.unpackbits(octets, axis=1, bitorder="little", count=count * bits).reshape(len(octets), count, bits)
    weights = (1 << np.arange(bits)).astype(np.uint8)
    found: Codes = (lanes * weights).sum(2, dtype=np.uint8)
    return found


def _error(item: Stored, reason: str) -> WeightsError:
    again = "save the checkpoint again with the library that quantized it, or without quantization"
    return WeightsError(f"{item.origin}: tensor {shown(item.name)} {reason}; {again}", code="weights-do-not-fit")
