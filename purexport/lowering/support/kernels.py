"""Dtypes that are wide enough, for rules that compute several steps in one, and the larger and smaller of two values.

One operator needs no such care: the emitter computes it in a wider dtype where the opset or ONNX Runtime has no kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from proto_schema.legalization.widening import wider_integers
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter


def widened_dtype(op: Emitter, op_type: str, dtype: int | None, argument: int = 0) -> int | None:
    """The narrowest dtype that holds `dtype`, and that `op_type` has a kernel for at this opset.

    Where this opset has none, that which the newest version takes, and so its older form; None without any.
    """

    def first(takes: Callable[[str, int, int], bool]) -> int | None:
        codes = () if dtype is None else (dtype, *wider_integers(dtype))
        return next((code for code in codes if takes(op_type, code, argument)), None)

    return first(op.runs) or first(op.newest_takes)


def largest(op: Emitter, one: Value, other: Value) -> Value:
    """Elementwise maximum of two values of one dtype; NaN where either is NaN."""
    return op.Or(one, other) if one.dtype == dtypes.BOOL else op.Max(one, other)


def smallest(op: Emitter, one: Value, other: Value) -> Value:
    """Elementwise minimum of two values of one dtype; NaN where either is NaN."""
    return op.And(one, other) if one.dtype == dtypes.BOOL else op.Min(one, other)
