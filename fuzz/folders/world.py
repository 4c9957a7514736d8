"""The folder that the steps change: files of others with every tempting name, a subfolder, links, a pipe, an outside.

`written` says which bytes we wrote where and for which model: only these may ever be replaced or removed.
`story` tells the steps as lines of Python, so that a finding can be read.
"""

from __future__ import annotations

import fcntl
import os
import posixpath
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import proto_schema as ps
from fuzz.bounds import folder
from fuzz.build import Choices
from fuzz.folders.snapshot import FIFO, FILE, Meaning, Snapshot, take
from proto_schema import helper

BOX = "box/"
PIPE = "box/pipe"
PIPE_SIZE = 1 << 20
SHAPES = ((40,), (40, 100), (3, 200, 64), (600, 40), (64, 64, 64))  # bytes of the tensors of a model
ALWAYS = {
    "net.py": 0o644,
    "x.npy": 0o644,
    "notes.txt": 0o444,
    "m.onnx.bak": 0o644,
    "m.onnx.md5": 0o600,
    "m.onnx-notes.txt": 0o640,
    ".m.onnx.deadbeef.tmp": 0o644,
    ".m.onnx.0123456789abcdef.tmp": 0o644,
    "sub/keep.bin": 0o644,
}
SOMETIMES = (
    "m.onnx.data",
    "n.onnx.data",
    "m.onnx.1.data",
    "m.onnx.data.1",
    "m.onnx.data.partial",
    "m.onnx.data.partial.journal",
    "w.bin",
    ".m.onnx.proto_schema-lock",
    "m.onnx-00001-of-00002.data",
    "sub/s.onnx.data",
)
UMASKS = (0o022, 0o022, 0o077, 0o002)


@cache
def model_of(number: int) -> ps.ModelProto:
    """The model of a number: those with one remainder have tensors of the same names and sizes, and other bytes."""
    sizes = SHAPES[number % len(SHAPES)]
    weights = [
        helper.make_tensor(f"w{at}", ps.TensorProto.UINT8, [size], _bytes(number, at, size), raw=True)
        for at, size in enumerate(sizes)
    ]
    names = [f"w{at}" for at in range(len(sizes))]
    node = helper.make_node("Concat", names, ["y"], "all", axis=0)
    output = helper.make_tensor_value_info("y", ps.TensorProto.UINT8, [sum(sizes)])
    graph = helper.make_graph([node], "g", [], [output], weights)
    return helper.make_model(
        graph, producer_name=f"p{number}", opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )


def _bytes(number: int, at: int, size: int) -> bytes:
    return bytes((number * 7 + at * 31 + index * (number % 11 + 1)) % 256 for index in range(size))


def meaning_of(number: int) -> Meaning:
    """What that model means."""
    graph = model_of(number).graph
    assert graph is not None
    return f"p{number}", tuple((str(tensor.name), bytes(tensor.raw_data or b"")) for tensor in graph.initializer)


@dataclass
class Handle:
    """A model that was loaded and kept. `means`: what the folder said at that moment; `files`: the inodes of its files.

    `changed`: those that somebody has changed in place since. Once such a file is gone nobody can tell that it was.
    """

    name: str
    model: ps.ModelProto
    means: Meaning
    files: dict[str, int]
    changed: set[str] = field(default_factory=set)

    def doubtful(self, now: Snapshot) -> bool:
        """Whether a file was changed in place and is there no more."""
        return any(path not in now or now[path].inode != self.files[path] for path in self.changed)


@dataclass
class World:
    """A sandbox, as it is after the last step."""

    root: Path
    now: Snapshot = field(default_factory=dict)
    written: dict[tuple[str, bytes], str] = field(default_factory=dict)  # (name, content) we wrote, and for which model
    ours: dict[str, str] = field(default_factory=dict)  # the files that are there of those
    stale: dict[str, str] = field(default_factory=dict)  # what a save left behind, and which one is to sweep it
    handles: list[Handle] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    fresh: int = 0
    clock: int = 10**18

    @property
    def box(self) -> Path:
        return self.root / BOX

    def path(self, name: str) -> Path:
        """The path of a name in a snapshot."""
        return self.root / name

    def number(self) -> int:
        """That of a model which is in no file yet."""
        self.fresh += 1
        return self.fresh

    def look(self) -> Snapshot:
        """Notes what the folder holds now."""
        self.now = take(self.root)
        return self.now

    def settle(self) -> None:
        """Who wrote what is there: bytes that we wrote under a name are ours where they have it, beside the model."""
        for path in list(self.ours):
            if path not in self.now:
                del self.ours[path]
        for path in list(self.stale):
            if path not in self.now:
                del self.stale[path]
        for path, entry in self.now.items():
            folder, name = posixpath.split(path)
            if entry.kind == FILE and (name, entry.content) in self.written:
                self.ours[path] = posixpath.join(folder, self.written[name, entry.content])

    def wrote(self, path: str, content: bytes, target: str) -> None:
        """Notes a data file that is ours."""
        self.written[posixpath.basename(path), content] = posixpath.basename(target)

    def drained(self) -> bytes:
        """What was written to the pipe since."""
        with suppress(BlockingIOError):
            return os.read(_pipe(self.root.parent), PIPE_SIZE)
        return b""


@cache
def _folder() -> Any:
    return folder("folders")


@cache
def _pipe(root: Path) -> int:
    """The pipe, open for both directions, so that a writer does not wait; it lives as long as the process."""
    made = root / "pipe.kept"
    os.mkfifo(made)
    descriptor = os.open(made, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(descriptor, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_SIZE)
    return descriptor


def new_world(choices: Choices) -> World:
    """The sandbox of this process, as it was at first, with some of the decoys."""
    top = Path(os.path.realpath(_folder().name))
    _pipe(top)
    root = top / "root"
    shutil.rmtree(root, ignore_errors=True)
    world = World(root)
    for name in ("outside", "box/sub"):
        (root / name).mkdir(parents=True)
    os.umask(choices.one_of(UMASKS))
    (root / "outside/secret").write_bytes(b"SECRET-." * 8)
    for name, mode in ALWAYS.items():
        (world.box / name).write_bytes(f"of somebody else: {name}".encode() * 3)
        (world.box / name).chmod(mode)
    chance = choices.below(256) | choices.below(256) << 8
    for at, name in enumerate(SOMETIMES):
        if chance >> at & 1:
            (world.box / name).write_bytes(f"of somebody else: {name}".encode() * 3)
    for name, leads in (("link_in", "net.py"), ("link_out", "../outside/secret"), ("dangling", "nowhere")):
        (world.box / name).symlink_to(leads)
    os.link(root / "outside/secret", world.box / "hard")
    os.link(top / "pipe.kept", root / PIPE)
    world.look()
    assert world.now[PIPE].kind == FIFO
    return world
