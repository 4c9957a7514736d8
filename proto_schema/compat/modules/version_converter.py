"""onnx.version_converter: `proto_schema.version_converter`, with messages as protobuf has them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from proto_schema.compat.messages import PROTOS, mannered, plain
from proto_schema.compat.mirrors import mirror

__all__ = ["convert_version"]


def convert_version(model: Any, target_version: int) -> Any:
    """A copy of the model at another opset of ai.onnx.

    TypeError for what is no ModelProto or no int, ConvertError (a RuntimeError) for what that opset cannot say.
    """
    if not isinstance(model, PROTOS["ModelProto"]):
        raise TypeError(f"VersionConverter only accepts ModelProto as model, incorrect type: {type(model)}")
    if not isinstance(target_version, int):
        raise TypeError(f"VersionConverter only accepts int as target_version, incorrect type: {type(target_version)}")
    ours = import_module("proto_schema.version_converter")
    return mannered(ours.convert_version(plain(model), target_version).__deepcopy__({}))


def __getattr__(name: str) -> Any:
    if name == "ConvertError":
        return import_module("proto_schema.version_converter").ConversionError
    return getattr(mirror("version_converter"), name)
