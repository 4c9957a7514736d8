"""load, loads, save, dumps: models and files.

Loading maps the file; weights are views of it, so a model of any size loads in the time of its graph. Saving plans
everything from sizes first (inline or external, offsets), then streams one payload at a time.
The order of a save's steps, so that nothing is lost whatever stops it, is the business of `commit`.
Data files that hold already what would be written (of a model whose names or metadata were changed) stay as they are.
So the folder holds a loadable model at every moment, and after a save no file that only the replaced model used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from proto_schema.codec import decode, decode_noting, encode, encode_parts
from proto_schema.commit import DataCommit, replace_model
from proto_schema.copying import Sources
from proto_schema.datafiles import lies_already, locations, payload_of, plan, with_data
from proto_schema.durable import blamed_on, takes_rename, write_stream
from proto_schema.errors import DecodeError, EncodeError
from proto_schema.external import Folder, entries, set_origin, tensors
from proto_schema.fields import Message, present
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.payload import BytesLike, FileMap, nbytes
from proto_schema.sniff import what_it_is
from proto_schema.wire import MAX_LENGTH

Path: TypeAlias = "str | os.PathLike[str]"


def loads(data: Any) -> ModelProto:
    """The model in a bytes-like object; its weights are views of that. DecodeError says where it is malformed."""
    return decode(ModelProto, data)


def load(source: Path | Any, *, trust_root: Path | None = None) -> ModelProto:
    """The model in a file: a path, or an object with `read` (which need not seek).

    A path is mapped, not read: weights are views of the mapping, and external data is opened when it is asked for
    (`numpy_helper.to_array`), safely: links are refused unless they lead beneath `trust_root`.
    Raises OSError where the file cannot be read, DecodeError (with what the file seems to be) where it is no model.
    """
    if hasattr(source, "read"):
        name = getattr(source, "name", "")
        data, name = source.read(), name if isinstance(name, str) else ""
        if isinstance(data, str):
            raise TypeError("the file object gives text: open it with mode 'rb'")
    else:
        name = os.fspath(source)
        data = _contents(name)
    model, noted = _model(data, name)
    set_origin(noted, Folder(os.path.dirname(name) or ".", trust_root))
    return model


def _contents(path: str) -> Any:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size:
            return FileMap.of(file.fileno(), path)
        return file.read()


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
    target: Path | Any,
    external_data: bool | None = None,
    location: str | None = None,
    size_threshold: int = 1024,
    alignment: int = 4096,
    *,
    shard_size: int | None = None,
) -> None:
    """Writes a model to a path (atomically and durably) or to an object with `write` (which need not seek).

    external_data: None puts weights beside the model only when it would pass 2 GiB; True always; False never, and
    EncodeError past 2 GiB. Then tensors with raw data of at least `size_threshold` bytes go to the file `location`
    (default: the file's name + ".data") in the model's folder, at multiples of `alignment` bytes; with `shard_size` to
    files of about that many bytes each. Tensors that were loaded from external data are written like the others.
    Raises EncodeError for what the format cannot hold, OSError where the target cannot be written (it stays as it was),
    ExternalDataError where data to be written cannot be read.
    """
    _check_arguments(target, location, size_threshold, alignment, shard_size)
    stored = [(tensor, data) for tensor in tensors(model) if (data := payload_of(tensor)) is not None]
    loaded = {id(tensor): data for tensor, data in stored if tensor.data_location == TensorProto.EXTERNAL}
    sources = Sources()
    for _, data in stored:
        sources.look(data)
    path = None if hasattr(target, "write") else os.fspath(target)
    renames = path is not None and takes_rename(path)
    if not external_data:
        parts, size = _inline(model, stored, loaded)
        if size <= MAX_LENGTH:
            _write(parts, size, target, path, renames, sources)
            return
        if external_data is False or not renames:
            raise EncodeError(f"the model has {size} bytes, past protobuf's limit of 2 GiB: {_way_out(external_data)}")
    if path is None or not renames:
        raise EncodeError("external data needs a file's path to lie beside, and the target has none")
    layout = plan(stored, size_threshold, alignment, shard_size)
    # a second commit writes the model when its data files have their names: by then another file may lie at a path
    kept = {
        id(tensor): pinned
        for tensor, data in stored
        if id(tensor) not in layout.places and (pinned := sources.pinned(data)) is not tensor.raw_data
    }
    names = locations(location or f"{os.path.basename(path)}.data", len(layout.files))
    with blamed_on(path):
        unchanged = lies_already(layout, stored, os.path.dirname(path), names)
        DataCommit(with_data(model, kept), layout, path, sources).run(names, unchanged, _data_files_of(path))


def _check_arguments(
    target: Any, location: str | None, size_threshold: int, alignment: int, shard_size: int | None
) -> None:
    if alignment < 1 or size_threshold < 0 or (shard_size is not None and shard_size < 1):
        raise ValueError("alignment and shard_size must be at least 1, size_threshold at least 0")
    if location is not None and (location in ("", ".", "..") or set(location) & {"/", "\\", "\0"}):
        raise ValueError(f"location {location!r} must be the bare name of a file in the model's folder")
    if location is not None and isinstance(target, (str, os.PathLike)) and location == os.path.basename(target):
        raise ValueError(f"location {location!r} is the model's own name")


def _way_out(external_data: bool | None) -> str:
    return "pass external_data=True" if external_data is False else "save it to a file's path, with external data"


def _inline(
    model: ModelProto, stored: Sequence[tuple[TensorProto, BytesLike]], loaded: dict[int, BytesLike]
) -> tuple[list[BytesLike], int]:
    """(parts, size) of the model with all its data inside; only a size, of the payloads, where that is too much."""
    size = sum(nbytes(data) for _, data in stored)
    if size > MAX_LENGTH:
        return [], size
    return encode_parts(with_data(model, loaded) if loaded else model)


def _write(parts: list[BytesLike], size: int, target: Any, path: str | None, renames: bool, sources: Sources) -> None:
    if path is None:
        write_stream(target, parts)
        return
    with blamed_on(path):
        if not renames:
            with open(path, "wb", buffering=0) as file:
                write_stream(file, parts)
            return
        replace_model(path, parts, size, _data_files_of(path), sources)


def _data_files_of(path: str) -> list[str]:
    """The data files that the model at `path` refers to and that are named after it: its own, of no use without it."""
    folder, base = os.path.split(path)
    with suppress(OSError, ValueError):
        beside = {name for name in os.listdir(folder or ".") if name.startswith((f"{base}.", f"{base}-"))}
        if not beside:
            return []
        old = load(path)
        used = {entries(tensor).location for tensor in tensors(old) if tensor.data_location == TensorProto.EXTERNAL}
        return [os.path.join(folder, name) for name in sorted(beside & used)]
    return []
