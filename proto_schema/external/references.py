"""External data in place: tensors that refer to the bytes of files that are there already.

A tensor can refer to a file where its bytes lie unchanged in it, at a multiple of the size of an element (no reader
promises more than that it survives others), and where every safe loader opens it: below the model's folder, reached
without a link. `Folder`, which reads external data, is asked for the last: what it opens is what may be referred to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from proto_schema.errors import EncodeError, ExternalDataError
from proto_schema.external import Folder, set_entries
from proto_schema.external.datafiles import Place
from proto_schema.external.payload import BytesLike, FileRange, Stamp, file_range, nbytes, stamp_of
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES

_COPY = "or save with external_data=True, which copies"


def referred(stored: Iterable[tuple[TensorProto, BytesLike]], target: str, threshold: int) -> dict[int, Place]:
    """Where the tensors (by id) lie that can be referred to from a model at `target`; small ones stay in the model.

    Raises EncodeError where their files lie elsewhere, cannot be opened by loaders, or where no tensor lies in a file.
    """
    files = _Files(target)
    found: dict[int, Place] = {}
    left = ""
    for tensor, data in stored:
        if nbytes(data) < max(threshold, 1):
            continue
        source = file_range(data)
        reason = "does not lie unchanged in a file" if source is None else files.refusal(source)
        if source is not None and not reason:
            if source.offset % _element_size(tensor) == 0:
                found[id(tensor)] = (files.location(source, tensor.name or ""), source.offset, source.nbytes)
                continue
            place = f"byte {source.offset} of {source.source}"
            reason = f"lies at {place}, which is not a multiple of the size of its elements"
        left = left or f"{tensor.name or ''!r} {reason}"
    if left and not found:
        raise EncodeError(f"no tensor can be referred to in place: {left}; save with external_data=True")
    return found


def _element_size(tensor: TensorProto) -> int:
    row = DTYPES.get(tensor.data_type or 0)
    return max(row.bits // 8, 1) if row and row.bits else 1


class _Files:
    """The files that tensors lie in, as seen from the folder of the model; each of them is looked at once."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._folder = Folder(os.path.dirname(target) or ".")
        self._refusals: dict[tuple[str, Stamp | None], str] = {}
        self._locations: dict[str, str] = {}

    def refusal(self, source: FileRange) -> str:
        """Why the bytes must be written again; '' if they can be used in place."""
        path, stamp = str(source.source), source.stamp
        if (path, stamp) not in self._refusals:
            self._refusals[path, stamp] = self._refusal(path, stamp)
        return self._refusals[path, stamp]

    def _refusal(self, path: str, stamp: Stamp | None) -> str:
        try:
            status = os.stat(path)
        except OSError as error:
            return f"lies in {path}, which cannot be read any more ({error.strerror})"
        if stamp not in (None, stamp_of(status)):
            return f"lies in a file that was {path} and has been replaced or changed"
        if os.path.lexists(self._target) and os.path.samestat(status, os.lstat(self._target)):
            return f"lies in {path}, which is the file to be replaced"
        return ""

    def location(self, source: FileRange, name: str) -> str:
        """The file as the model names it. EncodeError where loaders would not open it; `name` is the tensor's."""
        path = str(source.source)
        if path not in self._locations:
            location = self._below(os.path.abspath(path))
            probe = TensorProto(name=name)
            set_entries(probe, location, source.offset, source.nbytes)
            try:
                self._folder.payload(probe)
            except ExternalDataError as error:
                raise EncodeError(f"cannot be referred to in place: {error}; {_COPY}") from error
            self._locations[path] = location
        return self._locations[path]

    def _below(self, path: str) -> str:
        folder = self._folder.path
        for inner, outer in ((path, folder), (os.path.realpath(path), os.path.realpath(folder))):
            if inner.startswith(os.path.join(outer, "")):
                return os.path.relpath(inner, outer).replace(os.sep, "/")
        raise EncodeError(
            f"{path} lies outside of {folder}, and loaders open nothing outside of the model's folder: "
            f"write the .onnx file to {os.path.dirname(path)}, {_COPY}"
        )
