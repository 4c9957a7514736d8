"""Weights from anywhere: checkpoints and arrays, opened by their headers alone and read when they are written.

`open_weights` takes a file, a folder, a mapping or several of these and returns `Weights`: a mapping from name to
`Stored`, which says data type, shape, and where the bytes are. It reads and maps no weights.
Checkpoints are untrusted: a reader returns rows or raises `WeightsError`, and executes nothing that a file says.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from purexport.errors import WeightsError
    from purexport.weights.convert import cast, transposed
    from purexport.weights.source import Weights, open_weights
    from purexport.weights.stored import Stored

__all__ = ["Stored", "Weights", "WeightsError", "cast", "open_weights", "transposed"]

# an export without weights from outside needs no reader
_FILES = {
    "Stored": "weights.stored",
    "Weights": "weights.source",
    "WeightsError": "errors",
    "cast": "weights.convert",
    "open_weights": "weights.source",
    "transposed": "weights.convert",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _FILES:
        return getattr(import_module(f"purexport.{_FILES[name]}"), name)
    raise AttributeError(f"module 'purexport.weights' has no attribute {name!r}")
