"""Runs a row of code twice, once where `onnx` is the official package and once where it is ours, and compares.

A row is a text as people write it; what it calls `result` counts. Messages are compared by their bytes, arrays by type,
shape and bytes, errors by the standard error that they are.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np

from proto_schema.compat import modules

OFFICIAL = importlib.import_module("onnx")
for _name in (
    "compose", "model_container", "external_data_helper", "reference", "serialization", "parser", "printer", "inliner",
    "utils", "tools.update_model_dims", "tools.replace_constants", "version_converter",
):  # fmt: skip
    importlib.import_module(f"onnx.{_name}")
_ERRORS = (KeyError, IndexError, TypeError, AttributeError, FileExistsError, NotImplementedError, ValueError)


def both(code: str, folder: Any) -> tuple[Any, Any]:
    """(official, ours): what the row gives, in a form that can be compared."""
    return outcome(code, OFFICIAL, folder / "official"), outcome(code, modules, folder / "ours")


def outcome(code: str, onnx: Any, folder: Any) -> Any:
    """What the row gives with this `onnx`; `folder` is a new folder of its own."""
    folder.mkdir(exist_ok=True)
    space = {
        "onnx": onnx,
        "module": _module(onnx),
        "np": np,
        "folder": str(folder),
        "TensorProto": onnx.TensorProto,
        "helper": onnx.helper,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(code, space)
        except Exception as error:
            return ("raised", _kind(error, onnx))
    return plainly(space["result"])


def _module(onnx: Any) -> Any:
    """What gives the modules below `onnx` by name, as an import of them does."""
    return modules.submodule if onnx is modules else lambda name: importlib.import_module(f"onnx.{name}")


def _kind(error: Exception, onnx: Any) -> str:
    """The error that code can catch, by either package's names."""
    if isinstance(error, onnx.shape_inference.InferenceError):
        return "InferenceError"
    if isinstance(error, onnx.parser.ParseError):
        return "ParseError"
    if isinstance(error, onnx.checker.ValidationError):
        return "ValidationError"
    return next((kind.__name__ for kind in _ERRORS if isinstance(error, kind)), type(error).__name__)


def plainly(value: Any) -> Any:
    """The value as Python's own."""
    if hasattr(value, "SerializeToString"):
        return (type(value).__name__, value.SerializeToString())
    if isinstance(value, np.ndarray):
        body = value.tolist() if value.dtype == object else value.tobytes()
        return ("array", str(value.dtype), value.shape, body)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: plainly(item) for key, item in value.items()}
    if isinstance(value, (str, bytes, int, float, type(None), np.dtype, type)):
        return value
    if hasattr(value, "__iter__") or hasattr(value, "__getitem__"):
        return [plainly(item) for item in value]
    return str(value)
