"""onnx.numpy_helper: `proto_schema.numpy_helper`, with messages as protobuf has them, and ml_dtypes where it is there.

Tensors get copies of arrays, as in onnx: a later change of the array does not show.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from proto_schema import numpy_helper as ours
from proto_schema.compat.arrays import Array, packed, small_type, unpacked
from proto_schema.compat.messages import mannered, plain
from proto_schema.compat.modules.external_data_helper import _read_external_data_bytes
from proto_schema.external.payload import contiguous
from proto_schema.onnx import MapProto, OptionalProto, SequenceProto, TensorProto
from proto_schema.tensors.dtypes import by_numpy_name, dtype_of
from proto_schema.tensors.tensor_helper import np_dtype_to_tensor_dtype
from proto_schema.wire.fields import Message

__all__ = [
    "create_random_int",
    "from_array",
    "from_dict",
    "from_list",
    "from_optional",
    "saturate_cast",
    "to_array",
    "to_dict",
    "to_float8e8m0",
    "to_list",
    "to_optional",
    "tobytes_little_endian",
]

tobytes_little_endian = ours.tobytes_little_endian
_pack_4bitx2, _pack_2bitx4, _pack_6bit = partial(packed, bits=4), partial(packed, bits=2), partial(packed, bits=6)


def _unpack_4bit(data: Array, dims: Any) -> Array:
    return unpacked(data, 4, dims)


def _unpack_2bit(data: Array, dims: Any) -> Array:
    return unpacked(data, 2, dims)


def _unpack_6bit(data: Array, dims: Any) -> Array:
    return unpacked(data, 6, dims)


# -- tensors


def to_array(tensor: Any, base_dir: str | os.PathLike[str] = "") -> Array:
    """The values of a tensor, read-only where they are its bytes.

    `base_dir` is the folder of external data. Raises TypeError for an undefined data type, ValueError where data and
    shape do not fit, ValidationError for external data that must not be read.
    """
    core: TensorProto = plain(tensor)
    if core.segment is not None:
        raise ValueError("segments of tensors are not supported")
    if not core.data_type:
        raise TypeError(f"tensor {core.name or ''!r}: the element type is UNDEFINED")
    if core.data_location == TensorProto.EXTERNAL:
        data = _read_external_data_bytes(tensor, base_dir)
        core = TensorProto(name=core.name, data_type=core.data_type, dims=core.dims, raw_data=data)
    row = dtype_of(core.data_type)
    small = small_type(row)
    return ours.to_array(core) if small is None else ours.to_codes(core).view(small)


def from_array(array: Array, /, name: str | None = None) -> Any:
    """A tensor with the array's shape, type and values. Strings are those of arrays of str, bytes and objects."""
    if array.dtype.kind == "O":
        for item in array.flat:
            if not isinstance(item, (str, bytes)):
                raise NotImplementedError(f"a string tensor takes str and bytes, not {type(item).__name__}")
    np_dtype_to_tensor_dtype(array.dtype)  # ValueError for a type that ONNX lacks
    return mannered(_owning(ours.from_array(array, name)))


def _owning(made: Any) -> Any:
    """The message, whose tensors have bytes of their own."""
    for tensor in _tensors(made):
        if tensor.raw_data is not None:
            tensor.raw_data = bytes(contiguous(tensor.raw_data))
    return made


def _tensors(message: Message) -> list[TensorProto]:
    from proto_schema.external import tensors

    return tensors(message)


# -- sequences, maps, optionals


def to_list(sequence: Any) -> list[Any]:
    """The elements of a sequence. TypeError for other elements than tensors, sequences, maps and optionals."""
    core: SequenceProto = plain(sequence)
    kinds: dict[int | None, Any] = {
        SequenceProto.TENSOR: (core.tensor_values, to_array),
        SequenceProto.SEQUENCE: (core.sequence_values, to_list),
        SequenceProto.MAP: (core.map_values, to_dict),
        SequenceProto.OPTIONAL: (core.optional_values, to_optional),
    }
    if core.elem_type not in kinds:
        raise TypeError("The element type in the input sequence is not supported.")
    items, read = kinds[core.elem_type]
    return [read(item) for item in items]


def to_dict(map_proto: Any) -> dict[Any, Any]:
    """A map as a dict; string keys are bytes. IndexError where keys and values differ in number."""
    core: MapProto = plain(map_proto)
    keys: list[Any] = list(core.string_keys if core.key_type == TensorProto.STRING else core.keys)
    values = to_list(core.values or SequenceProto())
    if len(keys) != len(values):
        counts = f"{len(keys)} and {len(values)}"
        raise IndexError(f"the length of keys and values of the map {core.name or ''!r} are not the same: {counts}")
    return dict(zip(keys, values, strict=True))


def to_optional(optional: Any) -> Any | None:
    """The value of an optional, None where it is empty. TypeError for other kinds of values."""
    core: OptionalProto = plain(optional)
    kinds: dict[int, Any] = {
        OptionalProto.TENSOR: (core.tensor_value or TensorProto(), to_array),
        OptionalProto.SEQUENCE: (core.sequence_value or SequenceProto(), to_list),
        OptionalProto.MAP: (core.map_value or MapProto(), to_dict),
        OptionalProto.OPTIONAL: (core.optional_value or OptionalProto(), to_optional),
    }
    if not core.elem_type:
        return None
    if core.elem_type not in kinds:
        raise TypeError("The element type in the input optional is not supported.")
    value, read = kinds[core.elem_type]
    return read(value)


def from_list(lst: list[Any], name: str | None = None, dtype: int | None = None) -> Any:
    """A sequence of arrays, lists or dicts; see `proto_schema.numpy_helper`."""
    return mannered(_owning(ours.from_list(lst, name, dtype)))


def from_dict(dict_: dict[Any, Any], name: str | None = None) -> Any:
    """A map from a dict; see `proto_schema.numpy_helper`. TypeError: an unsupported map key type."""
    return mannered(_owning(ours.from_dict(dict_, name)))


def from_optional(opt: Any | None, name: str | None = None, dtype: int | None = None) -> Any:
    """An optional that holds an array, a list, a dict, or nothing; see `proto_schema.numpy_helper`."""
    return mannered(_owning(ours.from_optional(opt, name, dtype)))


# -- numbers


def saturate_cast(x: Array, dtype: Any) -> Array:
    """The array in another type; what is out of its range becomes the nearest number that it has."""
    wanted = np.dtype(dtype)
    row = by_numpy_name().get(wanted.name)
    if row is not None and row.bits in (2, 4) and row.numpy in ("i1", "u1"):
        lowest, highest = (
            (-(1 << row.bits - 1), (1 << row.bits - 1) - 1) if row.numpy == "i1" else (0, (1 << row.bits) - 1)
        )
        return np.clip(np.round(x), lowest, highest).astype(wanted)
    if wanted.kind in "iu":
        limits: Any = np.iinfo(wanted)
        return np.clip(np.round(x), limits.min, limits.max).astype(wanted)
    if row is not None and not row.native:
        largest = np.asarray(ours.to_array(_largest(row.code)), np.float32)
        return np.clip(x, -largest, largest).astype(wanted)
    limits = np.finfo(wanted)
    return np.clip(x, limits.min, limits.max).astype(wanted)


def _largest(code: int) -> TensorProto:
    """A tensor of the largest finite number of a small float type."""
    return ours.from_codes(np.array(_LARGEST[code]), code)


_LARGEST = {16: 0x7F7F, 17: 0x7E, 18: 0x7F, 19: 0x7B, 20: 0x7F, 23: 0x07, 24: 0xFE, 27: 0x1F, 28: 0x1F}


def to_float8e8m0(x: Array, saturate: bool = True, round_mode: str = "up") -> Array:
    """The powers of two near the values (as float32): above ("up"), below ("down"), or the nearest ("nearest").

    NaN and infinite values become NaN; without `saturate` so does what rounds beyond 2**127. The result has the type
    of ml_dtypes, or float32 without that package. OCP Microscaling Formats 1.0, 5.2.1.
    """
    if round_mode not in ("up", "down", "nearest"):
        raise ValueError(f"round_mode is 'up', 'down' or 'nearest', not {round_mode!r}")
    bits = np.asarray(x, np.float32).view(np.uint32)
    exponents = (bits >> 23 & 0xFF).astype(np.int64)
    fractions = bits & 0x7FFFFF
    half = 1 << 22
    if round_mode == "up":
        up = fractions > 0
    elif round_mode == "nearest":  # a tie goes up, but for subnormal numbers
        up = (fractions > half) | ((fractions == half) & (exponents > 0))
    else:
        up = np.zeros(exponents.shape, bool)
    finite = exponents < 0xFF
    if saturate:
        up &= exponents < 0xFE
    codes = np.where(finite, exponents + up, 0xFF).astype(np.uint8)
    small = small_type(dtype_of(TensorProto.FLOAT8E8M0))
    return ours.to_array(ours.from_codes(codes, TensorProto.FLOAT8E8M0)) if small is None else codes.view(small)


def create_random_int(input_shape: tuple[int, ...], dtype: Any, seed: int = 1) -> Array:
    """Random integers of numpy's generator with this seed, within the range of the type and of int32."""
    wanted = np.dtype(dtype)
    if wanted.kind not in "iu":
        raise TypeError(f"{dtype} is not supported by create_random_int: it is not an integer type")
    np.random.seed(seed)  # as onnx does, so that the numbers are the same
    limits, most = np.iinfo(wanted), np.iinfo(np.int32)
    return np.random.randint(max(limits.min, most.min), min(limits.max, most.max), size=input_shape).astype(wanted)
