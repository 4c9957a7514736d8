"""The numbers that attributes of ai.onnx.ml.TreeEnsemble take.

https://github.com/onnx/onnx/blob/main/docs/Operators-ml.md#ai.onnx.ml.TreeEnsemble
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["AggregationFunction", "Mode", "PostTransform"]


class AggregationFunction(IntEnum):
    """`aggregate_function`."""

    AVERAGE = 0
    SUM = 1
    MIN = 2
    MAX = 3


class PostTransform(IntEnum):
    """`post_transform`."""

    NONE = 0
    SOFTMAX = 1
    LOGISTIC = 2
    SOFTMAX_ZERO = 3
    PROBIT = 4


class Mode(IntEnum):
    """`nodes_modes`: how a node compares."""

    LEQ = 0
    LT = 1
    GTE = 2
    GT = 3
    EQ = 4
    NEQ = 5
    MEMBER = 6
