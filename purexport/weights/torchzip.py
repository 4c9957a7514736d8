"""Reads checkpoints that torch.save writes: a zip archive of a pickle and one uncompressed member per storage.

The pickle is read as data (`unpickle`). Tensors become rows that name a storage, a start and steps. Rows of one storage
share its range of the file, so tied weights stay tied. A tensor that does not lie in row-major order is gathered when
it is written (`strided`).
A checkpoint often holds more than a state dict. The reader takes the outermost dict that holds tensors by name. If
several lie beside each other, it takes the one with a usual name; otherwise the error lists the keys, and the user
chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proto_schema.dtypes import DTYPES
from purexport.errors import WeightsError
from purexport.weights.stored import CheckpointFile, Stored, listed, shown, size_of
from purexport.weights.strided import StridedPayload, is_contiguous
from purexport.weights.unpickle import Unpickler
from purexport.weights.ziparchive import Archive

LONGEST_PICKLE = 1 << 26  # of half a million tensors; an opcode of one byte may make an object of seventy
USUAL = ("state_dict", "model_state_dict", "model")
MOST_AXES = 32  # numpy's limit before 2.0
DEPTH = 3  # of a state dict within the checkpoint's dicts
_SAVE_AGAIN = "load it with torch and save its state dict again with torch.save"

_WITHOUT = ("complex32", "float4_e2m1fn_x2")  # torch's dtypes that ONNX lacks
# torch's name: TensorProto.DataType, 0 where ONNX has none
_DTYPES = {row.torch: row.code for row in DTYPES.values() if row.torch} | dict.fromkeys(_WITHOUT, 0)
_STORAGES = {row.scalar: row.code for row in DTYPES.values() if row.storage}


@dataclass(frozen=True)
class _Type:
    """A dtype, or a class of storages; `code` is 0 if ONNX has no such type, and None for bytes without a type."""

    name: str
    code: int | None


@dataclass(frozen=True)
class _Storage:
    """Bytes of the archive: `member` is the name of its member, `size` in bytes."""

    kind: _Type
    member: str
    size: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    kind: _Type
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(archive: Archive) -> list[Stored]:
    """The tensors of the state dict, in its order. WeightsError says what is malformed or not supported, and where."""
    file = archive.file
    root = _root(archive)
    data = archive.content(archive.members[f"{root}data.pkl"], LONGEST_PICKLE, _SAVE_AGAIN)
    _check_byte_order(archive, root)
    found = Unpickler(data, _GLOBALS, lambda key: _storage(key, root), f"{file.label}: data.pkl").load()
    return list(_Rows(archive).of(state_dict(found, file)))


def _root(archive: Archive) -> str:
    """The folder of the archive, with a slash."""
    names = [name for name in archive.members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(names) != 1:
        what = "has no data.pkl" if not names else f"has {listed(names)}"
        raise archive.file.error(f"the zip archive {what}: it was not written by torch.save")
    root = names[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in archive.members:
        raise archive.file.error(
            "it is a TorchScript archive, not a checkpoint; save torch.jit.load(path).state_dict() with torch.save"
        )
    return root


def _check_byte_order(archive: Archive, root: str) -> None:
    member = archive.members.get(f"{root}byteorder")
    order = b"little" if member is None else archive.content(member, 64, _SAVE_AGAIN)
    if order != b"little":
        raise archive.file.error(f"its byte order is {shown(order.decode('latin-1'))}; {_SAVE_AGAIN}")


# ---- what the pickle may name


def _storage(key: Any, root: str) -> _Storage:
    """The persistent id of a storage: a word, its class, its name in the archive, its device, its number of items."""
    if not (isinstance(key, tuple) and len(key) == 5 and key[0] == "storage"):
        raise TypeError
    _, kind, name, _, count = key
    if not (isinstance(kind, _Type) and isinstance(name, str) and _is_size(count)):
        raise TypeError
    return _Storage(kind, f"{root}data/{name}", count if kind.code is None else _bytes(kind, (count,)))


def _bytes(kind: _Type, shape: tuple[int, ...]) -> int:
    if not kind.code:
        raise WeightsError(
            f"ONNX has no data type for {kind.name}; cast the tensor before it is saved", code="no-dtype"
        )
    return size_of(kind.code, shape)


def _tensor(
    storage: Any, start: Any, shape: Any, strides: Any, gradient: Any = None, hooks: Any = None, metadata: Any = None
) -> _Tensor:
    """torch._utils._rebuild_tensor_v2: of the storage's own type."""
    if not (isinstance(storage, _Storage) and storage.kind.code is not None):
        raise TypeError
    return _row(storage, storage.kind, start, shape, strides, metadata)


def _typed_tensor(
    storage: Any, start: Any, shape: Any, strides: Any, gradient: Any, hooks: Any, kind: Any, metadata: Any = None
) -> _Tensor:
    """torch._utils._rebuild_tensor_v3: bytes of a type."""
    if not (isinstance(storage, _Storage) and isinstance(kind, _Type)):
        raise TypeError
    return _row(storage, kind, start, shape, strides, metadata)


def _row(storage: _Storage, kind: _Type, start: Any, shape: Any, strides: Any, metadata: Any) -> _Tensor:
    if not (isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides)):
        raise TypeError
    if len(shape) > MOST_AXES:
        raise WeightsError(f"a tensor has {len(shape)} axes; reshape it to at most {MOST_AXES} before it is saved")
    if not all(map(_is_size, (start, *shape, *strides))):
        raise TypeError
    if isinstance(metadata, dict) and (metadata.get("conj") or metadata.get("neg")):
        raise WeightsError("a tensor is a lazy conjugate or negation; save tensor.resolve_conj().resolve_neg()")
    width = _bytes(kind, (1,))
    last = start + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
    if _bytes(kind, shape) and (last + 1) * width > storage.size:
        what = f"shape {shown(shape)} and steps {shown(strides)} from {shown(start)}"
        raise WeightsError(f"a tensor of {what} lies outside of its storage, which has {storage.size} bytes")
    return _Tensor(storage, kind, start, shape, strides)


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


def _parameter(data: object, *_: object) -> object:
    return data


def _of_class(function: Any, kind: Any, arguments: Any, state: Any) -> object:
    """torch._tensor._rebuild_from_type_v2: a tensor with attributes, or a buffer."""
    if function not in (_tensor, _typed_tensor) or not isinstance(kind, _Type) or not isinstance(arguments, tuple):
        raise TypeError
    return function(*arguments)


def _ordered(items: object = ()) -> dict[str, object]:
    """An OrderedDict, here a dict; the pickle sets its items afterwards."""
    if items != ():
        raise TypeError
    return {}


def _size(items: object = ()) -> tuple[object, ...]:
    if not isinstance(items, (tuple, list)):
        raise TypeError
    return tuple(items)


def _plain(*_: object) -> None:
    """A value that is not needed here: a device, a set, bytes."""


def _globals() -> Iterator[tuple[str, object]]:
    yield from ((f"torch.{name}", _Type(f"torch.{name}", code)) for name, code in _DTYPES.items())
    for name, code in _STORAGES.items():
        yield f"torch.{name}Storage", _Type(f"torch.{name}Storage", code)
    for name in ("torch.storage.UntypedStorage", "torch.UntypedStorage"):
        yield name, _Type(name, None)
    for name in ("torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"):
        yield name, _Type(name, 0)
    for name in ("torch.device", "__builtin__.set", "builtins.set", "_codecs.encode"):
        yield name, _plain


_GLOBALS: dict[str, object] = {
    **dict(_globals()),
    "collections.OrderedDict": _ordered,
    "torch.Size": _size,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _of_class,
}


# ---- which dict


def state_dict(found: object, file: CheckpointFile) -> dict[str, Any]:
    """The dict of tensors by name in a checkpoint. WeightsError, with keys, where there is none or several."""
    if isinstance(found, _Tensor):
        raise file.error("it holds a single tensor without a name; save {name: tensor}")
    level = [("", found)] if isinstance(found, dict) else []
    seen = {id(found)}  # a dict may be in many others, and in itself
    for _ in range(DEPTH):
        holders = [(path, item) for path, item in level if any(isinstance(value, _Tensor) for value in item.values())]
        if holders:
            return _chosen(holders, file)
        inner = [
            (f"{path}[{shown(key)}]", value)
            for path, item in level
            for key, value in item.items()
            if isinstance(key, str) and isinstance(value, dict)
        ]
        level = [(path, item) for path, item in inner if id(item) not in seen and not seen.add(id(item))]  # type: ignore[func-returns-value]
    keys = listed([key for key in found if isinstance(key, str)]) if isinstance(found, dict) else "no names"
    raise file.error(f"no dict of tensors by name is in it, it has {keys}; {_SAVE_AGAIN}")


def _chosen(holders: list[tuple[str, dict[str, Any]]], file: CheckpointFile) -> dict[str, Any]:
    usual = [item for path, item in holders if path in {f"[{name!r}]" for name in USUAL}]
    if len(holders) > 1 and len(usual) != 1:
        places = ", ".join(path for path, _ in holders[:8])
        example = f"torch.load(path, mmap=True){holders[0][0]}"
        raise file.error(f"several dicts of it hold tensors: {places}; pass the one that is meant, as {example}")
    return usual[0] if usual else holders[0][1]


class _Rows:
    """Tensors to rows; each storage is looked up in the archive once."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._offsets: dict[str, int] = {}

    def of(self, found: dict[str, Any]) -> Iterator[Stored]:
        """A row for each tensor; other entries of the dict (numbers, versions) are no weights."""
        file = self._archive.file
        for name, tensor in found.items():
            if isinstance(name, str) and isinstance(tensor, _Tensor):
                assert tensor.kind.code
                width = DTYPES[tensor.kind.code].bits // 8
                begin = self._offset(tensor.storage)
                size = size_of(tensor.kind.code, tensor.shape)
                if not size or is_contiguous(tensor.shape, tensor.strides):
                    payload: Any = file.range(begin + tensor.start * width if size else begin, size)
                else:
                    base = file.range(begin, tensor.storage.size)
                    payload = StridedPayload(base, width, tensor.shape, tensor.strides, tensor.start)
                yield Stored(name, tensor.kind.code, tensor.shape, payload, file.label)

    def _offset(self, storage: _Storage) -> int:
        begin = self._offsets.get(storage.member)
        member = self._archive.members.get(storage.member)
        if member is None:
            raise self._archive.file.error(f"the storage {shown(storage.member)} is missing; {_SAVE_AGAIN}")
        if begin is None:
            begin = self._offsets[storage.member] = self._archive.range(member, _SAVE_AGAIN)[0]
        if member.size != storage.size:
            what = f"has {member.size} bytes, but the pickle says {storage.size}"
            raise self._archive.file.error(f"the storage {shown(storage.member)} {what}; {_SAVE_AGAIN}")
        return begin
