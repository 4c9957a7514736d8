"""Sparse tensors as dense arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema.errors import DecodeError
from proto_schema.onnx import SparseTensorProto, TensorProto
from proto_schema.tensors.arrays import to_array

__all__ = ["dense"]


def dense(sparse: SparseTensorProto) -> tuple[npt.NDArray[Any], int]:
    """A sparse tensor as a dense array, and the code of its type.

    Its indices are positions in the flattened tensor, or one row of positions for each value (IR.md,
    SparseTensorProto). Raises DecodeError where they do not fit the values or the shape.
    """
    values = sparse.values if sparse.values is not None else TensorProto(data_type=TensorProto.FLOAT, dims=[0])
    held = to_array(values)
    whole = np.zeros(tuple(sparse.dims), held.dtype)
    if held.size:
        places = np.zeros(0, np.int64) if sparse.indices is None else to_array(sparse.indices)
        try:
            if places.ndim == 2:
                whole[tuple(places.T)] = held
            else:
                whole.reshape(-1)[places] = held
        except (IndexError, ValueError) as error:
            raise DecodeError(f"sparse tensor {values.name or ''!r}: its indices do not fit: {error}") from None
    return whole, values.data_type or 0
