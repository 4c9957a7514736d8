"""Running a model in numpy, with the names of `onnx.reference`.

    session = ps.reference.ReferenceEvaluator("model.onnx")
    outputs = session.run(None, {"x": x})

`evaluator` is the public class, `program` the walk over nodes, `values` what stands for a value and how results become
their data type, and `op_run` the base class for operators that users bring. What operators compute stands in
`proto_schema.compute`.
"""

from __future__ import annotations

from proto_schema.budget import Budget
from proto_schema.reference import op_run
from proto_schema.reference.evaluator import ReferenceEvaluator
from proto_schema.reference.failures import BudgetError, EvaluationError, UnsupportedOperatorError

__all__ = ["Budget", "BudgetError", "EvaluationError", "ReferenceEvaluator", "UnsupportedOperatorError", "op_run"]
