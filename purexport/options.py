"""The two enums of the public surface; every room may know them."""

from __future__ import annotations

import enum
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=enum.Enum)


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


def ours(kind: type[Kind], value: Any) -> Any:
    """A member of torch's enum of the same name as ours; anything else as it is."""
    theirs = type(value)
    if theirs.__name__ == kind.__name__ and theirs.__module__.startswith("torch."):
        return kind.__members__.get(value.name, value)
    return value
