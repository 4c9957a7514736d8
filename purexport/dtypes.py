"""torch dtypes and ONNX data types: one row each.

The codes are those of TensorProto.DataType, the names those of the type strings in operator schemas.
"""

from __future__ import annotations

import torch

from purexport.errors import UnsupportedDtypeError

_ROWS: tuple[tuple[int, str, str], ...] = (
    # code, name in a type string, torch dtype
    (1, "float", "float32"),
    (2, "uint8", "uint8"),
    (3, "int8", "int8"),
    (4, "uint16", "uint16"),
    (5, "int16", "int16"),
    (6, "int32", "int32"),
    (7, "int64", "int64"),
    (9, "bool", "bool"),
    (10, "float16", "float16"),
    (11, "double", "float64"),
    (12, "uint32", "uint32"),
    (13, "uint64", "uint64"),
    (14, "complex64", "complex64"),
    (15, "complex128", "complex128"),
    (16, "bfloat16", "bfloat16"),
    (17, "float8e4m3fn", "float8_e4m3fn"),
    (18, "float8e4m3fnuz", "float8_e4m3fnuz"),
    (19, "float8e5m2", "float8_e5m2"),
    (20, "float8e5m2fnuz", "float8_e5m2fnuz"),
)

FLOAT, INT32, INT64, BOOL, FLOAT16, DOUBLE, BFLOAT16 = 1, 6, 7, 9, 10, 11, 16
UINT8, INT8, UINT16, INT16, UINT32, UINT64 = 2, 3, 4, 5, 12, 13

# float8 types in which a number that is too large becomes an infinity or NaN; float8e4m3fn takes its largest
OVERFLOWING = frozenset({18, 19, 20})
FLOAT8E5M2 = 19

_TORCH: dict[int, torch.dtype] = {code: getattr(torch, name) for code, _, name in _ROWS if hasattr(torch, name)}
_CODE = {dtype: code for code, dtype in _TORCH.items()}
_STRING = {code: f"tensor({name})" for code, name, _ in _ROWS}
_FROM_STRING = {text: code for code, text in _STRING.items()}

# torch's quantized dtypes and the integers that they store
_STORED = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}


def is_quantized(dtype: torch.dtype) -> bool:
    """True for torch's quantized dtypes, whose tensors carry a scale and a zero point."""
    return dtype in _STORED


def stored_dtype(dtype: torch.dtype) -> torch.dtype:
    """The integers that a quantized dtype stores; any other dtype itself."""
    return _STORED.get(dtype, dtype)


def onnx_code(dtype: torch.dtype) -> int:
    """The TensorProto.DataType code of a torch dtype.  Raises UnsupportedDtypeError when ONNX has none."""
    try:
        return _CODE[dtype]
    except KeyError:
        raise UnsupportedDtypeError(f"ONNX has no data type for {dtype}; cast to another dtype before") from None


def torch_dtype(code: int) -> torch.dtype:
    """The torch dtype of a TensorProto.DataType code.  Raises UnsupportedDtypeError when torch has none."""
    try:
        return _TORCH[code]
    except KeyError:
        raise UnsupportedDtypeError(f"torch has no dtype for the ONNX data type {code}") from None


def type_string(code: int) -> str:
    """``tensor(float)`` for FLOAT: the form of operator schemas."""
    return _STRING.get(code, f"tensor(<{code}>)")


def from_type_string(text: str) -> int | None:
    """The code of ``tensor(float)``; None for sequences, maps and optionals."""
    return _FROM_STRING.get(text)


def is_floating(code: int | None) -> bool:
    """True for float, double, float16, bfloat16 and the float8 family."""
    return code in _TORCH and _TORCH[code].is_floating_point if code is not None else False
