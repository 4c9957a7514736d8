"""onnx.reference: `proto_schema.reference`, with messages as protobuf has them and arrays of ml_dtypes.

It needs `proto_schema.reference` when a ReferenceEvaluator is made.
"""

from __future__ import annotations

from proto_schema.compat.modules.reference.evaluator import ReferenceEvaluator

__all__ = ["ReferenceEvaluator"]
