"""Checkpoints made by hand, byte by byte, so that each part of them can be made wrong."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np


def safetensors(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    """A .safetensors file of a header (bytes, or what becomes JSON) and the data behind it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def of_arrays(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> Path:
    """A .safetensors file of float32 arrays."""
    header, data = {}, b""
    for name, array in arrays.items():
        made = array.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(made)]}
        data += made
    return safetensors(path, header, data)


def rezipped(path: Path, change: dict[str, Any], **options: Any) -> Path:
    """A zip archive with some members changed: other bytes, None for left out, or a function of the bytes."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            value = change.get(name, data)
            if value is not None:
                archive.writestr(name, value(data) if callable(value) else value)
        for name in change.keys() - members:
            archive.writestr(name, change[name])
    return path


def torch_archive(path: Path, pickled: bytes, **members: bytes) -> Path:
    """What torch.save writes, of a pickle made by hand and the bytes of the storages."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", pickled)
        for name, data in members.items():
            archive.writestr(f"m/data/{name.removeprefix('_')}", data)
    return path


def gguf_text(text: bytes) -> bytes:
    """A text of a GGUF file."""
    return len(text).to_bytes(8, "little") + text


def gguf_info(name: bytes, sizes: list[int], code: int, offset: int) -> bytes:
    """The row of a tensor, its sizes from the innermost on."""
    numbers = b"".join(size.to_bytes(8, "little") for size in sizes)
    place = code.to_bytes(4, "little") + offset.to_bytes(8, "little")
    return gguf_text(name) + len(sizes).to_bytes(4, "little") + numbers + place


def gguf(
    path: Path, infos: list[bytes], data: bytes = b"", entries: list[bytes] | None = None, align: int = 32, **wrong: int
) -> Path:
    """A .gguf file; `wrong` may have another version, or another number of `tensors` or of entries (`held`)."""
    metadata = entries or []
    counts = (wrong.get("tensors", len(infos)), wrong.get("held", len(metadata)))
    header = b"GGUF" + wrong.get("version", 3).to_bytes(4, "little")
    header += b"".join(count.to_bytes(8, "little") for count in counts) + b"".join(metadata) + b"".join(infos)
    path.write_bytes(header + bytes(-len(header) % align) + data)
    return path
