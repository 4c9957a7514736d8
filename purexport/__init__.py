"""PyTorch models to ONNX with nothing but torch and numpy.

    import purexport
    purexport.export(model, (example,), "model.onnx")

The names are those of torch.onnx; ``export`` documents what it raises.  Importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from purexport.errors import ExportError, UnsupportedOperatorError, VerificationError
from purexport.version import VERSION as __version__  # noqa: N811

if TYPE_CHECKING:
    from purexport.api import (
        ONNXProgram,
        OperatorExportTypes,
        Report,
        TrainingMode,
        is_in_onnx_export,
        select_model_mode_for_export,
    )
    from purexport.pipeline import export, export_to_pretty_string

_API = (
    "ONNXProgram",
    "OperatorExportTypes",
    "Report",
    "TrainingMode",
    "is_in_onnx_export",
    "select_model_mode_for_export",
)

__all__ = [
    "ExportError",
    "ONNXProgram",
    "OperatorExportTypes",
    "Report",
    "TrainingMode",
    "UnsupportedOperatorError",
    "VerificationError",
    "__version__",
    "export",
    "export_to_pretty_string",
    "is_in_onnx_export",
    "select_model_mode_for_export",
]


def __getattr__(name: str) -> Any:
    if name in ("export", "export_to_pretty_string"):
        return getattr(import_module("purexport.pipeline"), name)
    if name in _API:
        return getattr(import_module("purexport.api"), name)
    raise AttributeError(f"module 'purexport' has no attribute {name!r}")
