"""The types that a file declares, and the elements of small tensors as numpy has them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from proto_schema.errors import UnreadableDataError
from proto_schema.inference.types import Tensor, Type, from_proto, known_shape
from proto_schema.onnx import TensorProto, TypeProto
from proto_schema.sizes import Dim, parse, symbol
from proto_schema.tensors.dtypes import DTYPES, element_count

if TYPE_CHECKING:
    import numpy.typing as npt

READ_AT_MOST = 8 << 20
"""Bytes of a constant that `Value.array` reads unless it is told: axes, pads and scales, never weights."""


def declared(message: TypeProto | None, name: str) -> Type | None:
    """The type that a file declares of a value. A size without a name is a symbol of its own."""
    fresh = count()

    def size(label: str) -> Dim:
        if not label:
            return symbol(f"{name}.{next(fresh)}")
        return symbol(label) if label.isidentifier() else parse(label)

    return from_proto(message, size)


def stored(tensor: TensorProto, limit: int) -> npt.NDArray[Any] | None:
    """The elements of a tensor; None for more than `limit` bytes, and where its data is not there.

    Raises UnreadableDataError where the machine does not let the data be read.
    """
    from proto_schema.numpy_helper import to_array

    row = DTYPES.get(tensor.data_type or 0)
    if row is None or row.nbytes(element_count(tensor.dims)) > limit:
        return None
    try:
        return to_array(tensor)
    except UnreadableDataError:
        raise
    except (ValueError, OSError):  # data that is not there
        return None


def implied(type_: Type | None, limit: int) -> npt.NDArray[Any] | None:
    """The elements that inference knows, where it knows all of them; None for more than `limit` bytes."""
    import numpy as np

    sizes = known_shape(type_.shape) if isinstance(type_, Tensor) else None
    if not isinstance(type_, Tensor) or type_.content is None or sizes is None or type_.dtype not in DTYPES:
        return None
    row = DTYPES[type_.dtype]
    if row.nbytes(element_count(sizes)) > limit:
        return None
    if not all(isinstance(item, (bool, int, float)) for item in type_.content):
        return None
    try:
        return np.array(type_.content, dtype=row.numpy).reshape(sizes)
    except (ValueError, OverflowError):
        return None
