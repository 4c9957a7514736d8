"""The torch.export route, and programs that torch.export has made already."""

from __future__ import annotations

from typing import Any

import torch

from purexport.capture.core.route import Route
from purexport.capture.export.program import export_model, read_program


def is_program(model: Any) -> bool:
    return isinstance(model, torch.export.ExportedProgram)


PROGRAM = Route("export", "torch.export", read_program, takes=is_program, only="the model is an ExportedProgram")
EXPORT = Route(
    "export", "torch.export", export_model, looks_at_values=False, options={"dynamic_shapes": "dynamic_axes"}
)
