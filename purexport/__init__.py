"""PyTorch models to ONNX with nothing but torch and numpy.

    import purexport
    purexport.export(model, (example,), "model.onnx")

The names are those of torch.onnx; ``export`` documents what it raises.  Importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from purexport.errors import ExportError, UnsupportedOperatorError, VerificationError, WeightsError
from purexport.version import VERSION as __version__  # noqa: N811

if TYPE_CHECKING:
    from purexport import distributed, operators, symbolic_helper
    from purexport.api import (
        ONNXProgram,
        Report,
        is_in_onnx_export,
        select_model_mode_for_export,
    )
    from purexport.dropin import patch
    from purexport.enums import OperatorExportTypes, TrainingMode
    from purexport.pipeline import export, export_to_pretty_string
    from purexport.symbolic.registry import register_custom_op_symbolic, unregister_custom_op_symbolic
    from purexport.weights.checkpoint import Checkpoint

# each name and its room, which is opened when the name is asked for
_ROOMS = {
    "Checkpoint": "weights.checkpoint",
    "ONNXProgram": "api",
    "OperatorExportTypes": "enums",
    "Report": "api",
    "TrainingMode": "enums",
    "export": "pipeline",
    "export_to_pretty_string": "pipeline",
    "is_in_onnx_export": "api",
    "patch": "dropin",
    "register_custom_op_symbolic": "symbolic.registry",
    "select_model_mode_for_export": "api",
    "unregister_custom_op_symbolic": "symbolic.registry",
}
_MODULES = ("distributed", "operators", "symbolic_helper")

__all__ = [
    "Checkpoint",
    "ExportError",
    "ONNXProgram",
    "OperatorExportTypes",
    "Report",
    "TrainingMode",
    "UnsupportedOperatorError",
    "VerificationError",
    "WeightsError",
    "__version__",
    "distributed",
    "export",
    "export_to_pretty_string",
    "is_in_onnx_export",
    "operators",
    "patch",
    "register_custom_op_symbolic",
    "select_model_mode_for_export",
    "symbolic_helper",
    "unregister_custom_op_symbolic",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return getattr(import_module(f"purexport.{_ROOMS[name]}"), name)
    if name in _MODULES:
        return import_module(f"purexport.{name}")
    raise AttributeError(f"module 'purexport' has no attribute {name!r}")
