"""Tensors: one value field, the one that the data type is stored in, holding what the dims say; sparse ones; files.

Stricter than the official checker: values must be exactly as many as the shape needs (it accepts more, and readers
disagree on what that means), of the 4-bit types two an entry as all readers have them (it accepts eight), and no dim
may be negative.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from proto_schema.checking.place import Problem, inside, require
from proto_schema.errors import DecodeError, ExternalDataError, UnreadableDataError
from proto_schema.external import entries, origin
from proto_schema.external.payload import contiguous, nbytes
from proto_schema.onnx import SparseTensorProto, TensorProto
from proto_schema.tensors.arrays import to_array
from proto_schema.tensors.dtypes import DTYPES, DType, element_count

_LARGEST = 2**63 - 1
LISTS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def check_tensor(tensor: TensorProto) -> None:
    """The tensor's type, shape and data; external data where it was loaded from a file."""
    require(tensor, "data_type")
    row = DTYPES.get(tensor.data_type or 0)
    if row is None:
        raise Problem(f"{tensor.data_type} is not a data type", "data_type")
    count = _count(tensor)
    used = [field for field in LISTS if getattr(tensor, field)]
    if tensor.raw_data is not None and nbytes(tensor.raw_data):
        used.append("raw_data")
    if tensor.data_location == TensorProto.EXTERNAL:
        _check_external(tensor, row, count, used)
    elif not count:
        if used:
            raise Problem(f"the shape {tensor.dims} has no elements, but there is data", used[0])
    elif len(used) != 1:
        raise Problem(f"its values must be in one field, not in {' and '.join(used) or 'none'}")
    elif used == ["raw_data"]:
        _check_raw(tensor, row, count)
    else:
        _check_list(tensor, row, count, used[0])


def _count(tensor: TensorProto) -> int:
    for place, size in enumerate(tensor.dims):
        if size < 0:
            raise Problem(f"{size} is negative; a tensor's shape is known", "dims", place)
    count = element_count(tensor.dims)
    if count >= 2**60:
        raise Problem(f"the shape {tensor.dims} is too large to be true", "dims")
    return count


def _check_raw(tensor: TensorProto, row: DType, count: int) -> None:
    if row.bits == 0:
        raise Problem("strings must be stored in string_data", "raw_data")
    data = tensor.raw_data or b""
    if nbytes(data) != row.nbytes(count):
        needs = f"{row.name} {tensor.dims} needs {row.nbytes(count)}"
        raise Problem(f"has {nbytes(data)} bytes; {needs}", "raw_data")
    spare = row.nbytes(count) * 8 - count * row.bits
    if row.bits == 6 and spare and contiguous(data)[-1] >> (8 - spare):
        raise Problem("has non-zero padding bits after the last element", "raw_data")


def _check_list(tensor: TensorProto, row: DType, count: int, field: str) -> None:
    if field != row.field:
        raise Problem(f"{row.name} values are stored in {row.field} or raw_data, not here", field)
    values = getattr(tensor, field)
    needed = _entries(row, count)
    if len(values) != needed:
        raise Problem(f"has {len(values)} entries; {row.name} {tensor.dims} needs {needed}", field)
    if row.bits == 6 and not all(0 <= value < 64 for value in values):
        raise Problem("has a value of more than 6 bits; its elements must use only bits 0-5", field)


def _entries(row: DType, count: int) -> int:
    """How many entries of the typed list hold so many elements."""
    if row.name.startswith("COMPLEX"):
        return 2 * count
    return row.nbytes(count) if row.bits in (2, 4) else count


def _check_external(tensor: TensorProto, row: DType, count: int, used: list[str]) -> None:
    if used:
        raise Problem("must be empty, because the data is external", used[0])
    if row.bits == 0:
        raise Problem("strings must be stored in string_data, not in a file", "data_location")
    try:
        said = entries(tensor)
        place = origin(tensor)
        if place is not None:
            place.payload(tensor, row.nbytes(count))
        elif said.length not in (None, row.nbytes(count)):
            raise Problem(f"the length is {said.length}; the shape needs {row.nbytes(count)} bytes", "external_data")
    except UnreadableDataError:
        raise
    except ExternalDataError as error:
        raise Problem(str(error), "external_data") from error


# -- sparse tensors ----------------------------------------------------------------------------------------------------


def check_sparse_tensor(sparse: SparseTensorProto) -> None:
    """Values of rank 1, as many sorted indices within the dense shape, linear or one row of coordinates each."""
    require(sparse, "values")
    values = sparse.values or TensorProto()
    with inside("values"):
        check_tensor(values)
        if len(values.dims) != 1:
            raise Problem(f"must have rank 1, not {len(values.dims)}", "dims")
    if not sparse.dims:
        raise Problem("a sparse tensor has a rank of at least 1", "dims")
    for place, size in enumerate(sparse.dims):
        if size <= 0:
            raise Problem(f"{size} is not positive", "dims", place)
    if sparse.indices is not None:
        with inside("indices"):
            check_tensor(sparse.indices)
            _check_indices(sparse.indices, sparse.dims, values.dims[0])
    elif values.dims[0]:
        raise Problem("is required, but absent", "indices")


def _check_indices(indices: TensorProto, dims: list[int], count: int) -> None:
    if indices.data_type != TensorProto.INT64:
        raise Problem("must be INT64", "data_type")
    if indices.dims not in ([count], [count, len(dims)]):
        raise Problem(f"{indices.dims} is neither [{count}] nor [{count}, {len(dims)}]", "dims")
    if indices.data_location == TensorProto.EXTERNAL:
        return  # the values lie in a file that need not be here
    try:
        found = to_array(indices)
    except DecodeError as error:
        raise Problem(str(error)) from error
    sizes = dims if found.ndim == 2 else [element_count(dims)]
    limits = np.array([min(size, _LARGEST) for size in sizes], np.int64)
    rows = found.reshape(count, len(limits))
    outside = np.flatnonzero(((rows < 0) | (rows >= limits)).any(axis=1))
    if outside.size:
        raise Problem(f"index {outside[0]} is {found[outside[0]].tolist()}, outside the shape {dims}")
    unsorted = np.flatnonzero(~_ascending(rows))
    if unsorted.size:
        place = int(unsorted[0]) + 1
        raise Problem(f"index {place} is not greater than the one before it; indices are sorted and unique")


def _ascending(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """For each row but the first, whether it is greater than the one before: the first column that differs decides."""
    before, after = rows[:-1], rows[1:]
    differs = before != after
    column = differs.argmax(axis=1)
    line = np.arange(len(before))
    greater: npt.NDArray[np.bool_] = after[line, column] > before[line, column]
    return greater
