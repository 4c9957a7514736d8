"""Reads numpy's files in place: .npy holds one array, .npz is a zip archive of such files.

`proto_schema.tensors.npy` reads the header of an array, which is a Python literal, without evaluating it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from proto_schema.derived.strided import StridedPayload, row_major
from proto_schema.external.payload import Payload
from proto_schema.tensors.dtypes import DTYPES, by_numpy_name
from proto_schema.tensors.npy import MAGIC, NpyError, header
from purexport.errors import WeightsError
from purexport.weights.stored import CheckpointFile, Stored, shown, size_of
from purexport.weights.ziparchive import Archive

__all__ = ["MAGIC", "is_archive", "read", "read_archive"]

_ADVICE = "save the array with numpy.save"


def read(file: CheckpointFile) -> list[Stored]:
    """The one array of a .npy file, under the file's name without its suffix."""
    return [_array(file, os.path.splitext(file.label)[0], 0, file.size)]


def read_archive(archive: Archive) -> list[Stored]:
    """The arrays of a .npz file. WeightsError for compressed ones, whose bytes are not in the file as they are."""
    rows = []
    for member in archive.members.values():
        begin, size = archive.range(member, "save them with numpy.savez, not savez_compressed")
        rows.append(_array(archive.file, member.name.removesuffix(".npy"), begin, size))
    return rows


def is_archive(archive: Archive) -> bool:
    """Whether a zip archive is one of arrays."""
    return bool(archive.members) and all(name.endswith(".npy") for name in archive.members)


def _array(file: CheckpointFile, name: str, begin: int, size: int) -> Stored:
    try:
        kind, backwards, shape, offset = header(lambda at, count: file.read(begin + at, count), size)
        dtype = _code(kind)
        start, needed = begin + offset, size_of(dtype, shape)
        if start + needed != begin + size:
            raise WeightsError(f"its header asks for {needed} bytes of data, but {begin + size - start} follow")
    except (WeightsError, NpyError) as error:
        code = error.code if isinstance(error, WeightsError) else ""
        raise file.error(f"array {shown(name)}: {error}; {_ADVICE}", code) from None
    payload: Payload = file.range(start, needed)
    if backwards and needed and len(shape) > 1:
        width = DTYPES[dtype].bits // 8
        payload = StridedPayload(file.range(start, needed), width, shape, row_major(shape[::-1])[::-1])
    return Stored(name, dtype, shape, payload, file.label)


def _code(kind: np.dtype[Any]) -> int:
    """The TensorProto.DataType of numbers in this machine's order of bytes."""
    row = by_numpy_name().get(kind.name)
    if row is None or not row.bits:
        raise WeightsError(f"ONNX has no data type for numpy's {kind}", code="no-dtype")
    if kind.str.startswith(">") and kind.itemsize > 1:
        raise WeightsError(f"it is big-endian; write it with array.astype('<{kind.str[1:]}')")
    return row.code
