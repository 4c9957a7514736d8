"""onnx.defs: `proto_schema.defs`, with messages as protobuf has them, and a registry of the process as onnx has one.

What a program registers counts for `onnx.defs` and `onnx.checker` of this process; `proto_schema` itself never sees it.
Schemas are handed out as copies.
"""

from __future__ import annotations

from copy import copy
from importlib import import_module
from typing import Any

from proto_schema.compat.messages import mannered, plain

_ours: Any = import_module("proto_schema.defs")
_registry: Any = _ours.Registry()

ONNX_DOMAIN = ""
ONNX_ML_DOMAIN = "ai.onnx.ml"
AI_ONNX_PREVIEW_DOMAIN = "ai.onnx.preview"
AI_ONNX_PREVIEW_TRAINING_DOMAIN = "ai.onnx.preview.training"
SchemaError = _ours.SchemaError
onnx_opset_version = _ours.onnx_opset_version
onnx_ml_opset_version = _ours.onnx_ml_opset_version
has = _registry.has
registered = _registry.find

__all__ = [
    "AI_ONNX_PREVIEW_DOMAIN",
    "AI_ONNX_PREVIEW_TRAINING_DOMAIN",
    "ONNX_DOMAIN",
    "ONNX_ML_DOMAIN",
    "OpSchema",
    "SchemaError",
    "deregister_schema",
    "get_all_schemas",
    "get_all_schemas_with_history",
    "get_function_ops",
    "get_schema",
    "has",
    "onnx_ml_opset_version",
    "onnx_opset_version",
    "register_schema",
]


class OpSchema(_ours.OpSchema):  # type: ignore[misc]
    """One version of an operator; see `proto_schema.defs`."""

    @property
    def function_body(self) -> Any:
        return mannered(super().function_body)


def _dressed(schema: Any) -> OpSchema:
    """A copy of a schema with messages as protobuf has them."""
    made: OpSchema = copy(schema)
    made.__class__ = OpSchema
    made.attributes = {name: _attribute(item, mannered) for name, item in schema.attributes.items()}
    return made


def _attribute(attribute: Any, cross: Any) -> Any:
    made = copy(attribute)
    made.default_value = cross(attribute.default_value)
    return made


def get_schema(op_type: str, max_inclusive_version: int | str | None = None, domain: str = ONNX_DOMAIN) -> OpSchema:
    """The operator's schema in force at this opset, or the newest. SchemaError where there is none."""
    return _dressed(_registry.get_schema(op_type, max_inclusive_version, domain))


def get_all_schemas() -> list[OpSchema]:
    """The newest schema of each operator."""
    return list(map(_dressed, _registry.get_all_schemas()))


def get_all_schemas_with_history() -> list[OpSchema]:
    """Each version of each operator."""
    return list(map(_dressed, _registry.get_all_schemas_with_history()))


def get_function_ops() -> list[OpSchema]:
    """The newest schemas of operators that the standard defines by others."""
    return list(map(_dressed, _ours.get_function_ops()))


def register_schema(schema: Any) -> None:
    """Adds a schema of a user's own. SchemaError for a version that is there already."""
    if not isinstance(schema, _ours.OpSchema):
        raise TypeError(f"an OpSchema is registered, not a {type(schema).__name__}")
    made = copy(schema)
    made.attributes = {name: _attribute(item, plain) for name, item in schema.attributes.items()}
    _registry.register_schema(made)


def deregister_schema(op_type: str, version: int, domain: str) -> None:
    """Removes a schema that was registered. SchemaError where there is none."""
    _registry.deregister_schema(op_type, version, domain)


def __getattr__(name: str) -> Any:
    return getattr(_ours, name)
