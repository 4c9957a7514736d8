"""Several models with the same data file, or files, in which bytes that are equal lie once.

A save of several models, in the steps of `commit.py`: everything is written under temporary names, then the data files
get names that no model refers to, then one .onnx file after the other is renamed. So each model is the old one or the
new one, whole, at every moment. Not all of them change at once: what stops the save between two renamings leaves some
new and some old, and the data of both.
A data file bears the mark of all models (`marks.py`). A later save of one of them leaves it to the others, and
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
from proto_schema.external.addresses import is_address, joined, names_in
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
    """What `share` writes: the bytes of each model's file, and of each data file.

    `data` is the path of the first data file, '' where no tensor is large enough for one. `tensors` of the models are
    in these files, as `stored` ranges of bytes; `apart` is what they would take if each was stored by itself.
    """

    models: dict[str, int]
    data_files: dict[str, int]
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
        lines += [f"{path}: {size_text(size)}" for path, size in self.data_files.items()]
        if self.data:
            lines[-1] += (
                f", {counted(self.tensors, 'tensor')} stored as {self.stored}"
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
    shard_size: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> SharePlan:
    """Writes models to files of these names in a folder, with one data file for all of them; returns what is written.

    Tensors with at least `size_threshold` bytes go to the file `location` (default: model.onnx.data, or
    model.onnx.1.data and so on where that is another's); with `shard_size` to files of about that many bytes each.
    Tensors with equal bytes, of one model or several, are stored once, also where they came from different files.
    Weights are streamed, and those that lie in files are copied by the kernel. Each file appears whole or not at all;
    an error or an interruption between two of them leaves the others as they were, with their data. Files are replaced
    as `save` does it, with `overwrite`, `progress` and `alignment` as there. With `dry_run` nothing is written, and the
    folder need not exist.
    The folder may be an address in storage: its data files have names of their own then, and the models appear last.
    Raises as `save` does; ValueError for names that are no names of files in the folder, or for no models.
    """
    names = list(models)
    place = os.fspath(folder)
    _check(names, location, size_threshold, alignment, shard_size)
    paths = [joined(place, name) for name in names]
    if is_address(place):
        shared = _SharedSave(place, names, list(models.values()), overwrite, True)
        shared.prepare(location, size_threshold, alignment, shard_size)
        if not dry_run:
            _store(shared, progress)
        return shared.described(paths)
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
        work.prepare(location, size_threshold, alignment, shard_size)
        if not dry_run:
            with blamed_on(os.path.join(place, *work.locations[:1])):
                refuse_full(place, work.needed, any(map(os.path.lexists, paths)), free_space(place))
            meter = Meter(progress, work.layout_size + sum(size for _, size in work.encoded(work.locations)))
            together = stack.enter_context(_Together(place, paths))
            commits = [stack.enter_context(Commit(path, locks[path], work.sources, meter)) for path in paths]
            with blamed_on(paths[0]):
                _commit(work, together, commits, meter)
        return work.described(paths)


def _store(work: _SharedSave, progress: Progress | None) -> None:
    """Writes what was prepared to a folder in storage."""
    from proto_schema.external.storing import judge_name, write_all

    there = names_in(work.folder)
    for name in work.names:
        judge_name(work.folder, name, there, work.overwrite)
    meter = Meter(progress, work.layout_size + sum(size for _, size in work.encoded(work.locations)))
    write_all(work.folder, work.names, work.layout, work.locations, work.encoded, meter)


def _check(names: Sequence[str], location: str | None, threshold: int, alignment: int, shard: int | None) -> None:
    if not names:
        raise ValueError("no model is given")
    for name in [*names, *([] if location is None else [location])]:
        if name in ("", ".", "..") or set(name) & {"/", "\\", "\0"}:
            raise ValueError(f"{name!r} must be the bare name of a file in the folder")
    if location in names:
        raise ValueError(f"location {location!r} is the name of a model")
    if alignment < 1 or threshold < 0:
        raise ValueError("alignment must be at least 1, size_threshold at least 0")
    if shard is not None and shard < 1:
        raise ValueError("shard_size must be at least 1")


@dataclass
class _SharedSave:
    """What is going to be written; `sure`: all locks are had, so files may be replaced."""

    folder: str
    names: list[str]
    models: list[ModelProto]
    overwrite: bool
    sure: bool
    locations: list[str] = field(default_factory=list)
    layout: Plan = field(default_factory=lambda: Plan([], {}))
    sources: Sources = field(default_factory=Sources)
    apart: int = 0
    _encoded: dict[tuple[str, ...], Encoded] = field(default_factory=dict)

    def prepare(self, location: str | None, threshold: int, alignment: int, shard: int | None) -> None:
        """Decides where each tensor goes. Looks at every source, and reads what may be equal."""
        found = [one for model in self.models for one in tensors(model)]
        stored = [(one, data) for one in found if (data := payload_of(one)) is not None]
        for _, data in stored:
            self.sources.look(data)
        firsts = first_equal([data for _, data in stored], max(threshold, 1))
        moving = [(one, first) for (one, _), first in zip(stored, firsts, strict=True)]
        self.layout = plan(moving, threshold, alignment, shard)
        kept = {
            id(one): pinned
            for one, data in stored
            if id(one) not in self.layout.places and (pinned := self.sources.pinned(data)) is not one.raw_data
        }
        self.models = [with_data(model, kept) if kept else model for model in self.models]
        self.apart = sum(nbytes(data) for one, data in stored if id(one) in self.layout.places)
        if self.layout.files:
            self.locations = self._named(location)
            self.layout.mark(self.locations, *self.names)

    def _named(self, asked: str | None) -> list[str]:
        """The wanted names of the data files: free, or of files that may be replaced."""
        count = len(self.layout.files)
        if is_address(self.folder):
            from proto_schema.external.storing import free_names

            usual = "{0}.{2}{1}".format(*os.path.splitext(LOCATION), os.urandom(4).hex())
            return free_names(asked, usual, names_in(self.folder), count)
        if asked is not None:
            names = data_names(asked, count)
            for name in names:
                reason = self.objection(name)
                if reason or name in self.names or (is_checkpoint(name) and os.path.lexists(self.path(name))):
                    number = errno.EACCES if reason == READ_ONLY else errno.EEXIST
                    reason = reason or ("it is a model of this folder" if name in self.names else "it is a checkpoint")
                    raise OSError(number, f"the data file is there already, and {reason}", self.path(name))
            there = any(os.path.lexists(self.path(name)) for name in names)
            return names if self.sure or not there else data_names(fitted(asked, f".{os.urandom(4).hex()}"), count)
        stem, suffix = os.path.splitext(LOCATION)
        number = 0
        while True:
            middle = os.urandom(4).hex() if not self.sure else str(number)
            names = data_names(f"{stem}.{middle}{suffix}" if number or not self.sure else LOCATION, count)
            if not any(name in self.names or self.objection(name) for name in names):
                return names
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
        return joined(self.folder, name)

    @property
    def layout_size(self) -> int:
        """The size of the data files together."""
        return sum(content.whole_size for content in self.layout.files)

    @property
    def needed(self) -> int:
        """The disk space that it takes until what it replaces is gone."""
        return self.layout_size + 2 * sum(size for _, size in self.encoded(self.locations))

    def encoded(self, locations: Sequence[str]) -> Encoded:
        """(parts, size) of each model, for these names of data files. EncodeError for what is too large."""
        key = tuple(locations)
        if key not in self._encoded:
            rows = self.layout.places.items()
            places = {one: (key[index], offset, length) for one, (index, offset, length) in rows}
            made = [encode_parts(without_data(model, places)) for model in self.models]
            for name, (_, size) in zip(self.names, made, strict=True):
                if size > MAX_LENGTH:
                    raise EncodeError(
                        f"{name} has {size} bytes without its external data, past protobuf's limit of 2 GiB"
                    )
            self._encoded[key] = made
        return self._encoded[key]

    def described(self, paths: Sequence[str]) -> SharePlan:
        sizes = {path: size for path, (_, size) in zip(paths, self.encoded(self.locations), strict=True)}
        places = self.layout.places.values()
        named = zip(self.locations, self.layout.files, strict=True)
        data = {self.path(name): content.whole_size for name, content in named}
        return SharePlan(sizes, data, next(iter(data), ""), self.layout_size, len(places), len(set(places)), self.apart)


@dataclass
class _Together:
    """What the commits of a folder have in common: its lock, and the data files. Ends after all of them."""

    folder: str
    paths: list[str]
    data: list[str] = field(default_factory=list)
    _lock: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> _Together:
        return self

    def __exit__(self, *error: object) -> None:
        """Removes the data files that no model refers to: each of them needs some, and not all may be committed."""
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
        there = [path for path in self.data if os.path.lexists(path)]
        if there:
            used = {os.path.abspath(data) for path in self.paths if os.path.lexists(path) for data in data_of(path)}
            remove_all([path for path in there if os.path.abspath(path) not in used])


def _commit(work: _SharedSave, together: _Together, commits: Sequence[Commit], meter: Meter) -> None:
    """Writes what was prepared."""
    wanted = work.locations
    taken = any(os.path.lexists(work.path(name)) for name in wanted)
    used = [fresh_name(name) for name in wanted] if taken else wanted
    work.encoded(used)  # what cannot be encoded fails before the data is written
    data = [
        commits[0].write(work.path(name), content.parts(), content.whole_size)
        for name, content in zip(used, work.layout.files, strict=True)
    ]
    written = _write_models(work, commits, used)
    meter.finish()
    together.lock()
    for commit in commits:
        commit.settle(locking=False)
    replaces = False
    if data:
        free = not any(os.path.lexists(work.path(name)) for name in wanted)
        replaces = not free and work.sure and not any(map(work.objection, wanted))
        if free != (used == wanted):
            used = wanted if free else [fresh_name(name) for name in wanted]
            written = _write_models(work, commits, used)
        together.data += map(work.path, used)
        for temporary, name in zip(data, used, strict=True):
            commits[0].rename(temporary, work.path(name))
        sync_folder(work.path(used[0]))
    _rename_models(commits, written)
    if replaces:
        sync_folder(work.path(used[0]))
        with suppress(OSError):
            together.data += map(work.path, wanted)
            _take(work, commits, used)


def _take(work: _SharedSave, commits: Sequence[Commit], fresh: Sequence[str]) -> None:
    """The models refer to data files of fresh names: give them the wanted names too, then refer to those.

    The fresh names stay until no model refers to them. Where the file system has no links, nothing changes.
    """
    first, wanted = commits[0], work.locations
    written = _write_models(work, commits, wanted)
    first.uses(written[0], [work.path(name) for name in (*wanted, *fresh)])
    for old, new in zip(fresh, wanted, strict=True):
        first.name_too(work.path(old), work.path(new))
    sync_folder(first.path)
    _rename_models(commits, written)


def _write_models(work: _SharedSave, commits: Sequence[Commit], locations: Sequence[str]) -> list[str]:
    data = [work.path(name) for name in locations]
    return [
        commit.write_model(*encoded, data) for commit, encoded in zip(commits, work.encoded(locations), strict=True)
    ]


def _rename_models(commits: Sequence[Commit], written: Sequence[str]) -> None:
    for commit, temporary in zip(commits, written, strict=True):
        commit.rename(temporary, commit.path)
