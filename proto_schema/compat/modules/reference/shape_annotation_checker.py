"""onnx.reference.shape_annotation_checker: the error alone; the evaluator compares inputs with what is declared."""

from __future__ import annotations

__all__ = ["ShapeAnnotationError"]


class ShapeAnnotationError(RuntimeError):
    """A value has another shape than the model declares."""
