"""What is in a folder at one moment, and what its models mean, without any of the code that is under test but `loads`.

A model means the name of its producer and the bytes of its tensors. They are found in the snapshot: a location is
looked up among the files of the same moment. So no reader of external data takes part in judging the writers.
"""

from __future__ import annotations

import os
import posixpath
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import proto_schema as ps
from proto_schema.external import tensors

FILE, FOLDER, LINK, FIFO, OTHER = "file", "folder", "link", "fifo", "other"
_KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK, stat.S_IFIFO: FIFO}
_STEPS = 8  # links that lead to links


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder. `content` is what a link leads to, or the bytes of a file."""

    kind: str
    mode: int
    owner: tuple[int, int]
    inode: int
    content: bytes

    def same(self, other: Entry | None) -> bool:
        """Whether nobody can tell them apart, but for which inode it is."""
        return other is not None and (self.kind, self.mode, self.owner, self.content) == (
            other.kind,
            other.mode,
            other.owner,
            other.content,
        )


Snapshot: TypeAlias = "dict[str, Entry]"
Meaning: TypeAlias = "tuple[str, tuple[tuple[str, bytes], ...]]"


def take(root: Path) -> Snapshot:
    """Everything below a folder, by its path from there."""
    found: Snapshot = {}
    todo = [""]
    while todo:
        prefix = todo.pop()
        with os.scandir(root / prefix) as listed:
            for entry in listed:
                status = entry.stat(follow_symlinks=False)
                kind = _KINDS.get(stat.S_IFMT(status.st_mode), OTHER)
                path = prefix + entry.name
                if kind == FOLDER:
                    todo.append(f"{path}/")
                content = _read(entry.path, status.st_size) if kind == FILE else b""
                if kind == LINK:
                    content = os.fsencode(os.readlink(entry.path))
                owner = (status.st_uid, status.st_gid)
                found[path] = Entry(kind, stat.S_IMODE(status.st_mode), owner, status.st_ino, content)
    return found


def _read(path: str, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, size + 1)
    finally:
        os.close(descriptor)


def resolved(snapshot: Snapshot, path: str) -> str:
    """Where the links of a path lead; '' where that is nothing in the snapshot."""
    for _ in range(_STEPS):
        entry = snapshot.get(path)
        if entry is None:
            return ""
        if entry.kind != LINK:
            return path
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(entry.content)))
    return ""


@lru_cache(maxsize=4096)
def _parsed(content: bytes) -> tuple[str, tuple[tuple[str, bytes | tuple[str, int, int | None]], ...]] | None:
    """(producer, (name, bytes or place) of each tensor) of a model; None for what is none."""
    if not content or b"w0" not in content:  # each model of the harness has a tensor of that name
        return None
    try:
        model = ps.loads(content)
    except ps.DecodeError:
        return None
    if model.graph is None or not model.graph.initializer:
        return None
    found: list[tuple[str, bytes | tuple[str, int, int | None]]] = []
    for tensor in tensors(model):
        name = str(tensor.name)
        if tensor.data_location != ps.TensorProto.EXTERNAL:
            found.append((name, bytes(tensor.raw_data or b"")))
            continue
        said = {str(entry.key): str(entry.value) for entry in tensor.external_data}
        length = int(said["length"]) if "length" in said else None
        found.append((name, (said.get("location", ""), int(said.get("offset", "0")), length)))
    return str(model.producer_name), tuple(found)


def is_model(content: bytes) -> bool:
    """Whether a file is a model of the harness, whatever became of its data."""
    return _parsed(content) is not None


def data_of(snapshot: Snapshot, path: str) -> set[str]:
    """The files that the model at a path refers to."""
    place = resolved(snapshot, path)
    parsed = _parsed(snapshot[place].content) if place and snapshot[place].kind == FILE else None
    return {_beside(path, data[0]) for _, data in parsed[1] if isinstance(data, tuple)} if parsed else set()


def _beside(path: str, location: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), location))


def meaning(snapshot: Snapshot, path: str) -> Meaning | None:
    """What the model at a path means; None where there is none, or where some of its bytes are missing."""
    place = resolved(snapshot, path)
    if not place or snapshot[place].kind != FILE:
        return None
    parsed = _parsed(snapshot[place].content)
    if parsed is None:
        return None
    found = []
    for name, data in parsed[1]:
        held = data if isinstance(data, bytes) else _part(snapshot, _beside(path, data[0]), *data[1:])
        if held is None:
            return None
        found.append((name, held))
    return parsed[0], tuple(found)


def _part(snapshot: Snapshot, path: str, offset: int, length: int | None) -> bytes | None:
    """Some bytes of a data file; None where they are not there."""
    entry = snapshot.get(path)
    if entry is None or entry.kind != FILE or length is None or offset + length > len(entry.content):
        return None
    return entry.content[offset : offset + length]


def models(snapshot: Snapshot) -> dict[str, Meaning]:
    """Every whole model that a save is to know of, by its path.

    With another suffix than .onnx neither a link to a model is one, nor a model that refers to data in a folder below.
    """
    found = {path: means for path in snapshot if (means := meaning(snapshot, path)) is not None}
    return {path: means for path, means in found.items() if path.endswith(".onnx") or not _is_odd(snapshot, path)}


def _is_odd(snapshot: Snapshot, path: str) -> bool:
    folder = posixpath.dirname(path)
    return snapshot[path].kind == LINK or any(posixpath.dirname(name) != folder for name in data_of(snapshot, path))
