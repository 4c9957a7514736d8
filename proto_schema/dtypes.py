"""The data types of tensors: one row each, with everything that other modules know about them.

`bits` is the width of one element in `raw_data`, where elements below a byte are packed low bits first. `numpy` is
the type of the array that `to_array` gives: the type itself where numpy has it, else one that holds every value
exactly (float32 for bfloat16 and the smaller floats, int8 or uint8 for the 4- and 2-bit integers). `codes` is the
type that holds one bit pattern an element, low bits used, high bits zero. `field` is the typed list that may hold
the values instead of `raw_data`: as numbers, or as bit patterns where the row is not `native`.
`since` is the IR version that brought the type. This module imports no numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from proto_schema.onnx import TensorProto


@dataclass(frozen=True)
class DType:
    """One data type of TensorProto."""

    code: int
    name: str
    bits: int
    numpy: str
    codes: str
    field: str
    since: int = 1
    ml_dtypes: str = ""  # the name of the type in the package ml_dtypes, whose arrays are understood by name

    @property
    def native(self) -> bool:
        """Whether numpy has the type, so that arrays may share memory with tensors."""
        return not self.ml_dtypes

    def nbytes(self, elements: int) -> int:
        """The size of `raw_data` for that many elements."""
        return (elements * self.bits + 7) // 8


DTYPES: dict[int, DType] = {
    row.code: row
    for row in (
        DType(1, "FLOAT", 32, "<f4", "<u4", "float_data"),
        DType(2, "UINT8", 8, "u1", "u1", "int32_data"),
        DType(3, "INT8", 8, "i1", "u1", "int32_data"),
        DType(4, "UINT16", 16, "<u2", "<u2", "int32_data"),
        DType(5, "INT16", 16, "<i2", "<u2", "int32_data"),
        DType(6, "INT32", 32, "<i4", "<u4", "int32_data"),
        DType(7, "INT64", 64, "<i8", "<u8", "int64_data"),
        DType(8, "STRING", 0, "O", "O", "string_data"),
        DType(9, "BOOL", 8, "?", "u1", "int32_data"),
        DType(10, "FLOAT16", 16, "<f2", "<u2", "int32_data"),
        DType(11, "DOUBLE", 64, "<f8", "<u8", "double_data"),
        DType(12, "UINT32", 32, "<u4", "<u4", "uint64_data"),
        DType(13, "UINT64", 64, "<u8", "<u8", "uint64_data"),
        DType(14, "COMPLEX64", 64, "<c8", "<u8", "float_data"),
        DType(15, "COMPLEX128", 128, "<c16", "V16", "double_data"),
        DType(16, "BFLOAT16", 16, "<f4", "<u2", "int32_data", 4, "bfloat16"),
        DType(17, "FLOAT8E4M3FN", 8, "<f4", "u1", "int32_data", 9, "float8_e4m3fn"),
        DType(18, "FLOAT8E4M3FNUZ", 8, "<f4", "u1", "int32_data", 9, "float8_e4m3fnuz"),
        DType(19, "FLOAT8E5M2", 8, "<f4", "u1", "int32_data", 9, "float8_e5m2"),
        DType(20, "FLOAT8E5M2FNUZ", 8, "<f4", "u1", "int32_data", 9, "float8_e5m2fnuz"),
        DType(21, "UINT4", 4, "u1", "u1", "int32_data", 10, "uint4"),
        DType(22, "INT4", 4, "i1", "u1", "int32_data", 10, "int4"),
        DType(23, "FLOAT4E2M1", 4, "<f4", "u1", "int32_data", 11, "float4_e2m1fn"),
        DType(24, "FLOAT8E8M0", 8, "<f4", "u1", "int32_data", 12, "float8_e8m0fnu"),
        DType(25, "UINT2", 2, "u1", "u1", "int32_data", 13, "uint2"),
        DType(26, "INT2", 2, "i1", "u1", "int32_data", 13, "int2"),
        DType(27, "FLOAT6E2M3", 6, "<f4", "u1", "int32_data", 14, "float6_e2m3fn"),
        DType(28, "FLOAT6E3M2", 6, "<f4", "u1", "int32_data", 14, "float6_e3m2fn"),
    )
}


MOST_ELEMENTS = 1 << 63


def element_count(dims: Sequence[int]) -> int:
    """The number of elements of a shape, 0 with a negative size.

    MOST_ELEMENTS stands for all that are as many: a product of a million sizes takes hours to multiply out.
    """
    if min(dims, default=1) <= 0:
        return 0
    count = 1
    for size in dims:
        count *= size
        if count >= MOST_ELEMENTS:
            return MOST_ELEMENTS
    return count


def dtype_of(code: int | None) -> DType:
    """The row of a `TensorProto.data_type`. TypeError where it is absent, UNDEFINED or not in the table."""
    row = DTYPES.get(code or 0)
    if row is None:
        newest = max(DTYPES)
        raise TypeError(f"data type {code} is not one that this version knows (1 to {newest}); UNDEFINED is no type")
    return row


@cache
def by_numpy_name() -> dict[str, DType]:
    """Rows by the name that `numpy.dtype.name` gives, those of the package ml_dtypes included."""
    return dict(_names())


def _names() -> Iterator[tuple[str, DType]]:
    for row in DTYPES.values():
        if row.ml_dtypes:
            yield row.ml_dtypes, row
    known = "float32 uint8 int8 uint16 int16 int32 int64 object bool float16 float64 uint32 uint64 complex64 complex128"
    yield from zip(known.split(), DTYPES.values(), strict=False)


def type_name(code: int | None) -> str:
    """`FLOAT` for 1, the number itself where there is no such type: for messages."""
    row = DTYPES.get(code or 0)
    return row.name if row else str(TensorProto.UNDEFINED if code is None else code)
