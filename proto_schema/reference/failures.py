"""What a run can fail with; both errors say the node, its operator, the cause and what to do."""

from __future__ import annotations

from proto_schema.errors import bounded

__all__ = ["BudgetError", "EvaluationError", "UnsupportedOperatorError"]


class EvaluationError(ValueError):
    """A node cannot be computed from the values that it was given, or an input of the run does not fit the model."""

    code = "not-computable"

    def __init__(self, text: str) -> None:
        super().__init__(bounded(text))


class BudgetError(EvaluationError):
    """A node asks for more work or memory than the budget of the run has left."""

    code = "budget-spent"


class UnsupportedOperatorError(NotImplementedError):
    """The model has operators that nothing here computes. Raised before anything runs."""

    code = "operator-unknown"

    def __init__(self, text: str) -> None:
        super().__init__(bounded(text))
