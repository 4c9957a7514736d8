"""Our writers, with arguments by choice: what each step calls, what it writes to, and what the result should mean."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import proto_schema as ps
from fuzz.build import Choices
from fuzz.folders.snapshot import FILE, Meaning, data_of, meaning, resolved
from fuzz.folders.world import BOX, PIPE, Handle, World, meaning_of, model_of
from purexport import inspect

TARGETS = ("m.onnx", "m.onnx", "m.onnx", "n.onnx", "n.onnx", "sub/s.onnx", "k.onnx", "plain")
ODD_TARGETS = ("link_in", "link_out", "dangling", "pipe", "hard", "notes.txt", "net.py", "x.npy", "m.onnx.bak", "sub")
LOCATIONS = ("w.bin", "w.bin", "m.onnx.data", "weights", "notes.txt", "x.npy", "m.onnx.bak", "n.onnx")
KEPT = 3


@dataclass
class Doing:
    """One step of ours.

    `line` shows it as Python. `means`: what the target means afterwards; None where it is to be no model, or where
    nothing is known about it. `inputs`: files that it reads and must not replace. `sound`: nothing speaks against it.
    """

    line: str
    run: Callable[[], Any]
    verb: str
    target: str = ""
    means: Meaning | None = None
    inputs: set[str] = field(default_factory=set)
    resume: bool = False
    overwrite: bool = False
    sound: bool = False


def _target(world: World, choices: Choices) -> str:
    """Most often the name of a model; now and then anything that is there."""
    if choices.below(8):
        return BOX + str(choices.one_of(TARGETS))
    if choices.below(2):
        return BOX + str(choices.one_of(ODD_TARGETS))
    there = sorted(path for path in world.now if path.startswith(BOX) and path not in world.stale)
    return str(choices.one_of(there[:256]))


def _source(world: World, choices: Choices) -> str:
    """A file to read: most often a model."""
    there = [path for path in world.now if path.startswith(BOX) and path != PIPE and path not in world.stale]
    whole = sorted(path for path in there if meaning(world.now, path) is not None)
    if whole and choices.below(8):
        return str(choices.one_of(whole[:256]))
    return str(choices.one_of(sorted(there)[:256]))


def _written(path: str) -> str:
    """A path as the story shows it."""
    return f'"{path.removeprefix(BOX)}"' if path.startswith(BOX) else f'"../{path}"'


def save(world: World, choices: Choices) -> Doing:
    """A model that is new, that was loaded before, or that is loaded now; with all options."""
    target, kind = _target(world, choices), choices.below(4)
    if kind == 3 and world.handles:
        handle = choices.one_of(world.handles)
        model, said = handle.model, handle.name
        means = None if handle.doubtful(world.now) else handle.means
        fresh = False
    elif kind == 2 and (path := _source(world, choices)) and (found := meaning(world.now, path)) is not None:
        model, means, said, fresh = None, found, f"ps.load({_written(path)})", False
    else:
        number = world.number()
        model, means, said, fresh = model_of(number), meaning_of(number), f"model({number})", True
    options = _options(choices)

    def run() -> None:
        ps.save(ps.load(world.path(path)) if model is None else model, world.path(target), **options)

    shown = "".join(f", {key}={value!r}" for key, value in options.items())
    line = f"ps.save({said}, {_written(target)}{shown})"
    tar = options.get("archive") is not None
    sound = fresh and not tar and _is_free(world, target) and "location" not in options
    resume = bool(options.get("resume"))
    sound = sound and options.get("external_data") != "reference" and not resume
    overwrite = bool(options.get("overwrite"))
    return Doing(line, run, "save", target, None if tar else means, set(), resume, overwrite, sound)


def _options(choices: Choices) -> dict[str, Any]:
    where = choices.one_of((True, True, True, None, False, "reference"))
    found: dict[str, Any] = {"external_data": where, "size_threshold": choices.one_of((50, 1, 1024))}
    odd = choices.below(16)
    if odd in (1, 2, 3):
        found["location"] = choices.one_of(LOCATIONS)
    elif odd in (4, 5):
        found["shard_size"] = choices.one_of((100, 1, 1000))
    elif odd == 6:
        found["archive"] = "tar"
        found["external_data"] = None if where == "reference" else where
    if choices.below(4) == 3:
        found["resume"] = True
    if choices.below(8) == 7:
        found["overwrite"] = True
    found["alignment"] = choices.one_of((64, 1, 4096))
    return found


def _is_free(world: World, target: str) -> bool:
    """Whether there is nothing at a path, or a whole model that nobody has protected and that no other one needs."""
    if posixpath.basename(target) == "sub" or posixpath.dirname(target) + "/" not in (BOX, f"{BOX}sub/"):
        return False
    entry = world.now.get(target)
    if entry is None:
        return True
    if entry.kind != FILE or not entry.mode & 0o200 or meaning(world.now, target) is None:
        return False
    return not any(target in data_of(world.now, path) for path in world.now)


def load(world: World, choices: Choices) -> Doing:
    """Kept, to be saved when the folder has changed."""
    path = _source(world, choices)
    means = meaning(world.now, path)
    name = f"old{len(world.story)}"
    read = {resolved(world.now, path)} | data_of(world.now, path)
    files = {one: world.now[one].inode for one in read if one in world.now}

    def run() -> None:
        model = ps.load(world.path(path))
        if means is not None:
            world.handles = [*world.handles[1 - KEPT :], Handle(name, model, means, files)]

    return Doing(f"{name} = ps.load({_written(path)})", run, "load")


def plan(world: World, choices: Choices) -> Doing:
    """Writes nothing."""
    target, number, options = _target(world, choices), world.number(), _options(choices)
    shown = "".join(f", {key}={value!r}" for key, value in options.items())
    return Doing(
        f"ps.plan(model({number}), {_written(target)}{shown})",
        lambda: ps.plan(model_of(number), world.path(target), **options),
        "plan",
    )


def edit(world: World, choices: Choices) -> Doing:
    """In place, to another file, or by a record at the end."""
    path, way = _source(world, choices), choices.below(4)
    target, overwrite = _target(world, choices) if way == 3 else path, choices.below(8) == 7
    producer = f"e{world.number()}"
    edits = inspect.Edits(fields={"producer_name": producer})
    found = meaning(world.now, path)
    means = None if found is None else (producer, found[1])
    other = world.path(target) if way == 3 else None
    shown = f", {_written(target)}" if way == 3 else ", append=True" if way == 2 else ""
    shown += ", overwrite=True" if overwrite else ""
    return Doing(
        f'inspect.edit({_written(path)}, inspect.Edits(fields={{"producer_name": "{producer}"}}){shown})',
        lambda: inspect.edit(world.path(path), edits, other, append=way == 2, overwrite=overwrite),
        "edit",
        target,
        means,
        data_of(world.now, path),
        overwrite=overwrite,
    )


def _tool(verb: str, call: Callable[..., Any], keeps: bool, line: str) -> Callable[[World, Choices], Doing]:
    """A tool from a file to a file; `keeps`: the result means what the source means."""

    def made(world: World, choices: Choices) -> Doing:
        path, target, overwrite = _source(world, choices), _target(world, choices), choices.below(8) == 7
        own = data_of(world.now, path)
        beside = posixpath.dirname(path) == posixpath.dirname(target) and world.now[path].kind == FILE
        means = meaning(world.now, path) if keeps and (beside or verb == "extract") else None
        inputs = own if verb == "canonicalize" else {path, resolved(world.now, path)} | own
        options: dict[str, Any] = {"overwrite": True} if overwrite else {}
        shown = line.format(_written(path), _written(target), ", overwrite=True" if overwrite else "")

        def run() -> None:
            call(world.path(path), world.path(target), **options)

        return Doing(shown, run, verb, target, means, inputs, overwrite=overwrite)

    return made


canonicalize = _tool("canonicalize", inspect.canonicalize, True, "inspect.canonicalize({}, {}{})")
salvage = _tool("salvage", inspect.salvage, True, "inspect.salvage({}, {}{})")
html = _tool("html", inspect.html, False, "inspect.html({}, {}{})")
npy = _tool(
    "npy",
    lambda path, to, **options: inspect.tensor_to_npy(path, "w0", to, **options),
    False,
    'inspect.tensor_to_npy({}, "w0", {})',
)
safetensors = _tool("safetensors", inspect.to_safetensors, False, "inspect.to_safetensors({}, {}{})")
extract = _tool(
    "extract",
    lambda path, to, **options: inspect.extract_subgraph(path, to, ["y"], **options),
    True,
    'inspect.extract_subgraph({}, {}, ["y"]{})',
)

DOINGS = (*[save] * 11, *[load] * 3, plan, *[edit] * 3, canonicalize, canonicalize, salvage, npy, safetensors, extract)
RARE = html  # its page takes longer to write than all others together
