"""A save, in two steps: `prepare` decides everything from sizes, `commit` writes it.

Between the two every file, size and offset is known and nothing is written yet: a plan shows just that, and a disk
that is too small is refused there.
The order of the steps, so that nothing is lost whatever stops it, is the business of `commit.py`.
Data files that hold already what would be written (of a model whose names or metadata were changed) stay as they are.
So the folder holds a loadable model at every moment, and after a save no data file of only the replaced model.
Both steps are taken under the lock of the target, so that what was decided still holds. What others have is left alone:
where the usual name of a data file is theirs another is used, and a name that was asked for is refused.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from proto_schema.errors import EncodeError
from proto_schema.external import tensors
from proto_schema.external.addresses import refuse_address
from proto_schema.external.copying import Sources
from proto_schema.external.datafiles import (
    DataFile,
    Place,
    Plan,
    lies_already,
    payload_of,
    plan,
    with_data,
    without_data,
)
from proto_schema.external.executors import ExecutorLike, Workers, check_executor, opened_workers
from proto_schema.external.manifest import (
    Sums,
    digests_of_files,
    note_digests,
    with_digests_of_files,
    with_room_for_digests,
    without_stale_digests,
)
from proto_schema.external.meter import Meter, Progress
from proto_schema.external.payload import BytesLike, FileRange, Stamp, changed, nbytes, stamp_of
from proto_schema.external.pieces import pieces_of, write_pieces
from proto_schema.external.references import referred
from proto_schema.files.archive import model_name, tar_parts
from proto_schema.files.commit import Commit, DataCommit, DataWriter, turn, write_data
from proto_schema.files.durable import blamed_on, create, takes_rename, write_stream, write_through
from proto_schema.files.locks import Lock
from proto_schema.files.naming import data_names, fitted
from proto_schema.files.owned import READ_ONLY, Surroundings, is_checkpoint
from proto_schema.files.resume import partial_space, write_resumable
from proto_schema.files.targets import judge
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.units import size_text
from proto_schema.wire import MAX_LENGTH
from proto_schema.wire.codec import encode_parts
from proto_schema.wire.records import dataclass

Where: TypeAlias = bool | Literal["reference"] | None
Archive: TypeAlias = Literal["tar"] | None


class Writable(Protocol):
    """A binary file, or what is written to like one."""

    def write(self, data: Any, /) -> object: ...


class SaveOptions(TypedDict, total=False):
    """The options of `proto_schema.save` for functions that hand them on, which have a `progress` of their own."""

    external_data: Where
    location: str | None
    size_threshold: int
    alignment: int
    shard_size: int | None
    resume: bool
    archive: Archive
    overwrite: bool
    checksums: bool
    executor: ExecutorLike


Stored: TypeAlias = "list[tuple[TensorProto, BytesLike]]"


@dataclass(frozen=True)
class WriteOptions:
    """The options of `save`, checked. Raises ValueError."""

    external_data: Where = None
    location: str | None = None
    size_threshold: int = 1024
    alignment: int = 4096
    shard_size: int | None = None
    resume: bool = False
    archive: Archive = None
    overwrite: bool = False
    checksums: bool = False
    executor: ExecutorLike = None

    def __post_init__(self) -> None:
        check_executor(self.executor)
        location, shard = self.location, self.shard_size
        if self.archive not in (None, "tar"):
            raise ValueError(f"archive={self.archive!r} is neither None nor 'tar'")
        if self.archive is not None and self.external_data == "reference":
            raise ValueError("an archive holds the weights: external_data is None, True or False, not 'reference'")
        if self.archive is not None and self.checksums:
            raise ValueError("the model comes first in an archive, before its weights have passed: leave checksums out")
        if self.external_data not in (None, False, True, "reference"):
            raise ValueError(f"external_data={self.external_data!r} is none of None, True, False and 'reference'")
        if self.alignment < 1 or self.size_threshold < 0 or (shard is not None and shard < 1):
            raise ValueError("alignment and shard_size must be at least 1, size_threshold at least 0")
        if location is not None and (location in ("", ".", "..") or set(location) & {"/", "\\", "\0"}):
            raise ValueError(f"location {location!r} must be the bare name of a file in the model's folder")


@dataclass
class Work:
    """What a save is going to write.

    `stored` are the tensors with bytes that could lie in a file. `layout` says which go to data files, `references` (by
    id of the tensor) which are used where they lie; the others are inside `model`, as `held` where not as they were.
    `parts` and `size` are the encoding of the model with its data files under their wanted `names`.
    `unchanged`: the data files are there already. `taken`: files have their names that may go. `resume`: what an
    interrupted save left is used, and what this one leaves may be. `archive`: `parts` are those of a tar of model and
    data files. `overwrite`: data files of nobody known may go too. `used`: files that the model is going to refer to
    and that are there, as they must stay until the model is committed. `sums`: digests of what is written.
    """

    target: Any
    path: str | None
    renames: bool
    stored: Stored
    sources: Sources
    model: ModelProto
    parts: list[BytesLike]
    size: int
    layout: Plan = field(default_factory=lambda: Plan([], {}))
    names: list[str] = field(default_factory=list)
    references: dict[int, Place] = field(default_factory=dict)
    held: dict[int, BytesLike] = field(default_factory=dict)
    unchanged: bool = False
    taken: bool = False
    resume: bool = False
    archive: bool = False
    overwrite: bool = False
    used: dict[str, Stamp | None] = field(default_factory=dict)
    sums: Sums | None = None

    @property
    def kind(self) -> str:
        """Where the weights go."""
        return "reference" if self.references else "external" if self.names else "inline"

    @property
    def folder(self) -> str:
        """The folder of the target, '' for the current one."""
        return os.path.dirname(self.path or "")

    @property
    def paths(self) -> list[str]:
        """The wanted paths of the data files."""
        return [os.path.join(self.folder, name) for name in self.names]

    @property
    def data_size(self) -> int:
        """The bytes of data files that are to be written beside the model's file."""
        return 0 if self.unchanged or self.archive else sum(content.whole_size for content in self.layout.files)

    @property
    def needed(self) -> int:
        """The disk space that it takes until what it replaces is gone."""
        there = sum(map(partial_space, self.paths)) if self.resume else 0
        return max(self.data_size - there, 0) + self.size * (2 if self.taken else 1)

    def free(self) -> int | None:
        """The free space of the target's disk; None for a stream, and if the system does not say."""
        return free_space(self.folder) if self.path is not None and self.renames else None

    def objection(self, around: Surroundings, name: str) -> str:
        """Why the file of that name beside the target must not be replaced by a data file; '' if it may be."""
        reason = around.objection(name)
        if not reason or not self.overwrite or around.user(name) or os.path.islink(os.path.join(self.folder, name)):
            return reason
        if self.sources.reads(os.path.join(self.folder, name)):
            return "the model's weights are read from it"
        return ""

    def check(self) -> None:
        """ExternalDataError where a file that the model is going to refer to is another than it was."""
        for path, stamp in self.used.items():
            if _stamp(path) != stamp:
                raise changed(path)


def save(
    model: ModelProto,
    target: Any,
    options: WriteOptions,
    progress: Progress | None = None,
    writer: DataWriter | None = None,
) -> None:
    """Prepares and commits, under the lock of the target where that is a file. `writer` writes the data files."""
    path = None if hasattr(target, "write") else os.fspath(target)
    if path is None or not takes_rename(path):
        _write_out(prepare(model, target, options), progress)
        return
    with opened_workers(options.executor) as workers, blamed_on(path), turn(path) as lock:
        work = prepare(model, path, options, lock)
        _commit(work, lock, progress, writer or _writer(work.resume, workers))


def prepare(model: ModelProto, target: Any, options: WriteOptions, lock: Lock | None = None) -> Work:
    """Decides what a save writes, and looks at every source. Writes nothing. Raises as `save` does.

    `lock` is that of the target; without it the work is only good as a plan, or for a stream.
    """
    path = None if hasattr(target, "write") else os.fspath(target)
    if path is not None and options.location == os.path.basename(path):
        raise ValueError(f"location {options.location!r} is the model's own name")
    refuse_address(path, "the target of a plan")
    model = with_room_for_digests(model) if options.checksums else without_stale_digests(model)
    stored = [(tensor, data) for tensor in tensors(model) if (data := payload_of(tensor)) is not None]
    sources = Sources()
    for _, data in stored:
        sources.look(data)
    renames = path is not None and takes_rename(path)
    if path is not None and renames:
        with blamed_on(path):
            judge(path, "model" if options.archive is None else "tar", overwrite=options.overwrite)
    if options.archive is not None:
        return _archived(model, target, path, stored, sources, options)
    if not options.external_data:
        loaded = {id(tensor): data for tensor, data in stored if tensor.data_location == TensorProto.EXTERNAL}
        fits = sum(nbytes(data) for _, data in stored) <= MAX_LENGTH
        if options.checksums and fits:
            note_digests(stored)
        parts, size = _inline(with_digests_of_files(model, {}), stored, loaded)
        if size <= MAX_LENGTH:
            return Work(target, path, renames, stored, sources, model, parts, size, held=loaded)
        if options.external_data is False or not renames:
            raise _too_large(size, "pass external_data=True" if options.external_data is False else _PATH)
    if path is None or not renames:
        raise EncodeError(
            "external data needs a file's path to lie beside, and the target has none; archive='tar' writes both"
        )
    with blamed_on(path):
        return _with_files(model, path, stored, sources, options, lock is None or lock.sure)


_PATH = "save it to a file's path, with external data, or with archive='tar'"


def _too_large(size: int, way_out: str) -> EncodeError:
    return EncodeError(f"the model has {size} bytes, past protobuf's limit of 2 GiB: {way_out}")


def _archived(
    model: ModelProto, target: Any, path: str | None, stored: Stored, sources: Sources, options: WriteOptions
) -> Work:
    """A tar of what would be the files in a folder."""
    name = model_name(path)
    if options.location == name:
        raise ValueError(f"location {name!r} is the model's own name in the archive")
    loaded = {id(tensor): data for tensor, data in stored if tensor.data_location == TensorProto.EXTERNAL}
    renames = path is not None and takes_rename(path)
    work = Work(target, path, renames, stored, sources, model, [], MAX_LENGTH + 1, held=loaded, archive=True)
    if not options.external_data:
        work.parts, work.size = _inline(model, stored, loaded)
        if work.size > MAX_LENGTH and options.external_data is False:
            raise _too_large(work.size, "pass external_data=True")
    if work.size > MAX_LENGTH:
        work.layout = plan(stored, options.size_threshold, options.alignment, options.shard_size)
        work.names = data_names(options.location or fitted(name, ".data"), len(work.layout.files))
        work.layout.mark(work.names, name)
        work.held = {key: data for key, data in loaded.items() if key not in work.layout.places}
        work.model = with_data(model, work.held) if work.held else model
        work.parts, work.size = _outside(work, work.names)
    files = [
        (name, content.parts(), content.whole_size) for name, content in zip(work.names, work.layout.files, strict=True)
    ]
    work.parts = list(tar_parts([(name, work.parts, work.size), *files]))
    work.size = sum(map(nbytes, work.parts))
    return work


def _inline(model: ModelProto, stored: Stored, loaded: Mapping[int, BytesLike]) -> tuple[list[BytesLike], int]:
    """(parts, size) of the model with all its data inside; only a size, of the payloads, where that is too much."""
    size = sum(nbytes(data) for _, data in stored)
    if size > MAX_LENGTH:
        return [], size
    return encode_parts(with_data(model, loaded) if loaded else model)


def _with_files(
    model: ModelProto, path: str, stored: Stored, sources: Sources, options: WriteOptions, locked: bool
) -> Work:
    folder, base = os.path.split(path)
    found: dict[int, Place] = {}
    if options.external_data == "reference":
        found = referred(stored, path, options.size_threshold)
    moving = [(tensor, data) for tensor, data in stored if id(tensor) not in found]
    layout = plan(moving, options.size_threshold, options.alignment, options.shard_size)
    # a second commit writes the model when its data files have their names: by then another file may lie at a path
    kept = {
        id(tensor): pinned
        for tensor, data in moving
        if id(tensor) not in layout.places and (pinned := sources.pinned(data)) is not tensor.raw_data
    }
    sums = Sums(moving, layout) if options.checksums else None
    if sums is not None:
        note_digests([(tensor, data) for tensor, data in moving if id(tensor) not in layout.places])
    whole = with_data(model, kept) if kept else model
    work = Work(path, path, True, stored, sources, whole, [], 0, layout, references=found, held=kept)
    work.sums = sums
    work.resume, work.overwrite = options.resume and locked, options.overwrite
    work.names = _names(work, moving, options.location, locked)
    layout.mark(work.names, base)
    stamps = {path: _stamp(path) for path in work.paths}  # taken first, so that they are of what is looked at next
    work.unchanged = lies_already(layout, moving, folder, work.names)
    work.taken = not work.unchanged and any(map(os.path.lexists, work.paths))
    work.used = stamps if work.unchanged else {}
    for tensor, data in stored:
        if place := found.get(id(tensor)):
            work.used[os.path.join(folder, place[0])] = sources.stamp(data)
    _read_digests(work, folder)
    work.parts, work.size = _outside(work, work.names)
    return work


def _names(work: Work, moving: Stored, location: str | None, locked: bool) -> list[str]:
    """The wanted names of the data files: free, or of files that hold this already or that may be replaced.

    FileExistsError or PermissionError where a `location` that was asked for is none of these; ValueError where the
    model refers to it.
    Where no lock is had nothing may be replaced, and nobody else may choose the same names.
    """
    base, count = os.path.basename(work.target), len(work.layout.files)
    around = Surroundings(work.target)
    referred_to = {place[0] for place in work.references.values()}
    if location is not None:
        names = data_names(location, count)
        if referred_to.intersection(names):
            raise ValueError(f"location {location!r} is a file that the model refers to in place; give another name")
        if lies_already(work.layout, moving, work.folder, names):
            return names
        for name in names:
            reason = work.objection(around, name)
            if reason or (is_checkpoint(name) and os.path.lexists(os.path.join(work.folder, name))):
                number = errno.EACCES if reason == READ_ONLY else errno.EEXIST
                raise OSError(number, _way_out(name, reason), work.target)
        taken = any(os.path.lexists(os.path.join(work.folder, name)) for name in names)
        return data_names(fitted(location, f".{os.urandom(4).hex()}"), count) if taken and not locked else names
    number = 0
    while True:
        middle = os.urandom(4).hex() if not locked else str(number)
        names = data_names(fitted(base, f".{middle}.data" if number or not locked else ".data"), count)
        if not referred_to.intersection(names) and (
            lies_already(work.layout, moving, work.folder, names)
            or not any(work.objection(around, name) for name in names)
        ):
            return names
        number += 1


def _way_out(name: str, reason: str) -> str:
    if not reason:
        return f"location {name!r} is a checkpoint that is there already; give another name"
    replaced = "" if reason.endswith("refers to it") else ", or overwrite=True to replace it"
    return f"the data file {name} is there already, and {reason}; give another location{replaced}"


def _stamp(path: str) -> Stamp | None:
    try:
        return stamp_of(os.stat(path))
    except OSError:
        return None


def _outside(work: Work, names: Sequence[str]) -> tuple[list[BytesLike], int]:
    """The encoding of the model whose data lies in files of these names."""
    places = {key: (names[index], offset, length) for key, (index, offset, length) in work.layout.places.items()}
    model = with_digests_of_files(work.model, _digests_of_files(work, names))
    parts, size = encode_parts(without_data(model, {**places, **work.references}))
    if size > MAX_LENGTH:
        raise EncodeError(f"the model has {size} bytes without its external data, past protobuf's limit of 2 GiB")
    return parts, size


def _read_digests(work: Work, folder: str) -> None:
    """Takes the digests of the data that stays where it is."""
    if work.sums is None:
        return
    if work.unchanged:
        for index, (path, content) in enumerate(zip(work.paths, work.layout.files, strict=True)):
            work.sums.read(index, content, _whole(path))
    work.sums.read_references(work.stored, work.references, lambda location: _whole(os.path.join(folder, location)))


def _whole(path: str) -> FileRange:
    status = os.stat(path)
    return FileRange(path, 0, status.st_size, stamp_of(status))


def _digests_of_files(work: Work, names: Sequence[str]) -> dict[str, str]:
    """What the model is to say of its data files; where they are not written yet, as many characters."""
    if work.sums is not None:
        return work.sums.by_name(names)
    stays = {place[0] for place in work.references.values()}.union(names if work.unchanged else ())
    return {name: digest for name, digest in digests_of_files(work.model).items() if name in stays}


def _with_digests(work: Work, writer: DataWriter) -> DataWriter:
    """The writer of data files, which notes digests where they are asked for."""
    sums = work.sums
    if sums is None:
        return writer

    def write(commit: Commit, target: str, content: DataFile) -> str:
        index = next(place for place, other in enumerate(work.layout.files) if other is content)
        if writer is write_data:
            return commit.write(target, sums.passing(index, content), content.whole_size)
        made = writer(commit, target, content)  # it has its own order: what is there is read again
        sums.read(index, content, _whole(made))
        return made

    return write


def _write_out(work: Work, progress: Progress | None) -> None:
    """Writes to what takes no renaming: a file object, a pipe, a device."""
    meter = Meter(progress, work.size)
    if work.path is None:
        write_stream(work.target, work.parts, meter)
    else:
        with blamed_on(work.path):
            write_through(work.path, work.parts, meter)
    meter.finish()


def _writer(resume: bool, workers: Workers | None) -> DataWriter:
    """How data files are written."""
    if resume:
        return lambda commit, target, content: write_resumable(commit, target, content, workers)
    if workers is None:
        return write_data

    def write(commit: Commit, target: str, content: DataFile) -> str:
        name, size = commit.temporary(), content.whole_size
        create(name, size, commit.like(target))
        write_pieces(name, size, pieces_of(content), workers, commit.sources or Sources(), commit.meter)
        return name

    return write


def _commit(work: Work, lock: Lock, progress: Progress | None, writer: DataWriter) -> None:
    """Writes what was prepared: all of it, or nothing if that raises."""
    meter = Meter(progress, work.data_size + work.size)
    _refuse_full(work)

    def encoded(names: list[str]) -> tuple[list[BytesLike], int]:
        same = work.archive or (names == work.names and work.sums is None)
        return (work.parts, work.size) if same else _outside(work, names)

    writer = _with_digests(work, writer)
    files = [] if work.archive else work.layout.files
    made = DataCommit(
        work.target, lock, files, encoded, work.objection, work.check, list(work.used), work.sources, meter, writer
    )
    made.run([] if work.archive else work.names, work.taken, work.unchanged)


def _refuse_full(work: Work) -> None:
    refuse_full(work.folder, work.needed, os.path.lexists(work.path or ""), work.free())


def refuse_full(folder: str, needed: int, replaces: bool, free: int | None) -> None:
    """OSError where more is to be written to a folder than its disk has `free`, if that is known."""
    if free is not None and needed > free:
        amount = f"{size_text(needed)} are to be written, and the disk of {folder or '.'} has {size_text(free)}"
        old = " (the old model stays until the new one is whole)" if replaces else ""
        raise OSError(errno.ENOSPC, f"{amount} free{old}: make room, or save elsewhere")


def free_space(folder: str) -> int | None:
    """The free space of a folder's disk; None if the system does not say."""
    with suppress(OSError):
        usage = shutil.disk_usage(folder or ".")
        return usage.free if usage.total else None
    return None
