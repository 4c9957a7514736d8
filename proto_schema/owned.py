"""Which data files belong to a model that is about to be replaced, and may go with it.

A file goes only where nothing speaks for another owner: the old model refers to it, it is named after that model, and
it is nothing but what a save writes there. A checkpoint that a model refers to in place is not ours, whatever its name.
"""

from __future__ import annotations

import os
from contextlib import suppress

from proto_schema.external import Entries, entries, tensors
from proto_schema.onnx import TensorProto

_CHECKPOINTS = (".safetensors", ".pt", ".pth", ".ckpt", ".npz", ".npy", ".onnx", ".gguf", ".h5", ".zip")


def is_checkpoint(name: str) -> bool:
    """Whether the name is that of a file that a save does not write: its suffix promises another format."""
    return name.endswith(_CHECKPOINTS)


def data_files_of(path: str) -> list[str]:
    """The data files that the model at `path` refers to and that are named after it: its own, of no use without it."""
    from proto_schema.files import load

    folder, base = os.path.split(path)
    with suppress(OSError, ValueError):
        beside = {name for name in os.listdir(folder or ".") if name.startswith((f"{base}.", f"{base}-"))}
        if not beside:
            return []
        used: dict[str, list[Entries]] = {}
        for tensor in tensors(load(path)):
            if tensor.data_location == TensorProto.EXTERNAL:
                entry = entries(tensor)
                used.setdefault(entry.location, []).append(entry)
        mine = [name for name in sorted(beside & used.keys()) if not is_checkpoint(name)]
        return [os.path.join(folder, name) for name in mine if _is_all(used[name], os.path.join(folder, name))]
    return []


def _is_all(used: list[Entries], path: str) -> bool:
    """Whether a file begins with the first of these ranges and ends with the last: no header, nothing behind."""
    ends = [None if entry.length is None else entry.offset + entry.length for entry in used]
    last = None if None in ends else max(end for end in ends if end is not None)
    return min(entry.offset for entry in used) == 0 and last in (None, os.path.getsize(path))
