"""Data types that an operator's older version does not take: the same values in a wider type, and back.

A cast to the wider type is exact. What the operator computes there is the same number, or, for real functions of
floats, a better rounded one. Integers go through wider integers where the operator wraps as sums do, and through any
type that holds them where it only compares, chooses and moves. An operator that looks at bits or that draws numbers is
left out.
"""

from __future__ import annotations

from functools import cache

from proto_schema import operators
from proto_schema.inference.types import Tensor, Type, text_of
from proto_schema.onnx import TensorProto
from proto_schema.operators import OpSchema
from proto_schema.tensors.dtypes import DTYPES

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

_FLOATS = (_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BFLOAT16)

# computed modulo a power of two, so that a wider integer has the same low bits
WRAPS = frozenset(
    [
        "Add",
        "Sub",
        "Mul",
        "Neg",
        "Sum",
        "ReduceSum",
        "CumSum",
        "MatMul",
        "Gemm",
        "Einsum",
        "Div",
        "Mod",
        "ReduceProd",
        "ReduceSumSquare",
        "Range",
        "Pow",
    ]
)
# chosen, compared and moved, never computed
MOVES = frozenset(
    [
        "Max",
        "Min",
        "Clip",
        "ReduceMax",
        "ReduceMin",
        "ArgMax",
        "ArgMin",
        "TopK",
        "Relu",
        "Abs",
        "Sign",
        "Equal",
        "Less",
        "Greater",
        "LessOrEqual",
        "GreaterOrEqual",
        "Where",
        "Gather",
        "GatherElements",
        "GatherND",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "Slice",
        "Split",
        "Concat",
        "Transpose",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "Expand",
        "Tile",
        "Pad",
        "Compress",
        "NonZero",
        "Unique",
        "OneHot",
        "ReverseSequence",
        "SpaceToDepth",
        "DepthToSpace",
        "Upsample",
        "MaxPool",
        "EyeLike",
        "IsNaN",
        "IsInf",
        "Not",
        "Shape",
        "Size",
        "If",
        "Loop",
        "Trilu",
        "Ceil",
        "Floor",
        "Round",
        "CenterCropPad",
        "PRelu",
    ]
)
# bits, random numbers, and types that are the point
NEVER = frozenset(
    [
        "BitCast",
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Cast",
        "CastLike",
        "Constant",
        "ConstantOfShape",
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "QLinearConv",
        "QLinearMatMul",
        "ConvInteger",
        "MatMulInteger",
        "If",
        "Loop",
        "Scan",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "BitShift",
    ]
)


def unfit(schema: OpSchema, inputs: list[Type | None], outputs: list[Type | None]) -> dict[str, str]:
    """Type variables (or literal types) of a version that the node's types do not fit, with the type string."""
    found: dict[str, str] = {}
    for formals, types in ((schema.inputs, inputs), (schema.outputs, outputs)):
        bound: dict[str, str] = {}
        for place, type_ in enumerate(types):
            text = text_of(type_)
            if text is None or not formals:
                continue
            formal = formals[min(place, len(formals) - 1)]
            allowed = schema.constraints.get(formal.type) or frozenset((formal.type,))
            if text not in allowed and text not in _spelled(allowed):
                found[formal.type] = text
            elif formal.homogeneous and bound.setdefault(formal.type, text) != text:
                found.setdefault(formal.type, text)
    return found


@cache
def _spelled(allowed: frozenset[str]) -> frozenset[str]:
    return frozenset(item.replace(", ", ",") for item in allowed)


def wider(schema: OpSchema, variable: str, dtype: int, target: int) -> int | None:
    """The data type that the variable takes instead of `dtype`; None where there is none."""
    if schema.name in NEVER or variable not in schema.constraints:
        return None
    cast = operators.schema("Cast", target)
    if cast is None or _text(dtype) not in cast.constraints["T1"] or _text(dtype) not in cast.constraints["T2"]:
        return None
    integers = [code for code in _HOLDS.get(dtype, ()) if code not in _FLOATS]
    floats = [code for code in _HOLDS.get(dtype, ()) if code in _FLOATS]
    candidates = integers + floats if schema.name in MOVES else integers if schema.name in WRAPS else []
    if dtype in _FLOATS:
        candidates = floats
    allowed = schema.constraints[variable]
    return next((code for code in candidates if _text(code) in allowed), None)


def needed(schema: OpSchema, variable: str, text: str, above: int) -> int:
    """The oldest opset past `above` whose version of the operator takes the type; 0 where none does."""
    for version in operators.versions(schema.name, schema.domain):
        found = operators.schema(schema.name, version, schema.domain)
        if version > above and found is not None and text in found.constraints.get(variable, ()):
            return version
    return 0


def dtype_of_text(text: str) -> int:
    """The code of `tensor(float)`, 0 for what is no tensor."""
    name = text[len("tensor(") : -1].upper() if text.startswith("tensor(") else ""
    return next((code for code, row in DTYPES.items() if row.name == name), 0)


def _text(dtype: int) -> str:
    return f"tensor({DTYPES[dtype].text})"


def through(schema: OpSchema, variables: dict[str, str], target: int) -> dict[str, tuple[int, int]] | None:
    """For each variable that does not fit: its data type and the wider one; None where there is no way."""
    found = {}
    for variable, text in variables.items():
        dtype = dtype_of_text(text)
        taken = wider(schema, variable, dtype, target) if dtype else None
        if taken is None:
            return None
        found[variable] = (dtype, taken)
    return found


def tensors_of(dtype: int, type_: Type | None) -> Type | None:
    """A tensor's type in another data type."""
    return Tensor(dtype, type_.shape) if isinstance(type_, Tensor) else type_
