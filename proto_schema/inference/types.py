"""What is known of a value: its type as ONNX has it, a shape of sizes, and the content of small tensors.

A dimension is an int or a `Size`, never unknown: where nothing is known of it, it is a symbol of its own.  A shape is
None where not even the rank is known.  `content` holds the elements of a tensor in row-major order, as far as they are
known: ints, sizes, floats, bools, and None.  It is there for what shapes are computed from, and has at most `MOST`
elements.  A shape has at most `MOST_AXES` dimensions: of a longer one nothing is known, so that no file makes n nodes
write n sizes each, or multiplies out a million of them.  torch and numpy have no tensors of more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from proto_schema.graphs.dims import known_size
from proto_schema.onnx import TensorProto, TensorShapeProto, TypeProto
from proto_schema.sizes import Dim, Size
from proto_schema.wire.records import dataclass

MOST = 64  # elements of a content
MOST_AXES = 64

Shape: TypeAlias = "tuple[Dim, ...] | None"
Element: TypeAlias = "Dim | float | bool | None"
Content: TypeAlias = "tuple[Element, ...] | None"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor; `dtype` is a code of TensorProto.DataType, 0 where it is not known."""

    dtype: int
    shape: Shape = None
    content: Content = None


@dataclass(frozen=True, slots=True)
class Sparse:
    """A sparse tensor."""

    dtype: int
    shape: Shape = None


@dataclass(frozen=True, slots=True)
class SequenceOf:
    """A sequence; a dimension in which the elements may differ is a symbol of its own."""

    element: Type | None


@dataclass(frozen=True, slots=True)
class OptionalOf:
    """An optional; None for an element of which nothing is known."""

    element: Type | None


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from keys of one dtype to values of one type."""

    key: int
    value: Type | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A type that only its domain knows."""

    domain: str
    name: str


Type: TypeAlias = Tensor | Sparse | SequenceOf | OptionalOf | MapOf | Opaque


def text_of(type_: Type | None) -> str | None:
    """The type string of the operator history, `seq(tensor(float))`; None where a part is not known."""
    if isinstance(type_, (Tensor, Sparse)):
        form = "tensor" if isinstance(type_, Tensor) else "sparse_tensor"
        return _wrapped(form, _name(type_.dtype))
    if isinstance(type_, SequenceOf):
        return _wrapped("seq", text_of(type_.element))
    if isinstance(type_, OptionalOf):
        return _wrapped("optional", text_of(type_.element))
    if isinstance(type_, MapOf):
        key, value = _name(type_.key), text_of(type_.value)
        return f"map({key},{value})" if key and value else None
    return f"opaque({type_.domain},{type_.name})" if type_ is not None else None


def _wrapped(form: str, inner: str | None) -> str | None:
    return f"{form}({inner})" if inner else None


@cache
def _name(dtype: int) -> str | None:
    known = TensorProto.DataType._value2member_map_
    return (TensorProto.DataType(dtype).name.lower() if dtype in known else str(dtype)) if dtype else None


def known_shape(shape: Shape) -> tuple[int, ...] | None:
    """The shape, where all of its sizes are numbers; else None."""
    if shape is None:
        return None
    numbers = tuple([size for size in shape if isinstance(size, int)])
    return numbers if len(numbers) == len(shape) else None


def product(sizes: Sequence[Dim]) -> Dim:
    """The number of elements of a tensor of these sizes."""
    total: Dim = 1
    for size in sizes:
        total = total * size
    return total


def content_of(array: np.ndarray[Any, Any]) -> Content:
    """The content of a constant: small ones of numbers or bools have one."""
    if array.size > MOST or array.dtype.kind not in "iufb":
        return None
    return tuple(array.reshape(-1).tolist())


# Messages ------------------------------------------------------------------------------------------------------------

Reader: TypeAlias = Callable[[str], Dim]
"""What a `dim_param` says; a dimension without one is asked for with an empty text."""


def from_proto(proto: TypeProto | None, read: Reader) -> Type | None:
    """The type that a message says; None where it says none."""
    if proto is None:
        return None
    if proto.tensor_type is not None:
        return Tensor(proto.tensor_type.elem_type or 0, shape_from(proto.tensor_type.shape, read))
    if proto.sparse_tensor_type is not None:
        return Sparse(proto.sparse_tensor_type.elem_type or 0, shape_from(proto.sparse_tensor_type.shape, read))
    if proto.sequence_type is not None:
        return SequenceOf(from_proto(proto.sequence_type.elem_type, read))
    if proto.optional_type is not None:
        return OptionalOf(from_proto(proto.optional_type.elem_type, read))
    if proto.map_type is not None:
        return MapOf(proto.map_type.key_type or 0, from_proto(proto.map_type.value_type, read))
    if proto.opaque_type is not None:
        return Opaque(proto.opaque_type.domain or "", proto.opaque_type.name or "")
    return None


def shape_from(proto: TensorShapeProto | None, read: Reader) -> Shape:
    """The shape that a message says; None for more than MOST_AXES dimensions."""
    if proto is None or len(proto.dim) > MOST_AXES:
        return None
    return tuple([read(_label(dim)) if (size := known_size(dim)) is None else size for dim in proto.dim])


def followed(type_: Type | None) -> Type | None:
    """The type, without a shape of more than MOST_AXES dimensions."""
    if isinstance(type_, (Tensor, Sparse)) and type_.shape is not None and len(type_.shape) > MOST_AXES:
        return type(type_)(type_.dtype)
    return type_


def says_more(proto: TypeProto | None) -> bool:
    """Whether a message has a shape that is not followed."""
    while proto is not None:
        held = proto.tensor_type or proto.sparse_tensor_type
        if held is not None:
            return held.shape is not None and len(held.shape.dim) > MOST_AXES
        inner = proto.sequence_type or proto.optional_type
        if inner is not None:
            proto = inner.elem_type
        else:
            proto = proto.map_type.value_type if proto.map_type is not None else None
    return False


def _label(dim: TensorShapeProto.Dimension) -> str:
    """The name of a dimension; what is no UTF-8 stays bytes when it is decoded, and is escaped here."""
    name: str | bytes = dim.dim_param or ""
    return name if isinstance(name, str) else bytes(name).decode("utf-8", "backslashreplace")


def to_proto(type_: Type | None) -> TypeProto | None:
    """The message of a type; None where nothing is known, or no dtype: runtimes refuse a type without one."""
    if isinstance(type_, (Tensor, Sparse)) and not type_.dtype:
        return None
    if isinstance(type_, Tensor):
        return TypeProto(tensor_type=TypeProto.Tensor(elem_type=type_.dtype, shape=shape_to(type_.shape)))
    if isinstance(type_, Sparse):
        form = TypeProto.SparseTensor(elem_type=type_.dtype, shape=shape_to(type_.shape))
        return TypeProto(sparse_tensor_type=form)
    if isinstance(type_, SequenceOf):
        return TypeProto(sequence_type=TypeProto.Sequence(elem_type=to_proto(type_.element)))
    if isinstance(type_, OptionalOf):
        return TypeProto(optional_type=TypeProto.Optional(elem_type=to_proto(type_.element)))
    if isinstance(type_, MapOf):
        return TypeProto(map_type=TypeProto.Map(key_type=type_.key, value_type=to_proto(type_.value)))
    if isinstance(type_, Opaque):
        return TypeProto(opaque_type=TypeProto.Opaque(domain=type_.domain, name=type_.name))
    return None


def shape_to(shape: Shape) -> TensorShapeProto | None:
    """The message of a shape; None for an unknown rank."""
    if shape is None:
        return None
    return TensorShapeProto(
        dim=[_Dimension(dim_value=size) if isinstance(size, int) else _Dimension(dim_param=str(size)) for size in shape]
    )


_Dimension = TensorShapeProto.Dimension


# Two types of one value ----------------------------------------------------------------------------------------------


def elements(shape: Shape) -> int | None:
    """The number of elements, where it is known."""
    sizes = known_shape(shape)
    return None if sizes is None else math.prod(sizes)


def is_size(element: object) -> bool:
    """Whether an element of a content is an integer that is known at least as a size."""
    return isinstance(element, Size) or (isinstance(element, int) and not isinstance(element, bool))
