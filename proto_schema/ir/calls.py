"""Calls of operators in their newest form, and what nodes of older opsets have for it.

A caller gives inputs by position or name, and attributes by name, as the newest version of the operator has them. What
an older version has as an attribute (axes of ReduceSum, min and max of Clip) goes there if it is a constant. What it
lacks is left out if it says what the operator does anyway, and refused otherwise.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from proto_schema import operators
from proto_schema.ir.constants import array_of, natural_dtype, tensor_of
from proto_schema.ir.graph import Graph, Node, Value
from proto_schema.onnx import AttributeProto, TensorProto
from proto_schema.operators import Formal, OpSchema
from proto_schema.operators.changes import FORMERLY, RENAMED, first_with, from_the_front, is_default, newest
from proto_schema.tensors.attributes import make_attribute


class BuildError(ValueError):
    """A node that its operator does not allow. The text names the operator, the input or attribute, and what to do."""


Bound = list[tuple[Any, Formal]]

_ARITHMETIC = ("Add", "And", "Div", "Equal", "Gemm", "Greater", "Less", "Mul", "Or", "PRelu", "Pow", "Sub", "Xor")
TODAY: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(_ARITHMETIC, 7),
        **dict.fromkeys(("BatchNormalization", "Dropout", "GRU", "LSTM", "RNN"), 7),
        **dict.fromkeys(("Max", "Mean", "Min", "Sum"), 8),
        **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), 13),
        "Cast": 6,
        "DFT": 20,
        "GridSample": 20,
        "GroupNormalization": 21,
        "Resize": 11,
        "Scan": 9,
        "Tile": 6,
    }
)
"""The opset since which an operator computes of the same arguments what it does today."""
LAST_AXIS = ("Hardmax", "LogSoftmax", "Softmax")
"""Before `TODAY` these do the same along the last axis."""
_FREE_SCALES = 13
"""Before, Resize has an empty tensor for scales that are left out."""
_ALL_THE_SAME = {("Slice", "steps"): 1, ("Dropout", "training_mode"): False}  # as if the input were left out


def schema_of(op_type: str, domain: str, opset: int) -> OpSchema | None:
    """The version in force, None for a domain that is not of the standard. Raises BuildError where there is none."""
    if operators.canonical(domain) not in operators.domains():
        return None
    found, known = operators.schema(op_type, opset, domain), operators.versions(op_type, domain)
    name = domain or "ai.onnx"
    if not known:
        close = difflib.get_close_matches(op_type, operators.names(domain), 1)
        hint = f"did you mean {close[0]}?" if close else "operators of other domains are written by op(..., domain=)"
        raise BuildError(f"{name} has no operator {op_type!r}; {hint}")
    if found is None:
        raise BuildError(
            f"{op_type} does not exist at opset {opset}, but from {known[0]} on: convert the model "
            "(ps.version_converter.convert_version), or write it by other operators"
        )
    if found.deprecated:
        raise BuildError(f"{op_type} does not exist from opset {found.since_version} on; write it by other operators")
    return found


def means_today(schema: OpSchema, opset: int) -> bool:
    """Whether this version computes what the newest does."""
    return bool(schema.domain) or opset >= TODAY.get(schema.name, 0)


def bind(
    schema: OpSchema, opset: int, inputs: Sequence[Any], named: Mapping[str, Any], outputs: int | None
) -> tuple[Bound, dict[str, Any]]:
    """Inputs in order with their formals, and attributes, as this version has them. Raises BuildError."""
    given, rest, attributes = newest_form(schema, inputs, named)
    latest = newest(schema.name, schema.domain) or schema
    if not means_today(schema, opset) and not _along_last_axis(schema, given, attributes):
        raise BuildError(
            f"{schema.name} computes something else before opset {TODAY[schema.name]}, and the graph has opset "
            f"{opset}: convert the model (ps.version_converter.convert_version)"
        )
    places = {formal.name: place for place, formal in enumerate(schema.inputs)}
    slots: list[Any] = [None] * (len(schema.inputs) - _is_variadic(schema))
    made: dict[str, Any] = {}
    for place, formal in enumerate(latest.inputs):
        value, name = given.get(formal.name), formal.name
        if value is None:
            continue
        if name not in places and place < len(slots) and schema.inputs[place].name not in given:
            name = schema.inputs[place].name  # another name for the same input
        if name in places and places[name] < len(slots):
            slots[places[name]] = value
        else:
            _as_attribute(schema, opset, name, value, made)
    _split(schema, given, attributes, outputs)
    for name, value in attributes.items():
        if name in schema.attributes:
            made[name] = value
        elif not is_default(latest, name, value):
            raise BuildError(_later(schema, opset, name))
    if schema.name == "Resize" and opset < _FREE_SCALES:
        slots = [np.zeros(0, np.float32) if value is None and place else value for place, value in enumerate(slots)]
        slots = slots if given.get("sizes") is not None else slots[: places["sizes"]]
    slots += rest
    while slots and slots[-1] is None:
        slots.pop()
    data = slots[0] if slots else None
    from_the_front(schema, data.rank if isinstance(data, Value) else None, made)
    last = len(schema.inputs) - 1
    return [(value, schema.inputs[min(place, last)]) for place, value in enumerate(slots)], made


def _is_variadic(schema: OpSchema) -> bool:
    return bool(schema.inputs) and schema.inputs[-1].option == "variadic"


def newest_form(
    schema: OpSchema, inputs: Sequence[Any], named: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
    """Inputs by name, those of the variadic one, and attributes."""
    latest = newest(schema.name, schema.domain) or schema
    formals = latest.inputs
    fixed = len(formals) - _is_variadic(latest)
    if len(inputs) > len(formals) and fixed == len(formals):
        names = ", ".join(formal.name for formal in formals)
        raise BuildError(f"{schema.name} takes {len(formals)} inputs ({names}), and {len(inputs)} are given")
    given = {formals[place].name: value for place, value in enumerate(inputs[:fixed])}
    attributes: dict[str, Any] = {}
    by_name = {formal.name: formal.name for formal in formals[:fixed]}
    for old, formal in zip(schema.inputs, formals[:fixed], strict=False):
        by_name.setdefault(old.name, formal.name)
    for name, value in named.items():
        if value is None:
            continue
        new = by_name.get(RENAMED.get((schema.name, name), name))
        if new is not None and given.get(new) is not None:
            raise BuildError(f"{schema.name}: input {new!r} is given twice, by its place and by its name")
        if new is not None:
            given[new] = value
        elif name in latest.attributes or name in schema.attributes:
            attributes[name] = value
        else:
            known = sorted({*by_name, *latest.attributes})
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'none'}"
            raise BuildError(f"{schema.name} has no input or attribute {name!r}; {hint}")
    return given, list(inputs[fixed:]), attributes


def has_attributes(node: Node) -> bool:
    """Whether a node has attributes, which costs less than asking for them."""
    message: Any = node.message
    return bool(node._attributes) if node._attributes is not None else bool(message and message._attribute)


def constant_of(value: Any) -> Any:
    """The elements of a small constant, or of numbers; None for what is computed."""
    return value.array() if isinstance(value, Value) else array_of(value)


def _as_attribute(schema: OpSchema, opset: int, name: str, value: Any, made: dict[str, Any]) -> None:
    """What this version has as an attribute, or lacks."""
    attribute = FORMERLY.get((schema.name, name), name)
    array = constant_of(value)
    if attribute in schema.attributes:
        if array is None:
            raise BuildError(
                f"{schema.name}: {name!r} is an attribute at opset {opset}, and must be a constant; {_convert}"
            )
        found = array.tolist()
        is_one = isinstance(found, list) and len(found) == 1 and attribute in ("k", "value", "ratio", "min", "max")
        if found != []:
            made[attribute] = found[0] if is_one else found
    elif array is None or not array.size or not (array == _ALL_THE_SAME.get((schema.name, name))).all():
        raise BuildError(_later(schema, opset, name))


_convert = "convert the model (ps.version_converter.convert_version), or leave it out"


def _later(schema: OpSchema, opset: int, name: str) -> str:
    first = first_with(schema, name)
    return f"{schema.name} has no {name!r} at opset {opset}, but from {first} on; {_convert}"


def _along_last_axis(schema: OpSchema, given: Mapping[str, Any], attributes: dict[str, Any]) -> bool:
    data = given.get("input")
    rank = data.rank if isinstance(data, Value) else None
    if schema.name not in LAST_AXIS or not rank or attributes.get("axis", -1) not in (-1, rank - 1):
        return False
    attributes["axis"] = rank - 1
    return True


def _split(schema: OpSchema, given: Mapping[str, Any], attributes: dict[str, Any], outputs: int | None) -> None:
    """The number of parts, which is an attribute from opset 18 on."""
    if schema.name != "Split" or given.get("split") is not None:
        return
    if "num_outputs" in schema.attributes:
        if outputs is not None:
            attributes.setdefault("num_outputs", outputs)
        return
    count, data = attributes.pop("num_outputs", None), given.get("input")
    size = data.dim(attributes.get("axis", 0)) if isinstance(data, Value) else None
    if count and not (isinstance(size, int) and size % count == 0):
        raise BuildError(f"Split: {size} is not known to have {count} equal parts; give their sizes as split=")


# -- attributes of a type

_Kind = AttributeProto.AttributeType


def untyped(op_type: str, name: str, value: Any) -> Any:
    """An attribute of an operator whose schema is not known: its type is that of the Python value."""
    if isinstance(value, (Graph, AttributeProto)):
        return value
    if hasattr(value, "dtype") and getattr(value, "shape", ()) != ():
        return tensor_of(value, natural_dtype(value, value))
    try:
        return make_attribute(name, value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError) as error:
        raise BuildError(f"{op_type}: {error}") from None


def typed_attribute(schema: OpSchema, name: str, value: Any) -> Any:
    """An attribute as the operator declares it."""
    kind = schema.attributes[name].type
    if isinstance(value, AttributeProto) or (kind == _Kind.GRAPH and isinstance(value, Graph)):
        return value
    if kind == _Kind.INT:
        value = _code(value)
    elif kind in (_Kind.INTS, _Kind.FLOATS) and hasattr(value, "tolist"):
        value = value.tolist()
    elif kind == _Kind.TENSOR and not isinstance(value, TensorProto):
        array = array_of(value)
        value = value if array is None else tensor_of(array, natural_dtype(value, array))
    if kind in (_Kind.INTS, _Kind.FLOATS, _Kind.STRINGS) and not isinstance(value, (list, tuple)):
        value = [value]
    try:
        if kind == _Kind.FLOAT:
            value = float(value)
        elif kind == _Kind.FLOATS:
            value = [float(item) for item in value]
        return make_attribute(name, value, attr_type=kind)
    except (TypeError, ValueError):
        raise BuildError(
            f"{schema.name}: attribute {name!r} is {short(value)}, and takes {_Kind(kind).name}; give it such a value"
        ) from None


def _code(value: Any) -> Any:
    """The number of a data type that is given as numpy has it."""
    if isinstance(value, int):
        return int(value)
    from proto_schema.helper import np_dtype_to_tensor_dtype

    if isinstance(value, type) or type(value).__name__.endswith("DType"):
        try:
            return np_dtype_to_tensor_dtype(value)
        except (TypeError, ValueError, KeyError):
            return value
    return value.item() if hasattr(value, "item") else value


def short(value: Any) -> str:
    """The text of a value in an error."""
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."
