"""A node beside its definition: the operator's schema at the model's opset, or the function that it calls.

Stricter than the official checker: a call of a model-local function must not pass more inputs, outputs or attributes
than the function has.
"""

from __future__ import annotations

from difflib import get_close_matches

from proto_schema import operators
from proto_schema.checking.context import Context
from proto_schema.checking.place import Problem, inside, require
from proto_schema.graphs.calls import callee
from proto_schema.onnx import AttributeProto, FunctionProto, NodeProto
from proto_schema.operators import Formal, OpSchema
from proto_schema.tensors.attributes import FIELD_OF_TYPE
from proto_schema.wire.fields import listed

# Domains in which every operator must be known. The preview domains are open.
CLOSED_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.training")

# Operators of the first years that were never standardised; the official checker lets them pass without a schema.
EXPERIMENTAL = frozenset(
    {
        "ATen",
        "Affine",
        "ConstantFill",
        "Crop",
        "DynamicSlice",
        "GRUUnit",
        "GivenTensorFill",
        "ImageScaler",
        "ParametricSoftplus",
        "Scale",
        "ScaledTanh",
    }
)

# Facts that the official package enforces but does not show in its Python schemas.
# Operator, since_version -> the numbers of outputs that are allowed within the range.
OUTPUT_COUNTS = {
    ("BatchNormalization", 1): (1, 5),
    ("BatchNormalization", 6): (1, 5),
    ("BatchNormalization", 7): (1, 5),
    ("BatchNormalization", 9): (1, 5),
    ("BatchNormalization", 14): (1, 3),
    ("BatchNormalization", 15): (1, 3),
}
ANY_ATTRIBUTES = frozenset([("LayerNormalization", 17)])

_Type = AttributeProto.AttributeType
_SINGLE_MESSAGES = (_Type.TENSOR, _Type.SPARSE_TENSOR, _Type.GRAPH, _Type.TYPE_PROTO)


def check_definition(node: NodeProto, domain: str, context: Context) -> None:
    """What the operator's schema says, or the function that the node calls."""
    schema = context.schema_of(node.op_type or "", domain)
    if schema is None:
        function = context.functions.get(callee(node))
        if function is not None and domain not in CLOSED_DOMAINS:
            _check_call(node, function, context.attributes_of(function))
        elif domain in CLOSED_DOMAINS or context.check_custom_domain:
            raise Problem(_unknown_operator(node.op_type or "", context.opsets[domain], domain), "op_type")
    elif schema.deprecated:
        raise Problem(f"{node.op_type} is deprecated since opset {schema.since_version}", "op_type")
    else:
        _check_schema(node, schema)


def _unknown_operator(op_type: str, opset: int, domain: str) -> str:
    where = f"opset {opset}" + (f" of the domain {domain!r}" if domain else "")
    versions = operators.versions(op_type, domain)
    if versions:
        return f"{op_type} does not exist in {where}; it does from opset {versions[0]}"
    likely = get_close_matches(op_type, operators.operators(opset, domain), 1)
    return f"there is no operator {op_type!r} in {where}" + (f"; is {likely[0]} meant?" if likely else "")


def _check_schema(node: NodeProto, schema: OpSchema) -> None:
    inputs, outputs = node.input, node.output
    if not schema.min_input <= len(inputs) <= schema.max_input:
        raise _wrong_count(node, schema, "input", len(inputs), schema.min_input, schema.max_input)
    if not schema.min_output <= len(outputs) <= schema.max_output:
        raise _wrong_count(node, schema, "output", len(outputs), schema.min_output, schema.max_output)
    allowed = OUTPUT_COUNTS.get((schema.name, schema.since_version)) if schema.domain == "" else None
    if allowed and len(outputs) not in allowed:
        takes = " or ".join(map(str, allowed))
        raise Problem(f"{_version(node, schema)} has {len(outputs)} outputs; it takes {takes}", "output")
    _check_given("input", inputs, schema.inputs)
    _check_given("output", outputs, schema.outputs)
    _check_attributes(node, schema)


def _version(node: NodeProto, schema: OpSchema) -> str:
    return f"{title(node)} (as of opset {schema.since_version})"


def _wrong_count(node: NodeProto, schema: OpSchema, side: str, count: int, low: int, high: int) -> Problem:
    takes = f"{low}" if low == high else f"{low} or more" if high == operators.UNBOUNDED else f"{low} to {high}"
    return Problem(f"{_version(node, schema)} has {count} {side}s; it takes {takes}", side)


def _check_given(side: str, names: list[str], formals: tuple[Formal, ...]) -> None:
    if all(names):
        return
    for place, (name, formal) in enumerate(zip(names, formals, strict=False)):
        if formal.option == "variadic":
            return
        if not name and formal.option == "single":
            raise Problem(f"{formal.name!r} is not optional, but its name is empty", side, place)


def _check_attributes(node: NodeProto, schema: OpSchema) -> None:
    attributes = listed(node, "attribute")
    for attribute in attributes:
        name = attribute.name or ""
        declared = schema.attributes.get(name)
        if declared is None:
            if name.startswith("__") or (schema.name, schema.since_version) in ANY_ATTRIBUTES:
                continue
            with inside("attribute", name):
                raise Problem(_unknown_attribute(name, schema))
        with inside("attribute", name):
            if (attribute.type or 0) != declared.type:
                expected, found = _Type(declared.type).name, _Type(attribute.type or 0).name
                raise Problem(f"is of type {found}; {schema.name} takes {expected}", "type")
            if attribute.type in _SINGLE_MESSAGES and not attribute.ref_attr_name:
                require(attribute, FIELD_OF_TYPE[declared.type])
    given = {attribute.name for attribute in attributes}
    for name, declared in schema.attributes.items():
        if declared.required and name not in given:
            raise Problem(f"is required by {schema.name}, but absent", "attribute", name)


def _unknown_attribute(name: str, schema: OpSchema) -> str:
    known = ", ".join(schema.attributes) or "none"
    elsewhere = [
        version
        for version in operators.versions(schema.name, schema.domain)
        if (other := operators.schema(schema.name, version, schema.domain)) and name in other.attributes
    ]
    hint = f"; it had it in the version of opset {elsewhere[-1]}" if elsewhere else ""
    if elsewhere and elsewhere[-1] > schema.since_version:
        hint = f"; it has it from opset {next(v for v in elsewhere if v > schema.since_version)}"
    return f"{schema.name} as of opset {schema.since_version} has no such attribute{hint}; it has: {known}"


def _check_call(node: NodeProto, function: FunctionProto, known: frozenset[str | None]) -> None:
    for side, given, declared in (("input", node.input, function.input), ("output", node.output, function.output)):
        if len(given) > len(declared):
            raise Problem(f"the call has {len(given)} {side}s; the function {function.name} has {len(declared)}", side)
    named = {attribute.name for attribute in node.attribute}
    for attribute in node.attribute:
        if attribute.name not in known and not (attribute.name or "").startswith("__"):
            raise Problem(f"the function {function.name} has no such attribute", "attribute", attribute.name)
    for name in function.attribute:
        if name not in named:
            raise Problem(f"is required by the function {function.name}, but absent", "attribute", name)


def title(node: NodeProto) -> str:
    """The operator, and the name of the node where it has one."""
    return f"{node.op_type} {node.name!r}" if node.name else f"{node.op_type}"
