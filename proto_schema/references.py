"""External data in place: tensors that refer to the bytes of files that are there already.

A tensor can refer to a file where its bytes lie unchanged in it, at a multiple of the size of an element (no reader
promises more than that it survives others), and where every safe loader opens it: below the model's folder, reached
without a link. `Folder`, which reads external data, is asked for the last: what it opens is what may be referred to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from proto_schema.datafiles import Place, expected_size
from proto_schema.dtypes import DTYPES
from proto_schema.errors import EncodeError, ExternalDataError
from proto_schema.external import Folder, set_entries
from proto_schema.onnx import TensorProto
from proto_schema.payload import BytesLike, FileRange, file_range, nbytes, stamp_of

_COPY = "or save with external_data=True, which copies"


def referred(stored: Iterable[tuple[TensorProto, BytesLike]], target: str, threshold: int) -> dict[int, Place]:
    """Where the tensors (by id) lie that can be referred to from a model at `target`; small ones stay in the model.

    Raises EncodeError where their files lie elsewhere, cannot be opened by loaders, or where no tensor lies in a file.
    """
    opened = Folder(os.path.dirname(target) or ".")
    found: dict[int, Place] = {}
    left: list[str] = []
    for tensor, data in stored:
        if nbytes(data) < max(threshold, 1):
            continue
        source = file_range(data)
        reason = _cannot(tensor, source, target)
        if source is None or reason:
            left.append(f"{tensor.name or ''!r} {reason}")
            continue
        location = _location(source, opened.path)
        try:
            _open(opened, tensor, location, source)
        except ExternalDataError as error:
            raise EncodeError(f"cannot be referred to in place: {error}; {_COPY}") from error
        found[id(tensor)] = (location, source.offset, source.nbytes)
    if left and not found:
        raise EncodeError(f"no tensor can be referred to in place: {left[0]}; save with external_data=True")
    return found


def _cannot(tensor: TensorProto, source: FileRange | None, target: str) -> str:
    """Why the bytes must be written anew; '' where they can be used where they lie."""
    if source is None:
        return "does not lie unchanged in a file"
    path = str(source.source)
    try:
        status = os.stat(path)
    except OSError as error:
        return f"lies in {path}, which cannot be read any more ({error.strerror})"
    if source.stamp not in (None, stamp_of(status)):
        return f"lies in a file that was {path} and has been replaced or changed"
    if os.path.lexists(target) and os.path.samestat(status, os.lstat(target)):
        return f"lies in {path}, which is the file to be replaced"
    if source.offset % _element_size(tensor):
        return f"lies at byte {source.offset} of {path}, which is no multiple of the size of its elements"
    return ""


def _element_size(tensor: TensorProto) -> int:
    row = DTYPES.get(tensor.data_type or 0)
    return max(row.bits // 8, 1) if row and row.bits else 1


def _location(source: FileRange, folder: str) -> str:
    path = os.path.abspath(str(source.source))
    for inner, outer in ((path, folder), (os.path.realpath(path), os.path.realpath(folder))):
        if inner.startswith(os.path.join(outer, "")):
            return os.path.relpath(inner, outer).replace(os.sep, "/")
    raise EncodeError(
        f"{path} lies outside of {folder}, and loaders open nothing outside of the model's folder: "
        f"write the .onnx file to {os.path.dirname(path)}, {_COPY}"
    )


def _open(folder: Folder, tensor: TensorProto, location: str, source: FileRange) -> None:
    probe = TensorProto(name=tensor.name, dims=list(tensor.dims), data_type=tensor.data_type)
    set_entries(probe, location, source.offset, source.nbytes)
    folder.view(probe, expected_size(tensor))
