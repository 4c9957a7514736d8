"""The table of what operators compute: one function for each operator, whatever its version.

A row is declared beside its code: `@row("Relu")`. It takes the `Call` and the inputs, positionally; an input that the
node leaves out in the middle is None, and one left out at the end is not passed, so that defaults serve. It returns
the output, or a tuple of outputs. It never writes into an input. What contradicts the specification goes to
`call.fail`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

__all__ = ["FILES", "Row", "row", "table"]

Row: TypeAlias = "Callable[..., Any]"
_Declared = TypeVar("_Declared", bound=Row)

FILES: tuple[str, ...] = (
    # elements, places, and control of what runs
    "elementwise", "activations", "casting", "moving", "slicing", "indexing", "reducing", "making", "control",
    "sequences",
    # themes with an arithmetic of their own
    "nn.convolution", "nn.pooling", "nn.products", "nn.normalization", "nn.attention", "nn.linear_attention",
    "nn.recurrent", "nn.quantization", "nn.deformed", "spectral",
    "images.resize", "images.sampling", "images.regions", "images.blocks",
    "nn.losses", "nn.training", "strings", "ml.labels", "ml.scaling", "ml.linear", "ml.trees",
)  # fmt: skip
_ROWS: dict[tuple[str, str], Row] = {}


def row(*names: str, domain: str = "") -> Callable[[_Declared], _Declared]:
    """Declare a function as the row of these operators. Raises ValueError for an operator that has a row."""

    def declare(function: _Declared) -> _Declared:
        for name in names:
            if (domain, name) in _ROWS:
                raise ValueError(f"{domain or 'ai.onnx'}.{name} has two rows of what it computes")
            _ROWS[domain, name] = function
        return function

    return declare


@cache
def table() -> dict[tuple[str, str], Row]:
    """All rows, by domain and operator."""
    for name in FILES:
        import_module(f"proto_schema.compute.{name}")
    return _ROWS
