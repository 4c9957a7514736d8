"""Tensors over the bytes of a checkpoint: views of a mapped file if possible, else copies or bare addresses.

The kernel reads only the pages that are looked at.  A model that runs on such tensors gets private mappings, so that
its writes change no file.  Otherwise the mappings are read-only, which the kernel also grants for a file larger than
memory.
Invariant: every tensor made here has an address of its own, by which `origins` finds the bytes it stands for.
"""

from __future__ import annotations

import math
import mmap
import sys
import warnings
from typing import Any

import torch

from proto_schema.external.payload import FileRange, MemoryPayload, byte_view, chunks, opened
from purexport import dtypes
from purexport.errors import UnsupportedDtypeError
from purexport.graph.origins import Origins
from purexport.graph.payloads import TensorPayload
from purexport.weights.stored import Stored

ARENA = 1 << 30
_PLAIN = sys.byteorder == "little"


class Mapped:
    """The mappings of one export; `runs` says that the model runs on these tensors."""

    def __init__(self, *, runs: bool) -> None:
        self.runs = runs
        self.origins = Origins()
        self._files: dict[tuple[Any, ...], mmap.mmap] = {}
        self._taken: set[object] = set()
        self._arena = memoryview(b"")

    def view(self, stored: Stored) -> torch.Tensor | None:
        """A tensor over the bytes in the file; None if they do not lie as torch wants them.

        Raises OSError if the file cannot be opened, ExternalDataError if it has changed.
        """
        dtype = _dtype(stored)
        if dtype is None or not _PLAIN:
            return None
        source, again = stored.payload, stored.payload.identity in self._taken
        self._taken.add(source.identity)
        if isinstance(source, FileRange):
            return self._file(source, dtype, stored.shape, again)
        if again:
            return None
        if isinstance(source, TensorPayload):
            tensor = source.tensor
            whole = tensor.untyped_storage().nbytes() == source.nbytes
            return tensor if whole and tensor.device.type == "cpu" else None
        if isinstance(source, MemoryPayload):
            return _over(source.view, dtype, stored.shape, 0)
        return None

    def _file(self, source: FileRange, dtype: torch.dtype, shape: tuple[int, ...], again: bool) -> torch.Tensor | None:
        if source.offset % dtype.itemsize:
            return None
        mapping = self._mapping(source, again)
        tensor = _over(mapping, dtype, shape, source.offset)
        if tensor is not None:
            self.origins.add(tensor, source, mapping, source.offset)
        return tensor

    def copy(self, stored: Stored) -> torch.Tensor | None:
        """The values read into memory; None for a data type that torch does not have."""
        dtype = _dtype(stored)
        if dtype is None or not _PLAIN:
            return None
        flat = torch.empty(stored.payload.nbytes, dtype=torch.uint8)
        target, at = byte_view(flat.numpy()), 0
        for piece in chunks(stored.payload):
            target[at : at + piece.nbytes] = piece
            at += piece.nbytes
        tensor = flat.view(dtype).reshape(stored.shape)
        self.origins.add(tensor, stored.payload)
        return tensor

    def refuse_changed(self) -> None:
        """Raises ExternalDataError if a file that is mapped changed: what was computed of its values may be wrong."""
        for path, stamp in self._files:
            if stamp is not None:
                opened(path, stamp).close()

    def reserve(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """A tensor with an address and no values: it takes no memory until it is touched."""
        size = math.prod(shape) * dtype.itemsize
        if size > len(self._arena):
            self._arena = memoryview(_anonymous(max(size, ARENA)))
        tensor = _over(self._arena[:size], dtype, shape, 0)
        self._arena = self._arena[-(-size // 64) * 64 :]
        return torch.empty(shape, dtype=dtype) if tensor is None else tensor

    def _mapping(self, source: FileRange, again: bool) -> mmap.mmap:
        """Maps the whole file; a range that is asked for again is mapped again, so that no two tensors share memory."""
        if isinstance(source.source, mmap.mmap):
            return source.source
        key = (source.source, source.stamp)
        if key in self._files and not again:
            return self._files[key]
        path, stamp = source.source, source.stamp
        with open(path, "rb", buffering=0) if stamp is None else opened(path, stamp) as file:
            made = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY if self.runs else mmap.ACCESS_READ)
        return made if again else self._files.setdefault(key, made)


def _dtype(stored: Stored) -> torch.dtype | None:
    try:
        return dtypes.torch_dtype(stored.dtype)
    except UnsupportedDtypeError:
        return None


def _over(data: Any, dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> torch.Tensor | None:
    count = math.prod(shape)
    if not count or byte_view(data).nbytes < offset + count * dtype.itemsize:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warns of memory that cannot be written to; no code writes to it
        return torch.frombuffer(data, dtype=dtype, count=count, offset=offset).reshape(shape)


def _anonymous(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
