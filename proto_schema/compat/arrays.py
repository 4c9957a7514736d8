"""Arrays of the types that numpy lacks: of the package ml_dtypes where it is installed, as in onnx.

Without that package they have the types of `proto_schema`, which hold every value exactly (see `dtypes`). The package
is looked for when the first such array is made. `proto_schema` itself never needs it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.tensors.dtypes import DType, dtype_of

Array: TypeAlias = npt.NDArray[Any]
PACKAGE = "ml_dtypes"


@cache
def _package() -> Any:
    return import_module(PACKAGE) if find_spec(PACKAGE) is not None else None


def small_type(row: DType) -> np.dtype[Any] | None:
    """The type of ml_dtypes for a data type that numpy lacks; None for others, and without the package."""
    package = _package() if row.ml_dtypes else None
    found = getattr(package, row.ml_dtypes, None)
    return None if found is None else np.dtype(found)


def array_type(code: int) -> np.dtype[Any]:
    """The type of the arrays that hold a data type. TypeError for an unknown one."""
    row = dtype_of(code)
    return small_type(row) or np.dtype(row.numpy)


def packed(array: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Elements of `bits` bits (4, 2 or 6), low bits first, in the fewest bytes."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & np.uint8((1 << bits) - 1)
    group = 4 if bits == 6 else 8 // bits
    padded = np.zeros(-(-flat.size // group) * group, np.uint8)
    padded[: flat.size] = flat
    wide = padded.reshape(-1, group).astype(np.uint32) << np.arange(0, group * bits, bits, dtype=np.uint32)
    joined = np.bitwise_or.reduce(wide, axis=1) if flat.size else np.zeros(0, np.uint32)
    octets = [(joined >> shift).astype(np.uint8) for shift in range(0, group * bits, 8)]
    return np.stack(octets, axis=-1).reshape(-1)[: -(-flat.size * bits // 8)]


def unpacked(data: Array, bits: int, dims: Any) -> npt.NDArray[np.uint8]:
    """The inverse of `packed`, in the shape `dims`. ValueError for too few bytes."""
    count = int(np.prod(np.asarray(dims, np.int64)))
    octets = np.asarray(data).reshape(-1).view(np.uint8)
    if octets.size * 8 < count * bits:
        raise ValueError(
            f"{octets.size} bytes of {bits}-bit elements are too small for the declared shape {list(dims)}"
        )
    spread = np.unpackbits(octets, bitorder="little")[: count * bits].reshape(count, bits)
    return np.packbits(spread, axis=1, bitorder="little").reshape(tuple(dims))
