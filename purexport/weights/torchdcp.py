"""Reads a folder of torch.distributed.checkpoint: `.metadata`, a pickle, and the chunks of tensors in `__r_n.distcp`.

The pickle says the shape of each tensor, the box of each of its chunks, and where the bytes of a chunk are. It is read
as data (`unpickle`): the classes that it names become records. A chunk is an archive of torch.save with one tensor,
within a file. Neither torch nor a group of processes is needed.
The state of optimizers and of the training loop is left out by its name; which of the rest is the state dict is chosen
as in a file of torch.save. Only the files of what is chosen are opened.
Writers that use safetensors make files of their own, whose headers say where each tensor lies in the whole one.
Source: torch/distributed/checkpoint/metadata.py, filesystem.py and hf_storage.py of torch 2.13.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from posixpath import basename
from typing import Any

from proto_schema.derived.strided import row_major
from proto_schema.external.addresses import exists, parent
from proto_schema.external.addresses import joined as joined_path
from proto_schema.external.payload import MemoryPayload, Payload, RangePayload
from proto_schema.tensors.dtypes import DTYPES, MOST_ELEMENTS, element_count
from proto_schema.wire.records import dataclass
from purexport.errors import WeightsError
from purexport.weights import safetensors, torchzip
from purexport.weights.boxes import Box, why_incomplete
from purexport.weights.budget import ROW, Budget
from purexport.weights.chunked import Piece, joined
from purexport.weights.index import lies_beside
from purexport.weights.statedict import state_dict
from purexport.weights.stored import CheckpointFile, Stored, listed, shown, size_of
from purexport.weights.torchvalues import GLOBALS, MOST_AXES, StorageType, Tensor, is_size
from purexport.weights.unpickle import Record, Unpickler, ignored
from purexport.weights.ziparchive import Archive

METADATA = ".metadata"
CHUNKS = ".distcp"
_LONGEST = 1 << 28  # bytes of .metadata: some million chunks
_SHARD = re.compile(r"shard-(\d+)-model-\d+-of-\d+\.safetensors")
_TRAINING = frozenset(
    {
        "optimizer",
        "optimizers",
        "optim",
        "optimizer_state_dict",
        "optim_state_dict",
        "lr_scheduler",
        "scheduler",
        "train_state",
        "dataloader",
        "grad_scaler",
        "rng_state",
    }
)
_INCOMPLETE = "copy the checkpoint again, whole, or save it again"
_CHOICE = "save the one that is meant alone, by torch.distributed.checkpoint.save"

_MODULE = "torch.distributed.checkpoint"
_RECORDS = {
    "metadata": "Metadata TensorStorageMetadata BytesStorageMetadata TensorProperties ChunkStorageMetadata"
    " MetadataIndex StorageMeta",
    "filesystem": "_StorageInfo",
}
_PATHS = ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath")


def _globals() -> Iterator[tuple[str, object]]:
    for module, names in _RECORDS.items():
        for name in names.split():
            yield f"{_MODULE}.{module}.{name}", partial(_record, name)
    yield "torch.distributed._shard.sharded_tensor.metadata.TensorProperties", partial(_record, "TensorProperties")
    yield "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING", ignored
    yield f"{_MODULE}.metadata._MEM_FORMAT_ENCODING", ignored
    yield "torch.serialization._get_layout", ignored
    for module in ("pathlib", "pathlib._local"):
        for name in _PATHS:
            yield f"{module}.{name}", ignored


def _record(kind: str, *_: object) -> Record:
    return Record(kind)


_GLOBALS = {**GLOBALS, **dict(_globals())}


def in_folder(names: Sequence[str]) -> bool:
    """Whether a folder with files of these names is a checkpoint of torch.distributed.checkpoint, or a part of one."""
    return METADATA in names or any(name.endswith(CHUNKS) or _SHARD.fullmatch(name) for name in names)


def files(names: Sequence[str]) -> list[str]:
    """Those of the names of a folder's files that are of such a checkpoint."""
    return [name for name in names if in_folder([name])]


def read(folder: str, names: Sequence[str]) -> list[Stored]:
    """The tensors of the state dict. WeightsError names the file and the chunk that is missing or damaged."""
    shards = [name for name in names if _SHARD.fullmatch(name)]
    if METADATA in names:
        with CheckpointFile(joined_path(folder, METADATA)) as file:
            return _Folder(file).rows()
    if shards:
        return _sharded(folder, shards)
    found = listed([name for name in names if name.endswith(CHUNKS)])
    raise WeightsError(
        f"{folder} holds {found}, but no {METADATA}, which is written last: the save did not finish; {_INCOMPLETE}"
    )


@dataclass(frozen=True)
class _Chunk:
    """A chunk of a tensor: its box, and where the archive with its bytes is."""

    box: Box
    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class _Wanted:
    """A tensor as .metadata says it."""

    kind: StorageType
    shape: tuple[int, ...]
    chunks: list[_Chunk]


class _Folder:
    """What .metadata says, and the files that it names."""

    def __init__(self, file: CheckpointFile) -> None:
        self._file = file
        self._folder = parent(file.path)
        if file.size > _LONGEST:
            raise file.error(f"it has {file.size} bytes, more than it may have: is it the right file?")
        data = file.read(0, file.size)
        file.budget.earn(len(data))
        found = Unpickler(data, _GLOBALS, self._persistent, METADATA, file.budget).load()
        whole = self._state(found, "Metadata")
        self._tensors = self._dict(whole, "state_dict_metadata")
        self._paths = whole.get("planner_data")
        self._places = self._storage(self._dict(whole, "storage_data"))

    def _persistent(self, _: object) -> object:
        raise TypeError

    def rows(self) -> list[Stored]:
        """A row for each tensor of the state dict that is chosen."""
        names = [name for name, item in self._tensors.items() if isinstance(item, Record)]
        tensors = [name for name in names if self._tensors[name].kind == "TensorStorageMetadata"]
        if not tensors:
            raise self._file.error(f"no tensors are in the checkpoint, it has {listed(names) or 'nothing'}")
        keys = state_dict(self._tree(tensors), self._file, _Key, _CHOICE)
        wanted = {
            name: self._wanted(key.name, self._tensors[key.name]) for name, key in keys.items() if type(key) is _Key
        }
        found = self._pieces(wanted)
        return [self._row(name, wanted[name], found[name]) for name in wanted]

    # ---- what .metadata says

    def _state(self, item: object, kind: str) -> dict[Any, Any]:
        """The fields of a record."""
        if isinstance(item, Record) and item.kind == kind and isinstance(item.state, dict):
            return item.state
        raise self._file.error(f"{shown(item)} is where {kind} should be: it is damaged; {_INCOMPLETE}")

    def _dict(self, state: dict[Any, Any], name: str) -> dict[Any, Any]:
        found = state.get(name)
        if isinstance(found, dict):
            return found
        raise self._file.error(f"it has no {name}: it is damaged; {_INCOMPLETE}")

    def _storage(self, found: dict[Any, Any]) -> dict[tuple[str, tuple[int, ...] | None], Record]:
        """Where the bytes of chunks are, by the name of the tensor and the offsets of the chunk."""
        places = {}
        for key, value in found.items():
            state = self._state(key, "MetadataIndex")
            name, offset = state.get("fqn"), state.get("offset")
            self._file.spend(ROW // 2)
            places[str(name), None if offset is None else self._sizes(offset, "the offset of a chunk")] = value
        return places

    def _sizes(self, found: object, what: str) -> tuple[int, ...]:
        sizes = found if isinstance(found, tuple) and len(found) <= MOST_AXES else (None,)
        if all(is_size(size) and size < MOST_ELEMENTS for size in sizes):
            return sizes
        raise self._file.error(f"{what} is {shown(found)}: it is damaged; {_INCOMPLETE}")

    def _tree(self, tensors: Sequence[str]) -> dict[str, Any]:
        """The tensors in dicts, as they were before the planner made one dict of them."""
        paths = self._paths if isinstance(self._paths, dict) else {}
        root: dict[str, Any] = {}
        for name in tensors:
            path = paths.get(name)
            keys = path if isinstance(path, tuple) and path else (name,)
            # a key with dots is one of a state dict; without paths only the first word says whose the tensor is
            if not _is_training(keys if path else name.split(".")[:2]):
                self._file.spend(ROW)
                at = root
                for key in keys[:-1]:
                    inner = at.setdefault(str(key), {})
                    at = inner if isinstance(inner, dict) else {}
                at[str(keys[-1])] = _Key(name)
        if not root:
            raise self._file.error("only the state of an optimizer or of the training is in it, and no state dict")
        return root

    def _wanted(self, name: str, item: Record) -> _Wanted:
        state = self._state(item, "TensorStorageMetadata")
        what = f"tensor {shown(name)}"
        shape = self._sizes(state.get("size"), f"the shape of {what}")
        properties = state.get("properties")
        values = properties.state if isinstance(properties, Record) else None
        kind = values.get("dtype") if isinstance(values, dict) else values[0] if isinstance(values, tuple) else None
        if not isinstance(kind, StorageType):
            raise self._file.error(f"{what} has no dtype: it is damaged; {_INCOMPLETE}")
        if not kind.code:
            raise self._file.error(f"{what}: ONNX has no data type for {kind.name}; cast it before", "no-dtype")
        size_of(kind.code, shape)
        rows = state.get("chunks")
        if not isinstance(rows, list):
            raise self._file.error(f"{what} has no chunks: it is damaged; {_INCOMPLETE}")
        boxes: dict[Box, None] = {}
        for row in rows:
            chunk = self._state(row, "ChunkStorageMetadata")
            box = Box(*(self._sizes(chunk.get(key), f"a chunk of {what}") for key in ("offsets", "sizes")))
            if not _lies_in(box, shape):
                raise self._file.error(f"{what}: {_named(box)} does not lie in its shape {list(shape)}; {_INCOMPLETE}")
            boxes[box] = None
        if reason := why_incomplete(shape, list(boxes)):
            raise self._file.error(f"{what}: {reason}; {_INCOMPLETE}")
        return _Wanted(kind, shape, [self._place(name, box) for box in boxes if box.count])

    def _place(self, name: str, box: Box) -> _Chunk:
        place = self._places.get((name, box.offsets))
        if place is None and not any(box.offsets):
            place = self._places.get((name, None))
        what = f"tensor {shown(name)}: {_named(box)}"
        if place is None:
            raise self._file.error(f"{what} is in no file; {_INCOMPLETE}")
        state = self._state(place, "_StorageInfo")
        path, offset, length = state.get("relative_path"), state.get("offset"), state.get("length")
        if not (isinstance(path, str) and lies_beside(path) and "/" not in path):
            raise self._file.error(f"{what} would be in {shown(path)}, which is not a file of the checkpoint's folder")
        if not (isinstance(offset, int) and isinstance(length, int) and is_size(offset) and is_size(length)):
            raise self._file.error(f"{what} would be at {shown(offset)}: it is damaged; {_INCOMPLETE}")
        if state.get("transform_descriptors"):
            how = shown(state["transform_descriptors"])
            raise self._file.error(f"{what} is transformed ({how}): save the checkpoint without extensions")
        return _Chunk(box, path, offset, length)

    # ---- the files

    def _pieces(self, wanted: dict[str, _Wanted]) -> dict[str, list[Piece]]:
        """The chunks of tensors, by the files that they are in, each of which is opened once."""
        files: dict[str, list[tuple[str, _Chunk]]] = {}
        for name, tensor in wanted.items():
            for chunk in tensor.chunks:
                files.setdefault(chunk.file, []).append((name, chunk))
        for path, chunks in files.items():
            if not exists(joined_path(self._folder, path)):
                name, chunk = chunks[0]
                more = f" and {len(chunks) - 1} more chunks" if len(chunks) > 1 else ""
                raise self._file.error(
                    f"{shown(path)} is not in {self._folder}: it has {_named(chunk.box)} of tensor "
                    f"{shown(name)}{more}; {_INCOMPLETE}"
                )
        found: dict[str, list[Piece]] = {name: [] for name in wanted}
        for path, chunks in files.items():
            with CheckpointFile(joined_path(self._folder, path), self._file.budget) as file:
                for name, chunk in sorted(chunks, key=lambda row: row[1].offset):
                    found[name].append(_piece(file, name, wanted[name].kind, chunk))
        return found

    def _row(self, name: str, wanted: _Wanted, found: list[Piece]) -> Stored:
        assert wanted.kind.code
        self._file.spend(ROW + 100 * len(found))
        payload: Payload = joined(wanted.shape, found) if found else MemoryPayload(b"")
        return Stored(name, wanted.kind.code, wanted.shape, payload, basename(self._folder))


@dataclass(frozen=True)
class _Key:
    """A tensor in the dicts of a checkpoint, by its name in .metadata."""

    name: str


def _is_training(keys: Sequence[object]) -> bool:
    return any(key in _TRAINING for key in keys[:-1])


def _lies_in(box: Box, shape: tuple[int, ...]) -> bool:
    return len(box.offsets) == len(box.sizes) == len(shape) and all(
        at + size <= extent for at, size, extent in zip(box.offsets, box.sizes, shape, strict=True)
    )


def _named(box: Box) -> str:
    return f"the chunk of size {list(box.sizes)} at {list(box.offsets)}"


def _piece(file: CheckpointFile, name: str, kind: StorageType, chunk: _Chunk) -> Piece:
    """A chunk in its file. WeightsError names it."""
    what = f"tensor {shown(name)}: {_named(chunk.box)}"
    end = chunk.offset + chunk.length
    if end > file.size:
        place = f"bytes {chunk.offset} to {end}"
        raise file.error(f"{what} would be at {place}, and the file has {file.size}: it is cut off; {_INCOMPLETE}")
    section = file.section(chunk.offset, chunk.length, f"{file.label} @{chunk.offset}")
    try:
        tensor, begin_of = torchzip.loaded(Archive(section))
        begin = begin_of(tensor.storage) if isinstance(tensor, Tensor) else 0
    except WeightsError as error:
        raise WeightsError(f"{what} is damaged: {error}", code=error.code) from None
    if not isinstance(tensor, Tensor) or tensor.shape != chunk.box.sizes or tensor.kind.code != kind.code:
        found = f"{tensor.kind.name} {list(tensor.shape)}" if isinstance(tensor, Tensor) else "no tensor"
        raise file.error(f"{what}: {found} is there, and {METADATA} says {kind.name}; {_INCOMPLETE}")
    base = section.range(begin, tensor.storage.size)
    return Piece(chunk.box, base, kind.width, tensor.start, tensor.strides)


# ---- files of safetensors


def _sharded(folder: str, names: Sequence[str]) -> list[Stored]:
    """The tensors of files that each have a part of them. WeightsError names what is missing."""
    numbers = {int(match[1]) for match in map(_SHARD.fullmatch, names) if match}
    missing = sorted(set(range(1, max(numbers) + 1)) - numbers)
    if missing:
        raise WeightsError(
            f"{folder} has the shards {listed(list(names))}, and shard {missing[0]} is missing; {_INCOMPLETE}"
        )
    found: dict[str, list[tuple[Box, Stored]]] = {}
    budget = Budget()
    for name in sorted(names):
        with CheckpointFile(joined_path(folder, name), budget) as file:
            rows, offsets = safetensors.read(file), _offsets(file)
            for row in rows:
                at = offsets.get(row.name, (0,) * len(row.shape))
                if len(at) != len(row.shape):
                    raise file.error(f"tensor {shown(row.name)}: its saved_offsets are {list(at)}; {_INCOMPLETE}")
                found.setdefault(row.name, []).append((Box(at, row.shape), row))
    return [_joined(folder, name, parts) for name, parts in found.items() if not _is_training(name.split(".")[:2])]


def _offsets(file: CheckpointFile) -> dict[str, tuple[int, ...]]:
    """Where the tensors of a file begin in the whole ones."""
    text = safetensors.metadata(file).get("DCP_SHARDING_INFO")
    try:
        found = json.loads(text) if text is not None else {}
        rows = {name: tuple(entry["saved_offsets"]) for name, entry in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise file.error(f"its DCP_SHARDING_INFO is {shown(text)}: it is damaged; {_INCOMPLETE}") from None
    if all(all(map(is_size, row)) for row in rows.values()):
        return rows
    raise file.error(f"its DCP_SHARDING_INFO has an offset that is no number; {_INCOMPLETE}")


def _joined(folder: str, name: str, parts: list[tuple[Box, Stored]]) -> Stored:
    first = parts[0][1]
    where = f"{basename(folder)}: tensor {shown(name)}"
    different = [row for _, row in parts if row.dtype != first.dtype or len(row.shape) != len(first.shape)]
    if different:
        raise WeightsError(f"{where}: its parts in {first.origin} and {different[0].origin} are of different types")
    ends = [[at + size for at, size in zip(box.offsets, box.sizes, strict=True)] for box, _ in parts]
    shape = tuple(map(max, zip(*ends, strict=True)))
    unique = {box: row for box, row in parts if box.count}
    size_of(first.dtype, shape)
    if reason := why_incomplete(shape, list(unique)):
        raise WeightsError(f"{where}: {reason}; {_INCOMPLETE}")
    width, pieces = DTYPES[first.dtype].bits, []
    if width < 8:
        raise WeightsError(f"{where}: its parts have less than a byte for an element; {_INCOMPLETE}")
    for box, row in unique.items():
        assert isinstance(row.payload, RangePayload)
        pieces.append(Piece(box, row.payload, width // 8, 0, tuple(row_major(row.shape))))
    payload: Payload = joined(shape, pieces) if element_count(shape) else MemoryPayload(b"")
    return Stored(name, first.dtype, shape, payload, basename(folder))
