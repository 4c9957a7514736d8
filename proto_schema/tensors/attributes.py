"""Attributes: Python values in, Python values out.

The table below is the whole truth about which field of an AttributeProto holds a value of which type; makers, readers,
checker and printer go by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import c_float
from functools import lru_cache
from numbers import Integral, Real
from operator import index
from typing import Any

from proto_schema.errors import EncodeError
from proto_schema.onnx import AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, TypeProto
from proto_schema.wire.records import dataclass
from proto_schema.wire.texts import framed

__all__ = [
    "FIELD_OF_TYPE",
    "attributes_text",
    "get_attribute_value",
    "get_node_attr_value",
    "make_attribute",
    "make_attribute_ref",
    "make_attribute_ref_name",
]

_Type = AttributeProto.AttributeType


def _single(value: float) -> float:
    """The value rounded to float32, as the format holds it; infinite beyond its range."""
    return c_float(value).value


def _to_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class _AttributeRow:
    """What a value is (an instance of `kind`), the types and fields of one and of many, and the conversions."""

    kind: type | tuple[type, ...]
    one: int
    field: str
    many: int
    fields: str
    convert: Callable[[Any], Any] = _same
    convert_item: Callable[[Any], Any] = _same


_ROWS = (  # asked in this order: an int is a Real, too
    _AttributeRow(Integral, _Type.INT, "i", _Type.INTS, "ints", int, index),
    _AttributeRow(Real, _Type.FLOAT, "f", _Type.FLOATS, "floats", _single, _single),
    _AttributeRow((str, bytes), _Type.STRING, "s", _Type.STRINGS, "strings", _to_bytes, _to_bytes),
    _AttributeRow(TensorProto, _Type.TENSOR, "t", _Type.TENSORS, "tensors"),
    _AttributeRow(SparseTensorProto, _Type.SPARSE_TENSOR, "sparse_tensor", _Type.SPARSE_TENSORS, "sparse_tensors"),
    _AttributeRow(GraphProto, _Type.GRAPH, "g", _Type.GRAPHS, "graphs"),
    _AttributeRow(TypeProto, _Type.TYPE_PROTO, "tp", _Type.TYPE_PROTOS, "type_protos"),
)
_INTEGRAL, _REAL = _ROWS[:2]
_ROW_OF_LIST_TYPE = {int(row.many): row for row in _ROWS}

FIELD_OF_TYPE: dict[int, str] = {
    **{int(row.one): row.field for row in _ROWS},
    **{int(row.many): row.fields for row in _ROWS},
}
"""AttributeType code -> the field that holds the value."""

_SHORT, _LONGEST = 16, 256  # values of a list, characters of a text
_REPEATED = ({int}, {str})  # the types of the values of a list

_ABSENT: dict[str, Callable[[], Any]] = {  # what protobuf reads where the field is absent
    "i": int,
    "f": float,
    "s": bytes,
    "t": TensorProto,
    "sparse_tensor": SparseTensorProto,
    "g": GraphProto,
    "tp": TypeProto,
}


def make_attribute(key: str, value: Any, doc_string: str | None = None, attr_type: int | None = None) -> AttributeProto:
    """An attribute of the type that the value has: a number, text, tensor, graph, type, or a list of one of these.

    Raises ValueError for an empty list without `attr_type` and for a list of mixed kinds, TypeError for any other
    value and where `attr_type` says otherwise.
    """
    kind: type = type(value)
    row = _row_of(kind)
    if row is not None:
        if attr_type is not None and attr_type != row.one:
            raise TypeError(f"attribute {key!r}: the value is of type {_named(row.one)}, not {_named(attr_type)}")
        return _made(key, doc_string, row.one, row.field, row.convert(value))
    if not isinstance(value, Iterable):
        raise TypeError(f"attribute {key!r}: a {type(value).__name__} is not an attribute value")
    items = list(value)
    row = _list_row(key, items, attr_type)
    return _made(key, doc_string, row.many, row.fields, [row.convert_item(item) for item in items])


def attributes_text(attributes: list[tuple[str, Any]]) -> str | None:
    """The attributes of a node as text, as its slot has them until somebody asks; None where some must be objects.

    Those of text are numbers, short texts and short lists of these, which repeat from node to node.
    """
    text = ""
    for key, value in attributes:
        kind = value.__class__
        if kind is float:  # a zero has a sign, which equal floats do not tell; a NaN is an object of its own
            known = value and value - value == 0.0
        elif kind is list or kind is tuple:
            known = 0 < len(value) <= _SHORT and set(map(type, value)) in _REPEATED
        else:
            known = kind is int or (kind is str and len(value) <= _LONGEST)
        if not known:
            return None
        try:
            text += _attribute_text(key, tuple(value) if kind is list else value)
        except EncodeError:
            return None
    return text


@lru_cache(maxsize=4096, typed=True)  # 1 and 1.0 are equal
def _attribute_text(key: str, value: Any) -> str:
    """An attribute of a node as text. EncodeError for one that is long or cannot be written: it is not remembered."""
    text = framed(NodeProto, "attribute", make_attribute(key, value))
    if text is None:
        raise EncodeError(f"attribute {key!r} is long")
    return text


def _made(key: str, doc_string: str | None, code: int, field: str, value: Any) -> AttributeProto:
    made = AttributeProto(name=key, doc_string=doc_string or None, type=code)
    setattr(made, field, value)
    return made


def _list_row(key: str, items: list[Any], asked: int | None) -> _AttributeRow:
    if asked is not None:
        if asked not in _ROW_OF_LIST_TYPE:
            raise TypeError(f"attribute {key!r}: the value is a list, not of type {_named(asked)}")
        return _ROW_OF_LIST_TYPE[asked]
    if not items:
        raise ValueError(f"attribute {key!r}: an empty list has no type; pass attr_type")
    kinds = set(map(type, items))
    rows = {_row_of(kind) for kind in kinds}
    if rows == {_INTEGRAL, _REAL}:
        return _REAL
    row = rows.pop()
    if row is None or rows:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"attribute {key!r}: a list of {names} has no attribute type")
    return row


@lru_cache(maxsize=256)
def _row_of(kind: type) -> _AttributeRow | None:
    """By class, because asking whether a value is an Integral takes longer than all the rest."""
    return next((row for row in _ROWS if issubclass(kind, row.kind)), None)


def _named(code: int) -> str:
    return _Type(code).name if code in FIELD_OF_TYPE else f"UNDEFINED ({code})"


def make_attribute_ref(
    name: str, attr_type: int, doc_string: str | None = None, *, ref_attr_name: str | None = None
) -> AttributeProto:
    """An attribute of a node in a function body that takes the value of the function's attribute `ref_attr_name`.

    Without `ref_attr_name` both have the same name. Raises ValueError for an empty one.
    """
    referred = name if ref_attr_name is None else ref_attr_name
    if not referred:
        raise ValueError(f"attribute {name!r}: ref_attr_name must name an attribute of the function")
    return AttributeProto(name=name, type=int(attr_type), ref_attr_name=referred, doc_string=doc_string or None)


def make_attribute_ref_name(attr: AttributeProto, ref_attr_name: str) -> AttributeProto:
    """An attribute of the name and type of `attr` that refers to the function's attribute `ref_attr_name`."""
    return make_attribute_ref(attr.name or "", attr.type or 0, attr.doc_string, ref_attr_name=ref_attr_name)


def get_attribute_value(attr: AttributeProto) -> Any:
    """The attribute's value: the one in the field that its type names; None for an undefined type.

    Raises ValueError for a reference to a function's attribute, which has no value of its own.
    """
    if attr.ref_attr_name:
        raise ValueError(f"attribute {attr.name!r} refers to {attr.ref_attr_name!r} of the function: it has no value")
    if not attr.type:
        return None
    field = FIELD_OF_TYPE[attr.type]
    value = getattr(attr, field)
    if isinstance(value, list):
        return list(value)
    return _ABSENT[field]() if value is None else value


def get_node_attr_value(node: NodeProto, attr_name: str) -> Any:
    """The value of the node's attribute of that name. ValueError unless there is exactly one."""
    found = [attribute for attribute in node.attribute if attribute.name == attr_name]
    if len(found) != 1:
        raise ValueError(f"node {node.name or node.op_type!r} has {len(found)} attributes named {attr_name!r}")
    return get_attribute_value(found[0])
