"""What somebody else does with the folder between our steps: copies, replaces, removes, protects, links, names anew.

Each returns its line for the story. Nothing is cut short in place, because that ends whoever has the file mapped.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from contextlib import suppress

import proto_schema as ps
from fuzz.build import Choices
from fuzz.folders.snapshot import FILE, FOLDER, data_of, meaning
from fuzz.folders.world import BOX, PIPE, World, model_of
from proto_schema.external import set_entries

MODES = (0o600, 0o644, 0o444, 0o666, 0o640, 0o400, 0o755)
COPIES = (
    "backup.onnx",
    "m.onnx.bak",
    "m.onnx.old",
    "n.onnx",
    "m.onnx.data.bak",
    "m.onnx.data.1",
    "sub/s.onnx",
    "w.bin",
)
NAMED = ("m.onnx.bak", "m.onnx.md5", "m.onnx-notes.txt", "notes.txt", "net.py", "m.onnx.data", "w.bin", "sub/keep.bin")


def _files(world: World) -> list[str]:
    """But for what a killed save left: nobody cares for that."""
    there = (path for path, entry in world.now.items() if entry.kind == FILE and path not in world.stale)
    return sorted(path for path in there if path.startswith(BOX))


def _any(world: World, choices: Choices) -> str:
    """A model or its data, rather than another file."""
    files = _files(world)
    models = [path for path in files if meaning(world.now, path) is not None]
    data = sorted({name for path in models for name in data_of(world.now, path) if name in world.now})
    kind = choices.below(4)
    pool = models if kind < 2 else data if kind == 2 else files
    return str(choices.one_of((pool or files)[:256]))


def copy(world: World, choices: Choices) -> str:
    """A model or a data file, under another name; data stays where it is."""
    path, to = _any(world, choices), BOX + choices.one_of(COPIES)
    _replace(world, to, world.now[path].content)
    return f"cp {path} {to}"


def copy_all(world: World, choices: Choices) -> str:
    """A model with its data, to the subfolder."""
    path = _any(world, choices)
    for name in sorted({path, *data_of(world.now, path)}):
        if name in world.now and world.now[name].kind == FILE:
            _replace(world, f"{BOX}sub/{posixpath.basename(name)}", world.now[name].content)
    return f"cp {path} with its data to sub/"


def move(world: World, choices: Choices) -> str:
    """Under another name."""
    path, to = _any(world, choices), BOX + choices.one_of(COPIES)
    with suppress(OSError):
        os.replace(world.path(path), world.path(to))
    return f"mv {path} {to}"


def link(world: World, choices: Choices) -> str:
    """A second name, or a link in a file's place that leads to it."""
    path, to = _any(world, choices), BOX + choices.one_of(COPIES)
    if choices.below(2):
        with suppress(OSError):
            os.link(world.path(path), world.path(to))
        return f"ln {path} {to}"
    store = f"{BOX}sub/stored-{posixpath.basename(path)}"
    with suppress(OSError):
        os.replace(world.path(path), world.path(store))
        world.path(path).symlink_to(os.path.relpath(world.path(store), world.path(path).parent))
    return f"mv {path} {store} && ln -s {store} {path}"


def mode(world: World, choices: Choices) -> str:
    """Who may read or write it."""
    path, to = _any(world, choices), choices.one_of(MODES)
    world.path(path).chmod(to)
    return f"chmod {to:o} {path}"


def owner(world: World, choices: Choices) -> str:
    """Whose it is; only an administrator may say so."""
    path = _any(world, choices)
    if os.geteuid() == 0:
        os.chown(world.path(path), 1000, 1000 + choices.below(2))
    return f"chown 1000 {path}"


def overwrite(world: World, choices: Choices) -> str:
    """In place, with as many bytes, at another time."""
    path = _any(world, choices)
    content = world.now[path].content
    flipped = bytes(byte ^ 255 for byte in content[:30])
    with open(world.path(path), "r+b", buffering=0) as file:
        file.write(flipped)
    _touched(world, path)
    for handle in world.handles:
        if handle.files.get(path) == world.now[path].inode:
            handle.changed.add(path)
    return f"the first 30 bytes of {path} are changed in place"


def replace(world: World, choices: Choices) -> str:
    """By other bytes, or as many, through a new file."""
    path = _any(world, choices)
    size = len(world.now[path].content) if choices.below(2) else 77
    _replace(world, path, bytes((size + at) % 251 for at in range(size)))
    return f"{path} is replaced by {size} other bytes"


def remove(world: World, choices: Choices) -> str:
    path = _any(world, choices)
    world.path(path).unlink()
    return f"rm {path}"


def touch(world: World, choices: Choices) -> str:
    path = _any(world, choices)
    _touched(world, path)
    return f"touch {path}"


def hostile(world: World, choices: Choices) -> str:
    """A model that names files of others as its data: all that is in them."""
    model = ps.loads(ps.dumps(model_of(world.number())))
    assert model.graph is not None
    path, names = BOX + choices.one_of(("m.onnx", "m.onnx", "n.onnx")), []
    for tensor in model.graph.initializer:
        name = choices.one_of(NAMED)
        size = len(world.now[BOX + name].content) if BOX + name in world.now else 8
        set_entries(tensor, name, 0, size)
        tensor.dims, names = [size], [*names, name]
    _replace(world, path, ps.dumps(model))
    return f"{path} is a model that names {', '.join(names)}"


def rewrite(world: World, choices: Choices) -> str:
    """A model, by another tool that keeps its data where it is."""
    path = _any(world, choices)
    if meaning(world.now, path) is None:
        return f"nothing is done with {path}"
    model = ps.loads(world.now[path].content)
    model.producer_name = f"o{world.number()}"
    _replace(world, path, ps.dumps(model))
    return f"{path} is written anew by another tool, {model.producer_name}"


def _replace(world: World, path: str, content: bytes) -> None:
    if (path in world.now and world.now[path].kind == FOLDER) or path == PIPE:
        return
    made = world.root / "made"
    made.write_bytes(content)
    os.replace(made, world.path(path))


def _touched(world: World, path: str) -> None:
    """Clocks of file systems are coarse: a change of ours gets a time that no other has."""
    world.clock += 10**9
    os.utime(world.path(path), ns=(world.clock, world.clock))


OTHERS: tuple[Callable[[World, Choices], str], ...] = (
    *(copy, copy, copy, copy_all, move, link, mode, mode, owner, overwrite),
    *(replace, remove, touch, hostile, rewrite),
)
