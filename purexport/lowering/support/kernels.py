"""Small integers and booleans: computed in a wider dtype where an opset or ONNX Runtime has no kernel for theirs.

The schema of an operator version says which dtypes it takes, and the table of kernels which of these ONNX Runtime
computes. The wider dtype is exact: sums and products are cast back, and so wrap as
those of torch do. Floats stay as they are: the runtime itself casts float16, and no dtype is wider than double.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proto_schema.legalization.widening import wider_integers
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter


def native_dtype(op: Emitter, op_type: str, dtype: int | None, argument: int = 0) -> int | None:
    """The narrowest dtype that holds `dtype` and that `op_type` has a kernel for at this opset; None without one."""
    return _widened(op.runs, op_type, dtype, argument)


def widened_dtype(op: Emitter, op_type: str, dtype: int | None, argument: int = 0) -> int | None:
    """The same, or where this opset has none what the newest version takes, and so its older form."""
    return native_dtype(op, op_type, dtype, argument) or _widened(op.newest_takes, op_type, dtype, argument)


def _widened(takes: Callable[[str, int, int], bool], op_type: str, dtype: int | None, argument: int) -> int | None:
    codes = () if dtype is None else (dtype, *wider_integers(dtype))
    return next((code for code in codes if takes(op_type, code, argument)), None)


def widened(op: Emitter, op_type: str, *values: Value, **named: Any) -> Value:
    """`op_type` on values of one dtype, computed in a wider one if necessary; the result has the dtype of the values.

    A result of another kind (bool of a comparison, int64 of a position) is left as it is.
    """
    dtype = values[0].dtype
    found = widened_dtype(op, op_type, dtype)
    if found is None:
        found = dtype  # the emitter raises the error
    result: Value = op.emit(op_type, *[op.cast(value, found) for value in values], **named)
    return op.cast(result, dtype) if result.dtype == found else result


def widened_where(op: Emitter, condition: Value, one: Value, other: Value) -> Value:
    """ONNX Where on two values of one dtype, computed in a wider one if necessary."""
    dtype = one.dtype
    found = widened_dtype(op, "Where", dtype, argument=1)
    return op.cast(op.Where(condition, op.cast(one, found), op.cast(other, found)), dtype)


def largest(op: Emitter, one: Value, other: Value) -> Value:
    """Elementwise maximum of two values of one dtype; NaN where either is NaN."""
    if one.dtype == dtypes.BOOL:
        return op.Or(one, other)
    return widened(op, "Max", one, other)


def smallest(op: Emitter, one: Value, other: Value) -> Value:
    """Elementwise minimum of two values of one dtype; NaN where either is NaN."""
    if one.dtype == dtypes.BOOL:
        return op.And(one, other)
    return widened(op, "Min", one, other)
