"""Checkpoints made by hand, byte by byte, so that each part of them can be made wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def safetensors(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    """A .safetensors file of a header (bytes, or what becomes JSON) and the data behind it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def of_arrays(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> Path:
    """A .safetensors file of float32 arrays."""
    header, data = {}, b""
    for name, array in arrays.items():
        made = array.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(made)]}
        data += made
    return safetensors(path, header, data)
