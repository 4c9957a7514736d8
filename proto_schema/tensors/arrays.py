"""TensorProto <-> numpy: every data type, both storages, without a copy wherever the bytes allow it.

Three steps, each a function: the bytes of a tensor (raw, typed or external) become one code per element, and codes
become values. Native types skip the middle: their array is a view of the bytes (of the mapped file, after `load`),
read-only where these are, and perhaps unaligned. Types that numpy lacks come as documented in `dtypes`: `to_array`
gives values, `to_codes` the bit patterns, and the way back takes either.
Sizes are checked against the shape before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.errors import DecodeError
from proto_schema.external.payload import BytesLike, LazyPayload, byte_view, contiguous, nbytes
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import MOST_ELEMENTS, DType, by_numpy_name, dtype_of, element_count
from proto_schema.tensors.minifloat import FORMATS, Format, bfloat16_codes, codes, float8e8m0_codes
from proto_schema.wire.fields import numbers

if TYPE_CHECKING:
    from os import PathLike

Array: TypeAlias = npt.NDArray[Any]
BFLOAT16, FLOAT8E8M0 = TensorProto.BFLOAT16, TensorProto.FLOAT8E8M0
LISTS = {"int32_data": "<i4", "int64_data": "<i8", "uint64_data": "<u8", "float_data": "<f4", "double_data": "<f8"}
COPY_BELOW = 1 << 16  # a strided array of fewer bytes is copied at once, a larger one when it is written


def to_array(tensor: TensorProto, base_dir: str | PathLike[str] = "") -> Array:
    """The tensor's values as an array of its shape; of the dtype that the tensor's row in `dtypes` names.

    STRING gives an object array of str (bytes where they are no UTF-8). `base_dir` is the folder of external data;
    it defaults to the one that the tensor was loaded from, else the current folder. Raises TypeError for an unknown
    data type, DecodeError (a ValueError) where data and shape do not fit, ExternalDataError for an unsafe file.
    """
    row = dtype_of(tensor.data_type)
    if row.bits == 0:
        return _strings(tensor, row)
    if row.native:
        return _native(tensor, row, base_dir)
    return _values(to_codes(tensor, base_dir), row)


def to_codes(tensor: TensorProto, base_dir: str | PathLike[str] = "") -> Array:
    """The tensor's bit patterns, one an element: unsigned, low bits used (uint16 for bfloat16, else uint8).

    Native types of up to 64 bits come as unsigned integers of their width. Raises as `to_array`; TypeError for STRING.
    """
    row = dtype_of(tensor.data_type)
    if row.bits == 0:
        raise TypeError(f"{_name(tensor)}: strings have no bit patterns")
    if row.native:
        return np.asarray(_native(tensor, row, base_dir), order="C").view(row.codes)
    count = _count(tensor)
    data = _raw(tensor, row, count, base_dir)
    if data is not None:
        octets: Array = np.frombuffer(data, row.codes if row.bits >= 8 else np.uint8)
        found = octets if row.bits >= 8 else _unpacked(octets, row.bits, count)
    else:
        found = _typed_codes(tensor, row, count)
    return _shaped(found, tensor)


def from_array(array: Array, name: str | None = None, data_type: int | None = None) -> TensorProto:
    """A tensor with the array's shape and values. A contiguous array is not copied: later changes of it show.

    Without `data_type` the array's own type decides; arrays of ml_dtypes types, str, bytes and objects are understood.
    With it, floats are rounded to the small float types (nearest, ties to even, saturating) and integers are cast.
    Raises TypeError for an array type that ONNX lacks, ValueError for a value that `data_type` cannot hold.
    """
    array = np.asarray(array)
    if array.dtype.kind in "OUS" and data_type in (None, TensorProto.STRING):
        strings = [_string_bytes(item) for item in array.ravel().tolist()]
        return _tensor(name, TensorProto.STRING, array.shape, string_data=strings)
    own = by_numpy_name().get(array.dtype.name)
    if data_type is None and own is None:
        raise TypeError(f"ONNX has no tensor type for numpy's {array.dtype}; cast the array first")
    row = own if data_type is None or own is None else dtype_of(data_type)
    if row is None or row.bits == 0:
        raise TypeError(f"an array of {array.dtype} cannot become a tensor of data type {data_type}")
    if row.native:
        return _tensor(name, row.code, array.shape, raw_data=_array_payload(array, row))
    if own is row:  # an ml_dtypes array: its elements are the codes, signs extended
        return from_codes(array.view(row.codes), row.code, name)
    return from_codes(_codes(array, row), row.code, name)


def from_codes(array: Array, data_type: int, name: str | None = None) -> TensorProto:
    """A tensor of the array's shape whose elements are the array's low bits, as `to_codes` gives them.

    For a native type the array's items must have its width. Bits above the type's width are dropped.
    """
    row = dtype_of(data_type)
    array = np.asarray(array)
    if row.native:
        return _tensor(name, row.code, array.shape, raw_data=_array_payload(array.view(row.numpy), row))
    if row.bits >= 8:
        data = _array_payload(array.astype(row.codes, copy=False), row)
        return _tensor(name, row.code, array.shape, raw_data=data)
    packed = _packed(array.astype(np.uint8).ravel(), row.bits)
    return _tensor(name, row.code, array.shape, raw_data=packed.data)


# ---- reading


def _native(tensor: TensorProto, row: DType, base_dir: str | PathLike[str]) -> Array:
    count = _count(tensor)
    data = _raw(tensor, row, count, base_dir)
    if data is not None:
        return _shaped(np.frombuffer(data, row.numpy) if count else np.empty(0, row.numpy), tensor)
    parts = 2 if row.numpy.startswith("<c") else 1
    values = _typed(tensor, row, count * parts)
    if parts == 2:
        return _shaped(np.array(values, LISTS[row.field]).view(row.numpy), tensor)
    if row.name == "FLOAT16":
        return _shaped(_as_codes(values, np.uint16).view("<f2"), tensor)
    return _shaped(np.array(values, LISTS[row.field]).astype(row.numpy, copy=False), tensor)


def _strings(tensor: TensorProto, row: DType) -> Array:
    values = _typed(tensor, row, _count(tensor))
    array = np.empty(len(values), object)
    array[:] = [_text(value) for value in values]
    return _shaped(array, tensor)


def _shaped(array: Array, tensor: TensorProto) -> Array:
    """The array in the tensor's shape. DecodeError for what numpy has no arrays of: 65 axes (33 before numpy 2)."""
    try:
        return array.reshape(tensor.dims)
    except ValueError as error:
        raise DecodeError(f"{_name(tensor)}: numpy has no arrays of the shape {tensor.dims}: {error}") from None


def _raw(tensor: TensorProto, row: DType, count: int, base_dir: str | PathLike[str]) -> memoryview | bytes | None:
    """The bytes in `raw_data` or in the external file, checked against the shape; None for typed storage."""
    if tensor.segment is not None:
        raise DecodeError(f"{_name(tensor)} is a segment of a tensor, which no released tool writes")
    if tensor.data_location == TensorProto.EXTERNAL:
        from proto_schema.external import external_view

        return contiguous(external_view(tensor, base_dir, row.nbytes(count)))
    if tensor.raw_data is None:
        return None
    if nbytes(tensor.raw_data) != row.nbytes(count):
        needs = f"{row.name} {tensor.dims} needs {row.nbytes(count)}"
        raise DecodeError(f"{_name(tensor)}: raw_data has {nbytes(tensor.raw_data)} bytes, but {needs}")
    return contiguous(tensor.raw_data)


def _typed(tensor: TensorProto, row: DType, count: int) -> Any:
    """The entries of the field for that type, as a list or an array."""
    values = numbers(tensor, row.field)
    if len(values) != count:
        needs = f"{row.name} {tensor.dims} needs {count}"
        raise DecodeError(
            f"{_name(tensor)}: {row.field} has {len(values)} entries and there is no raw_data, but {needs}"
        )
    return values


def _typed_codes(tensor: TensorProto, row: DType, count: int) -> Array:
    """int32_data holds one code an entry, of the 4- and 2-bit types two and four."""
    per_entry = 8 // row.bits if row.bits in (2, 4) else 1
    found = _as_codes(_typed(tensor, row, -(-count // per_entry)), row.codes)
    if per_entry > 1:
        return _unpacked(found, row.bits, count)
    return found & 0x3F if row.bits == 6 else found


def _as_codes(values: Any, dtype: npt.DTypeLike) -> Array:
    return np.array(values, np.int32).astype(dtype)


def _count(tensor: TensorProto) -> int:
    """The number of elements; DecodeError for a negative or absurd dimension, before anything is allocated."""
    if any(dim < 0 for dim in tensor.dims):
        raise DecodeError(f"{_name(tensor)}: dims {tensor.dims} has a negative dimension")
    count = element_count(tensor.dims)
    if count >= MOST_ELEMENTS or any(dim >= MOST_ELEMENTS for dim in tensor.dims):
        raise DecodeError(f"{_name(tensor)}: dims {tensor.dims} overflow 64 bits")
    return count


def _text(value: bytes | str) -> bytes | str:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _name(tensor: TensorProto) -> str:
    return f"tensor {tensor.name!r}" if tensor.name else "an unnamed tensor"


# ---- writing


def _tensor(name: str | None, code: int, shape: tuple[int, ...], **data: Any) -> TensorProto:
    return TensorProto(name=name or None, data_type=code, dims=list(shape), **data)


def _array_payload(array: Array, row: DType) -> BytesLike:
    """The bytes of an array, as its row has them in files: a view, or (strided, byte-swapped, cast) made on writing."""
    wanted = np.dtype(row.numpy if row.native else row.codes)
    if array.dtype == wanted and array.flags.c_contiguous:
        return byte_view(array.reshape(-1).view(np.uint8).data)
    if array.size * wanted.itemsize < COPY_BELOW:
        return byte_view(np.ascontiguousarray(array, wanted).reshape(-1).view(np.uint8).data)
    return LazyPayload(array.size * wanted.itemsize, lambda: _blocks(array, wanted), description="a strided array")


def _blocks(array: Array, dtype: np.dtype[Any]) -> Iterator[memoryview]:
    """The elements in C order, cast, as bounded contiguous pieces."""
    flags = ["external_loop", "buffered", "zerosize_ok"]
    iterator = np.nditer(array, flags, [["readonly"]], [dtype], order="C", casting="unsafe", buffersize=1 << 18)  # type: ignore[call-overload]
    with iterator:
        for block in iterator:
            yield np.array(block, dtype).view(np.uint8).data


def _string_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return item
    raise TypeError(f"a string tensor takes str and bytes, not {type(item).__name__}")


def _codes(array: Array, row: DType) -> Array:
    """Values to the codes of a type that numpy lacks."""
    if row.code == BFLOAT16:
        return bfloat16_codes(array)
    if row.code == FLOAT8E8M0:
        return float8e8m0_codes(array)
    if row.code in FORMATS:
        return codes(array, FORMATS[row.code])
    lowest, highest = (-(1 << row.bits - 1), (1 << row.bits - 1) - 1) if row.numpy == "i1" else (0, (1 << row.bits) - 1)
    if array.size and (array.min() < lowest or array.max() > highest):
        raise ValueError(f"{row.name} holds {lowest} to {highest}; the array goes from {array.min()} to {array.max()}")
    return array.astype(np.int8).view(np.uint8)


# ---- codes


def _values(found: Array, row: DType) -> Array:
    """Codes to values of the row's numpy type. An array of one element stays an array, which numpy's shifts forget."""
    if row.code == BFLOAT16:
        return np.asarray(found.astype(np.uint32) << 16).view(np.float32)
    if row.numpy == "u1":
        return found
    if row.numpy == "i1":
        spare = 8 - row.bits
        return np.asarray(np.asarray(found << spare).astype(np.uint8).view(np.int8) >> spare)
    return np.asarray(_value_table(row.code)[found])


@cache
def _value_table(code: int) -> npt.NDArray[np.float32]:
    """The value of each of the 256 codes; codes above the type's width mean what their low bits mean."""
    numbers = np.arange(256)
    if code == FLOAT8E8M0:  # a bare exponent; 255 is NaN
        table = np.ldexp(np.float64(1), numbers - 127)
        table[255] = np.nan
    else:
        table = _float_values(numbers, FORMATS[code])
    result: npt.NDArray[np.float32] = table.astype(np.float32)
    result.flags.writeable = False
    return result


def _float_values(numbers: npt.NDArray[np.int64], form: Format) -> npt.NDArray[np.float64]:
    exponents = numbers >> form.mantissa_bits & (1 << form.exponent_bits) - 1
    fractions = numbers & (1 << form.mantissa_bits) - 1
    significands = np.where(exponents > 0, fractions + (1 << form.mantissa_bits), fractions)
    powers = np.maximum(exponents, 1) - form.bias - form.mantissa_bits
    values: npt.NDArray[np.float64] = np.ldexp(significands.astype(np.float64), powers)
    beyond = numbers & form.sign_bit - 1
    values[beyond > form.largest] = np.nan
    if form.name == "FLOAT8E5M2":  # the one small type with infinities, as in IEEE 754
        values[beyond == form.largest + 1] = np.inf
    values *= np.where(numbers & form.sign_bit, -1.0, 1.0)
    if not form.signed_zero:
        values[form.sign_bit] = np.nan
    return values


def _unpacked(octets: Array, bits: int, count: int) -> Array:
    """Elements smaller than a byte, low bits first, one per byte. `octets` may be padded."""
    if bits == 6:  # four elements in three bytes
        padded = np.zeros((-(-count // 4), 3), np.uint8)
        padded.reshape(-1)[: octets.size] = octets
        first, second, third = padded.T
        parts = [first, first >> 6 | second << 2, second >> 4 | third << 4, third >> 2]
    else:
        parts = [octets >> shift for shift in range(0, 8, bits)]
    elements: Array = np.stack(parts, axis=-1).reshape(-1)[:count]
    return elements & (1 << bits) - 1


def _packed(flat: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """The inverse of `_unpacked`; the last byte is padded with zeros."""
    group = 4 if bits == 6 else 8 // bits
    padded = np.zeros(-(-flat.size // group) * group, np.uint8)
    padded[: flat.size] = flat & (1 << bits) - 1
    lanes = padded.reshape(-1, group).T
    if bits == 6:
        octets = [lanes[0] | lanes[1] << 6, lanes[1] >> 2 | lanes[2] << 4, lanes[2] >> 4 | lanes[3] << 2]
        return np.stack(octets, axis=-1).reshape(-1)[: (flat.size * 6 + 7) // 8]
    packed: npt.NDArray[np.uint8] = lanes[0].copy()
    for place in range(1, group):
        packed |= lanes[place] << place * bits
    return packed
