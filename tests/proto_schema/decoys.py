"""Files of other people beside a model, and whether a step has touched any of them.

Strategy: `lay_out` puts into a folder what a writer could mistake for its own (names that begin as the model's do or
look temporary, models with their data, partial files) and what a walk over a folder could trip over (pipes, links to
nowhere and to themselves, folders named as models, names that are no text). `Watched` remembers what is there: type,
mode, owner, time of the last change, content. `changes` compares. Reading is no change.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import proto_schema as ps
from proto_schema.numpy_helper import from_array, to_array

Fact = tuple[object, ...]

# name, content, mode
FILES = [
    ("m.onnx.bak", b"an older copy, which the user keeps", 0o644),
    ("m.onnx.md5", b"d41d8cd98f00b204e9800998ecf8427e  m.onnx\n", 0o600),
    ("m.onnx-notes.txt", b"learning rate 0.1\n", 0o640),
    ("m.onnx.data.old", bytes(64), 0o444),
    ("m.onnx.data-00001-of-00002", bytes(range(64)), 0o644),
    (".m.onnx.deadbeef.tmp", b"a temporary file of somebody else", 0o600),
    (".m.onnx.0123456789abcdef.tmp", b"of the length of ours", 0o644),
    (".m.onnx.lock", b"12345\n", 0o644),
    ("m.onnx.data.partial", b"a download of somebody else", 0o644),
    ("w.bin.partial", b"another one", 0o644),
    ("notes with a space\nand a line", b"odd name", 0o777),
    ("a script", b"#!/bin/sh\n", 0o4755),
    ("closed", b"nobody may read this", 0o000),
    ("broken.onnx", b"\x08\x08\x3a\xff\xff", 0o644),
    ("empty.onnx", b"", 0o644),
    ("text.onnx", b"version https://git-lfs.github.com/spec/v1\n", 0o600),
]

FEW = ("m.onnx.bak", "m.onnx.data.old", ".m.onnx.deadbeef.tmp", ".m.onnx.0123456789abcdef.tmp", "m.onnx.data.partial")


def lay_out_few(folder: Path) -> None:
    """Puts those there that look most like ours: for walks of many steps, each of which looks at all of them."""
    for name, content, mode in FILES:
        if name in FEW:
            (folder / name).write_bytes(content)
            (folder / name).chmod(mode)
    for name, content in _models().items():
        (folder / name).write_bytes(content)
    os.symlink("m.onnx.bak", folder / "m.onnx.link")


def lay_out(folder: Path, without: Iterable[str] = ()) -> None:
    """Puts the decoys there. `other.onnx` has data of its own; `named.onnx` names files that no save has written."""
    for name, content, mode in FILES:
        if name in without:
            continue
        (folder / name).write_bytes(content)
        (folder / name).chmod(mode)
    with suppress(OSError):  # some file systems take none
        (folder / os.fsdecode(b"\xff\xfe.onnx")).write_bytes(b"a name that is no UTF-8")
    for name, content in _models().items():
        (folder / name).write_bytes(content)
    inner = folder / "folder.onnx"
    inner.mkdir(0o750)
    (inner / "m.onnx.data").write_bytes(b"in a folder of its own")
    os.mkfifo(folder / "pipe.onnx")
    os.symlink("m.onnx.bak", folder / "link to the copy.onnx")
    os.symlink("nowhere", folder / "m.onnx.link")
    os.symlink("loop.onnx", folder / "loop.onnx")
    os.link(folder / "m.onnx.md5", folder / "second name of the sum")


@cache
def _models() -> dict[str, bytes]:
    """Two models of others, and the data of the first, as bytes by name."""
    with TemporaryDirectory() as place:
        made = ps.ModelProto(ir_version=8, graph=ps.GraphProto(initializer=[from_array(np.arange(40), "w")]))
        ps.save(made, Path(place) / "other.onnx", external_data=True, size_threshold=0)
        found = {name: (Path(place) / name).read_bytes() for name in ("other.onnx", "other.onnx.data")}
    return found | {"named.onnx": naming("m.onnx.bak", "m.onnx-notes.txt")}


def naming(*locations: str) -> bytes:
    """A model that names these files, all of each, as the data of its tensors, whoever wrote them."""
    tensors = []
    for number, location in enumerate(locations):
        tensors.append(ps.TensorProto(name=f"w{number}", data_type=ps.TensorProto.UINT8, dims=[4]))
        tensors[-1].external_data = [ps.StringStringEntryProto(key="location", value=location)]
        tensors[-1].data_location = ps.TensorProto.EXTERNAL
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors)).SerializeToString()


def facts(path: str) -> Fact:
    """Everything about one entry of a folder that a step could change; no content of what may not be read."""
    status = os.lstat(path)
    kind = stat.S_IFMT(status.st_mode)
    content: object = None
    if stat.S_ISLNK(kind):
        content = os.readlink(path)
    elif stat.S_ISDIR(kind):
        content = {name: facts(os.path.join(path, name)) for name in os.listdir(path)}
    elif stat.S_ISREG(kind):
        with suppress(PermissionError):
            content = Path(path).read_bytes()
    owner = (status.st_uid, status.st_gid)
    return (kind, stat.S_IMODE(status.st_mode), owner, status.st_ino, status.st_mtime_ns, content)


def quick(path: str) -> Fact:
    """What differs after any change, unless that came within a tick of the clock."""
    status = os.lstat(path)
    return (
        status.st_mode,
        status.st_uid,
        status.st_gid,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class Watched:
    """What is in a folder now, except the names that are `ours`."""

    def __init__(self, folder: Path, ours: Iterable[str] = ()) -> None:
        self.folder = folder
        self.names = set(os.listdir(folder)) - set(ours)
        self._facts = {name: facts(os.path.join(folder, name)) for name in self.names}
        self._quick = {name: quick(os.path.join(folder, name)) for name in self.names}

    def changes(self, whole: bool = True) -> list[str]:
        """The names of what was touched or removed; without `whole` the content is not read again: times tell."""
        look, known = (facts, self._facts) if whole else (quick, self._quick)
        there = set(os.listdir(self.folder))
        return [name for name in known if name not in there or look(os.path.join(self.folder, name)) != known[name]]

    def left(self, *models: str) -> list[str]:
        """What is in the folder beside the watched files, these models, and the data files that they refer to."""
        used = {name for model in models for name in used_by(self.folder / model)}
        return sorted(set(os.listdir(self.folder)) - self.names - used)


def used_by(path: Path) -> set[str]:
    """The names of the files that a model consists of; empty where there is none."""
    if not path.exists():
        return set()
    graph = ps.load(path).graph
    assert graph is not None
    external = [tensor for tensor in graph.initializer if tensor.external_data]
    return {path.name, *(entry.value or "" for t in external for entry in t.external_data if entry.key == "location")}


def values(path: Path) -> list[np.ndarray]:
    """The values of all initializers of a model."""
    graph = ps.load(path).graph
    assert graph is not None
    return [to_array(tensor) for tensor in graph.initializer]
