"""A model and its data files as one uncompressed tar, for targets that have no folder: pipes, sockets, standard output.

Strategy: sizes are known beforehand, so the archive is written from front to back without seeking, and the weights are
read once, when it is their turn. The model comes first: a reader knows what follows before the weights arrive.
Headers are those of POSIX (pax), which hold members of any size and any name; times and owners are constant, so the
same model gives the same bytes.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from proto_schema.external.payload import BytesLike

Member: TypeAlias = "tuple[str, Iterable[BytesLike], int]"  # name, content, its size

_WRITTEN = 315532800  # 1980-01-01, the earliest that zip can say too; tar programs warn of 1970


def tar_parts(members: Iterable[Member]) -> Iterator[BytesLike]:
    """The archive as parts to be written in order."""
    total = 0
    for name, content, size in members:
        header = tarfile.TarInfo(name)
        header.size, header.mtime, header.mode = size, _WRITTEN, 0o644
        head = header.tobuf(tarfile.PAX_FORMAT)
        tail = bytes(-size % tarfile.BLOCKSIZE)
        yield head
        yield from content
        if tail:
            yield tail
        total += len(head) + size + len(tail)
    end = 2 * tarfile.BLOCKSIZE  # two blocks of zeros, and zeros up to a full record
    yield bytes(end + -(total + end) % tarfile.RECORDSIZE)


def model_name(path: str | None) -> str:
    """What the model is called inside an archive: the archive's own name as .onnx, or model.onnx in a stream."""
    if path is None:
        return "model.onnx"
    stem = os.path.basename(path).removesuffix(".tar")
    return f"{stem.removesuffix('.onnx')}.onnx"


def begins_as_archive(start: bytes) -> bool:
    """Whether a file whose first bytes these are, at least 2 kB, is a tar that has a model as its first member."""
    name = start[:100].rstrip(b"\0")
    if start[156:157] == b"x":  # a name that is long or no ASCII stands in a record of its own
        record = re.search(rb" path=([^\n]*)\n", start[512:])
        name = record[1] if record else b""
    return start[257:262] == b"ustar" and name.endswith(b".onnx")
