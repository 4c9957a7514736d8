"""Several models with one data file, in which bytes that are equal lie once.

A save of several models, in the steps of `commit.py`: everything is written under temporary names, then the data file
gets a name that no model refers to, then one .onnx file after the other is renamed. So each model is the old one or the
new one, whole, at every moment. Not all of them change at once: what stops the save between two renamings leaves some
new and some old, and the data of both.
The data file bears the mark of all models (`marks.py`). A later save of one of them leaves it to the others, and
removes it with the last that refers to it.
All targets are locked, in the order of their names, so that two saves never wait for each other.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from proto_schema.errors import EncodeError
from proto_schema.external import tensors
from proto_schema.external.copying import Sources
from proto_schema.external.datafiles import Plan, payload_of, plan, with_data, without_data
from proto_schema.external.meter import Meter, Progress
from proto_schema.external.payload import BytesLike, nbytes
from proto_schema.files.commit import Commit, turn
from proto_schema.files.durable import blamed_on, remove_all, sync_folder
from proto_schema.files.locks import folder_locked
from proto_schema.files.naming import data_names, fitted, fresh_name
from proto_schema.files.owned import READ_ONLY, Surroundings, data_of, is_checkpoint
from proto_schema.files.saving import free_space, refuse_full
from proto_schema.files.targets import judge
from proto_schema.onnx import ModelProto
from proto_schema.units import counted, size_text
from proto_schema.wire import MAX_LENGTH
from proto_schema.wire.codec import encode_parts
from proto_schema.wire.equal import first_equal

LOCATION = "model.onnx.data"
Encoded = list[tuple[list[BytesLike], int]]


@dataclass(frozen=True)
class SharePlan:
    """What `share` writes: the bytes of each model's file, and of the data file.

    `data` is the path of the data file, '' where no tensor is large enough for one. `tensors` of the models are in it,
    as `stored` ranges of bytes; `apart` is what they would take if each was stored by itself.
    """

    models: dict[str, int]
    data: str
    data_size: int
    tensors: int
    stored: int
    apart: int

    def as_dict(self) -> dict[str, Any]:
        """The plan as a dict that JSON can represent."""
        return asdict(self)

    def as_text(self) -> str:
        """The plan as text for people."""
        lines = [f"{path}: {size_text(size)}" for path, size in self.models.items()]
        if self.data:
            lines.append(
                f"{self.data}: {size_text(self.data_size)}, {counted(self.tensors, 'tensor')} stored as {self.stored}"
                f" ({size_text(self.apart)} if each had its own bytes)"
            )
        return "\n".join(lines)


def share(
    models: Mapping[str, ModelProto],
    folder: str | os.PathLike[str],
    location: str | None = None,
    size_threshold: int = 1024,
    alignment: int = 4096,
    *,
    progress: Progress | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> SharePlan:
    """Writes models to files of these names in a folder, with one data file for all of them; returns what is written.

    Tensors with at least `size_threshold` bytes go to the file `location` (default: model.onnx.data, or
    model.onnx.1.data and so on where that is another's). Tensors with equal bytes, of one model or several, are stored
    once, also where they came from different files. Weights are streamed, and those that lie in files are copied by the
    kernel. Each file appears whole or not at all; an error or an interruption between two of them leaves the
    others as they were, with their data. Files are replaced as `save` does it, with `overwrite`, `progress` and
    `alignment` as there. With `dry_run` nothing is written, and the
    folder need not exist.
    Raises as `save` does; ValueError for names that are no names of files in the folder, or for no models.
    """
    names = list(models)
    place = os.fspath(folder)
    _check(names, location, size_threshold, alignment)
    paths = [os.path.join(place, name) for name in names]
    with ExitStack() as stack:
        for path in paths if os.path.isdir(place or ".") or not dry_run else ():
            with blamed_on(path):
                judge(path, "model", overwrite=overwrite)
        locks = {}
        for path in [] if dry_run else sorted(paths):
            with blamed_on(path):
                locks[path] = stack.enter_context(turn(path))
        sure = all(lock.sure for lock in locks.values())
        work = _SharedSave(place, names, [models[name] for name in names], overwrite, sure)
        work.prepare(location, size_threshold, alignment)
        if not dry_run:
            with blamed_on(os.path.join(place, work.location)):
                refuse_full(place, work.needed, any(map(os.path.lexists, paths)), free_space(place))
            meter = Meter(progress, work.layout_size + sum(size for _, size in work.encoded(work.location)))
            together = stack.enter_context(_Together(place, paths))
            commits = [stack.enter_context(Commit(path, locks[path], work.sources, meter)) for path in paths]
            with blamed_on(paths[0]):
                _commit(work, together, commits, meter)
        return work.described(paths)


def _check(names: Sequence[str], location: str | None, threshold: int, alignment: int) -> None:
    if not names:
        raise ValueError("no model is given")
    for name in [*names, *([] if location is None else [location])]:
        if name in ("", ".", "..") or set(name) & {"/", "\\", "\0"}:
            raise ValueError(f"{name!r} must be the bare name of a file in the folder")
    if location in names:
        raise ValueError(f"location {location!r} is the name of a model")
    if alignment < 1 or threshold < 0:
        raise ValueError("alignment must be at least 1, size_threshold at least 0")


@dataclass
class _SharedSave:
    """What is going to be written; `sure`: all locks are had, so files may be replaced."""

    folder: str
    names: list[str]
    models: list[ModelProto]
    overwrite: bool
    sure: bool
    location: str = ""
    layout: Plan = field(default_factory=lambda: Plan([], {}))
    sources: Sources = field(default_factory=Sources)
    apart: int = 0
    _encoded: dict[str, Encoded] = field(default_factory=dict)

    def prepare(self, location: str | None, threshold: int, alignment: int) -> None:
        """Decides where each tensor goes. Looks at every source, and reads what may be equal."""
        found = [one for model in self.models for one in tensors(model)]
        stored = [(one, data) for one in found if (data := payload_of(one)) is not None]
        for _, data in stored:
            self.sources.look(data)
        firsts = first_equal([data for _, data in stored], max(threshold, 1))
        moving = [(one, first) for (one, _), first in zip(stored, firsts, strict=True)]
        self.layout = plan(moving, threshold, alignment, None)
        kept = {
            id(one): pinned
            for one, data in stored
            if id(one) not in self.layout.places and (pinned := self.sources.pinned(data)) is not one.raw_data
        }
        self.models = [with_data(model, kept) if kept else model for model in self.models]
        self.apart = sum(nbytes(data) for one, data in stored if id(one) in self.layout.places)
        if self.layout.files:
            self.location = self._named(location)
            self.layout.mark([self.location], *self.names)

    def _named(self, asked: str | None) -> str:
        """The wanted name of the data file: free, or of a file that may be replaced."""
        if asked is not None:
            reason = self.objection(asked)
            there = os.path.lexists(self.path(asked))
            if reason or (is_checkpoint(asked) and there):
                number = errno.EACCES if reason == READ_ONLY else errno.EEXIST
                reason = reason or "it is a checkpoint"
                raise OSError(number, f"the data file is there already, and {reason}", self.path(asked))
            return asked if self.sure or not there else fitted(asked, f".{os.urandom(4).hex()}")
        stem, suffix = os.path.splitext(LOCATION)
        number = 0
        while True:
            middle = os.urandom(4).hex() if not self.sure else str(number)
            (name,) = data_names(f"{stem}.{middle}{suffix}" if number or not self.sure else LOCATION, 1)
            if name not in self.names and not self.objection(name):
                return name
            number += 1

    def objection(self, name: str) -> str:
        """Why the file of that name must not be replaced by the data file; '' if it may be, or is not there."""
        if not os.path.lexists(self.path(name)):
            return ""
        around = [Surroundings(self.path(one), together=self.names) for one in self.names]
        reasons = [one.objection(name) for one in around]
        if "" in reasons:
            return ""
        if not self.overwrite or around[0].user(name) or os.path.islink(self.path(name)):
            return reasons[0]
        return "a model's weights are read from it" if self.sources.reads(self.path(name)) else ""

    def path(self, name: str) -> str:
        """The path of a file of the folder."""
        return os.path.join(self.folder, name)

    @property
    def layout_size(self) -> int:
        """The size of the data file."""
        return sum(content.whole_size for content in self.layout.files)

    @property
    def needed(self) -> int:
        """The disk space that it takes until what it replaces is gone."""
        return self.layout_size + 2 * sum(size for _, size in self.encoded(self.location))

    def encoded(self, location: str) -> Encoded:
        """(parts, size) of each model, for a name of the data file. EncodeError for what is too large."""
        if location not in self._encoded:
            places = {key: (location, offset, length) for key, (_, offset, length) in self.layout.places.items()}
            made = [encode_parts(without_data(model, places)) for model in self.models]
            for name, (_, size) in zip(self.names, made, strict=True):
                if size > MAX_LENGTH:
                    raise EncodeError(
                        f"{name} has {size} bytes without its external data, past protobuf's limit of 2 GiB"
                    )
            self._encoded[location] = made
        return self._encoded[location]

    def described(self, paths: Sequence[str]) -> SharePlan:
        sizes = {path: size for path, (_, size) in zip(paths, self.encoded(self.location), strict=True)}
        places = self.layout.places.values()
        data = self.path(self.location) if self.layout.files else ""
        return SharePlan(sizes, data, self.layout_size, len(places), len(set(places)), self.apart)


@dataclass
class _Together:
    """What the commits of a folder have in common: its lock, and data files of fresh names. Ends after all of them."""

    folder: str
    paths: list[str]
    fresh: list[str] = field(default_factory=list)
    _lock: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> _Together:
        return self

    def __exit__(self, *error: object) -> None:
        """Removes the fresh names that no model refers to any more."""
        with self._lock:
            try:
                self._clean()
            except BaseException:
                self._clean()
                raise

    def lock(self) -> None:
        """Locks the folder until the commits have ended."""
        self._lock.enter_context(folder_locked(self.folder))

    def _clean(self) -> None:
        there = [path for path in self.fresh if os.path.lexists(path)]
        if there:
            used = {os.path.abspath(data) for path in self.paths if os.path.lexists(path) for data in data_of(path)}
            remove_all([path for path in there if os.path.abspath(path) not in used])


def _commit(work: _SharedSave, together: _Together, commits: Sequence[Commit], meter: Meter) -> None:
    """Writes what was prepared."""
    wanted = work.location
    taken = bool(wanted) and os.path.lexists(work.path(wanted))
    used = fresh_name(wanted) if taken else wanted
    work.encoded(used)  # what cannot be encoded fails before the data is written
    data = ""
    for content in work.layout.files:
        data = commits[0].write(work.path(used), content.parts(), content.whole_size)
    written = _write_models(work, commits, used)
    meter.finish()
    together.lock()
    for commit in commits:
        commit.settle(locking=False)
    replaces = False
    if data:
        free = not os.path.lexists(work.path(wanted))
        replaces = not free and work.sure and not work.objection(wanted)
        if free != (used == wanted):
            used = wanted if free else fresh_name(wanted)
            written = _write_models(work, commits, used)
        if used != wanted:
            together.fresh.append(work.path(used))
        commits[0].rename(data, work.path(used))
        sync_folder(work.path(used))
    _rename_models(commits, written)
    if replaces:
        sync_folder(work.path(used))
        with suppress(OSError):
            _take(work, commits, used)


def _take(work: _SharedSave, commits: Sequence[Commit], fresh: str) -> None:
    """The models refer to a data file of a fresh name: give it the wanted name too, then refer to that.

    The fresh name stays until no model refers to it. Where the file system has no links, nothing changes.
    """
    first, wanted = commits[0], work.location
    written = _write_models(work, commits, wanted)
    first.uses(written[0], [work.path(wanted), work.path(fresh)])
    first.name_too(work.path(fresh), work.path(wanted))
    sync_folder(first.path)
    _rename_models(commits, written)


def _write_models(work: _SharedSave, commits: Sequence[Commit], location: str) -> list[str]:
    data = [work.path(location)] if work.layout.files else []
    return [commit.write_model(*encoded, data) for commit, encoded in zip(commits, work.encoded(location), strict=True)]


def _rename_models(commits: Sequence[Commit], written: Sequence[str]) -> None:
    for commit, temporary in zip(commits, written, strict=True):
        commit.rename(temporary, commit.path)
