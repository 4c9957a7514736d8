"""PyTorch models to ONNX with nothing but torch and numpy.

    import purexport
    purexport.export(model, (example,), "model.onnx")

The names are those of torch.onnx; `export` documents what it raises.  Importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from purexport.errors import ExportError, UnsupportedOperatorError, VerificationError, WeightsError
from purexport.errors.requirements import command_for
from purexport.version import VERSION as __version__  # noqa: N811

if TYPE_CHECKING:
    from purexport import distributed, operators, symbolic_helper
    from purexport.comparison.result import Comparison
    from purexport.compat.patch.substitutes import patch
    from purexport.compat.symbolic.registry import register_custom_op_symbolic, unregister_custom_op_symbolic
    from purexport.driver import CapturedModel, capture, export, export_to_pretty_string
    from purexport.frontends.core.mode import is_in_onnx_export, select_model_mode_for_export
    from purexport.frontends.core.observed import Observed
    from purexport.frontends.core.observing import observe
    from purexport.generation.model import load_pretrained
    from purexport.language.diffusion import pipeline
    from purexport.language.model import language_model
    from purexport.language.pretrained import pretrained_model
    from purexport.options import OperatorExportTypes, TrainingMode
    from purexport.program import ONNXProgram
    from purexport.runtime.report import Report
    from purexport.side_by_side import compare
    from purexport.weights.checkpoint import Checkpoint

# each name and its module, which is imported when the name is first used
_ROOMS = {
    "CapturedModel": "driver",
    "Checkpoint": "weights.checkpoint",
    "Comparison": "comparison.result",
    "ONNXProgram": "program",
    "Observed": "frontends.core.observed",
    "OperatorExportTypes": "options",
    "Report": "runtime.report",
    "TrainingMode": "options",
    "capture": "driver",
    "compare": "side_by_side",
    "export": "driver",
    "export_to_pretty_string": "driver",
    "is_in_onnx_export": "frontends.core.mode",
    "language_model": "language.model",
    "load_pretrained": "generation.model",
    "observe": "frontends.core.observing",
    "patch": "compat.patch.substitutes",
    "pipeline": "language.diffusion",
    "pretrained_model": "language.pretrained",
    "register_custom_op_symbolic": "compat.symbolic.registry",
    "select_model_mode_for_export": "frontends.core.mode",
    "unregister_custom_op_symbolic": "compat.symbolic.registry",
}
_MODULES = ("distributed", "operators", "symbolic_helper")

__all__ = [
    "CapturedModel",
    "Checkpoint",
    "Comparison",
    "ExportError",
    "ONNXProgram",
    "Observed",
    "OperatorExportTypes",
    "Report",
    "TrainingMode",
    "UnsupportedOperatorError",
    "VerificationError",
    "WeightsError",
    "__version__",
    "capture",
    "compare",
    "distributed",
    "export",
    "export_to_pretty_string",
    "is_in_onnx_export",
    "language_model",
    "load_pretrained",
    "observe",
    "operators",
    "patch",
    "pipeline",
    "pretrained_model",
    "register_custom_op_symbolic",
    "select_model_mode_for_export",
    "symbolic_helper",
    "unregister_custom_op_symbolic",
]


def __dir__() -> list[str]:
    return list(__all__)


def _module(name: str, room: str) -> ModuleType:
    """The module that has a name; where torch is missing, an error that says so in a sentence."""
    try:
        return import_module(f"purexport.{room}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
    raise ModuleNotFoundError(f"purexport.{name} needs torch: {command_for('torch')}", name="torch")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        from proto_schema.wire.collection import paused_collection  # with the package it loads numpy

        # modules stay loaded, so collecting garbage during the import would only cost time: a third of it
        with paused_collection():
            return getattr(_module(name, _ROOMS[name]), name)
    if name in _MODULES:
        return _module(name, name)
    raise AttributeError(f"module 'purexport' has no attribute {name!r}")
