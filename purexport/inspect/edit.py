"""Changes metadata, versions, doc strings and names of a model; this process neither reads nor writes its weights.

Strategy: the edits become orders to a `Rewriter`, whose pieces make the new file: new bytes, and ranges of the old one,
of which the kernel copies the long ones. The new file appears by renaming: at every moment the path leads to the whole
old file or the whole new one. With external data that file is small, and the data files are not touched at all.
Nothing is overwritten in place, because a crash in between would leave neither model. `append` writes only a record
after the old bytes, if protobuf's merging makes that enough; the bytes before it stay as they are.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import proto_schema as ps
from proto_schema.errors import CheckError, DecodeError, ExternalDataError
from proto_schema.external import entries, tensors
from proto_schema.external.addresses import refuse_address
from proto_schema.external.copying import by_kernel
from proto_schema.external.payload import Stamp, changed, nbytes, stamp_of
from proto_schema.files.commit import OutputFile, replacing
from proto_schema.files.locks import lock_file
from proto_schema.files.owned import files_of
from proto_schema.files.sniff import what_it_is
from proto_schema.graphs.calls import domain_of
from proto_schema.onnx import ModelProto, OperatorSetIdProto, TensorProto
from proto_schema.wire import MAX_LENGTH
from proto_schema.wire.codec import decode
from purexport.inspect.elements import Bytes
from purexport.inspect.orders import Change, EditPlan, Edits
from purexport.inspect.rewrite import piece_bytes

Path: TypeAlias = "str | os.PathLike[str]"

NEW_FILE, APPEND, NOTHING = "new file", "append", "nothing"
"""The ways to make a change."""


@dataclass(frozen=True)
class Edited:
    """What was changed and how: `way` is one of NEW_FILE, APPEND, NOTHING.

    `copied` bytes of the new file are from the old one, and the kernel copies `by_kernel` of these; `made` are new.
    `untouched`: the data files that the model refers to.
    """

    file: str
    way: str
    bytes_before: int
    bytes_after: int
    copied: int
    by_kernel: int
    made: int
    changes: list[Change]
    notes: list[str]
    untouched: list[str]


def edit(
    path: Path,
    edits: Edits,
    target: Path | None = None,
    *,
    append: bool = False,
    dry_run: bool = False,
    overwrite: bool = False,
) -> Edited:
    """Changes the model at `path`, in place or to a new file `target`, and returns what was done.

    `append`: only add a record at the end of the file. This can set fields of the model, and add metadata and domains.
    `dry_run`: say what would be done. `overwrite` is that of save. Edits of one file take turns, and none is lost.
    Raises DecodeError for a damaged file; CheckError for versions that the operators do not allow; ValueError for what
    is not in the model or cannot be changed this way, names that are taken, and paths that are better left alone
    (links, devices); OSError if the file cannot be read or written. After an error nothing has changed.
    """
    name = os.fspath(path)
    place = name if target is None else os.fspath(target)
    for one in (name, place):
        refuse_address(one, "what is edited")
    in_place = os.path.abspath(place) == os.path.abspath(name)
    if append and not in_place:
        raise ValueError("append changes the file itself: leave out the name of a new file")
    if dry_run:
        return _edited(name, place, in_place, edits, append, None)
    Bytes(name)  # so that a file which cannot be read is not blamed on writing
    _refuse_target(place, in_place)
    inputs = () if in_place else files_of(name)
    replaces = overwrite or in_place  # what is edited is decoded first, and that says better why it cannot be
    with replacing(place, inputs=inputs, overwrite=replaces, appends=append) as file:
        return _edited(name, place, in_place, edits, append, file)


def _edited(name: str, place: str, in_place: bool, edits: Edits, append: bool, file: OutputFile | None) -> Edited:
    """The edit, written to `file` unless that is None."""
    source = Bytes(name)
    model = _decoded(source)
    _refuse_target(place, in_place)
    untouched = _data_files(model, name, place)
    plan = EditPlan(source, model, edits, append)
    notes = _version_notes(model, edits)
    if append:
        return _appended(plan, notes, untouched, file is None)
    pieces = plan.pieces()
    size, made = piece_bytes(pieces), sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    if size > MAX_LENGTH:
        raise ValueError(f"the result would pass protobuf's limit of 2 GiB with {size} bytes: use external data")
    parts = [piece if isinstance(piece, bytes) else source.view[piece[0] : piece[1]] for piece in pieces]
    copied = sum(map(nbytes, filter(by_kernel, parts)))
    way = NOTHING if in_place and pieces == [(0, source.size)] else NEW_FILE
    if way == NEW_FILE and file is not None:
        file.write(parts, size, lambda: _refuse_changed(source))
    return Edited(place, way, source.size, size, size - made, copied, made, plan.changes, notes, untouched)


# Appending ------------------------------------------------------------------------------------------------------------


def _appended(plan: EditPlan, notes: list[str], untouched: list[str], dry_run: bool) -> Edited:
    record = plan.record()
    path, size = plan.source.name, plan.source.size
    if size + len(record) > MAX_LENGTH:
        raise ValueError("the result would pass protobuf's limit of 2 GiB: use external data")
    if record and not dry_run:
        append_durably(path, record, plan.source.stamp)
    way = APPEND if record else NOTHING
    return Edited(path, way, size, size + len(record), 0, 0, len(record), plan.changes, notes, untouched)


def append_durably(path: str, record: bytes, stamp: Stamp | None) -> None:
    """Writes `record` after the bytes of the file that had this stamp, with one system call, and makes it durable.

    Those who append to one file take turns, and the next one sees that it has changed. A failed write is undone: the
    file gets its old size back. After a crash of the machine the file has its old size,
    the new one, or one in between, which no reader takes for a model. The old bytes are the same in each case.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    try:
        lock_file(descriptor)
        found = os.fstat(descriptor)
        if stamp_of(found) != stamp:
            raise changed(path)
        try:
            if os.write(descriptor, record) != len(record):
                raise OSError(28, "the disk is full", path)
            os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, found.st_size)
            raise
    finally:
        os.close(descriptor)


# Files ----------------------------------------------------------------------------------------------------------------


def _decoded(source: Bytes) -> ModelProto:
    hint = "; `purexport salvage` saves what can be kept"
    try:
        model = decode(ModelProto, source.view)
    except DecodeError as error:
        reason = f"{error.reason}{what_it_is(source.view, error)}{hint}"
        raise DecodeError(reason, error.offset, error.path, source.name) from None
    if model.graph is None:
        raise DecodeError(f"it has no graph{what_it_is(source.view, None)}", file=source.name)
    return model


def _data_files(model: ModelProto, name: str, place: str) -> list[str]:
    """The data files of the model. ValueError if `place` is one of them, or in a folder that does not lead to them."""
    external = [tensor for tensor in tensors(model) if tensor.data_location == TensorProto.EXTERNAL]
    found = set()
    for tensor in external:
        with suppress(ExternalDataError):
            found.add(entries(tensor).location)
    folders = [os.path.realpath(os.path.dirname(path) or ".") for path in (name, place)]
    if external and folders[0] != folders[1]:
        raise ValueError(f"{place}: the model has external data, write it to the same folder: {folders[0]}")
    if os.path.realpath(place) in {os.path.realpath(os.path.join(folders[0], other)) for other in found}:
        raise ValueError(f"{place}: the model's own data is there; choose another name")
    return sorted(found)


def _refuse_target(path: str, in_place: bool) -> None:
    """Raises ValueError or OSError if the file at the path is better left alone."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    other = "write a new file instead" if in_place else "choose another name"
    if stat.S_ISLNK(status.st_mode):
        raise ValueError(f"{path} is a link to {os.path.realpath(path)}: name that file, or {other}")
    if stat.S_ISDIR(status.st_mode) or not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a regular file: {other}")
    if in_place and status.st_nlink > 1:
        raise ValueError(f"{path} has {status.st_nlink} names (hard links), and the others would not follow: {other}")
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise PermissionError(13, f"the file is read-only: make it writable, or {other}", path)


def _refuse_changed(source: Bytes) -> None:
    """Raises an error if the file has changed meanwhile, so that the change of others is not lost."""
    if source.stamp is not None and stamp_of(os.stat(source.name)) != source.stamp:
        raise changed(source.name)


# Versions -------------------------------------------------------------------------------------------------------------


def _version_notes(model: ModelProto, edits: Edits) -> list[str]:
    """Remarks on new version numbers. CheckError if the operators do not allow them. Changes `model`."""
    if not edits.opsets and "ir_version" not in edits.fields:
        return []
    before = _verdict(model)
    for domain, version in edits.opsets.items():
        newest = (
            ps.operators.newest_opset(domain_of(domain)) if domain_of(domain) in ps.operators.domains() else version
        )
        if version > newest:
            raise CheckError(f"opset {version} of the domain {domain!r} is newer than {newest}, the newest known here")
        _declare(model, domain_of(domain), version)
    if edits.fields.get("ir_version") is not None:
        model.ir_version = int(edits.fields["ir_version"] or 0)
    after = _verdict(model)
    if after and after != before:
        raise CheckError(f"with these versions the model is not valid: {after}")
    notes = [f"not valid, as before: {after}"] if after else []
    if edits.opsets:
        notes.append("opsets are declared numbers: no operator was converted, each means now what the new version says")
    lowest = ps.helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    if (model.ir_version or 0) < lowest:
        notes.append(f"these opsets came with IR version {lowest}; the file says {model.ir_version}")
    return notes


def _declare(model: ModelProto, domain: str, version: int) -> None:
    own = [entry for entry in model.opset_import if domain_of(entry.domain) == domain]
    old = own[-1].version if own else None
    for function in model.functions:
        own += [row for row in function.opset_import if domain_of(row.domain) == domain and row.version == old]
    for entry in own:
        entry.version = version
    if old is None:
        model.opset_import.append(OperatorSetIdProto(domain=domain, version=version))


def _verdict(model: ModelProto) -> str:
    """The rule that a model breaks; empty if it is valid."""
    try:
        ps.checker.check_model(model)
    except CheckError as error:
        return str(error)
    return ""


__all__ = ["APPEND", "NEW_FILE", "NOTHING", "Edited", "append_durably", "edit"]
