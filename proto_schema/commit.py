"""One model replaced by another, in an order that leaves the old or the new one whole whatever stops it.

Everything that can fail for want of space comes first: data files and the model are written durably under temporary
names. Then the data files take names that nothing refers to, and the renaming of the .onnx file is the commit.
If a wanted name was taken, a second commit moves the reference from a fresh name to it.
Cleaning up is one function for every outcome. It looks at the disk for what was renamed (a temporary name that is gone)
instead of trusting variables, because an interrupt can come between a call of the system and the next statement.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeAlias

from proto_schema.copying import Sources
from proto_schema.datafiles import DataFile
from proto_schema.durable import remove_all, sync_folder, temporary_name, write_new
from proto_schema.meter import Meter
from proto_schema.payload import BytesLike


@dataclass
class Commit:
    """The replacing of the model at `path`, whose own data files were `old`; a context, which cleans up at its end.

    `sources` are the files that ranges are copied from; `meter` hears what is written.
    """

    path: str
    old: list[str]
    sources: Sources | None = None
    meter: Meter = field(default_factory=Meter)
    _temporaries: list[str] = field(default_factory=list)
    _renamed: list[tuple[str, str]] = field(default_factory=list)  # (from, to), noted before it is done
    _kept: dict[str, str] = field(default_factory=dict)  # partial files and their journals
    _models: dict[str, list[str]] = field(default_factory=dict)  # the data files of a model, by its temporary name

    def __enter__(self) -> Commit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Removes temporary files, and the data files that the model which is committed now does not refer to."""
        done = [(old, new) for old, new in self._renamed if not os.path.lexists(old)]
        models = [self._models[old] for old, _ in done if old in self._models]
        used = models[-1] if models else self.old
        if not models:
            done = [names for names in done if not self._put_back(*names)]
        unused = {*self.old, *(new for _, new in done)} - {self.path, *used}
        spent = list(self._kept.values()) if models else []
        try:
            if models:
                sync_folder(self.path)  # before the old data goes: a lost renaming would bring the old model back
        finally:
            remove_all([*self._temporaries, *unused, *spent])

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

    def temporary(self, target: str) -> str:
        """A name beside `target` that is gone when the context ends."""
        name = temporary_name(target)
        self._temporaries.append(name)
        return name

    def write(self, target: str, parts: Iterable[BytesLike], size: int) -> str:
        """Writes a file durably under a temporary name, which is returned."""
        name = self.temporary(target)
        write_new(name, parts, size, target, self.sources, self.meter)
        return name

    def write_model(self, parts: Iterable[BytesLike], size: int, data_files: list[str]) -> str:
        """The same for the model, which refers to these data files."""
        name = self.write(self.path, parts, size)
        self._models[name] = data_files
        return name

    def rename(self, temporary: str, target: str) -> None:
        """Gives a file its name; for the model that is the commit."""
        self._renamed.append((temporary, target))
        os.replace(temporary, target)


DataWriter: TypeAlias = Callable[[Commit, str, DataFile], str]


def write_data(commit: Commit, target: str, content: DataFile) -> str:
    """The usual way to write a data file: durably, under the temporary name that is returned."""
    return commit.write(target, content.parts(), content.size)


def replace_model(path: str, parts: Iterable[BytesLike], size: int, old: list[str]) -> None:
    """Writes a model that refers to no data files."""
    with Commit(path, old) as commit:
        commit.rename(commit.write_model(parts, size, []), path)


@dataclass
class DataCommit:
    """The replacing of the model at `path`, with data files of these contents in the same folder.

    `encoded` gives the (parts, size) of the model for names of its data files.
    """

    path: str
    files: list[DataFile]
    encoded: Callable[[list[str]], tuple[list[BytesLike], int]]
    sources: Sources | None = None
    meter: Meter = field(default_factory=Meter)
    writer: DataWriter = write_data

    def run(self, names: list[str], unchanged: bool, old: list[str]) -> None:
        """Write everything, or only the model where its data files, of these `names`, are `unchanged`, or none."""
        with Commit(self.path, old, self.sources, self.meter) as commit:
            if unchanged or not names:
                model = self._write_model(commit, names)
                self.meter.finish()
                commit.rename(model, self.path)
                return
            taken = any(os.path.lexists(path) for path in self._paths(names))
            used = self._fresh(names) if taken else names
            encoded = self.encoded(used)  # what cannot be encoded fails before the data is written
            written = [
                self.writer(commit, path, content) for path, content in zip(self._paths(names), self.files, strict=True)
            ]
            model = commit.write_model(*encoded, self._paths(used))
            self.meter.finish()
            for temporary, path in zip(written, self._paths(used), strict=True):
                commit.rename(temporary, path)
            sync_folder(self.path)
            commit.rename(model, self.path)
            if taken:
                sync_folder(self.path)
                self._take(commit, used, names)

    def _take(self, commit: Commit, fresh: list[str], names: list[str]) -> None:
        """The committed model refers to fresh names: give the files their wanted names too, then refer to those.

        Where the file system has no links, or anything fails, the model stays committed under the fresh names.
        """
        with suppress(OSError):
            model = self._write_model(commit, names)
            for old, new in zip(self._paths(fresh), self._paths(names), strict=True):
                link = commit.temporary(new)
                os.link(old, link)
                commit.rename(link, new)
            sync_folder(self.path)
            commit.rename(model, self.path)

    def _write_model(self, commit: Commit, names: list[str]) -> str:
        return commit.write_model(*self.encoded(names), self._paths(names))

    def _paths(self, names: list[str]) -> list[str]:
        return [os.path.join(os.path.dirname(self.path), name) for name in names]

    def _fresh(self, names: list[str]) -> list[str]:
        number = 1
        while True:
            fresh = [f"{name}.{number}" for name in names]
            if not any(os.path.lexists(path) for path in self._paths(fresh)):
                return fresh
            number += 1
