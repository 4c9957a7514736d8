"""Weights from anywhere: checkpoints and arrays, opened by their headers alone and read when they are written.

`open_weights` takes a file, a folder, a mapping or several of these and returns `Weights`: a mapping from name to
`Stored`, which says data type, shape, and where the bytes are. It reads and maps no weights.
Checkpoints are untrusted: a reader returns rows or raises `WeightsError`, and executes nothing that a file says.
"""

from __future__ import annotations

from purexport.errors import WeightsError
from purexport.weights.convert import cast, transposed
from purexport.weights.source import Weights, open_weights
from purexport.weights.stored import Stored

__all__ = ["Stored", "Weights", "WeightsError", "cast", "open_weights", "transposed"]
