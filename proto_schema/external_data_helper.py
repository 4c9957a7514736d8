"""External data by hand, with the names and arguments of onnx.external_data_helper.

`ps.load` and `ps.save` do all of this themselves, without reading the data. These functions are for code that is
written for the official package: it marks tensors as external, writes them, and reads them into the model.
Reading and writing is as safe as in `external`: locations are relative paths below the folder, no step of them is a
link, a file has no other names, and sizes are compared with what is there before anything is read. A tensor is only
ever written behind the end of a file.
https://github.com/onnx/onnx/blob/main/docs/ExternalData.md
"""

from __future__ import annotations

import os
import re
import sys
import uuid
import warnings
from collections.abc import Iterator

from proto_schema.errors import ExternalDataError
from proto_schema.external import KEYS, Folder, folder_beneath
from proto_schema.external.payload import chunks, contiguous, nbytes
from proto_schema.files.durable import open_to_append, write_all
from proto_schema.onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, StringStringEntryProto, TensorProto

__all__ = [
    "ExternalDataInfo",
    "all_tensors",
    "convert_model_from_external_data",
    "convert_model_to_external_data",
    "initializer_tensors",
    "load_external_data_for_model",
    "load_external_data_for_tensor",
    "read_external_data",
    "remove_external_data_field",
    "save_external_data",
    "set_external_data",
    "uses_external_data",
    "write_external_data_tensors",
]

MAX_PADDING = 64 * 1024
"""The largest gap that an offset may leave before a tensor: the largest alignment of the specification."""

_SHOWN_KEYS, _SHOWN_CHARACTERS = 10, 100
_OVERHEAD = sys.getsizeof(b"")  # onnx compares the threshold with the size of a bytes object


class ExternalDataInfo:
    """What a tensor's `external_data` says: `location`, `offset`, `length` (ints or None), `checksum`, `basepath`.

    Unknown keys are warned of and left out. ValueError for an offset or length that is no number of at least 0.
    """

    def __init__(self, tensor: TensorProto) -> None:
        found = {entry.key or "": entry.value or "" for entry in tensor.external_data}
        self.location: str = found.get("location", "")
        self.checksum: str | None = found.get("checksum")
        self.basepath: str = found.get("basepath", "")
        self.offset = _number(tensor, "offset", found.get("offset"))
        self.length = _number(tensor, "length", found.get("length"))
        unknown = sorted(key[:_SHOWN_CHARACTERS] for key in found if key not in KEYS)
        if unknown:
            more = f" and {len(unknown) - _SHOWN_KEYS} more" if len(unknown) > _SHOWN_KEYS else ""
            warnings.warn(
                f"tensor {tensor.name or ''!r}: ignoring unknown external data key(s) {unknown[:_SHOWN_KEYS]}{more}; "
                f"known are {sorted(KEYS)}",
                stacklevel=2,
            )


def _number(tensor: TensorProto, key: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise ValueError(f"tensor {tensor.name or ''!r}: the external {key} must be plain digits, not {text!r}")
    if text.startswith("-"):
        raise ValueError(f"tensor {tensor.name or ''!r}: the external {key} must be non-negative, not {text}")
    return int(text)


# -- which tensors


def uses_external_data(tensor: TensorProto) -> bool:
    """Whether the tensor says that its data is in a file."""
    return tensor.data_location == TensorProto.EXTERNAL


def initializer_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """The initializers of the graph and of the graphs in its nodes."""
    return _initializers(model.graph or GraphProto())


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """The initializers, then the tensors in attributes of nodes, also in functions."""
    yield from initializer_tensors(model)
    yield from _in_attributes(model.graph or GraphProto())
    for function in model.functions:
        yield from _in_attributes(function)


def _initializers(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for inner in _subgraphs(graph):
        yield from _initializers(inner)


def _in_attributes(body: GraphProto | FunctionProto) -> Iterator[TensorProto]:
    for node in body.node:
        for attribute in node.attribute:
            if attribute.t is not None:
                yield attribute.t
            yield from attribute.tensors
            for inner in _graphs(attribute):
                yield from _in_attributes(inner)


def _subgraphs(graph: GraphProto) -> Iterator[GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            yield from _graphs(attribute)


def _graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.type == AttributeProto.GRAPH and attribute.g is not None:
        yield attribute.g
    if attribute.type == AttributeProto.GRAPHS:
        yield from attribute.graphs


# -- reading


def read_external_data(tensor: TensorProto, base_dir: str | os.PathLike[str], folder: Folder | None = None) -> bytes:
    """The bytes of an external tensor, from a file below `base_dir`. The tensor is not changed.

    Raises ExternalDataError, a ValueError, for a location or file that must not be read, and where the file has fewer
    bytes than the tensor says. `folder` saves opening the same files again.
    """
    info = ExternalDataInfo(tensor)
    folder = folder or Folder(base_dir or ".")
    data = folder.whole(tensor, info.location)
    if os.stat(folder.file(info.location)).st_nlink > 1:
        raise _error(tensor, f"{folder.file(info.location)} has other names (hard links)")
    size, offset = nbytes(data), info.offset or 0
    if offset > size:
        raise _error(tensor, f"the external data offset ({offset}) exceeds file size ({size})")
    if info.length is not None and info.length > size - offset:
        left = f"({size - offset} bytes from offset {offset})"
        raise _error(tensor, f"the external data length ({info.length}) exceeds available data {left}")
    stop = size if info.length is None else offset + info.length
    return bytes(contiguous(data[offset:stop])) if isinstance(data, memoryview) else data.tobytes()[offset:stop]


def load_external_data_for_tensor(
    tensor: TensorProto, base_dir: str | os.PathLike[str], folder: Folder | None = None
) -> None:
    """Reads the data of an external tensor into `raw_data`, and marks it as that of the tensor itself."""
    tensor.raw_data = read_external_data(tensor, base_dir, folder)
    tensor.data_location = TensorProto.DEFAULT
    tensor.external_data = []


def load_external_data_for_model(model: ModelProto, base_dir: str | os.PathLike[str]) -> None:
    """Reads the data of all external tensors of a model from files below `base_dir`."""
    folder = Folder(base_dir or ".")
    for tensor in all_tensors(model):
        if uses_external_data(tensor):
            load_external_data_for_tensor(tensor, base_dir, folder)


# -- marking


def set_external_data(
    tensor: TensorProto,
    location: str,
    offset: int | None = None,
    length: int | None = None,
    checksum: str | None = None,
    basepath: str | None = None,
) -> None:
    """Marks a tensor as external; its `raw_data` stays until it is written. ValueError if it has none."""
    if tensor.raw_data is None:
        raise ValueError(f"tensor {tensor.name or ''!r} has no raw_data, so it cannot become external")
    mark_external(tensor, location, offset, length, checksum, basepath)


def mark_external(
    tensor: TensorProto,
    location: str,
    offset: int | None = None,
    length: int | None = None,
    checksum: str | None = None,
    basepath: str | None = None,
) -> None:
    """The same for a tensor with or without data of its own."""
    values = {
        "location": location,
        "offset": None if offset is None else int(offset),
        "length": None if length is None else int(length),
        "checksum": checksum,
        "basepath": basepath,
    }
    given = {key: str(value) for key, value in values.items() if value is not None}
    tensor.external_data = [StringStringEntryProto(key=key, value=value) for key, value in given.items()]
    tensor.data_location = TensorProto.EXTERNAL


def remove_external_data_field(tensor: TensorProto, field_key: str) -> None:
    """Removes the entries of that key."""
    tensor.external_data = [entry for entry in tensor.external_data if entry.key != field_key]


def convert_model_to_external_data(
    model: ModelProto,
    all_tensors_to_one_file: bool = True,
    location: str | None = None,
    size_threshold: int = 1024,
    convert_attribute: bool = False,
) -> None:
    """Marks the tensors with raw data as external, in one file (`location`, or a name that nobody has) or one each.

    Only initializers, unless `convert_attribute`. As in onnx, `size_threshold` is the size of a Python bytes object,
    which is 33 bytes more than its content. ValueError for an absolute location, FileExistsError for a file that is
    there.
    """
    found = all_tensors(model) if convert_attribute else initializer_tensors(model)
    chosen = [
        item for item in found if item.raw_data is not None and nbytes(item.raw_data) + _OVERHEAD >= size_threshold
    ]
    if not all_tensors_to_one_file:
        for tensor in chosen:
            name = tensor.name or ""
            set_external_data(tensor, name if re.fullmatch(r'[^<>:;,?"*|/]+', name) else str(uuid.uuid1()))
        return
    if location and os.path.isabs(location):
        raise ValueError(f"location must be a relative path, below the model's folder, not {location!r}")
    if location and os.path.exists(location):
        raise FileExistsError(f"the external data file {location} exists")
    for tensor in chosen:
        set_external_data(tensor, location or f"{uuid.uuid1()}.data")


def convert_model_from_external_data(model: ModelProto) -> None:
    """Marks external tensors, whose data was loaded, as those of the model itself. ValueError where data is missing."""
    for tensor in all_tensors(model):
        if uses_external_data(tensor):
            if tensor.raw_data is None:
                raise ValueError(f"tensor {tensor.name or ''!r} has no raw_data; load its external data first")
            tensor.external_data = []
            tensor.data_location = TensorProto.DEFAULT


# -- writing


def save_external_data(tensor: TensorProto, base_path: str | os.PathLike[str]) -> None:
    """Writes `raw_data` to the end of the file that the tensor names, below `base_path`, and notes where it lies.

    An offset may leave a gap of at most 64 KiB behind the end of the file. Raises ExternalDataError, a ValueError, for
    another one, for a location that leaves the folder, and for what is no plain file.
    """
    info = ExternalDataInfo(tensor)
    if tensor.raw_data is None:
        raise _error(tensor, "raw_data field doesn't exist")
    root = os.fspath(base_path) or "."
    with folder_beneath(root, tensor, info.location) as folder:
        descriptor = open_to_append(os.path.join(root, *info.location.split("/")), folder)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        offset = end if info.offset is None else info.offset
        if not 0 <= offset - end <= MAX_PADDING:
            bounds = f"must be between the current file size ({end}) and {end + MAX_PADDING}"
            raise _error(tensor, f"the external data offset ({offset}) {bounds}")
        write_all(file.write, bytes(offset - end))
        for piece in chunks(tensor.raw_data):
            write_all(file.write, piece)
    set_external_data(tensor, info.location, offset, nbytes(tensor.raw_data))


def write_external_data_tensors(model: ModelProto, filepath: str | os.PathLike[str]) -> ModelProto:
    """Writes the tensors that are marked as external and have raw data, below the folder `filepath`.

    Afterwards the model refers to them. Returns the model.
    """
    for tensor in all_tensors(model):
        if uses_external_data(tensor) and tensor.raw_data is not None:
            save_external_data(tensor, filepath)
            tensor.raw_data = None
    return model


def _error(tensor: TensorProto, reason: str) -> ExternalDataError:
    return ExternalDataError(f"tensor {tensor.name or ''!r}: {reason}")
