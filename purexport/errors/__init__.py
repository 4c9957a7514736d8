"""Every error that purexport raises on purpose.

Each one subclasses a standard error that fits, and its text names the place, the cause and the next step.  Its `code`
names the cause for programs, and stays the same when the text changes: `purexport.errors.codes` lists all.
"""

from __future__ import annotations

from collections.abc import Sequence

from proto_schema.wire.records import dataclass


class ExportError(RuntimeError):
    """The model cannot be exported faithfully; nothing was written.

    `code` names the cause (`purexport.errors.codes`); `causes` are the errors that this one sums up, if any.
    """

    code = "not-exported"

    def __init__(self, *args: object, code: str = "", causes: Sequence[ExportError] = ()) -> None:
        if code:
            self.code = code
        self.causes = tuple(causes)
        super().__init__(*args)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all that this error sums up, or its own alone."""
        return tuple(code for cause in self.causes for code in cause.codes) or (self.code,)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is too little memory, which torch says with other classes than Python."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in _NO_MEMORY)


_NO_MEMORY = ("can't allocate memory", "not enough memory", "CUDA out of memory")


@dataclass(frozen=True)
class Gap:
    """One call that cannot be lowered: what it is, where it stands, why not, and the code of that."""

    target: str
    place: str
    reason: str
    code: str

    def __str__(self) -> str:
        return f"  {self.target}  at {self.place}  {self.reason}"


NO_RULE = "has no rule"
_WAYS_OUT = (
    "for an operator without a rule, write one by register_custom_op_symbolic or custom_translation_table, or keep the "
    "operator as it is with operator_export_type=OperatorExportTypes.ONNX_FALLTHROUGH"
)


class UnsupportedOperatorError(ExportError, NotImplementedError):
    """One or more operators have no faithful form in ONNX at the asked opset.

    `gaps` lists every such call, so that one error shows all the work there is.  `code` is the code that all gaps
    have, or `several-causes`.
    """

    code = "several-causes"

    def __init__(self, opset: int, gaps: Sequence[Gap]) -> None:
        self.opset = opset
        self.gaps = tuple(gaps)
        names = {gap.target for gap in gaps}
        what = "1 operator" if len(names) == 1 else f"{len(names)} operators"
        lines = [f"{what} cannot be exported at opset {opset}", *map(str, gaps)]
        if any(gap.code == "no-rule" for gap in gaps):
            lines.append(_WAYS_OUT)
        super().__init__("\n".join(lines), code=gaps[0].code if len(set(self.codes)) == 1 else "")

    @property
    def codes(self) -> tuple[str, ...]:
        """The code of each gap, in their order."""
        return tuple(gap.code for gap in self.gaps)


class WeightsError(ValueError):
    """Weights that cannot be read: a checkpoint that is malformed or unsafe to read, or keys that do not fit."""

    code = "weights-unreadable"

    def __init__(self, *args: object, code: str = "") -> None:
        if code:
            self.code = code
        super().__init__(*args)


class DistributedError(ExportError):
    """Another process of the group failed; no process has written anything that stays."""

    code = "other-process-failed"


class OpsetError(ValueError):
    """An operator, or a form of it, does not exist at the asked opset (caught by the lowering, never by users).

    `lowest` is the lowest opset that has it, or None when no opset has.
    """

    def __init__(self, message: str, lowest: int | None) -> None:
        self.lowest = lowest
        self.code = "opset-too-low" if lowest else "no-opset"
        super().__init__(message)


class UnsupportedDtypeError(ExportError, ValueError):
    """A torch dtype that ONNX has no data type for, or the other way round."""

    code = "no-dtype"


class UnsupportedForm(ValueError):  # noqa: N818  it ends up in an UnsupportedOperatorError
    """A rule cannot express this form of its operator at any opset (caught by the lowering, never by users)."""

    def __init__(self, message: str, *, code: str) -> None:
        self.code = code
        super().__init__(message)


class VerificationError(ExportError, AssertionError):
    """The file runs, but an output differs from what the model computes."""

    code = "output-differs"
