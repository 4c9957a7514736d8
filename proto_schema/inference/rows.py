"""The table of inference rows: one function for each operator, whatever its version.

A row is declared beside its code: `@row("Relu", "Neg")`.  It takes a `Site` and returns the type of the output, or a
list of types where there are several outputs.  None stands for an output of which nothing is known; outputs that the
list leaves out are such, too.  The dtypes that the type constraints say are filled in behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from proto_schema.inference.site import Site, check_form, completed
from proto_schema.inference.types import Tensor, Type
from proto_schema.rowtable import RowTable

Row: TypeAlias = "Callable[[Site], Type | list[Type | None] | None]"

FILES = (
    "operators.elementwise", "operators.control", "operators.moving", "operators.slicing", "operators.indexing",
    "operators.making", "operators.reducing", "operators.products", "operators.sequences", "operators.strings",
    "nn.images", "nn.convolution", "nn.normalization", "nn.attention", "nn.recurrent", "nn.quantization",
    "nn.spectral", "nn.ml", "nn.training",
)  # fmt: skip
_TABLE: RowTable[Row] = RowTable("proto_schema.inference", FILES, "inference rows")
row = _TABLE.declare
table = _TABLE.all


def infer(site: Site) -> list[Type | None]:
    """The types of the outputs of a node.  Raises Misfit where the node contradicts its operator's specification."""
    check_form(site)
    schema = site.schema
    function = table().get((schema.domain, schema.name))
    made = function(site) if function is not None else None
    if not isinstance(made, list):
        made = [made]
    if len(made) < site.outputs:
        made = [*made, *[None] * (site.outputs - len(made))]
    for item in made:
        if isinstance(item, Tensor) and item.shape is not None:
            for size in item.shape:
                if isinstance(size, int) and size < 0:
                    site.fail(f"an axis of the output would have size {size}")
    return [
        item if isinstance(item, Tensor) and item.dtype else completed(site, item, place)
        for place, item in enumerate(made[: site.outputs])
    ]
