"""load, loads, save, dumps, plan: models and files.

Loading maps the file; weights are views of it, so a model of any size loads in the time of its graph. Saving plans
everything from sizes first (inline or external, offsets), then streams one payload at a time (`saving.py`).
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from proto_schema.errors import DecodeError
from proto_schema.external import Folder, set_origin
from proto_schema.external.addresses import RemoteFile, RemoteFolder, folder_of, is_address
from proto_schema.external.executors import ExecutorLike
from proto_schema.external.meter import Progress
from proto_schema.external.payload import FileMap
from proto_schema.files import saving
from proto_schema.files.saving import Archive, Where, Writable, WriteOptions, prepare
from proto_schema.files.sniff import what_it_is
from proto_schema.onnx import ModelProto
from proto_schema.wire.codec import decode, decode_noting, encode
from proto_schema.wire.fields import Message, present

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from proto_schema.files.saveplan import SavePlan

Path: TypeAlias = "str | os.PathLike[str]"


class Readable(Protocol):
    """A binary file, or what reads like one."""

    def read(self) -> bytes: ...


def loads(data: Buffer) -> ModelProto:
    """The model in a bytes-like object; its weights are views of that. DecodeError says where it is malformed.

    Everything is checked at once. Of long lists the nodes and values become messages when somebody looks at them.
    """
    return decode(ModelProto, data)


def load(source: Path | Readable, *, trust_root: Path | None = None) -> ModelProto:
    """The model in a file: a path, or an object with `read` (which need not seek).

    A path is mapped, not read: weights are views of the mapping, and external data is opened when it is asked for
    (`numpy_helper.to_array`), safely: links are refused unless they lead beneath `trust_root`. The data files must then
    be those that were there at the time of the load, unchanged; otherwise that raises ExternalDataError.
    With the extra `remote` it may be an address (s3://, https://, memory://, ...). The model's own file is read,
    external data where it is asked for.
    Raises OSError where the file cannot be read, DecodeError (with what the file seems to be) where it is no model.
    """
    if not isinstance(source, (str, os.PathLike)) and hasattr(source, "read"):
        name = getattr(source, "name", "")
        data, name = source.read(), name if isinstance(name, str) else ""
        if isinstance(data, str):
            raise TypeError("the file object gives text: open it with mode 'rb'")
        return _placed(data, name, trust_root)
    name = os.fspath(cast("Path", source))
    if is_address(name):
        return _of_address(name)
    while True:
        with open(name, "rb") as file:
            status = os.fstat(file.fileno())
            regular = stat.S_ISREG(status.st_mode) and status.st_size
            model = _placed(FileMap.of(file.fileno(), name) if regular else file.read(), name, trust_root)
        if not regular or _is_there(name, status):
            return model  # else a save came between, and the data files may be those of another model


def _placed(data: Any, name: str, trust_root: Path | None) -> ModelProto:
    model, noted = _model(data, name)
    set_origin(noted, Folder(os.path.dirname(name) or ".", trust_root))
    return model


def _of_address(address: str) -> ModelProto:
    """The model at an address: its file is read, its external data when it is asked for."""
    file = RemoteFile(address)
    model, noted = _model(file.whole(), file.name)
    set_origin(noted, RemoteFolder(folder_of(address)))
    file.expect_unchanged()  # else the data files may be those of another model
    return model


def _is_there(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), status)
    except OSError:
        return True  # removed: what was opened is all there is


def _model(data: Any, name: str) -> tuple[ModelProto, list[Message]]:
    try:
        model, noted = decode_noting(ModelProto, data)
    except DecodeError as error:
        hint = what_it_is(data, error)
        raise DecodeError(f"{error.reason}{hint}", error.offset, error.path, name) from None
    if next(present(model), None) is None:
        hint = what_it_is(data, None)
        raise DecodeError(f"no field of a ModelProto is in it{hint}", file=name)
    return model, noted


def dumps(model: ModelProto) -> bytes:
    """The encoding of a model, joined once. Raises EncodeError, also past 2 GiB.

    Tensors with external data stay references to their files, as in the model.
    """
    return encode(model)


def save(
    model: ModelProto,
    target: Path | Writable,
    external_data: Where = None,
    location: str | None = None,
    size_threshold: int = 1024,
    alignment: int = 4096,
    *,
    shard_size: int | None = None,
    progress: Progress | None = None,
    resume: bool = False,
    archive: Archive = None,
    overwrite: bool = False,
    checksums: bool = False,
    executor: ExecutorLike = None,
) -> None:
    """Writes a model to a path (atomically and durably) or to an object with `write` (which need not seek).

    With the extra `remote` the path may be an address in storage: data files become visible first, then the model.

    external_data: None puts weights beside the model only when it would pass 2 GiB; True always; False never, and
    EncodeError past 2 GiB. Then tensors with raw data of at least `size_threshold` bytes go to the file `location`
    (default: the file's name + ".data") in the model's folder, at multiples of `alignment` bytes; with `shard_size` to
    files of about that many bytes each. Tensors that were loaded from external data are written like the others.
    external_data="reference" writes none of the bytes that lie unchanged in files below the model's folder: the model
    refers to them there, and only what comes from elsewhere goes to `location`. Those files must stay as they are.
    progress(done_bytes, total_bytes) is called about every 4 MB, and with all of them before the commit; what it
    raises ends the save, and the old model stays.
    resume=True: an interrupted save leaves the finished part of its data files, as NAME.partial with a journal beside
    it, and goes on with what an earlier one left if that is what would be written now.
    archive="tar": the target becomes an uncompressed tar of the model and the data files that these options ask for
    (none, or where the model would pass 2 GiB, by default). Its first member is the model: NAME.onnx of a path
    NAME.tar, model.onnx of a stream. Neither seeking nor a second look at the weights is needed.
    Saves to one path take turns. What is replaced has to be a model, or a data file that a save wrote for this one and
    that no other model in the folder refers to; it hands on its mode and owner. If the usual name of the data file is
    another's, NAME.1.data is used, and so on. overwrite=True: files that nobody is known to need are replaced too, but
    never those that hold data of another model.
    checksums=True: the model says the SHA-256 of each tensor and each data file, taken while the bytes pass;
    `purexport check --checksums` compares. Not with an archive.
    executor: who writes the data files, in independent pieces: any `concurrent.futures.Executor`, or "threads",
    "processes" (":4" behind these says how many), "dask://HOST:PORT" or "mpi". The bytes are those of a save without
    one. What lies in this process's memory, and what a function computes, this process writes. The pieces of a worker
    that dies are done again. In storage a worker writes whole data files: give a `shard_size`.
    Raises EncodeError for what the format cannot hold or what cannot be referred to, OSError where the target cannot be
    written (it stays as it was; before the first byte where the disk is too small), among these FileExistsError and
    PermissionError for a file that must not be replaced, ExternalDataError where data to be written cannot be read, or
    changed since the model was loaded.
    """
    where = external_data, location, size_threshold, alignment, shard_size
    options = WriteOptions(*where, resume, archive, overwrite, checksums, executor)
    if is_address(target):
        from proto_schema.external.storing import save_to_address  # for an address only

        save_to_address(model, str(target), options, progress)
        return
    saving.save(model, target, options, progress)


def plan(
    model: ModelProto,
    target: Path | Writable,
    external_data: Where = None,
    location: str | None = None,
    size_threshold: int = 1024,
    alignment: int = 4096,
    *,
    shard_size: int | None = None,
    progress: Progress | None = None,
    resume: bool = False,
    archive: Archive = None,
    overwrite: bool = False,
    checksums: bool = False,
    executor: ExecutorLike = None,
) -> SavePlan:
    """What `save` with these arguments would write: files, tensors, sources, disk space, memory. Writes nothing.

    Raises what `save` would raise before its first byte, but only says (`fits`) that the disk is too small.
    """
    from proto_schema.files.saveplan import describe

    where = external_data, location, size_threshold, alignment, shard_size
    options = WriteOptions(*where, resume, archive, overwrite, checksums, executor)
    return describe(prepare(model, target, options))
