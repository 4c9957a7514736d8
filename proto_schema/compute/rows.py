"""The table of what operators compute: one function for each operator, whatever its version.

A row is declared beside its code: `@row("Relu")`, with a statement of what it asks for where that is more than
`costs.elementwise`: `@row("Conv", cost=...)`. It takes the `Call` and the inputs, positionally; an input that the
node leaves out in the middle is None, and one left out at the end is not passed, so that defaults serve. It returns
the output, or a tuple of outputs. It never writes into an input. What contradicts the specification goes to
`call.fail`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from proto_schema.compute.costs import CostOf, elementwise
from proto_schema.rowtable import RowTable

__all__ = ["FILES", "MICROSOFT", "Row", "cost_of", "row", "table"]

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime, of whose operators there is no history: its rows see a schema that says nothing."""

Row: TypeAlias = "Callable[..., Any]"

FILES: tuple[str, ...] = (
    # elements, places, and control of what runs
    "elementwise", "nn.activations", "casting", "moving", "slicing", "indexing", "reducing", "making", "control",
    "sequences",
    # themes with an arithmetic of their own
    "nn.convolution", "nn.pooling", "nn.products", "nn.normalization", "nn.attention", "nn.linear_attention",
    "nn.recurrent", "nn.quantization", "nn.deformed", "spectral",
    "images.resize", "images.sampling", "images.regions", "images.blocks",
    "nn.losses", "nn.training", "texts.strings", "ml.labels", "ml.scaling", "ml.linear", "ml.trees",
    "microsoft.products", "microsoft.elements", "microsoft.attention", "microsoft.experts", "microsoft.recurrent",
)  # fmt: skip
_TABLE: RowTable[Row] = RowTable("proto_schema.compute", FILES, "rows of what it computes")
_COSTS: dict[tuple[str, str], CostOf] = {}
table = _TABLE.all


def row(*names: str, domain: str = "", cost: CostOf = elementwise) -> Callable[[Row], Row]:
    """Declare a function as the row of these operators, and what it asks for before it runs."""
    declare = _TABLE.declare(*names, domain=domain)

    def declared(function: Row) -> Row:
        made = declare(function)
        _COSTS.update(((domain, name), cost) for name in names)
        return made

    return declared


def cost_of(domain: str, name: str) -> CostOf:
    """What states the cost of an operator that has a row."""
    table()
    return _COSTS[domain, name]
