"""The table of older forms, which the emitter asks where the version in force refuses a call, or has no kernel.

The rows are those of `proto_schema.legalization`, which the version converter has as well, and those of this folder,
whose forms know the exporter: the sizes that were read, and the steps of a loop. What a form is, `legalization.table`
says.  It returns None where it cannot say a call; then the call is refused with the lowest opset that can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from proto_schema import legalization
from proto_schema.legalization.table import Form, Row
from purexport.lowering.older import boxes

_OWN: Mapping[str, Form] = {
    "NonMaxSuppression": boxes.non_max_suppression,
}
FORMS: Mapping[str, Sequence[Row]] = MappingProxyType(
    {**legalization.rows(), **{name: [Row(name, legalization.ANY, form)] for name, form in _OWN.items()}}
)
