"""What the pickle of a state dict may name: storages, tensors, dtypes, and the few functions that make tensors of them.

A tensor is a storage, a start and steps; nothing of it is read here. `GLOBALS` is the table of all names: it stands for
torch's functions by functions of this file, which check their arguments and make these values.
Invariant: a `Tensor` lies within its storage. What a call makes takes bounded time and memory, whatever the pickle
gives it: arguments may be shared, so that each of them can be large and be given to many calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proto_schema.tensors.dtypes import DTYPES
from proto_schema.wire.records import dataclass
from purexport.errors import WeightsError
from purexport.weights.stored import shown, size_of
from purexport.weights.unpickle import MOST_ARGUMENTS, set_item

MOST_AXES = 32  # numpy's limit before 2.0

_WITHOUT = ("complex32", "float4_e2m1fn_x2")  # torch's dtypes that ONNX lacks
# torch's name: TensorProto.DataType, 0 where ONNX has none
_DTYPES = {row.torch: row.code for row in DTYPES.values() if row.torch} | dict.fromkeys(_WITHOUT, 0)
_STORAGES = {row.scalar: row.code for row in DTYPES.values() if row.storage}


@dataclass(frozen=True, slots=True)
class StorageType:
    """A dtype, or a class of storages; `code` is 0 if ONNX has no such type, and None for bytes without a type."""

    name: str
    code: int | None

    @property
    def width(self) -> int:
        """Bytes of an item. WeightsError if ONNX has no such type."""
        return 1 if self.code is None else nbytes(self, (1,))


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes of the checkpoint: `key` is their name, `size` their number, `begin` where in what has that name."""

    kind: StorageType
    key: str
    size: int
    begin: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """Items of a storage: the first is item `start`."""

    storage: Storage
    kind: StorageType
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def storage_of(key: object) -> Storage:
    """The persistent id of a storage: a word, its class, its name, its device, its number of items. TypeError if not.

    Files of torch before 1.6 have a sixth item, None or what part of the storage is meant (see `view_of`).
    """
    if not (isinstance(key, tuple) and len(key) == 5 and key[0] == "storage"):
        raise TypeError
    _, kind, name, _, count = key
    if not (isinstance(kind, StorageType) and isinstance(name, str) and is_size(count)):
        raise TypeError
    return Storage(kind, name, count if kind.code is None else nbytes(kind, (count,)))


def view_of(storage: Storage, view: object) -> Storage:
    """A part of a storage: (a name of its own, the first item, the number of items). TypeError, WeightsError if not."""
    if not (isinstance(view, tuple) and len(view) == 3 and is_size(view[1]) and is_size(view[2])):
        raise TypeError
    begin, size = view[1] * storage.kind.width, view[2] * storage.kind.width
    if begin + size > storage.size:
        raise WeightsError(f"a part of storage {shown(storage.key)} lies outside of it")
    return Storage(storage.kind, storage.key, size, begin)


def nbytes(kind: StorageType, shape: tuple[int, ...]) -> int:
    """The bytes of so many items. WeightsError if ONNX has no such type."""
    if not kind.code:
        raise WeightsError(
            f"ONNX has no data type for {kind.name}; cast the tensor before it is saved", code="no-dtype"
        )
    return size_of(kind.code, shape)


def is_size(value: object) -> bool:
    return type(value) is int and value >= 0


# ---- the functions


def _tensor(
    storage: Any, start: Any, shape: Any, strides: Any, gradient: Any = None, hooks: Any = None, metadata: Any = None
) -> Tensor:
    """torch._utils._rebuild_tensor_v2: of the storage's own type."""
    if not (isinstance(storage, Storage) and storage.kind.code is not None):
        raise TypeError
    return _row(storage, storage.kind, start, shape, strides, metadata)


def _typed_tensor(
    storage: Any, start: Any, shape: Any, strides: Any, gradient: Any, hooks: Any, kind: Any, metadata: Any = None
) -> Tensor:
    """torch._utils._rebuild_tensor_v3: bytes of a type."""
    if not (isinstance(storage, Storage) and isinstance(kind, StorageType)):
        raise TypeError
    return _row(storage, kind, start, shape, strides, metadata)


def _row(storage: Storage, kind: StorageType, start: Any, shape: Any, strides: Any, metadata: Any) -> Tensor:
    if not (isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides)):
        raise TypeError
    if len(shape) > MOST_AXES:
        raise WeightsError(f"a tensor has {len(shape)} axes; reshape it to at most {MOST_AXES} before it is saved")
    if not all(map(is_size, (start, *shape, *strides))):
        raise TypeError
    if isinstance(metadata, dict) and (metadata.get("conj") or metadata.get("neg")):
        raise WeightsError("a tensor is a lazy conjugate or negation; save tensor.resolve_conj().resolve_neg()")
    width = nbytes(kind, (1,))
    last = start + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
    if nbytes(kind, shape) and (last + 1) * width > storage.size:
        what = f"shape {shown(shape)} and steps {shown(strides)} from {shown(start)}"
        raise WeightsError(f"a tensor of {what} lies outside of its storage, which has {storage.size} bytes")
    return Tensor(storage, kind, start, shape, strides)


def _parameter(data: object, *_: object) -> object:
    return data


def _of_class(function: Any, kind: Any, arguments: Any, state: Any) -> object:
    """torch._tensor._rebuild_from_type_v2: a tensor with attributes, or a buffer."""
    if (
        function not in (_tensor, _typed_tensor)
        or not isinstance(kind, StorageType)
        or not isinstance(arguments, tuple)
    ):
        raise TypeError
    if len(arguments) > MOST_ARGUMENTS:
        raise TypeError
    return function(*arguments)


def _ordered(items: object = ()) -> dict[str, object]:
    """An OrderedDict, here a dict; the pickle sets its items afterwards. Python 2 gave them as a list of lists."""
    if not isinstance(items, (tuple, list)):
        raise TypeError
    found: dict[str, object] = {}
    for pair in items:
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise TypeError
        set_item(found, pair[0], pair[1])
    return found


def _size(items: object = ()) -> tuple[object, ...]:
    if not isinstance(items, (tuple, list)):
        raise TypeError
    return tuple(items)


def _plain(*_: object) -> None:
    """A value that is not needed here: a device, a set, bytes."""


def _globals() -> Iterator[tuple[str, object]]:
    yield from ((f"torch.{name}", StorageType(f"torch.{name}", code)) for name, code in _DTYPES.items())
    for name, code in _STORAGES.items():
        yield f"torch.{name}Storage", StorageType(f"torch.{name}Storage", code)
    for name in ("torch.storage.UntypedStorage", "torch.UntypedStorage"):
        yield name, StorageType(name, None)
    for name in ("torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"):
        yield name, StorageType(name, 0)
    for name in ("torch.device", "__builtin__.set", "builtins.set", "_codecs.encode"):
        yield name, _plain


GLOBALS: dict[str, object] = {
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
