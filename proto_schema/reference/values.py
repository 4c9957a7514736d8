"""Values of a run: what a caller gives becomes an array with the code of its type, and a result is brought to its type.

A tensor of a type that numpy lacks is an array of a wider type (`dtypes.DTYPES[code].numpy`) whose values are all
values of the type. A row of `proto_schema.compute` may compute beyond them, and `settled` rounds its result.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from proto_schema.compute.call import NOTHING, Array, Nothing, Typed, Value
from proto_schema.onnx import MapProto, OptionalProto, SequenceProto, SparseTensorProto, TensorProto, TypeProto
from proto_schema.tensors.arrays import from_array, to_array
from proto_schema.tensors.dtypes import DTYPES, by_numpy_name
from proto_schema.tensors.rounding import rounded
from proto_schema.tensors.sparse import dense

__all__ = ["code_of", "described", "given", "plain", "settled", "typed"]

_STRING = TensorProto.STRING
_NATIVE: dict[Any, int] = {np.dtype(row.numpy): row.code for row in DTYPES.values() if row.native}
_TARGET: dict[int, np.dtype[Any]] = {row.code: np.dtype(row.numpy) for row in DTYPES.values()}


def code_of(value: Any) -> int:
    """The code of a tensor's data type, as far as numpy's type tells it; 0 for what is no tensor."""
    if isinstance(value, Typed):
        return value.dtype
    if not isinstance(value, np.ndarray):
        return 0
    return _NATIVE.get(value.dtype, _STRING if value.dtype.kind in "OUST" else 0)


def typed(value: Any, code: int) -> Value:
    """The value with its code, where its array does not tell that."""
    if code and isinstance(value, np.ndarray) and not DTYPES[code].native and code != _STRING:
        return Typed(value, code)
    result: Value = value
    return result


def settled(value: Any, code: int) -> Array:
    """A result as an array of the data type: cast to its numpy type, and rounded where numpy does not have the type."""
    array = np.asarray(value)
    if code == _STRING:
        return array if array.dtype.kind == "O" else array.astype(object)
    target = _TARGET[code]
    if array.dtype != target:
        if array.dtype.kind == "c" and target.kind != "c":
            array = array.real
        array = array.astype(target)
    return array if code in _NATIVE_CODES else rounded(array, code)


_NATIVE_CODES = frozenset(_NATIVE.values())


@cache
def _wide(code: int) -> bool:
    return code not in _NATIVE_CODES and code != _STRING


def given(value: Any, declared: TypeProto | None) -> Value:
    """What a caller passes for an input, as a value of the declared type. Raises TypeError where it is of another."""
    if isinstance(value, (Typed, Nothing)):
        return value
    kind = None if declared is None else declared.WhichOneof("value")
    if declared is not None and kind == "optional_type":
        held = declared.optional_type
        if value is None or isinstance(value, OptionalProto):
            value = None if value is None else _optional(value)
            if value is None:
                return NOTHING
        return given(value, held.elem_type if held is not None else None)
    if value is None:
        return NOTHING
    if isinstance(value, SequenceProto):
        value = _sequence(value)
    elif isinstance(value, MapProto):
        value = _map(value)
    if isinstance(value, dict) or kind == "map_type":
        member = declared.map_type.value_type if declared is not None and declared.map_type is not None else None
        code = _known(member.tensor_type.elem_type if member is not None and member.tensor_type is not None else 0)
        kept = None if code in (0, _STRING) else _TARGET[code]
        return {
            _key(key): np.asarray(item, kept)[()] if np.ndim(item) == 0 else item for key, item in dict(value).items()
        }
    if kind == "sequence_type" or (kind is None and isinstance(value, (list, tuple))):
        inner = None if declared is None else declared.sequence_type
        return [given(item, inner.elem_type if inner is not None else None) for item in value]
    code = 0
    if declared is not None and declared.tensor_type is not None:
        code = _known(declared.tensor_type.elem_type)
    elif declared is not None and declared.sparse_tensor_type is not None:
        code = _known(declared.sparse_tensor_type.elem_type)
    return tensor(value, code)


def _known(code: int | None) -> int:
    """The code of a data type, 0 for none. Raises TypeError for one that does not exist."""
    if code and code not in DTYPES:
        raise TypeError(f"the model declares it to be of the data type {code}, which does not exist: correct the file")
    return code or 0


def _key(key: Any) -> Any:
    return key.decode() if isinstance(key, bytes) else key


def tensor(value: Any, code: int) -> Value:
    """An array, number, list or TensorProto as a tensor of this data type; 0 leaves the type to the value."""
    if isinstance(value, SparseTensorProto):
        value, stored = dense(value)
    elif isinstance(value, TensorProto):
        value, stored = to_array(value), value.data_type or 0
    elif isinstance(value, np.ndarray) or np.isscalar(value):
        stored = 0
    else:
        return (
            tensor(np.asarray(value), code) if _as_is(value, code) else tensor(np.asarray(value, _TARGET[code]), code)
        )
    array = np.asarray(value)
    if array.dtype.kind in "OUST":
        if code not in (0, _STRING):
            raise TypeError(f"it holds text or objects, and the model takes {DTYPES[code].text}")
        return _texts(array)
    found = stored or _NATIVE.get(array.dtype, 0)
    if not found:  # an array of the package ml_dtypes, or in the other byte order
        row = by_numpy_name().get(array.dtype.name)
        if row is None:
            raise TypeError(f"ONNX has no tensors of numpy's {array.dtype}")
        array = array.astype(row.numpy) if row.native else to_array(from_array(array))
        found = row.code
    code = code or found
    if found == code:
        return typed(array, code)
    if _wide(code) and array.dtype == _TARGET[code]:
        return Typed(rounded(array, code), code)
    if not isinstance(value, np.ndarray):  # Python's numbers have no width
        return typed(settled(array, code), code)
    raise TypeError(
        f"it is {DTYPES[found].text}, and the model takes {DTYPES[code].text}; "
        f"cast it with .astype({_TARGET[code].name!r})"
    )


def _as_is(value: Any, code: int) -> bool:
    """Whether numpy finds the type of a value that is no array: it has one of its own, or none is declared."""
    return not code or hasattr(value, "__array__") or hasattr(value, "dtype")


def _texts(array: Array) -> Array:
    texts = np.empty(array.size, object)
    texts[:] = [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in array.ravel().tolist()]
    return texts.reshape(array.shape)


def _sequence(value: SequenceProto) -> list[Any]:
    kinds: dict[int, list[Any]] = {
        SequenceProto.TENSOR: value.tensor_values,
        SequenceProto.SPARSE_TENSOR: value.sparse_tensor_values,
        SequenceProto.SEQUENCE: value.sequence_values,
        SequenceProto.MAP: value.map_values,
        SequenceProto.OPTIONAL: value.optional_values,
    }
    return kinds.get(value.elem_type or 0, [])


def _map(value: MapProto) -> dict[Any, Any]:
    keys: list[Any] = list(value.string_keys or value.keys)
    held = _sequence(value.values) if value.values is not None else []
    return {key: to_array(item) for key, item in zip(keys, held, strict=True)}


def _optional(value: OptionalProto) -> Any:
    fields = (
        value.tensor_value,
        value.sparse_tensor_value,
        value.sequence_value,
        value.map_value,
        value.optional_value,
    )
    return next((item for item in fields if item is not None), None)


def plain(value: Any) -> Any:
    """The value as callers get it: arrays, lists, dicts; None for an optional without an element."""
    if isinstance(value, Typed):
        return value.array
    if isinstance(value, list):
        return [plain(item) for item in value]
    return None if isinstance(value, Nothing) else value


def described(value: Any, code: int = 0) -> str:
    """The type and shape of a value in a few words, for messages."""
    if isinstance(value, Typed):
        return described(value.array, value.dtype)
    if isinstance(value, np.ndarray):
        row = DTYPES.get(code or code_of(value))
        return f"{row.text if row else value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    if isinstance(value, dict):
        return f"a map of {len(value)}"
    return "nothing" if value is None else repr(value)[:40]
