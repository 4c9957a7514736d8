"""Where the bytes of tensors lie in data files, so that a tool reads no byte of them again and again.

A model of a few kilobytes can name the same gigabyte of a data file in every tensor. What lies at one place is read
once, and the tool keeps the result by `place_of`. Ranges that share only a part of their bytes have no such result to
share. They are no part of a sound model, so a tool counts what it reads of each file, and leaves out what passes
`times` the size of the file. Tensors that share no bytes never come to that.
"""

from __future__ import annotations

import os
from collections import Counter

from proto_schema.external import entries, origin
from proto_schema.external.datafiles import expected_size
from proto_schema.onnx import TensorProto


def place_of(tensor: TensorProto) -> str | None:
    """The same text for tensors that have the same bytes of the same data file; None if the data is in the model.

    It is a text because the hash of a text, unlike that of a tuple of numbers, cannot be chosen by whoever wrote the
    model. Raises ExternalDataError for entries that must not be.
    """
    folder = origin(tensor)
    if tensor.data_location != TensorProto.EXTERNAL or folder is None:
        return None
    entry = entries(tensor)
    return f"{entry.offset} {_length(tensor)} {folder.file(entry.location)}"


class Readings:
    """What was read of each data file; `times` its size is the most."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._read = Counter[str]()
        self._most: dict[str, int] = {}

    def too_many(self, tensor: TensorProto) -> bool:
        """Notes that the tensor's data is read, and says whether its file was then read more often than allowed.

        Never for data in the model, and for a file that cannot be found: reading it says so.
        """
        folder = origin(tensor)
        if tensor.data_location != TensorProto.EXTERNAL or folder is None:
            return False
        path = folder.file(entries(tensor).location)
        if path not in self._most:
            self._most[path] = self._times * os.path.getsize(path) if os.path.isfile(path) else -1
        self._read[path] += _length(tensor) or 0
        return self._read[path] > self._most[path] >= 0


def _length(tensor: TensorProto) -> int | None:
    """The number of bytes that the entries or the type say; None is all up to the end of the file."""
    length = entries(tensor).length
    return length if length is not None else expected_size(tensor)


__all__ = ["Readings", "place_of"]
