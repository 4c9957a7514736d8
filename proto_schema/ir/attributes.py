"""Attributes of nodes that are written: of the type that the operator declares, or that the Python value has."""

from __future__ import annotations

from typing import Any

from proto_schema.ir.calls import BuildError
from proto_schema.ir.constants import array_of, natural_dtype, tensor_of
from proto_schema.ir.graph import Graph
from proto_schema.onnx import AttributeProto, TensorProto
from proto_schema.operators import OpSchema
from proto_schema.tensors.attributes import make_attribute

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
