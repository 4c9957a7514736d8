"""One model replaced by another, in an order that leaves the old or the new one whole whatever stops it.

Everything that can fail for want of space comes first: data files and the model are written durably under temporary
names. Then the data files take names that nothing refers to, and the renaming of the .onnx file is the commit.
If a wanted name was taken, a second commit moves the reference from a fresh name to it.
The target's lock is held all the time. The folder's lock is held from the first renaming to the last removal, and what
was decided about the files of others is decided again under it: saves of other targets wait that short time only.
Cleaning up is one function for every outcome. It looks at the disk for what was renamed (a temporary name that is gone)
instead of trusting variables, because an interrupt can come between a call of the system and the next statement.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from types import TracebackType
from typing import TypeAlias

from proto_schema.external.addresses import refuse_address
from proto_schema.external.copying import Sources
from proto_schema.external.datafiles import DataFile
from proto_schema.external.meter import Meter
from proto_schema.external.payload import BytesLike
from proto_schema.files.durable import (
    blamed_on,
    remove_all,
    sync_folder,
    takes_rename,
    write_new,
    write_through,
)
from proto_schema.files.locks import Lock, folder_locked, locked
from proto_schema.files.naming import fresh_name, temporary_name
from proto_schema.files.owned import Surroundings, data_of
from proto_schema.files.targets import Kind, judge
from proto_schema.wire.records import dataclass


@contextmanager
def turn(path: str) -> Iterator[Lock]:
    """The lock of a target, for the time of the block. What a killed writer of it left behind is removed."""
    with locked(path) as lock:
        if lock.sure:
            remove_all(list(Surroundings(path).temporaries()))
        yield lock


@dataclass
class Commit:
    """The replacing of the model at `path`, whose `lock` is held; a context, which cleans up at its end.

    `sources` are the files that ranges are copied from; `meter` hears what is written.
    """

    path: str
    lock: Lock
    sources: Sources | None = None
    meter: Meter = field(default_factory=Meter)
    _temporaries: list[str] = field(default_factory=list)
    _renamed: list[tuple[str, str]] = field(default_factory=list)  # (from, to), noted before it is done
    _kept: dict[str, str] = field(default_factory=dict)  # partial files and their journals
    _models: dict[str, list[str]] = field(default_factory=dict)  # the data files of a model, by its temporary name
    _before: Surroundings | None = None  # noted when the folder is locked: what the old model refers to
    _folder: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Commit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Removes temporary files, and what the model which is committed now does not refer to."""
        with self._folder:
            try:
                self._clean()
            except BaseException:
                self._clean()
                raise

    def _clean(self) -> None:
        done = [(old, new) for old, new in self._renamed if not os.path.lexists(old)]
        models = [self._models[old] for old, _ in done if old in self._models]
        if not models:
            done = [names for names in done if not self._put_back(*names)]
        unused = {new for _, new in done} - {self.path, *(models[-1] if models else ())}
        spent = list(self._kept.values()) if models else []
        try:
            if models:
                sync_folder(self.path)  # before the old data goes: a lost renaming would bring the old model back
        finally:
            remove_all([*self._temporaries, *unused, *spent])
            if models and self._before is not None and self.lock.sure:
                used = {os.path.basename(path) for path in models[-1]}
                remove_all(list(self._before.leftovers(used)))

    def _put_back(self, old: str, new: str) -> bool:
        """Gives a partial file its name back, for the next save to go on with."""
        if old in self._kept:
            with suppress(OSError):
                os.replace(new, old)
                return True
        return False

    def keep(self, partial: str, journal: str) -> None:
        """A data file that is to stay, with its journal, where the save fails."""
        self._kept[partial] = journal

    def temporary(self) -> str:
        """A name beside the target that is gone when the context ends."""
        name = temporary_name(self.path)
        self._temporaries.append(name)
        return name

    def write(self, target: str, parts: Iterable[BytesLike], size: int) -> str:
        """Writes what is to be named `target` durably under a temporary name, which is returned."""
        name = self.temporary()
        write_new(name, parts, size, self.like(target), self.sources, self.meter)
        return name

    def like(self, target: str) -> Sequence[str]:
        """The files whose mode and owner a file that is to be named `target` gets: of the first that exists."""
        return (target, self.path)

    def write_model(self, parts: Iterable[BytesLike], size: int, data_files: list[str]) -> str:
        """The same for the model, which refers to these data files."""
        name = self.write(self.path, parts, size)
        self._models[name] = data_files
        return name

    def lock_folder(self) -> None:
        """Locks the folder until the context ends."""
        self._folder.enter_context(folder_locked(os.path.dirname(self.path)))

    def uses(self, model: str, data_files: list[str]) -> None:
        """Says which data files the model of that temporary name refers to."""
        self._models[model] = data_files

    def settle(self, locking: bool = True) -> Surroundings:
        """Locks the folder, and returns what is in it; data of the old model goes when the context ends.

        Of several commits in a folder only the one that ends last is `locking`.
        """
        if locking:
            self.lock_folder()
        self._before = Surroundings(self.path, searching=self.lock.found)
        _ = self._before.data  # as long as the old model is there
        return self._before

    def rename(self, temporary: str, target: str) -> None:
        """Gives a file its name; for the model that is the commit."""
        self._renamed.append((temporary, target))
        os.replace(temporary, target)

    def name_too(self, path: str, target: str) -> None:
        """Gives a file another name besides. OSError where the file system has no links."""
        link = self.temporary()
        os.link(path, link)
        self.rename(link, target)


DataWriter: TypeAlias = Callable[[Commit, str, DataFile], str]


def write_data(commit: Commit, target: str, content: DataFile) -> str:
    """The usual way to write a data file: durably, under the temporary name that is returned."""
    return commit.write(target, content.parts(), content.whole_size)


@dataclass
class DataCommit:
    """The replacing of the model at `path`, with data files of these contents in the same folder.

    `encoded` gives the (parts, size) of the model for names of its data files. `objection` says why the data file of a
    name must not be replaced ('' if it may). `check` raises an error if one of the other files that the model refers
    to, `used`, has changed.
    """

    path: str
    lock: Lock
    files: list[DataFile]
    encoded: Callable[[list[str]], tuple[list[BytesLike], int]]
    objection: Callable[[Surroundings, str], str]
    check: Callable[[], None]
    used: list[str] = field(default_factory=list)
    sources: Sources | None = None
    meter: Meter = field(default_factory=Meter)
    writer: DataWriter = write_data

    def run(self, names: list[str], taken: bool, unchanged: bool) -> None:
        """Write everything, or only the model where its data files, of these `names`, are `unchanged`, or none.

        `taken`: files of these names are there, and may go.
        """
        with Commit(self.path, self.lock, self.sources, self.meter) as commit:
            if unchanged or not names:
                model = self._write_model(commit, names)
                self.meter.finish()
                commit.settle()
                self.check()
                commit.rename(model, self.path)
                return
            used = [fresh_name(name) for name in names] if taken else names
            self.encoded(used)  # what cannot be encoded fails before the data is written
            written = [
                self.writer(commit, path, content) for path, content in zip(self._paths(names), self.files, strict=True)
            ]
            model = self._write_model(commit, used)
            self.meter.finish()
            around = commit.settle()
            self.check()
            free, replaces = self._judged(around, names)
            if free != (used == names):
                used = names if free else [fresh_name(name) for name in names]
                model = self._write_model(commit, used)
            for temporary, path in zip(written, self._paths(used), strict=True):
                commit.rename(temporary, path)
            sync_folder(self.path)
            commit.rename(model, self.path)
            if replaces:
                sync_folder(self.path)
                self._take(commit, used, names)

    def _judged(self, around: Surroundings, names: list[str]) -> tuple[bool, bool]:
        """(whether the names of data files are free, whether files that have them may be replaced)."""
        if not any(os.path.lexists(path) for path in self._paths(names)):
            return True, False
        return False, not any(self.objection(around, name) for name in names)

    def _take(self, commit: Commit, fresh: list[str], names: list[str]) -> None:
        """The committed model refers to fresh names: give the files their wanted names too, then refer to those.

        Where the file system has no links, or anything fails, the model stays committed under the fresh names.
        """
        with suppress(OSError):
            model = self._write_model(commit, names)
            for old, new in zip(self._paths(fresh), self._paths(names), strict=True):
                commit.name_too(old, new)
            sync_folder(self.path)
            commit.rename(model, self.path)

    def _write_model(self, commit: Commit, names: list[str]) -> str:
        return commit.write_model(*self.encoded(names), [*self._paths(names), *self.used])

    def _paths(self, names: list[str]) -> list[str]:
        return [os.path.join(os.path.dirname(self.path), name) for name in names]


@contextmanager
def replacing(
    path: str, kind: Kind = "model", inputs: Sequence[str] = (), overwrite: bool = False, appends: bool = False
) -> Iterator[OutputFile]:
    """The lock of a file that a tool writes, for as long as it works; `inputs` are the files that it reads.

    Raises what `judge` does. A path that is no regular file is written to and not replaced: no lock is needed. A tool
    that only `appends` needs no new file, so a folder that takes none is no reason to refuse.
    """
    refuse_address(path, "what this command writes")
    if not takes_rename(path):
        yield OutputFile(path, None)
        return
    with ExitStack() as stack:
        with blamed_on(path):
            judge(path, kind, inputs, overwrite)  # before it waits
            lock: Lock | None = None
            with suppress(*([PermissionError] if appends else [])):
                lock = stack.enter_context(turn(path))
            judge(path, kind, inputs, overwrite)
        yield OutputFile(path, lock, kind)


@dataclass
class OutputFile:
    """A file that a tool writes: whole, or not at all."""

    path: str
    lock: Lock | None
    kind: Kind = "model"

    def write(self, parts: Sequence[BytesLike], size: int, before_renaming: Callable[[], None] = lambda: None) -> None:
        """Writes the parts, of `size` bytes together; if `before_renaming` raises, the file does not appear."""
        with blamed_on(self.path):
            if self.lock is None:
                before_renaming()
                write_through(self.path, parts)
                return
            with Commit(self.path, self.lock) as commit:
                temporary = commit.write_model(parts, size, [])
                if self.kind == "model":
                    commit.settle()
                    commit.uses(temporary, data_of(temporary))
                else:
                    commit.lock_folder()
                before_renaming()
                commit.rename(temporary, self.path)
