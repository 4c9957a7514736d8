"""Reads numpy's files in place: .npy holds one array, .npz is a zip archive of such files.

The header of an array is a Python literal. Three items of it are taken by their form, and nothing is evaluated.
Source: the format as numpy.lib.format documents it, versions 1 to 3.
"""

from __future__ import annotations

import os
import re

import numpy as np

from proto_schema.derived.strided import StridedPayload, row_major
from proto_schema.dtypes import DTYPES, by_numpy_name
from proto_schema.payload import Payload
from purexport.errors import WeightsError
from purexport.weights.stored import CheckpointFile, Stored, shown, size_of
from purexport.weights.ziparchive import Archive

MAGIC = b"\x93NUMPY"
LONGEST_HEADER = 10_000
_ITEMS = (
    re.compile(r"""(['"])descr\1 *: *(['"])([<>|=]?[a-zA-Z][0-9]+)\2 *(?:,|(?=\}))"""),
    re.compile(r"""(['"])fortran_order\1 *: *(True|False) *(?:,|(?=\}))"""),
    re.compile(r"""(['"])shape\1 *: *\(([0-9L, ]{0,400})\) *(?:,|(?=\}))"""),
)
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
        text, start = _header(file, begin, size)
        dtype, backwards, shape = _meaning(text)
        needed = size_of(dtype, shape)
        if start + needed != begin + size:
            raise WeightsError(f"its header asks for {needed} bytes of data, but {begin + size - start} follow")
    except WeightsError as error:
        raise file.error(f"array {shown(name)}: {error}; {_ADVICE}", error.code) from None
    payload: Payload = file.range(start, needed)
    if backwards and needed and len(shape) > 1:
        width = DTYPES[dtype].bits // 8
        payload = StridedPayload(file.range(start, needed), width, shape, row_major(shape[::-1])[::-1])
    return Stored(name, dtype, shape, payload, file.label)


def _header(file: CheckpointFile, begin: int, size: int) -> tuple[str, int]:
    """(the literal, where the data begins)."""
    intro = file.read(begin, min(size, 12))
    if not intro.startswith(MAGIC) or len(intro) < 10 or intro[6] not in (1, 2, 3):
        raise WeightsError("it does not begin as numpy's versions 1 to 3 of the format do")
    width = 2 if intro[6] == 1 else 4
    length = int.from_bytes(intro[8 : 8 + width], "little")
    if length > min(LONGEST_HEADER, size - 8 - width):
        raise WeightsError(f"its header would have {length} bytes")
    start = begin + 8 + width
    return file.read(start, length).decode("latin-1"), start + length


def _meaning(text: str) -> tuple[int, bool, tuple[int, ...]]:
    """(TensorProto.DataType, whether the first axis runs fastest, shape)."""
    found = []
    rest = text
    for item in _ITEMS:
        match = item.search(rest)
        if match is None:
            raise WeightsError(f"its header {shown(text)} is not that of an array of numbers")
        found.append(match.group(match.lastindex or 0))
        rest = rest[: match.start()] + rest[match.end() :]
    if not re.fullmatch(r"\{ *\} *\n?", rest):
        raise WeightsError(f"its header {shown(text)} has more than a type, an order and a shape")
    descriptor, order, sizes = found
    try:
        kind = np.dtype(descriptor)
        shape = tuple(int(size) for size in sizes.replace("L", "").split(",") if size.strip())
    except (TypeError, ValueError):
        raise WeightsError(f"its type {shown(descriptor)} or its shape ({sizes}) is none") from None
    row = by_numpy_name().get(kind.name)
    if row is None or not row.bits:
        raise WeightsError(f"ONNX has no data type for numpy's {kind}", code="no-dtype")
    if descriptor.startswith(">") and kind.itemsize > 1:
        raise WeightsError(f"it is big-endian; write it with array.astype('<{descriptor[1:]}')")
    return row.code, order == "True", shape
