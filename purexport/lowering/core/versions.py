"""Questions to the history of ONNX operators: what a version takes, and the lowest opset that can say something.

The history is data (`proto_schema.operators`).  A dtype is an ONNX code, an opset a number of the operator's domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema import operators
from purexport import dtypes

# the same argument under an older name: attribute of old versions -> input of new ones, and back
RENAMED = {("TopK", "k"): "K", ("Pad", "value"): "constant_value"}
FORMERLY = {(op_type, new): old for (op_type, old), new in RENAMED.items()}
# from which version on an operator of the same signature means what it means today
MEANS_TODAY = {"Softmax": 13, "LogSoftmax": 13, "GridSample": 20, "If": 11, "Gather": 11}
NEGATIVE_AXES = 11  # from this opset on operators count negative axes from the end
# the opset that first has a word of an attribute that is older
WORDS = {
    ("ScatterElements", "reduction", "max"): 18,
    ("ScatterElements", "reduction", "min"): 18,
    ("ScatterND", "reduction", "max"): 18,
    ("ScatterND", "reduction", "min"): 18,
    ("Pad", "mode", "wrap"): 19,
}


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


def says_nothing(newest: operators.OpSchema, name: str, value: Any) -> bool:
    """True when an argument only spells out the operator's default."""
    attribute = newest.attributes.get(name)
    if attribute is None:
        return False
    default = attribute.default.decode() if isinstance(attribute.default, bytes) else attribute.default
    return bool(default == (tuple(value) if isinstance(value, list) else value))


# The lowest opset that ... ------------------------------------------------------------------------------------------


def first_version(op_type: str, domain: str, arguments: Sequence[str]) -> int | None:
    """The lowest opset that has the operator with those arguments; None where no opset has it."""
    found = operators.versions(op_type, domain)
    schema = operators.schema(op_type, operators.newest_opset(domain), domain) if found else None
    first = operators.schema(op_type, found[0], domain) if found else None
    if schema is None or first is None or schema.deprecated:
        return None
    known = [*first.attributes, *[item.name for item in first.inputs]]
    later = [first_with(first, RENAMED.get((op_type, name), name)) for name in arguments if name not in known]
    return max([found[0], *[version for version in later if version is not None]])


def first_with(schema: operators.OpSchema, name: str, as_input: bool = False) -> int | None:
    """The lowest later opset whose version has an argument of that name."""
    for version in operators.versions(schema.name, schema.domain):
        later = operators.schema(schema.name, version, schema.domain)
        if later is None or version <= schema.since_version:
            continue
        if name in [item.name for item in later.inputs] or (name in later.attributes and not as_input):
            return version
    return None


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
