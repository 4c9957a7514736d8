"""A call of `op` bound to one version of an ONNX operator: inputs in order, attributes, and the types that follow.

Everything here is a function of the version's schema and of the arguments.

- An argument that moved from attribute to input (or exists in one of them only from some opset on) goes where this
  version wants it; one that this version does not know is dropped when it says what the operator does anyway,
  otherwise it is refused with the lowest opset that knows it.
- The inputs' dtypes bind the variables of the operator's type constraints, and the output types follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proto_schema import operators
from proto_schema.onnx import AttributeProto
from proto_schema.operators import changes
from purexport import dtypes
from purexport.aten.graph import Source
from purexport.errors import ExportError, OpsetError
from purexport.graph.ir import Value
from purexport.lowering.core import versions

Bound = Sequence[tuple[Any, operators.Formal]]

# where the output type is said by an attribute
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")


def bind(
    schema: operators.OpSchema, opset: int, inputs: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Bound, dict[str, Any]]:
    """Inputs in order with their formals, and attributes, as this version of the operator wants them.

    `opset` is for the text of errors.  Raises OpsetError for what only later versions take, ExportError for too many
    inputs.
    """
    formals = schema.inputs
    variadic = bool(formals) and formals[-1].option == "variadic"
    places = {formal.name: position for position, formal in enumerate(formals)}
    slots: list[Any] = list(inputs)
    attributes: dict[str, Any] = {}
    if not variadic and len(slots) > len(formals):
        # inputs of newer versions that are attributes here
        names = [formal.name for formal in (changes.newest(schema.name, schema.domain) or schema).inputs]
        surplus = {names[position]: slots[position] for position in range(len(formals), len(slots))}
        named = {**named, **{name: value for name, value in surplus.items() if name not in named}}
        del slots[len(formals) :]
    for name, value in named.items():
        if value is None:
            continue
        old = changes.FORMERLY.get((schema.name, name), name)
        new = changes.RENAMED.get((schema.name, name), name)
        if new in places:
            slots += [None] * (places[new] + 1 - len(slots))
            slots[places[new]] = value
        elif name in schema.attributes or old in schema.attributes:
            attribute = name if name in schema.attributes else old
            attributes[attribute] = _static(schema, attribute, value)
            since, words = changes.FORMER_WORDS.get((schema.name, attribute), (0, {}))
            attributes[attribute] = words.get(value, value) if opset < since else attributes[attribute]
            lowest = changes.WORDS.get((schema.name, attribute, value)) if isinstance(value, str) else None
            if lowest is not None and opset < lowest:
                raise OpsetError(f"ONNX {schema.name} has no {name}={value!r} at opset {opset}", lowest)
            if schema.attributes[attribute].type == AttributeProto.INT and isinstance(attributes[attribute], list):
                (attributes[attribute],) = attributes[attribute]  # TopK's number, a tensor of one element since then
        elif not changes.is_default((changes.newest(schema.name, schema.domain) or schema), name, value):
            lowest = changes.first_with(schema, name)
            raise OpsetError(f"ONNX {schema.name} has no {name!r} at opset {opset}", lowest)
    if len(slots) > len(formals) and not variadic:
        raise ExportError(f"ONNX {schema.name} takes {len(formals)} inputs, {len(slots)} were given", code="rule-fault")
    return [(value, formals[min(i, len(formals) - 1)]) for i, value in enumerate(slots)], attributes


def _static(schema: operators.OpSchema, name: str, value: Any) -> Any:
    """An attribute's value; a computed one only newer versions take, as an input."""
    if isinstance(value, Value):
        if value.const is None:
            lowest = changes.first_with(schema, changes.RENAMED.get((schema.name, name), name), as_input=True)
            raise OpsetError(f"ONNX {schema.name} takes a computed {name!r} only later", lowest)
        value = value.const.tolist()
    if isinstance(value, (list, tuple)):
        return [_static(schema, name, item) for item in value]
    return value


def given_types(bound: Bound) -> tuple[tuple[str, int], ...]:
    """The constraint variables and literal types with the dtype of the first value of each, in order of the inputs."""
    found: dict[str, int] = {}
    for value, formal in bound:
        if isinstance(value, Value) and value.dtype is not None and (formal.option != "variadic" or formal.homogeneous):
            found.setdefault(formal.type, value.dtype)
    return tuple(found.items())


def bound_types(schema: operators.OpSchema, opset: int, bound: Bound, source: Source) -> dict[str, int]:
    """Which dtype each constraint variable stands for.

    Raises OpsetError for an input that only other versions take, ExportError for inputs of several types where the
    operator wants one; `opset` and `source` are for their texts.
    """
    binding: dict[str, int] = {}
    for value, formal in bound:
        if not isinstance(value, Value) or value.dtype is None:
            continue
        if not versions.allowed(schema, formal.type, value.dtype):
            lowest = versions.first_taking(schema, formal, value.dtype)
            text = f"ONNX {schema.name} does not take {dtypes.type_string(value.dtype)} as {formal.name!r}"
            raise OpsetError(f"{text} at opset {opset}", lowest)
        if formal.option == "variadic" and not formal.homogeneous:
            continue
        known = binding.setdefault(formal.type, value.dtype)
        if known != value.dtype:
            raise ExportError(
                f"ONNX {schema.name} at {source} wants one type for {formal.type}, and got "
                f"{dtypes.type_string(known)} and {dtypes.type_string(value.dtype)}; "
                "this is a mistake in a lowering rule, please report it",
                code="rule-fault",
            )
    return binding


def output_type(
    schema: operators.OpSchema, index: int, binding: Mapping[str, int], attributes: Mapping[str, Any]
) -> int | None:
    """The dtype of output number `index`; None where nothing says it."""
    formal = schema.outputs[min(index, len(schema.outputs) - 1)]
    allowed = schema.constraints.get(formal.type, (formal.type,))
    if len(allowed) == 1:
        return dtypes.from_type_string(next(iter(allowed)))
    for name in _TYPE_ATTRIBUTES:
        if name in attributes and formal.type not in binding:
            return int(attributes[name])
    if schema.name == "ConstantOfShape":
        value = attributes.get("value")
        return dtypes.FLOAT if value is None else dtypes.onnx_code(value.dtype)
    return binding.get(formal.type)


def check_output(schema: operators.OpSchema, opset: int, dtype: int | None) -> None:
    """Raises OpsetError for a first result of a dtype that only later versions make, which a Cast can ask for."""
    if dtype is None or versions.allowed(schema, schema.outputs[0].type, dtype):
        return
    lowest = versions.first_making(schema, dtype)
    if lowest is not None:
        text = f"ONNX {schema.name} does not give {dtypes.type_string(dtype)} at opset {opset}"
        raise OpsetError(text, lowest)
