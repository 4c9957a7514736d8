"""Wider data types in which an operator computes the same numbers, for versions and kernels that lack a narrow one.

A cast to the wider type is exact. Real functions of floats are at least as well rounded there. Integers go through
wider integers where the operator wraps as sums do, and through any type that holds them where it only compares, chooses
and moves. An operator that looks at bits, that draws numbers, or whose data type is the point has no other type.
"""

from __future__ import annotations

from functools import cache

from proto_schema.legalization.operators import FLOATS, INT64, UINT64
from proto_schema.onnx import TensorProto

_T = TensorProto

_HOLDS: dict[int, tuple[int, ...]] = {
    _T.BOOL: (_T.UINT8, _T.INT32, _T.INT64, _T.FLOAT),
    _T.INT8: (_T.INT16, _T.INT32, _T.INT64, _T.FLOAT, _T.DOUBLE),
    _T.UINT8: (_T.INT16, _T.INT32, _T.INT64, _T.FLOAT, _T.DOUBLE),
    _T.INT16: (_T.INT32, _T.INT64, _T.FLOAT, _T.DOUBLE),
    _T.UINT16: (_T.INT32, _T.INT64, _T.FLOAT, _T.DOUBLE),
    _T.INT32: (_T.INT64, _T.DOUBLE),
    _T.UINT32: (_T.INT64, _T.DOUBLE),
    _T.FLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.BFLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.FLOAT: (_T.DOUBLE,),
    _T.FLOAT8E4M3FN: (_T.FLOAT16, _T.FLOAT),
    _T.FLOAT8E4M3FNUZ: (_T.FLOAT16, _T.FLOAT),
    _T.FLOAT8E5M2: (_T.FLOAT16, _T.FLOAT),
    _T.FLOAT8E5M2FNUZ: (_T.FLOAT16, _T.FLOAT),
    _T.INT4: (_T.INT8, _T.INT32),
    _T.UINT4: (_T.UINT8, _T.INT32),
    _T.INT2: (_T.INT8, _T.INT32),
    _T.UINT2: (_T.UINT8, _T.INT32),
    _T.FLOAT4E2M1: (_T.FLOAT16, _T.FLOAT),
    _T.FLOAT6E2M3: (_T.FLOAT16, _T.FLOAT),
    _T.FLOAT6E3M2: (_T.FLOAT16, _T.FLOAT),
    _T.FLOAT8E8M0: (_T.FLOAT,),
}
"""Data type -> those that hold all of its values, the narrowest first."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# computed modulo a power of two, so that a wider integer has the same low bits, or in integers that do not overflow
WRAPS = _names(
    "Add CumProd CumSum Div Einsum Gemm MatMul Mod Mul Neg Pow Range ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum "
    "ReduceSumSquare Resize Sub Sum"
)
# the elements of the result are elements of the inputs, or say which are the same
MOVES = _names(
    "CenterCropPad Compress Concat DepthToSpace Equal Expand EyeLike Flatten Gather GatherElements GatherND Identity "
    "NonZero OneHot Pad Reshape ReverseSequence Scatter ScatterElements ScatterND Shape Size Slice SpaceToDepth Split "
    "Squeeze Tile Transpose Trilu Unsqueeze Upsample Where"
)
# compared and chosen, never computed
COMPARES = _names(
    "Abs ArgMax ArgMin Ceil Clip Floor GlobalMaxPool Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Max MaxPool "
    "Min Not PRelu ReduceMax ReduceMin Relu Round Sign TopK Unique"
)
# the data type is the point, or the results cannot be cast back
NEVER = _names(
    "BitCast Cast CastLike Constant ConstantOfShape DequantizeLinear If Loop QuantizeLinear Scan SplitToSequence"
)


@cache
def wider_integers(dtype: int) -> tuple[int, ...]:
    """The integers that hold all values of an integer or a truth value, the narrowest first."""
    return tuple(code for code in _HOLDS.get(dtype, ()) if code not in FLOATS)


@cache
def wider(op_type: str, dtype: int, adds: bool = False) -> tuple[int, ...]:
    """The data types that the operator may compute in instead, the narrowest first.

    `adds` says that it does arithmetic, though it is one that moves elements.
    """
    holds = _HOLDS.get(dtype, ())
    if op_type in NEVER:
        return ()
    if dtype in FLOATS:
        return tuple(code for code in holds if code in FLOATS)
    moves = op_type in MOVES and not adds
    integers = wider_integers(dtype)
    if moves and dtype == UINT64:
        return (INT64,)  # the same bits, which do not compare alike
    if moves or op_type in COMPARES:
        return (*integers, *(code for code in holds if code in FLOATS))
    return integers if op_type in WRAPS or op_type in MOVES else ()
