"""An ONNX toolkit of its own: messages, files, tensors, checker and printer with the standard library and numpy only.

    import proto_schema as ps
    model = ps.load("model.onnx")
    ps.save(model, "copy.onnx")

Importing it is cheap: everything but the message classes is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from proto_schema.errors import CheckError, DecodeError, EncodeError, ExternalDataError
from proto_schema.external.payload import FileRange, LazyPayload, Payload
from proto_schema.onnx import (
    AttributeProto,
    DeviceConfigurationProto,
    FunctionProto,
    GraphProto,
    IntIntListEntryProto,
    MapProto,
    ModelProto,
    NodeDeviceConfigurationProto,
    NodeProto,
    OperatorProto,
    OperatorSetIdProto,
    OperatorSetProto,
    OperatorStatus,
    OptionalProto,
    SequenceProto,
    ShardedDimProto,
    ShardingSpecProto,
    SimpleShardedDimProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorAnnotation,
    TensorProto,
    TensorShapeProto,
    TrainingInfoProto,
    TypeProto,
    ValueInfoProto,
    Version,
)
from proto_schema.version import VERSION as __version__  # noqa: N811
from proto_schema.wire.fields import Message

if TYPE_CHECKING:
    from proto_schema import (
        calibration,
        checker,
        compat,
        compose,
        defs,
        external,
        external_data_helper,
        helper,
        inliner,
        ir,
        model_container,
        numpy_helper,
        operators,
        parser,
        passes,
        precision,
        printer,
        quantization,
        reference,
        rewrite,
        shape_inference,
        sizes,
        text,
        utils,
        version_converter,
        wire,
    )
    from proto_schema.external.sharing import share
    from proto_schema.files.models import dumps, load, loads, plan, save
    from proto_schema.precision import convert_float
    from proto_schema.simplification import simplify
    from proto_schema.sizes import Size

_SUBMODULES = (
    "calibration",
    "checker",
    "compat",
    "compose",
    "defs",
    "external",
    "external_data_helper",
    "helper",
    "inliner",
    "ir",
    "model_container",
    "numpy_helper",
    "operators",
    "parser",
    "passes",
    "precision",
    "printer",
    "quantization",
    "reference",
    "rewrite",
    "shape_inference",
    "sizes",
    "text",
    "utils",
    "version_converter",
    "wire",
)
_FILE_FUNCTIONS = {
    **dict.fromkeys(("dumps", "load", "loads", "plan", "save"), "files.models"),
    "convert_float": "precision",
    "share": "external.sharing",
    "simplify": "simplification",
}


def __getattr__(name: str) -> Any:
    if name == "Size":
        return import_module("proto_schema.sizes").Size
    if name in _SUBMODULES:
        return import_module(f"proto_schema.{name}")
    if name in _FILE_FUNCTIONS:
        value = globals()[name] = getattr(import_module(f"proto_schema.{_FILE_FUNCTIONS[name]}"), name)
        return value
    raise AttributeError(f"module 'proto_schema' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)


__all__ = [
    "AttributeProto",
    "CheckError",
    "DecodeError",
    "DeviceConfigurationProto",
    "EncodeError",
    "ExternalDataError",
    "FileRange",
    "FunctionProto",
    "GraphProto",
    "IntIntListEntryProto",
    "LazyPayload",
    "MapProto",
    "Message",
    "ModelProto",
    "NodeDeviceConfigurationProto",
    "NodeProto",
    "OperatorProto",
    "OperatorSetIdProto",
    "OperatorSetProto",
    "OperatorStatus",
    "OptionalProto",
    "Payload",
    "SequenceProto",
    "ShardedDimProto",
    "ShardingSpecProto",
    "SimpleShardedDimProto",
    "Size",
    "SparseTensorProto",
    "StringStringEntryProto",
    "TensorAnnotation",
    "TensorProto",
    "TensorShapeProto",
    "TrainingInfoProto",
    "TypeProto",
    "ValueInfoProto",
    "Version",
    "__version__",
    "calibration",
    "checker",
    "compat",
    "compose",
    "convert_float",
    "defs",
    "dumps",
    "external",
    "external_data_helper",
    "helper",
    "inliner",
    "ir",
    "load",
    "loads",
    "model_container",
    "numpy_helper",
    "operators",
    "parser",
    "passes",
    "plan",
    "precision",
    "printer",
    "quantization",
    "reference",
    "rewrite",
    "save",
    "shape_inference",
    "share",
    "simplify",
    "sizes",
    "text",
    "utils",
    "version_converter",
    "wire",
]
