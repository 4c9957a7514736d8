"""Why a model or a node cannot be converted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proto_schema.errors import bounded
from proto_schema.legalization.operators import RefusedError


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node cannot be converted: `needs` is the opset nearest to the target that can say it, 0 if unknown."""

    node: str
    reason: str
    needs: int = 0

    def __str__(self) -> str:
        hint = f"; opset {self.needs} can express it" if self.needs else ""
        return f"{self.node}: {self.reason}{hint}"


def listed(refusals: Sequence[Refusal]) -> str:
    """The first twenty, a line each where there are several."""
    lines = [str(item) for item in refusals[:20]]
    if len(refusals) > 20:
        lines.append(f"and {len(refusals) - 20} more")
    return lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines)


class ConversionError(RuntimeError, ValueError):
    """A model cannot be converted as asked. `refusals` has a row for each node that is to blame.

    `needs` is the opset nearest to the target to which the model converts, 0 where none is known.
    """

    code = "cannot-convert"

    def __init__(self, text: str, refusals: Sequence[Refusal] = ()) -> None:
        super().__init__(bounded(text))
        self.refusals = list(refusals)
        self.needs = 0


class ParameterError(RefusedError):
    """A row needs an attribute that is a parameter of a function: each call has its own value."""


__all__ = ["ConversionError", "ParameterError", "Refusal", "RefusedError", "listed"]
