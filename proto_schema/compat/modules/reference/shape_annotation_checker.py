"""onnx.reference.shape_annotation_checker: values of a run against the types that a model declares of them.

https://github.com/onnx/onnx/blob/main/docs/ShapeAnnotationSemantics.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema.compat.arrays import array_type
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES

__all__ = ["ShapeAnnotationError", "SymbolBindings", "check_shape", "check_value_against_type"]


class ShapeAnnotationError(RuntimeError):
    """A value has another shape or type than the model declares."""


class SymbolBindings:
    """What the names of sizes mean in one run: each the number that it was first met with."""

    def __init__(self) -> None:
        self._bindings: dict[str, int] = {}

    def check_and_bind(self, dim: Any, actual: int, *, context: str) -> None:
        """Compares one size with its declaration. Raises ShapeAnnotationError."""
        which = dim.WhichOneof("value")
        if which == "dim_value" and dim.dim_value != actual:
            raise ShapeAnnotationError(f"{context}: the declared dimension value {dim.dim_value} is {actual}")
        if which == "dim_param":
            bound = self._bindings.setdefault(dim.dim_param, actual)
            if bound != actual:
                raise ShapeAnnotationError(
                    f"{context}: the symbolic dimension {dim.dim_param!r} was {bound} before, and is {actual} here"
                )


def check_shape(shape_proto: Any, actual_shape: Sequence[int], bindings: SymbolBindings, name: str) -> None:
    """Compares a shape with its declaration, if there is one. Raises ShapeAnnotationError."""
    if shape_proto is None:
        return
    if len(shape_proto.dim) != len(actual_shape):
        found = f"rank {len(actual_shape)} (shape {tuple(actual_shape)})"
        raise ShapeAnnotationError(f"value {name!r}: the declared rank {len(shape_proto.dim)} is {found}")
    for axis, (dim, actual) in enumerate(zip(shape_proto.dim, actual_shape, strict=True)):
        bindings.check_and_bind(dim, int(actual), context=f"value {name!r}, axis {axis}")


def check_value_against_type(type_proto: Any, value: Any, bindings: SymbolBindings, name: str) -> None:
    """Compares an array with the tensor type that is declared of it. Other values pass. Raises ShapeAnnotationError."""
    shape = getattr(value, "shape", None)
    if type_proto is None or shape is None or not type_proto.HasField("tensor_type"):
        return
    tensor_type = type_proto.tensor_type
    row = DTYPES.get(tensor_type.elem_type)
    texts = row is not None and row.code == TensorProto.STRING and value.dtype.kind == "U"
    if row is not None and row.native and not texts and value.dtype != array_type(row.code):
        found = f"is {value.dtype}"
        raise ShapeAnnotationError(f"value {name!r}: the declared element type {array_type(row.code)} {found}")
    check_shape(tensor_type.shape if tensor_type.HasField("shape") else None, shape, bindings, name)
