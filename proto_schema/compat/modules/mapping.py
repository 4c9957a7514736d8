"""onnx.mapping and onnx._mapping: what is known of each data type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from proto_schema.compat.arrays import array_type
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.tensors.tensor_helper import tensor_dtype_to_storage_tensor_dtype, tensor_dtype_to_string

__all__ = ["TENSOR_TYPE_MAP", "TensorDtypeMap"]


class TensorDtypeMap(NamedTuple):
    """A data type: of numpy, the one after which its typed list is named, and its name."""

    np_dtype: np.dtype[Any]
    storage_dtype: int
    name: str


TENSOR_TYPE_MAP: dict[int, TensorDtypeMap] = {
    code: TensorDtypeMap(
        array_type(code), int(tensor_dtype_to_storage_tensor_dtype(code)), tensor_dtype_to_string(code)
    )
    for code in DTYPES
}
