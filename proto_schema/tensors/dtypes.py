"""The data types of tensors: one row each, with everything that other modules know about them.

`bits` is the width of one element in `raw_data`, where elements below a byte are packed low bits first. `numpy` is
the type of the array that `to_array` gives: the type itself where numpy has it, else one that holds every value
exactly (float32 for bfloat16 and the smaller floats, int8 or uint8 for the 4- and 2-bit integers). `codes` is the
type that holds one bit pattern an element, low bits used, high bits zero. `field` is the typed list that may hold
the values instead of `raw_data`: as numbers, or as bit patterns where the row is not `native`.
`since` is the IR version that brought the type. The names that others give the type are text: this module imports no
numpy, and nothing of torch. A name of numpy or ml_dtypes is torch's too, where torch has tensors of the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from proto_schema.onnx import TensorProto
from proto_schema.wire.records import dataclass


@dataclass(frozen=True)
class DType:
    """One data type of TensorProto."""

    code: int
    name: str
    bits: int
    numpy: str
    codes: str
    field: str
    since: int
    array: str  # the name of the type in numpy, else in the package ml_dtypes, whose arrays are understood by name
    scalar: str = ""  # torch's c10::ScalarType, none where torch has no tensors of the type
    safetensors: str = ""  # in files of that format, none where it does not have the type
    storage: bool = False  # torch has a class of storages for it, as for the dtypes that it began with

    @property
    def native(self) -> bool:
        """Whether numpy has the type, so that arrays may share memory with tensors: it is then as wide there."""
        return self.bits == 8 * int(self.numpy.lstrip("<OVbcfiu") or 0)

    @property
    def ml_dtypes(self) -> str:
        """The name of the type in the package ml_dtypes; none where numpy has it."""
        return "" if self.native else self.array

    @property
    def torch(self) -> str:
        """The name of torch's dtype, which versions of torch before the type do not have; none where no version has."""
        return self.array if self.scalar else ""

    @property
    def text(self) -> str:
        """The name in type strings: `float` of `tensor(float)`."""
        return self.name.lower()

    def nbytes(self, elements: int) -> int:
        """The size of `raw_data` for that many elements."""
        return (elements * self.bits + 7) // 8


_ROWS = (
    DType(1, "FLOAT", 32, "<f4", "<u4", "float_data", 1, "float32", "Float", "F32", storage=True),
    DType(2, "UINT8", 8, "u1", "u1", "int32_data", 1, "uint8", "Byte", "U8", storage=True),
    DType(3, "INT8", 8, "i1", "u1", "int32_data", 1, "int8", "Char", "I8", storage=True),
    DType(4, "UINT16", 16, "<u2", "<u2", "int32_data", 1, "uint16", "UInt16", "U16"),
    DType(5, "INT16", 16, "<i2", "<u2", "int32_data", 1, "int16", "Short", "I16", storage=True),
    DType(6, "INT32", 32, "<i4", "<u4", "int32_data", 1, "int32", "Int", "I32", storage=True),
    DType(7, "INT64", 64, "<i8", "<u8", "int64_data", 1, "int64", "Long", "I64", storage=True),
    DType(8, "STRING", 0, "O", "O", "string_data", 1, "object"),
    DType(9, "BOOL", 8, "b1", "u1", "int32_data", 1, "bool", "Bool", "BOOL", storage=True),
    DType(10, "FLOAT16", 16, "<f2", "<u2", "int32_data", 1, "float16", "Half", "F16", storage=True),
    DType(11, "DOUBLE", 64, "<f8", "<u8", "double_data", 1, "float64", "Double", "F64", storage=True),
    DType(12, "UINT32", 32, "<u4", "<u4", "uint64_data", 1, "uint32", "UInt32", "U32"),
    DType(13, "UINT64", 64, "<u8", "<u8", "uint64_data", 1, "uint64", "UInt64", "U64"),
    DType(14, "COMPLEX64", 64, "<c8", "<u8", "float_data", 1, "complex64", "ComplexFloat", "C64", storage=True),
    DType(15, "COMPLEX128", 128, "<c16", "V16", "double_data", 1, "complex128", "ComplexDouble", "", storage=True),
    DType(16, "BFLOAT16", 16, "<f4", "<u2", "int32_data", 4, "bfloat16", "BFloat16", "BF16", storage=True),
    DType(17, "FLOAT8E4M3FN", 8, "<f4", "u1", "int32_data", 9, "float8_e4m3fn", "Float8_e4m3fn", "F8_E4M3"),
    DType(18, "FLOAT8E4M3FNUZ", 8, "<f4", "u1", "int32_data", 9, "float8_e4m3fnuz", "Float8_e4m3fnuz", "F8_E4M3FNUZ"),
    DType(19, "FLOAT8E5M2", 8, "<f4", "u1", "int32_data", 9, "float8_e5m2", "Float8_e5m2", "F8_E5M2"),
    DType(20, "FLOAT8E5M2FNUZ", 8, "<f4", "u1", "int32_data", 9, "float8_e5m2fnuz", "Float8_e5m2fnuz", "F8_E5M2FNUZ"),
    DType(21, "UINT4", 4, "u1", "u1", "int32_data", 10, "uint4"),
    DType(22, "INT4", 4, "i1", "u1", "int32_data", 10, "int4"),
    DType(23, "FLOAT4E2M1", 4, "<f4", "u1", "int32_data", 11, "float4_e2m1fn", "", "F4"),
    DType(24, "FLOAT8E8M0", 8, "<f4", "u1", "int32_data", 12, "float8_e8m0fnu", "Float8_e8m0fnu", "F8_E8M0"),
    DType(25, "UINT2", 2, "u1", "u1", "int32_data", 13, "uint2"),
    DType(26, "INT2", 2, "i1", "u1", "int32_data", 13, "int2"),
    DType(27, "FLOAT6E2M3", 6, "<f4", "u1", "int32_data", 14, "float6_e2m3fn"),
    DType(28, "FLOAT6E3M2", 6, "<f4", "u1", "int32_data", 14, "float6_e3m2fn"),
)
DTYPES: dict[int, DType] = {row.code: row for row in _ROWS}


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
        raise TypeError(f"data type {code} is not one that this version knows (1 to {newest}); UNDEFINED is not a type")
    return row


@cache
def by_numpy_name() -> dict[str, DType]:
    """Rows by the name that `numpy.dtype.name` gives, those of the package ml_dtypes included."""
    return {row.array: row for row in DTYPES.values()}


def type_name(code: int | None) -> str:
    """`FLOAT` for 1, the number itself where there is no such type: for messages."""
    row = DTYPES.get(code or 0)
    return row.name if row else str(TensorProto.UNDEFINED if code is None else code)
