"""The two enums of the public surface; every room may know them."""

from __future__ import annotations

import enum


class TrainingMode(enum.Enum):
    """The mode in which the model is captured."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """What becomes of ATen operators."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    RAW = 3
    ONNX_FALLTHROUGH = 4
