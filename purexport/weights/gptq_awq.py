"""Codes in 32-bit words, as GPTQ and AWQ write them, with scales and zero points for groups of a column's codes.

    P.qweight [in * bits / 32, out], P.qzeros [groups, out * bits / 32], P.scales [groups, out], P.g_idx [in]   GPTQ
    P.qweight [in, out / 8], P.qzeros [groups, out / 8], P.scales [groups, out]                                AWQ

GPTQ's first format stores zero points less one, modulo the number of codes; its second one stores them as they are.
AWQ has the columns of a word in the order 0 2 4 6 1 3 5 7. What a tensor holds follows from these shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.external.payload import Payload
from proto_schema.onnx import TensorProto
from proto_schema.quantization.codes.coded import CodedPayload, Codes, Floats
from proto_schema.quantization.codes.elements import singles
from proto_schema.tensors.dtypes import type_name
from purexport.errors import WeightsError
from purexport.weights.stored import Stored, shown

Words: TypeAlias = npt.NDArray[np.uint32]

STEP = 1 << 20  # codes that are unpacked at once
_WORD = 32
_BITS = (2, 3, 4, 8)
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where in a word each column of eight is
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def words_of(found: Mapping[str, Stored], prefix: str, config: Mapping[str, Any]) -> Stored:
    """The weight of GPTQ's or AWQ's tensors with that prefix. WeightsError says what does not fit."""
    weight, zeros, scales = (found[prefix + tail] for tail in ("qweight", "qzeros", "scales"))
    for item, types in ((weight, (TensorProto.INT32,)), (zeros, (TensorProto.INT32,)), (scales, _FLOATS)):
        if item.dtype not in types or len(item.shape) != 2:
            wanted = "a matrix of " + " or ".join(type_name(code) for code in types)
            raise _error(item, f"must be {wanted}, and is {type_name(item.dtype)} {list(item.shape)}")
    groups, columns = scales.shape
    if not groups or not columns:
        raise _error(scales, f"must have elements, and is {list(scales.shape)}")
    if weight.shape[1] * 8 == columns and zeros.shape == (groups, weight.shape[1]):
        return _awq(weight, zeros, scales, config)
    bits, rest = divmod(zeros.shape[1] * _WORD, columns)
    if weight.shape[1] != columns or zeros.shape[0] != groups or rest or bits not in _BITS:
        shapes = ", ".join(f"{part} {list(item.shape)}" for part, item in _named(weight, zeros, scales))
        raise _error(weight, f"fits neither GPTQ nor AWQ of {_BITS} bits: {shapes}")
    method = str(config.get("quant_method", "gptq")).lower()
    layout = str(config.get("checkpoint_format", "gptq")).lower()
    if method != "gptq" or layout not in ("gptq", "gptq_v2"):
        raise _error(weight, f"has the layout {shown(layout)} of {shown(method)}, which is not known; {_SAVE_AS_GPTQ}")
    return _gptq(weight, zeros, scales, found.get(prefix + "g_idx"), bits, config)


_SAVE_AS_GPTQ = "save the checkpoint in the layout gptq"


def _named(*items: Stored) -> Iterator[tuple[str, Stored]]:
    return ((item.name.rpartition(".")[2], item) for item in items)


def _gptq(
    weight: Stored, zeros: Stored, scales: Stored, places: Stored | None, bits: int, config: Mapping[str, Any]
) -> Stored:
    length = weight.shape[0] * _WORD // bits
    if length * bits != weight.shape[0] * _WORD:
        raise _error(weight, f"has {weight.shape[0]} words a column, which are not whole codes of {bits} bits")
    if places is not None and (places.dtype != TensorProto.INT32 or places.shape != (length,)):
        raise _error(places, f"must be INT32 [{length}], and is {type_name(places.dtype)} {list(places.shape)}")
    made = GPTQ(weight, zeros, scales, places, bits, _block(scales, length, config))
    if not config:
        made.added = _zero_offset(made, zeros)
    elif str(config.get("checkpoint_format", "gptq")).lower() == "gptq_v2":
        made.added = 0
    return Stored(_weight_name(weight), TensorProto.FLOAT, (made.rows, length), made, weight.origin)


def _zero_offset(made: GPTQ, zeros: Stored) -> int:
    """What the zero points lack, where no config says it: those of symmetric codes are the middle of their range."""
    made.added = 0
    found = {int(value) for value in np.unique(made.zeros())}
    middle = 1 << made.bits - 1
    if found == {middle}:
        return 0
    if found == {middle - 1}:
        return 1
    raise _error(
        zeros,
        "may be zero points as they are or less one, and no quantization config says which; put the checkpoint's "
        "config.json or quantize_config.json beside it",
    )


def _awq(weight: Stored, zeros: Stored, scales: Stored, config: Mapping[str, Any]) -> Stored:
    version = str(config.get("version", "gemm")).lower()
    if version != "gemm":
        raise _error(weight, f"has the version {shown(version)} of AWQ; save the checkpoint in the version gemm")
    length = weight.shape[0]
    made = AWQ(weight, zeros, scales, _block(scales, length, config))
    return Stored(_weight_name(weight), TensorProto.FLOAT, (made.rows, length), made, weight.origin)


def _block(scales: Stored, length: int, config: Mapping[str, Any]) -> int:
    """How many neighbours share a scale. The last group of a row may be shorter, where the config gives the size."""
    groups = scales.shape[0]
    given = config.get("group_size", config.get("q_group_size"))
    if isinstance(given, int) and given > 0 and -(-length // given) == groups:
        return given
    if length % groups:
        raise _error(scales, f"has {groups} groups for rows of {length} codes, and no config says their size")
    return length // groups


def _weight_name(item: Stored) -> str:
    return item.name.rpartition(".")[0] + ".weight"


def _error(item: Stored, reason: str) -> WeightsError:
    return WeightsError(f"{item.origin}: tensor {shown(item.name)} {reason}", code="weights-do-not-fit")


def _words(item: Stored) -> Words:
    return np.frombuffer(item.payload.tobytes(), "<u4").astype(np.uint32, copy=False).reshape(item.shape)


def _floats(item: Stored) -> Floats:
    return singles(memoryview(item.payload.tobytes()), item.dtype).reshape(item.shape)


def _split(words: Words, bits: int) -> Codes:
    """The codes in rows of words, the low bits first: [rows, words] -> [rows, words * 32 / bits]."""
    octets = np.ascontiguousarray(words.astype("<u4", copy=False)).view(np.uint8)
    rows = len(octets)
    if bits == 8:
        return octets
    if bits == 3:
        lanes = np.unpackbits(octets, axis=1, bitorder="little").reshape(rows, -1, 3)
        weights = np.array([1, 2, 4], np.uint8)
        made: Codes = (lanes * weights).sum(2, dtype=np.uint8)
        return made
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts: Codes = octets[:, :, None] >> shifts & np.uint8((1 << bits) - 1)
    return parts.reshape(rows, -1)


class _Packed(CodedPayload):
    """Codes that lie by columns in words; `scales` and `zeros` lie by groups."""

    def __init__(self, weight: Stored, zeros: Stored, scales: Stored, length: int, bits: int, block: int) -> None:
        super().__init__(scales.shape[1], length, bits, block)
        self._weight, self._zeros, self._scale = weight, zeros, scales

    @property
    def sources(self) -> tuple[Payload, ...]:
        return (self._weight.payload, self._zeros.payload, self._scale.payload)

    def scales(self) -> Floats:
        return np.ascontiguousarray(_floats(self._scale).T)


class GPTQ(_Packed):
    """Codes of a column behind each other in words; `places` says the group of each, where it is given."""

    added = 1

    def __init__(
        self, weight: Stored, zeros: Stored, scales: Stored, places: Stored | None, bits: int, block: int
    ) -> None:
        super().__init__(weight, zeros, scales, weight.shape[0] * _WORD // bits, bits, block)
        self._places = places

    @property
    def sources(self) -> tuple[Payload, ...]:
        return super().sources + (() if self._places is None else (self._places.payload,))

    @property
    def identity(self) -> object:
        found = super().identity
        return None if found is None else (found, self.added)

    def zeros(self) -> Codes:
        stored = _split(_words(self._zeros), self.bits).T
        return np.ascontiguousarray((stored + np.uint8(self.added)) & np.uint8((1 << self.bits) - 1))

    def codes(self) -> Iterator[Codes]:
        words = _words(self._weight)
        step = max(STEP // max(self.length, 1), 1)
        for first in range(0, self.rows, step):
            yield _split(np.ascontiguousarray(words[:, first : first + step].T), self.bits)

    def groups(self) -> npt.NDArray[np.int64] | None:
        if self._places is None:
            return None
        found = _words(self._places).view(np.int32).astype(np.int64)
        if found.size and not 0 <= found.min() <= found.max() < self._scale.shape[0]:
            raise _error(self._places, f"names groups from {found.min()} to {found.max()} of {self._scale.shape[0]}")
        return None if np.array_equal(found, np.arange(self.length) // self.block) else found


class AWQ(_Packed):
    """Codes of eight columns in a word, in an order of their own."""

    def __init__(self, weight: Stored, zeros: Stored, scales: Stored, block: int) -> None:
        super().__init__(weight, zeros, scales, weight.shape[0], 4, block)

    def zeros(self) -> Codes:
        return np.ascontiguousarray(_in_order(_words(self._zeros)).T)

    def codes(self) -> Iterator[Codes]:
        words = _words(self._weight)
        step = max(STEP // max(self.length, 1) // 8, 1)
        for first in range(0, words.shape[1], step):
            yield np.ascontiguousarray(_in_order(words[:, first : first + step]).T)


def _in_order(words: Words) -> Codes:
    """The columns of AWQ's words: [rows, words] -> [rows, words * 8]."""
    codes = _split(words, 4)
    return codes.reshape(len(codes), -1, 8)[:, :, list(_AWQ_ORDER)].reshape(len(codes), -1)
