"""Data types that an operator's older version does not take: the same values in a wider type (`widening`), and back."""

from __future__ import annotations

from functools import cache

from proto_schema import operators
from proto_schema.inference.types import Tensor, Type, text_of
from proto_schema.legalization import widening
from proto_schema.operators import OpSchema
from proto_schema.tensors.dtypes import DTYPES

# bits, random numbers, optional values, and integers that are codes
_NEVER = frozenset(
    (
        *("Bernoulli", "BitShift", "ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "Multinomial", "Optional"),
        *("OptionalGetElement", "OptionalHasElement", "QLinearConv", "QLinearMatMul", "RandomNormal"),
        *("RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
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
    if schema.name in _NEVER or variable not in schema.constraints:
        return None
    cast = operators.schema("Cast", target)
    if cast is None or _text(dtype) not in cast.constraints["T1"] or _text(dtype) not in cast.constraints["T2"]:
        return None
    allowed = schema.constraints[variable]
    return next((code for code in widening.wider(schema.name, dtype) if _text(code) in allowed), None)


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
