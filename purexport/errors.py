"""Every error that purexport raises on purpose.

Each one subclasses a standard error that fits, and its text names the place, the cause and the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class ExportError(RuntimeError):
    """The model cannot be exported faithfully; nothing was written."""


@dataclass(frozen=True)
class Gap:
    """One call that cannot be lowered: what it is, where it stands, and why not."""

    target: str
    place: str
    reason: str

    def __str__(self) -> str:
        return f"  {self.target}  at {self.place}  {self.reason}"


NO_RULE = "has no rule"
_WAYS_OUT = (
    "what has no rule gets one by register_custom_op_symbolic or custom_translation_table, and stays in the file as it "
    "is with operator_export_type=OperatorExportTypes.ONNX_FALLTHROUGH"
)


class UnsupportedOperatorError(ExportError, NotImplementedError):
    """One or more operators have no faithful form in ONNX at the asked opset.

    ``gaps`` lists every such call, so that one error shows all the work there is.
    """

    def __init__(self, opset: int, gaps: Sequence[Gap]) -> None:
        self.opset = opset
        self.gaps = tuple(gaps)
        names = {gap.target for gap in gaps}
        what = "1 operator" if len(names) == 1 else f"{len(names)} operators"
        lines = [f"{what} cannot be exported at opset {opset}", *map(str, gaps)]
        if any(gap.reason.startswith(NO_RULE) for gap in gaps):
            lines.append(_WAYS_OUT)
        super().__init__("\n".join(lines))


class WeightsError(ValueError):
    """Weights that cannot be read: a checkpoint that is malformed or unsafe to read, or keys that do not fit."""


class DistributedError(ExportError):
    """Another process of the group failed; no process has written anything that stays."""


class OpsetError(ValueError):
    """An operator, or a form of it, does not exist at the asked opset (caught by the lowering, never by users).

    ``lowest`` is the lowest opset that has it, or None when no opset has.
    """

    def __init__(self, message: str, lowest: int | None) -> None:
        self.lowest = lowest
        super().__init__(message)


class UnsupportedDtypeError(ExportError, ValueError):
    """A torch dtype that ONNX has no data type for, or the other way round."""


class UnsupportedForm(ValueError):  # noqa: N818  it ends up in an UnsupportedOperatorError
    """A rule cannot express this form of its operator at any opset (caught by the lowering, never by users)."""


class VerificationError(ExportError, AssertionError):
    """The file runs, but an output differs from what the model computes."""
