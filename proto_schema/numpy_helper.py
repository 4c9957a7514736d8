"""Tensors, sequences, maps and optionals to Python values and back, with the names and arguments of onnx.numpy_helper.

Where onnx.numpy_helper returns arrays of the package ml_dtypes, `to_array` returns the same values in the nearest
numpy type (float32, int8, uint8); `to_codes` gives the bits. See `dtypes` and `tensors`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema.onnx import MapProto, OptionalProto, SequenceProto, TensorProto
from proto_schema.tensors.arrays import from_array, from_codes, to_array, to_codes

__all__ = [
    "from_array",
    "from_codes",
    "from_dict",
    "from_list",
    "from_optional",
    "to_array",
    "to_codes",
    "to_dict",
    "to_list",
    "to_optional",
    "tobytes_little_endian",
]

_INTEGERS = frozenset(
    {
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
    }
)


def tobytes_little_endian(array: npt.NDArray[Any]) -> bytes:
    """The array's bytes in C order, little-endian on every machine."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def to_list(sequence: SequenceProto) -> list[Any]:
    """The elements of a sequence as arrays, lists, dicts or optionals. TypeError for sparse elements."""
    kind = sequence.elem_type
    if kind == SequenceProto.TENSOR:
        return [to_array(value) for value in sequence.tensor_values]
    if kind == SequenceProto.SEQUENCE:
        return [to_list(value) for value in sequence.sequence_values]
    if kind == SequenceProto.MAP:
        return [to_dict(value) for value in sequence.map_values]
    if kind == SequenceProto.OPTIONAL:
        return [to_optional(value) for value in sequence.optional_values]
    raise TypeError(f"a sequence of element type {kind} has no Python form")


def from_list(lst: list[Any], name: str | None = None, dtype: int | None = None) -> SequenceProto:
    """A sequence of arrays (or what numpy makes arrays of), lists or dicts, all of one Python type.

    `dtype`, a SequenceProto.DataType, is needed only for an empty list that is no sequence of tensors.
    """
    if lst and not all(isinstance(item, type(lst[0])) for item in lst):
        raise TypeError("the elements of a sequence must all have the same type")
    kind = _element_kind(lst) if dtype is None else dtype
    sequence = SequenceProto(name=name or None, elem_type=kind)
    if kind == SequenceProto.TENSOR:
        sequence.tensor_values = [from_array(np.asarray(item)) for item in lst]
    elif kind == SequenceProto.SEQUENCE:
        sequence.sequence_values = [from_list(item) for item in lst]
    elif kind == SequenceProto.MAP:
        sequence.map_values = [from_dict(item) for item in lst]
    else:
        raise TypeError(f"a sequence of element type {kind} cannot be made from a list")
    return sequence


def _element_kind(lst: list[Any]) -> int:
    if lst and isinstance(lst[0], dict):
        return SequenceProto.MAP
    if lst and isinstance(lst[0], list):
        return SequenceProto.SEQUENCE
    return SequenceProto.TENSOR


def to_dict(map_proto: MapProto) -> dict[Any, Any]:
    """A map as a dict; string keys stay bytes, as in onnx. IndexError where keys and values differ in number."""
    keys: list[Any] = list(map_proto.string_keys if map_proto.key_type == TensorProto.STRING else map_proto.keys)
    values = to_list(map_proto.values) if map_proto.values is not None else []
    if len(keys) != len(values):
        raise IndexError(f"map {map_proto.name or ''!r} has {len(keys)} keys and {len(values)} values")
    return dict(zip(keys, values, strict=True))


def from_dict(dict_: dict[Any, Any], name: str | None = None) -> MapProto:
    """A map from a dict whose keys (integers or str) and values have one numpy type each; ValueError if it is empty."""
    if not dict_:
        raise ValueError("an empty dict has no key type and cannot become a map")
    keys, values = list(dict_), list(dict_.values())
    if len({_type(key) for key in keys}) > 1:
        raise TypeError("the keys of a map must all have the same type")
    if len({_type(value) for value in values}) > 1:
        raise TypeError("the values of a map must all have the same type")
    kind = from_array(np.asarray(keys)).data_type
    result = MapProto(name=name or None, key_type=kind, values=from_list(values))
    if kind == TensorProto.STRING:
        result.string_keys = [key.encode() if isinstance(key, str) else key for key in keys]
    elif kind in _INTEGERS:
        result.keys = [int(key) for key in keys]
    else:
        raise TypeError(f"a map cannot have keys of type {_type(keys[0])}")
    return result


def _type(value: Any) -> object:
    """What the keys, and the values, of one map have in common: text, or numpy's dtype."""
    return str if isinstance(value, str) else np.asarray(value).dtype


def to_optional(optional: OptionalProto) -> Any | None:
    """The value of an optional, or None where it is empty. TypeError for sparse element types."""
    kind = optional.elem_type or OptionalProto.UNDEFINED
    if kind == OptionalProto.UNDEFINED:
        return None
    if kind == OptionalProto.TENSOR:
        return to_array(optional.tensor_value or TensorProto())
    if kind == OptionalProto.SEQUENCE:
        return to_list(optional.sequence_value or SequenceProto())
    if kind == OptionalProto.MAP:
        return to_dict(optional.map_value or MapProto())
    if kind == OptionalProto.OPTIONAL:
        return to_optional(optional.optional_value or OptionalProto())
    raise TypeError(f"an optional of element type {kind} has no Python form")


def from_optional(opt: Any | None, name: str | None = None, dtype: int | None = None) -> OptionalProto:
    """An optional that holds an array, a list or a dict, or nothing for None.

    `dtype`, an OptionalProto.DataType, says what an empty optional would hold.
    """
    if dtype is not None and dtype not in set(OptionalProto.DataType):
        raise TypeError(f"{dtype} is not an OptionalProto.DataType")
    kind = _optional_kind(opt) if dtype is None else dtype
    optional = OptionalProto(name=name or None, elem_type=kind)
    if opt is None:
        return optional
    if kind == OptionalProto.TENSOR:
        optional.tensor_value = from_array(opt)
    elif kind == OptionalProto.SEQUENCE:
        optional.sequence_value = from_list(opt)
    elif kind == OptionalProto.MAP:
        optional.map_value = from_dict(opt)
    else:
        raise TypeError(f"an optional of element type {kind} cannot hold a {type(opt).__name__}")
    return optional


def _optional_kind(opt: Any | None) -> int:
    if opt is None:
        return OptionalProto.UNDEFINED
    if isinstance(opt, dict):
        return OptionalProto.MAP
    return OptionalProto.SEQUENCE if isinstance(opt, list) else OptionalProto.TENSOR
