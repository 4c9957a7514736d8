"""Questions to the history of ONNX operators: what a version takes, and the lowest opset that can say something.

The history is data (`proto_schema.operators`).  A dtype is an ONNX code, an opset a number of the operator's domain.
"""

from __future__ import annotations

from proto_schema import operators
from purexport import dtypes

# from which version on an operator of the same signature means what it means today
MEANS_TODAY = {"Softmax": 13, "LogSoftmax": 13, "If": 11, "Gather": 11}


def allowed(schema: operators.OpSchema, type_: str, dtype: int) -> bool:
    """True when `type_`, a type or a constraint's variable of the schema, can be `dtype`."""
    text = dtypes.type_string(dtype)
    return text in schema.constraints.get(type_, (type_,))


def takes(schema: operators.OpSchema | None, dtype: int | None, argument: int) -> bool:
    """True for a version that takes `dtype` as its input number `argument`; False where there is none."""
    return schema is not None and dtype is not None and allowed(schema, schema.inputs[argument].type, dtype)


def takes_sequences(schema: operators.OpSchema | None) -> bool:
    """True for a version that takes or gives sequences; False where there is none."""
    types = schema.constraints.values() if schema is not None else ()
    return any(text.startswith("seq(") for texts in types for text in texts)


# The lowest opset that ... ------------------------------------------------------------------------------------------


def first_taking(schema: operators.OpSchema, formal: operators.Formal, dtype: int) -> int | None:
    """The lowest later opset whose version takes `dtype` in the place of `formal`."""
    position = schema.inputs.index(formal)
    for version in operators.versions(schema.name, schema.domain):
        later = operators.schema(schema.name, version, schema.domain)
        if later is None or version <= schema.since_version or position >= len(later.inputs):
            continue
        if allowed(later, later.inputs[position].type, dtype):
            return version
    return None


def first_making(schema: operators.OpSchema, dtype: int) -> int | None:
    """The lowest later opset whose version can have a result of `dtype`."""
    for version in operators.versions(schema.name, schema.domain):
        later = operators.schema(schema.name, version, schema.domain)
        if later is not None and version > schema.since_version and allowed(later, later.outputs[0].type, dtype):
            return version
    return None


def first_with_sequences(op_type: str) -> int | None:
    """The lowest opset whose version of the operator takes or gives sequences."""
    return next((v for v in operators.versions(op_type) if takes_sequences(operators.schema(op_type, v))), None)
