"""torch dtypes and ONNX data types: the rows of `proto_schema.tensors.dtypes`, with torch's objects for torch's names.

The codes are those of TensorProto.DataType, the names those of the type strings in operator schemas.
"""

from __future__ import annotations

import torch

from proto_schema.tensors.dtypes import DTYPES
from purexport.errors import UnsupportedDtypeError

FLOAT, INT32, INT64, BOOL, FLOAT16, DOUBLE, BFLOAT16 = 1, 6, 7, 9, 10, 11, 16
UINT8, INT8, UINT16, INT16, UINT32, UINT64 = 2, 3, 4, 5, 12, 13

FLOAT8E4M3FN, FLOAT8E5M2 = 17, 19

# float8 types in which a number that is too large becomes an infinity or NaN; since torch 2.13 float8e4m3fn saturates
OVERFLOWING = frozenset(
    {18, FLOAT8E5M2, 20} | ({FLOAT8E4M3FN} if torch.tensor(1e3).to(torch.float8_e4m3fn).float().isnan() else set())
)

# in ONNX an attribute of Cast says how a cast to it rounds, and no rule sets that yet: such tensors are weights only
_ONLY_STORED = frozenset({24})

_TORCH: dict[int, torch.dtype] = {
    row.code: getattr(torch, row.torch)
    for row in DTYPES.values()
    if row.torch and hasattr(torch, row.torch) and row.code not in _ONLY_STORED
}
_CODE = {dtype: code for code, dtype in _TORCH.items()}
_STRING = {row.code: f"tensor({row.text})" for row in DTYPES.values()}
_FROM_STRING = {text: code for code, text in _STRING.items()}

# torch's quantized dtypes and the integers that they store
_STORED = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}


def scalar_types() -> dict[torch.dtype, str]:
    """`torch.float32: "Float"` and so on: the names of c10::ScalarType, which TorchScript uses."""
    return {dtype: DTYPES[code].scalar for code, dtype in _TORCH.items()}


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
    """`tensor(float)` for FLOAT: the form of operator schemas."""
    return _STRING.get(code, f"tensor(<{code}>)")


def from_type_string(text: str) -> int | None:
    """The code of `tensor(float)`; None for sequences, maps and optionals."""
    return _FROM_STRING.get(text)


def is_floating(code: int | None) -> bool:
    """True for float, double, float16, bfloat16 and the float8 family."""
    return code in _TORCH and _TORCH[code].is_floating_point if code is not None else False
