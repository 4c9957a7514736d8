"""From what a pickle holds to rows: which dict of it is the state dict, and where in the file its tensors lie.

A checkpoint often holds more than a state dict. The outermost dict that holds tensors by name is taken. If several lie
beside each other, the one with a usual name is; otherwise the error lists the keys, and the user chooses.
Rows of one storage share its range of the file, so tied weights stay tied. A tensor that does not lie in row-major
order is gathered when it is written (`strided`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from proto_schema.derived.strided import StridedPayload, is_contiguous
from proto_schema.tensors.dtypes import DTYPES
from purexport.weights.budget import ROW
from purexport.weights.stored import CheckpointFile, Stored, listed, shown, size_of
from purexport.weights.torchvalues import Storage, Tensor

USUAL = ("state_dict", "model_state_dict", "model")
DEPTH = 3  # of a state dict within the checkpoint's dicts
SAVE_AGAIN = "load it with torch and save its state dict again with torch.save"

_Path = tuple[Any, ...]  # the keys that lead to a dict


def rows(found: object, file: CheckpointFile, begin_of: Callable[[Storage], int]) -> list[Stored]:
    """The tensors of the state dict, in its order; `begin_of` says where in the file a storage begins."""
    return list(_rows(state_dict(found, file), file, begin_of))


def state_dict(
    found: object, file: CheckpointFile, kind: type = Tensor, choice: str = "pass the one that is meant, as "
) -> dict[str, Any]:
    """The dict of tensors by name in a checkpoint. WeightsError, with keys, where there is none or several.

    Tensors are of the class `kind`; `choice` says how the user chooses.
    """
    if isinstance(found, kind):
        raise file.error("it holds a single tensor without a name; save {name: tensor}")
    level: list[tuple[_Path, dict[Any, Any]]] = [((), found)] if isinstance(found, dict) else []
    seen = {id(found)}  # a dict may be in many others, and in itself
    for _ in range(DEPTH):
        holders = [(path, item) for path, item in level if any(isinstance(value, kind) for value in item.values())]
        if holders:
            return _chosen(holders, file, choice)
        level = list(_inside(level, seen, file))
    keys = listed([key for key in found if isinstance(key, str)]) if isinstance(found, dict) else "no names"
    raise file.error(f"no dict of tensors by name is in it, it has {keys}; {SAVE_AGAIN}")


def _inside(
    level: list[tuple[_Path, dict[Any, Any]]], seen: set[int], file: CheckpointFile
) -> Iterator[tuple[_Path, dict[Any, Any]]]:
    """The dicts in these dicts, each once."""
    for path, item in level:
        for key, value in item.items():
            if isinstance(key, str) and isinstance(value, dict) and id(value) not in seen:
                file.spend(_LOOK)
                seen.add(id(value))
                yield (*path, key), value


_LOOK = 300  # bytes for a dict that is looked into: its path, its place among those seen


def _chosen(holders: list[tuple[_Path, dict[str, Any]]], file: CheckpointFile, choice: str) -> dict[str, Any]:
    usual = [item for path, item in holders if len(path) == 1 and path[0] in USUAL]
    if len(holders) > 1 and len(usual) != 1:
        places = ["".join(f"[{shown(key)}]" for key in path) for path, _ in holders[:8]]
        example = f"torch.load(path, mmap=True){places[0]}" if choice.endswith(" ") else ""
        raise file.error(f"several dicts of it hold tensors: {', '.join(places)}; {choice}{example}")
    return usual[0] if usual else holders[0][1]


def _rows(found: dict[str, Any], file: CheckpointFile, begin_of: Callable[[Storage], int]) -> Iterator[Stored]:
    """A row for each tensor; other entries of the dict (numbers, versions) are no weights."""
    for name, tensor in found.items():
        if isinstance(name, str) and isinstance(tensor, Tensor):
            assert tensor.kind.code
            file.spend(ROW)
            width = DTYPES[tensor.kind.code].bits // 8
            begin = begin_of(tensor.storage)
            size = size_of(tensor.kind.code, tensor.shape)
            if not size or is_contiguous(tensor.shape, tensor.strides):
                payload: Any = file.range(begin + tensor.start * width if size else begin, size)
            else:
                base = file.range(begin, tensor.storage.size)
                payload = StridedPayload(base, width, tensor.shape, tensor.strides, tensor.start)
            yield Stored(name, tensor.kind.code, tensor.shape, payload, file.label)
