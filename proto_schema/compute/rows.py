"""The table of what operators compute: one function for each operator, whatever its version.

A row is declared beside its code: `@row("Relu")`. It takes the `Call` and the inputs, positionally; an input that the
node leaves out in the middle is None, and one left out at the end is not passed, so that defaults serve. It returns
the output, or a tuple of outputs. It never writes into an input. What contradicts the specification goes to
`call.fail`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from proto_schema.rowtable import RowTable

__all__ = ["FILES", "MICROSOFT", "Row", "row", "table"]

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime, of whose operators there is no history: its rows see a schema that says nothing."""

Row: TypeAlias = "Callable[..., Any]"

FILES: tuple[str, ...] = (
    # elements, places, and control of what runs
    "elementwise", "activations", "casting", "moving", "slicing", "indexing", "reducing", "making", "control",
    "sequences",
    # themes with an arithmetic of their own
    "nn.convolution", "nn.pooling", "nn.products", "nn.normalization", "nn.attention", "nn.linear_attention",
    "nn.recurrent", "nn.quantization", "nn.deformed", "spectral",
    "images.resize", "images.sampling", "images.regions", "images.blocks",
    "nn.losses", "nn.training", "strings", "ml.labels", "ml.scaling", "ml.linear", "ml.trees",
    "microsoft.products", "microsoft.elements", "microsoft.attention", "microsoft.experts", "microsoft.recurrent",
)  # fmt: skip
_TABLE: RowTable[Row] = RowTable("proto_schema.compute", FILES, "rows of what it computes")
row = _TABLE.declare
table = _TABLE.all
