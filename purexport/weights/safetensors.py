"""Reads the header of a .safetensors file: its length in 8 bytes, then JSON with type, shape and bytes of each tensor.

The data comes after the header. The tensors must cover it from its first byte to its last, without gaps or overlaps, in
any order. Everything that the header says is checked before a row is made. What a newer version of the format may add
is refused, because it may change what the bytes mean.
Source: the format as the README of huggingface/safetensors describes it.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from proto_schema.tensors.dtypes import DTYPES
from purexport.errors import WeightsError
from purexport.weights.jsontext import parsed
from purexport.weights.stored import CheckpointFile, Stored, listed, shown, size_of

LONGEST_HEADER = 100_000_000  # of the format
_KEYS = {"dtype", "shape", "data_offsets"}

# the format's name: TensorProto.DataType.  F4 has two per byte, the first in the low half, as in torch and in ONNX
DATA_TYPES = {row.safetensors: row.code for row in DTYPES.values() if row.safetensors}


def begins(start: bytes) -> bool:
    """Whether a file that begins like this is of the format: a length of at most 32 bits, then a JSON object."""
    return start[4:9] == b"\0\0\0\0{"


def read(file: CheckpointFile) -> list[Stored]:
    """The tensors, in the order of the header. WeightsError says what is malformed, and where."""
    header, start = _header(file)
    _check_metadata(file, header.pop("__metadata__", {}))
    rows = [_row(file, name, entry) for name, entry in header.items()]
    _check_cover(file, rows, file.size - start)
    return [
        Stored(name, dtype, shape, file.range(start + begin, end - begin), file.label)
        for name, dtype, shape, begin, end in rows
    ]


def metadata(file: CheckpointFile) -> dict[str, str]:
    """What the writer says about the file. WeightsError where that is malformed."""
    return _check_metadata(file, _header(file)[0].get("__metadata__", {}))


def _check_metadata(file: CheckpointFile, found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise file.error(f"__metadata__ must be an object of texts; {_WRITE_AGAIN}")
    return found


_WRITE_AGAIN = "write the checkpoint again with the safetensors library"
_Row = tuple[str, int, tuple[int, ...], int, int]  # name, data type, shape, first byte of the data, end


def _header(file: CheckpointFile) -> tuple[dict[str, Any], int]:
    """(the JSON object, where the data begins)."""
    if file.size < 8:
        raise file.error(f"it has {file.size} bytes, too few for a safetensors file; copy or download it again")
    length = int.from_bytes(file.read(0, 8), "little")
    if length > LONGEST_HEADER:
        raise file.error(
            f"its header would have {length} bytes, more than the {LONGEST_HEADER} of the format; "
            "it is not a safetensors file, or a damaged one"
        )
    if length > file.size - 8:
        raise file.error(
            f"its header would have {length} bytes, but {file.size - 8} follow; copy or download the file again"
        )
    data = file.read(8, length)
    if not data.startswith(b"{"):
        raise file.error(f"its header must begin with '{{', not {shown(data[:8])}; it is not a safetensors file")
    return parsed(file, data, "its header", _WRITE_AGAIN), 8 + length


def _row(file: CheckpointFile, name: str, entry: Any) -> _Row:
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        has = f"has {listed(list(entry))}" if isinstance(entry, dict) else f"is {shown(entry)}"
        raise _tensor_error(file, name, f"its entry must have dtype, shape and data_offsets, and {has}")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    dtype = DATA_TYPES.get(kind) if isinstance(kind, str) else None
    if dtype is None:
        known = " ".join(DATA_TYPES)
        raise _tensor_error(file, name, f"the dtype {shown(kind)} is not one of {known}; cast the tensor before")
    if not _are_sizes(shape):
        raise _tensor_error(file, name, f"the shape {shown(shape)} is not a list of sizes")
    if not (_are_sizes(offsets) and len(offsets) == 2 and offsets[0] <= offsets[1]):
        raise _tensor_error(file, name, f"the data_offsets {shown(offsets)} are not two ascending numbers")
    try:
        name.encode()
        needed = size_of(dtype, tuple(shape))
    except UnicodeEncodeError:
        raise _tensor_error(file, name, f"the name is not text; {_WRITE_AGAIN}") from None
    except WeightsError as error:
        raise _tensor_error(file, name, str(error)) from None
    begin, end = offsets
    if end - begin != needed:
        what = f"{kind} {shown(shape)} needs {needed}"
        raise _tensor_error(file, name, f"bytes {begin} to {end} of the data are {end - begin}, but {what}")
    return name, dtype, tuple(shape), begin, end


def _are_sizes(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    for item in value:  # noqa: SIM110  a loop takes half the time of all(), and there may be many tensors
        if type(item) is not int or item < 0:
            return False
    return True


def _check_cover(file: CheckpointFile, rows: list[_Row], size: int) -> None:
    at, before = 0, ""
    for name, _, _, begin, end in sorted(rows, key=itemgetter(3, 4)):
        if begin < at:
            raise _tensor_error(
                file, name, f"bytes {begin} to {end} of the data overlap tensor {shown(before)}, which ends at {at}"
            )
        if begin > at:
            raise _tensor_error(file, name, f"bytes {at} to {begin} of the data, before it, belong to no tensor")
        at, before = end, name
    if at > size:
        missing = f"end at {at}, but the file has {size} bytes of data"
        raise _tensor_error(file, before, f"its bytes {missing}; the file is cut off: copy or download it again")
    if at < size:
        raise file.error(f"bytes {at} to {size} of the data, at its end, belong to no tensor; {_WRITE_AGAIN}")


def _tensor_error(file: CheckpointFile, name: str, reason: str) -> WeightsError:
    return file.error(f"tensor {shown(name)}: {reason}")
