"""A stored tensor in another data type or with its axes in another order.

The payloads are those of `proto_schema.derived`, which are made when they are written, in bounded pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

from proto_schema.derived.cast import CastPayload
from proto_schema.derived.transposed import permuted
from proto_schema.tensors.dtypes import DTYPES, type_name
from proto_schema.tensors.minifloat import FORMATS
from purexport.errors import WeightsError
from purexport.weights.stored import Stored, listed, shown

FLOAT, FLOAT16, DOUBLE, BFLOAT16 = 1, 10, 11, 16
TARGETS = (FLOAT, FLOAT16, DOUBLE, BFLOAT16)
SOURCES = (*TARGETS, *(code for code in FORMATS if DTYPES[code].bits == 8))


def cast(stored: Stored, dtype: int) -> Stored:
    """The tensor's values as another float type, rounded to nearest, ties to even; NaN stays NaN.

    dtype: FLOAT, FLOAT16, BFLOAT16 or DOUBLE; the tensor must be of one of these or an 8-bit float type. As in torch, a
    value that the type cannot hold becomes infinite, and DOUBLE is rounded to FLOAT before a smaller type.
    Raises WeightsError for other types.
    """
    if dtype == stored.dtype:
        return stored
    if dtype not in TARGETS or stored.dtype not in SOURCES:
        pair = f"{type_name(stored.dtype)} to {type_name(dtype)}"
        known = listed([type_name(code) for code in TARGETS]).replace("'", "")
        raise WeightsError(
            f"tensor {shown(stored.name)}: {pair} is not a cast between floats; it can become {known}",
            code="weights-do-not-fit",
        )
    payload = CastPayload(stored.payload, stored.dtype, dtype)
    return Stored(stored.name, dtype, stored.shape, payload, stored.origin)


def transposed(stored: Stored, permutation: Sequence[int]) -> Stored:
    """The tensor with its axes in another order: axis `i` of the result is axis `permutation[i]`.

    Raises WeightsError for what is no permutation of the axes, and for types of less than a byte.
    """
    axes = tuple(permutation)
    if sorted(axes) != list(range(len(stored.shape))):
        raise WeightsError(
            f"tensor {shown(stored.name)}: {shown(axes)} is not an order of the axes of {list(stored.shape)}",
            code="weights-do-not-fit",
        )
    bits = DTYPES[stored.dtype].bits
    if bits < 8:
        raise WeightsError(
            f"tensor {shown(stored.name)}: {type_name(stored.dtype)} shares bytes between elements",
            code="weights-do-not-fit",
        )
    shape = tuple(stored.shape[axis] for axis in axes)
    payload = permuted(stored.payload, bits // 8, stored.shape, axes)
    return Stored(stored.name, stored.dtype, shape, payload, stored.origin)
