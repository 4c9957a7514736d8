"""The module `onnx` as `proto_schema` has it: what `import onnx` gives after `proto_schema.compat.install()`.

Its submodules are those of the table below. A file of this folder has what the official module does otherwise than
ours, or has besides; a name without a file is a mirror: the module of `proto_schema` with functions that cross. All are
imported when they are first used.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import IO, Any, TypeAlias

from proto_schema.compat.absent import AbsentModule, is_inner
from proto_schema.compat.messages import PROTOS
from proto_schema.compat.mirrors import mirror
from proto_schema.compat.modules import serialization
from proto_schema.compat.modules.external_data_helper import (
    convert_model_to_external_data,
    load_external_data_for_model,
    write_external_data_tensors,
)
from proto_schema.files.commit import replacing

__version__ = "1.23.2"
"""The release whose names and results are followed."""

FILES = {  # name below onnx -> file of this folder
    "_mapping": "mapping",
    "backend": "backend",
    "backend.base": "backend.base",
    "checker": "checker",
    "defs": "defs",
    "external_data_helper": "external_data_helper",
    "gen_proto": "gen_proto",
    "helper": "helper",
    "hub": "hub",
    "mapping": "mapping",
    "model_container": "model_container",
    "numpy_helper": "numpy_helper",
    "onnx_data_pb": "protos",
    "onnx_data_pb2": "protos",
    "onnx_ml_pb2": "protos",
    "onnx_operators_ml_pb2": "protos",
    "onnx_operators_pb": "protos",
    "onnx_pb": "protos",
    "reference": "reference",
    "reference.op_run": "reference.op_run",
    "reference.ops": "reference.ops",
    "reference.ops._op_list": "reference.op_list",
    "reference.ops.aionnxml.op_tree_ensemble": "reference.tree_ensemble",
    "reference.reference_evaluator": "reference.evaluator",
    "reference.shape_annotation_checker": "reference.shape_annotation_checker",
    "serialization": "serialization",
    "shape_inference": "shape_inference",
    "utils": "utils",
    "version_converter": "version_converter",
}
MIRRORS = ("compose", "inliner", "parser", "printer", "tools")
Source: TypeAlias = "IO[bytes] | str | os.PathLike[str]"

ONNX_ML = True
globals().update(PROTOS)
Version, OperatorStatus = PROTOS["Version"], PROTOS["OperatorStatus"]
globals().update((name, number) for name, number in (*Version.items(), *OperatorStatus.items()) if name[0] != "_")


def __getattr__(name: str) -> Any:
    if name in FILES or name in MIRRORS or name in ("backend", "onnx_cpp2py_export"):
        return submodule(name)
    raise AttributeError(f"module 'onnx' (of proto_schema.compat) has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for name in (*FILES, *MIRRORS) if "." not in name)})


def submodule(name: str) -> ModuleType:
    """The module `onnx.NAME`. ModuleNotFoundError where there is none."""
    if name in FILES:
        return import_module(f"{__name__}.{FILES[name]}")
    if is_inner(name) and name.partition(".")[0] not in MIRRORS:
        return AbsentModule(name)
    return mirror(name)


def _content(f: Any) -> Any:
    if hasattr(f, "read"):
        return f.read()
    with open(f, "rb") as file:
        return file.read()


def _write(content: bytes, f: Any) -> None:
    if hasattr(f, "write"):
        f.write(content)
        return
    with replacing(os.fspath(f), "file", overwrite=True) as target:
        target.write([content], len(content))


def _path_of(f: Any) -> str | None:
    if isinstance(f, (str, os.PathLike)):
        return os.path.abspath(os.fspath(f))
    name = getattr(f, "name", None)
    return os.path.abspath(name) if isinstance(name, (str, os.PathLike)) else None


def _serializer(format: str | None, f: Any = None) -> Any:
    """The one that is asked for, or that goes with the extension of the file; else that of encoded messages."""
    if format is None:
        path = _path_of(f)
        extension = os.path.splitext(path)[1] if path else ""
        format = serialization.registry.get_format_from_file_extension(extension) or "protobuf"
    return serialization.registry.get(format)


def load_model(f: Source, format: str | None = None, load_external_data: bool = True) -> Any:
    """The ModelProto in a file: a path or an object with `read`.

    `format`: "protobuf", "textproto", "json", "onnxtxt", or one that was registered; by default that of the extension.
    External data is read into the model, from files in its folder, with the care of `proto_schema.external`; with
    `load_external_data=False` the tensors go on referring to it. All is read, nothing is mapped: the file may be
    replaced or removed afterwards.
    """
    model = _serializer(format, f).deserialize_proto(_content(f), PROTOS["ModelProto"]())
    path = _path_of(f)
    if load_external_data and path is not None:
        load_external_data_for_model(model, os.path.dirname(path))
    return model


def load_tensor(f: Source, format: str | None = None) -> Any:
    """The TensorProto in a file, as `load_model` reads models."""
    return _serializer(format, f).deserialize_proto(_content(f), PROTOS["TensorProto"]())


def load_model_from_string(s: bytes | str, format: str = "protobuf") -> Any:
    """The ModelProto in bytes, or in a text for the formats that are texts."""
    return _serializer(format).deserialize_proto(s, PROTOS["ModelProto"]())


def load_tensor_from_string(s: bytes, format: str = "protobuf") -> Any:
    """The TensorProto in bytes, or in a text for the formats that are texts."""
    return _serializer(format).deserialize_proto(s, PROTOS["TensorProto"]())


def save_model(
    proto: Any,
    f: Source,
    format: str | None = None,
    *,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = True,
    location: str | None = None,
    size_threshold: int = 1024,
    convert_attribute: bool = False,
) -> None:
    """Writes a model, a ModelProto or its encoding, to a path or to an object with `write`.

    With `save_as_external_data` the bytes of raw tensors of at least `size_threshold` bytes go to the file `location`
    beside the model, or each to a file of its own; the model that was given refers to them afterwards. Tensors of node
    attributes stay inside without `convert_attribute`. As in onnx, a data file that exists is added to.
    Raises ValueError past 2 GiB without external data.
    """
    if isinstance(proto, bytes):
        proto = PROTOS["ModelProto"].FromString(proto)
    if save_as_external_data:
        convert_model_to_external_data(proto, all_tensors_to_one_file, location, size_threshold, convert_attribute)
    path = _path_of(f)
    if path is not None:
        write_external_data_tensors(proto, os.path.dirname(path))
    _write(_serializer(format, f).serialize_proto(proto), f)


def save_tensor(proto: Any, f: Source, format: str | None = None) -> None:
    """Writes a TensorProto to a path or to an object with `write`."""
    _write(_serializer(format, f).serialize_proto(proto), f)


load, load_from_string, save = load_model, load_model_from_string, save_model

__all__ = [
    "EXPERIMENTAL",
    "IR_VERSION",
    "ONNX_ML",
    "STABLE",
    "checker",
    "compose",
    "convert_model_to_external_data",
    "defs",
    "helper",
    "load",
    "load_external_data_for_model",
    "load_from_string",
    "load_model",
    "load_model_from_string",
    "load_tensor",
    "load_tensor_from_string",
    "numpy_helper",
    "parser",
    "printer",
    "save",
    "save_model",
    "save_tensor",
    "shape_inference",
    "utils",
    "version_converter",
    "write_external_data_tensors",
]
__all__ += list(PROTOS)
