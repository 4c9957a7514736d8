"""Small integers and booleans: computed in a wider dtype where an opset or ONNX Runtime has no kernel for theirs.

The schema of an operator version says which dtypes it takes. `_GAPS` adds the integer dtypes that a schema allows but
ONNX Runtime (1.31, CPU) has no kernel for. The wider dtype is exact: sums and products are cast back, and so wrap as
those of torch do. Floats stay as they are: the runtime itself casts float16, and no dtype is wider than double.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from purexport import dtypes
from purexport.dtypes import BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter

_WIDER = {BOOL: UINT8, UINT8: INT32, INT8: INT32, INT16: INT32, UINT16: INT32, INT32: INT64, UINT32: INT64}

_GAPS = {
    "Where": {BOOL, INT16, UINT16, UINT64},
    "Min": {INT16, UINT16},
    "Max": {INT16, UINT16},
    "Clip": {INT16, UINT16},
    "CumSum": {UINT32, UINT64},
    "ArgMax": {INT16, UINT16, UINT32, UINT64},
    "ArgMin": {INT16, UINT16, UINT32, UINT64},
    "TopK": {UINT16, UINT32, UINT64},
    "ReduceMax": {UINT32, UINT64},
    "ReduceMin": {UINT32, UINT64},
    "ReduceSum": {UINT32, UINT64},
    "ReduceProd": {UINT32, UINT64},
    "BitShift": {UINT16},
}


def native_dtype(op: Emitter, op_type: str, dtype: int | None, argument: int = 0) -> int | None:
    """The narrowest dtype that holds `dtype` and that `op_type` has a kernel for at this opset; None without one."""
    return _widened(op.takes, op_type, dtype, argument)


def widened_dtype(op: Emitter, op_type: str, dtype: int | None, argument: int = 0) -> int | None:
    """The same, or where this opset has none what the newest version takes, and so its older form."""
    return native_dtype(op, op_type, dtype, argument) or _widened(op.newest_takes, op_type, dtype, argument)


def _widened(takes: Callable[[str, int, int], bool], op_type: str, dtype: int | None, argument: int) -> int | None:
    while dtype is not None and (not takes(op_type, dtype, argument) or dtype in _GAPS.get(op_type, ())):
        dtype = _WIDER.get(dtype)
    return dtype


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
