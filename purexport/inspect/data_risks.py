"""What is to be said of tensors' bytes: in the model, in data files, and what of these files no tensor has.

Of a tensor and of what no tensor has the beginning is read. A whole file is read only for a checksum in the model.
Data files are opened as `load` opens them, beneath the model's folder and through no link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

import numpy as np

from proto_schema.checking.checksums import mismatches
from proto_schema.checking.tensors import LISTS
from proto_schema.errors import ExternalDataError, UnreadableDataError
from proto_schema.external import entries, origin, tensors
from proto_schema.external.payload import BytesLike, RangePayload, chunks, nbytes
from proto_schema.files.marks import LONGEST, size_without_mark
from proto_schema.graphs.names import as_text
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.units import counted
from purexport.inspect.signatures import HEAD, signature
from purexport.inspect.sizes import stop_of

Finding = tuple[str, str, str]
"""A rule, the place, the text."""

_PADDING = 1 << 16  # zeros between tensors, up to the alignment that exporters use
_NUMBERS = {"float_data": "<f4", "double_data": "<f8", "int64_data": "<i8", "uint64_data": "<u8"}


def head_of(tensor: TensorProto) -> bytes:
    """The first bytes of the numbers of a tensor, wherever they are. Raises ExternalDataError."""
    if tensor.data_location == TensorProto.EXTERNAL:
        place = origin(tensor)
        return b"" if place is None else _first(place.payload(tensor))
    if tensor.raw_data is not None:
        return _first(tensor.raw_data)
    row = DTYPES.get(tensor.data_type or 0)
    for field in LISTS:
        values = getattr(tensor, field)[: HEAD // 8]
        if values and row is not None and field != "string_data":
            form = row.codes if field == "int32_data" or row.name == "UINT32" else _NUMBERS[field]
            return np.array(values).astype(form).tobytes()
    return b""


def fields_with_values(tensor: TensorProto) -> list[str]:
    """The fields in which a tensor has values, of which readers take one."""
    used = [name for name in LISTS if getattr(tensor, name)]
    used += ["raw_data"] if tensor.raw_data is not None and nbytes(tensor.raw_data) else []
    return used + (["external_data"] if tensor.data_location == TensorProto.EXTERNAL else [])


def risks_of_files(model: ModelProto) -> Iterator[Finding]:
    """Of the data files of a loaded model: what is in them beside the tensors, and twice, and what they should be."""
    by_file: dict[str, list[tuple[int, int, TensorProto]]] = defaultdict(list)
    for tensor in tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        try:
            entry = entries(tensor)
        except ExternalDataError:  # which is a finding of its own
            continue
        by_file[entry.location].append((entry.offset, stop_of(tensor, entry), tensor))
    for location, ranges in sorted(by_file.items()):
        ranges.sort(key=lambda item: item[:2])
        yield from _overlaps(location, ranges)
        yield from _unowned(location, ranges)
    for text in mismatches(model):
        yield "checksum", "", text


def _overlaps(location: str, ranges: list[tuple[int, int, TensorProto]]) -> Iterator[Finding]:
    end, last, holder = 0, (-1, -1), ""
    for start, stop, tensor in ranges:
        if (start, stop) != last and start < end and stop > start:
            text = f"{as_text(tensor.name)!r} has bytes from {start:,} on, which are of {holder!r} up to {end:,}"
            yield "overlapping-data", location, text
        if stop > end:
            end, holder = stop, as_text(tensor.name)
        last = (start, stop)


def _unowned(location: str, ranges: list[tuple[int, int, TensorProto]]) -> Iterator[Finding]:
    tensor = ranges[0][2]
    place = origin(tensor)
    if place is None:
        return
    try:
        whole = place.whole(tensor, location)
    except UnreadableDataError:
        raise
    except ExternalDataError:  # missing, or behind a link, which are findings of their own
        return
    at, behind = 0, max(nbytes(whole) - LONGEST, 0)
    tail = b"".join(map(bytes, chunks(_part(whole, behind, nbytes(whole)))))
    size = size_without_mark(tail, behind)
    for start, stop in [*((min(start, size), min(stop, size)) for start, stop, _ in ranges), (size, size)]:
        if at < start:
            gap = _part(whole, at, start)
            what = signature(_first(gap))
            if what:
                yield "executable-bytes", location, f"bytes from {at:,} on, of no tensor, begin like {what}"
            if nbytes(gap) > _PADDING or any(any(chunk) for chunk in chunks(gap)):
                yield "unowned-data", location, f"{counted(start - at, 'byte')} from {at:,} on"
        at = max(at, stop)


def _part(whole: memoryview | RangePayload, start: int, stop: int) -> memoryview | RangePayload:
    if isinstance(whole, RangePayload):
        return whole.part(start, stop - start)
    return whole[start:stop]


def _first(data: BytesLike) -> bytes:
    return b"".join(bytes(chunk) for chunk in islice(chunks(data, HEAD), 1))
