"""make_tensor and the tables of data types, with the names and arguments of onnx.helper.

make_tensor stores values as given: numbers in the typed list of the data type (`raw=False`), bytes or an array's memory
in `raw_data` (`raw=True`). Types that numpy lacks are rounded here, see `minifloat`. Where onnx.helper answers with a
dtype of the package ml_dtypes, `tensor_dtype_to_np_dtype` gives the numpy type that holds the values, see `dtypes`.
"""

from __future__ import annotations

import math
from collections.abc import KeysView, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.external.payload import BytesLike, Payload, byte_view, nbytes
from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import from_codes
from proto_schema.tensors.dtypes import DTYPES, DType, by_numpy_name, dtype_of
from proto_schema.tensors.minifloat import FORMATS, bfloat16_codes, codes, float8e8m0_codes

__all__ = [
    "get_all_tensor_dtypes",
    "make_tensor",
    "np_dtype_to_tensor_dtype",
    "tensor_dtype_to_field",
    "tensor_dtype_to_np_dtype",
    "tensor_dtype_to_storage_tensor_dtype",
    "tensor_dtype_to_string",
]

Array: TypeAlias = npt.NDArray[Any]

_STORAGE = {  # the data type for which a typed list is named
    "float_data": TensorProto.FLOAT,
    "int32_data": TensorProto.INT32,
    "int64_data": TensorProto.INT64,
    "string_data": TensorProto.STRING,
    "double_data": TensorProto.DOUBLE,
    "uint64_data": TensorProto.UINT64,
}


def make_tensor(name: str, data_type: int, dims: Sequence[int], vals: Any, raw: bool = False) -> TensorProto:
    """A tensor of shape `dims`.

    `vals`: numbers or strings in C order, nested or not; with `raw`, the bytes as files hold them (any bytes-like, or a
    Payload), or an array whose memory they are: neither is copied. Of an array of a type below a byte, the low bits of
    each element are packed. Raises ValueError where their number is not that of the shape, TypeError for an unknown
    data type and for raw strings.
    """
    row = dtype_of(data_type)
    tensor = TensorProto(name=name, data_type=row.code, dims=[int(size) for size in dims])
    if raw:
        tensor.raw_data = _raw(name, row, tensor.dims, vals)
        return tensor
    flat = _strings(vals) if row.bits == 0 else _numbers(row, vals)
    if len(flat) != math.prod(tensor.dims):
        needed = math.prod(tensor.dims)
        raise ValueError(f"tensor {name!r}: {len(flat)} values for the shape {tensor.dims}, which needs {needed}")
    setattr(tensor, row.field, flat if isinstance(flat, list) else _entries(row, flat))
    return tensor


def _raw(name: str, row: DType, dims: Sequence[int], vals: Any) -> BytesLike:
    if row.bits == 0:
        raise TypeError(f"tensor {name!r}: strings cannot be stored in raw_data; pass raw=False")
    if isinstance(vals, np.ndarray):
        data = _array_bytes(row, vals)
    elif isinstance(vals, (bytes, bytearray, memoryview, Payload)):
        data = vals
    else:
        raise TypeError(f"tensor {name!r}: raw data is bytes-like, a Payload or an array, not a {type(vals).__name__}")
    expected = row.nbytes(math.prod(dims))
    if nbytes(data) != expected:
        raise ValueError(f"tensor {name!r}: {nbytes(data)} bytes for {row.name} {list(dims)}, which needs {expected}")
    return data


def _array_bytes(row: DType, array: Array) -> BytesLike:
    if row.bits < 8:
        packed = from_codes(np.ascontiguousarray(array).view(np.uint8), row.code).raw_data
        return b"" if packed is None else packed
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return byte_view(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)


def _strings(vals: Any) -> list[bytes]:
    flat = np.array(vals, dtype=object).ravel().tolist()
    return [item.encode() if isinstance(item, str) else item for item in flat]


def _numbers(row: DType, vals: Any) -> Array:
    """The values, one an element: of the numpy type, or as codes."""
    if row.native:
        return np.asarray(vals, dtype=row.numpy).ravel()
    values = np.asarray(vals).ravel()
    if row.code == TensorProto.BFLOAT16:
        return bfloat16_codes(values)
    if row.code == TensorProto.FLOAT8E8M0:
        return float8e8m0_codes(values)
    if row.code in FORMATS:
        return codes(values, FORMATS[row.code])
    return values.astype(np.int64).astype(np.uint8)


def _entries(row: DType, flat: Array) -> list[Any]:
    """The entries of the typed list: parts of complex numbers, bit patterns, two or four small integers in one."""
    if row.bits in (2, 4):
        packed = from_codes(flat, row.code).raw_data
        return [] if packed is None else list(bytes(packed))
    if flat.dtype.kind == "c":
        flat = flat.view(f"<f{flat.dtype.itemsize // 2}")
    elif flat.dtype == np.float16:
        flat = flat.view("<u2")
    elif flat.dtype == np.bool_:
        flat = flat.view(np.uint8)
    entries: list[Any] = flat.tolist()
    return entries


# -- data types --------------------------------------------------------------------------------------------------------


def tensor_dtype_to_np_dtype(tensor_dtype: int) -> np.dtype[Any]:
    """The numpy type that holds the values: float32 for the small floats, (u)int8 for the 4- and 2-bit integers."""
    return np.dtype(dtype_of(tensor_dtype).numpy)


def tensor_dtype_to_storage_tensor_dtype(tensor_dtype: int) -> int:
    """The data type after which the typed list is named that holds the values."""
    return _STORAGE[dtype_of(tensor_dtype).field]


def tensor_dtype_to_string(tensor_dtype: int) -> str:
    """`TensorProto.FLOAT` for 1."""
    return f"TensorProto.{dtype_of(tensor_dtype).name}"


def tensor_dtype_to_field(tensor_dtype: int) -> str:
    """The name of the typed list that holds the values: `int32_data` for FLOAT16."""
    return dtype_of(tensor_dtype).field


def np_dtype_to_tensor_dtype(np_dtype: npt.DTypeLike) -> int:
    """The data type of a numpy type; those of the package ml_dtypes are known by name. ValueError for any other."""
    dtype = np.dtype(np_dtype)
    row = by_numpy_name().get(dtype.name)
    if row is not None:
        return row.code
    if dtype.kind == "U":
        return TensorProto.STRING
    raise ValueError(f"ONNX has no tensor type for numpy's {dtype}")


def get_all_tensor_dtypes() -> KeysView[int]:
    """The codes of all data types."""
    return DTYPES.keys()
