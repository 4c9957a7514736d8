"""Python numbers, lists and arrays as tensors of the type that a node wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from proto_schema.numpy_helper import from_array, to_array
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES, by_numpy_name

if TYPE_CHECKING:
    import numpy.typing as npt

_NATURAL = {
    "b": TensorProto.BOOL,
    "i": TensorProto.INT64,
    "u": TensorProto.INT64,
    "f": TensorProto.FLOAT,
    "U": TensorProto.STRING,
    "S": TensorProto.STRING,
}


def array_of(value: Any) -> npt.NDArray[Any] | None:
    """The array of a number, text, list or array; None for what is none of them."""
    if isinstance(value, np.ndarray):
        return value
    try:
        found = np.asarray(value)
    except ValueError:  # lists of several lengths
        return None
    return found if found.dtype.kind in "biufcUS" else None


def natural_dtype(value: Any, array: npt.NDArray[Any]) -> int:
    """The data type of an array or number of numpy; of other numbers float32 or int64, whatever numpy makes of them."""
    row = by_numpy_name().get(array.dtype.name)
    if isinstance(value, (np.ndarray, np.generic)) and row is not None:
        return row.code
    return int(_NATURAL.get(array.dtype.kind, 0)) if array.size else int(TensorProto.INT64)


def tensor_of(array: npt.NDArray[Any], dtype: int) -> TensorProto:
    """The tensor of these elements in a data type. Raises ValueError where they change by more than rounding."""
    row, own = DTYPES[dtype], by_numpy_name().get(array.dtype.name)
    if own is row or (row.bits == 0 and array.dtype.kind in "US"):
        return from_array(array)
    kind, wanted = array.dtype.kind, np.dtype(row.numpy).kind
    known = array.size == 0 or wanted == kind or wanted in {"i": "iufc", "u": "iufc", "f": "fc"}.get(kind, "")
    if not known or row.bits == 0:
        raise ValueError(f"is no {row.text}")
    if kind in "iu" and wanted in "iu" and array.size:
        bits = row.bits - (wanted == "i")
        if int(array.max()) >> bits > 0 or int(array.min()) < (-(1 << bits) if wanted == "i" else 0):
            raise ValueError(f"is out of the range of {row.text}")
    with np.errstate(over="ignore"):
        made = from_array(np.ascontiguousarray(array.astype(row.numpy)).reshape(array.shape), None, dtype)
    if wanted == "f" and array.size:
        before, after = np.abs(array.astype(np.float64)), np.abs(to_array(made).astype(np.float64))
        changed = np.isfinite(before) & (before > 1) & ~(np.isfinite(after) & (after > before / 2))
        if changed.any():
            raise ValueError(f"is too large for {row.text}")
    return made
