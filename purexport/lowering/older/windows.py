"""Older forms of operators on windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.common import dims_of
from purexport.lowering.support.positions import size_value


def max_pool(
    op: Emitter,
    X: Value,  # noqa: N803  the names of ONNX
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    **others: Any,
) -> Value | None:
    """MaxPool with dilations (opset 10), its values alone: one axis after the other."""
    rank = len(kernel_shape)
    if any(others.values()) or X.dtype != dtypes.FLOAT or X.shape is None:
        return None
    if pads is not None and any(pads):
        spread = [0, 0, *pads[:rank], 0, 0, *pads[rank:]]
        X = op.Pad(X, spread, constant_value=op.like(-math.inf, X), mode="constant")  # noqa: N806
    sizes = dims_of(op, X)[2:]
    for place, (size, kernel) in enumerate(zip(sizes, kernel_shape, strict=True)):
        step, gap = (strides or [1] * rank)[place], (dilations or [1] * rank)[place]
        inside = op.const(torch.arange(kernel).reshape(1, kernel) * gap)
        reach = op.Sub(size_value(op, size), op.const(gap * (kernel - 1)))
        windows = op.Unsqueeze(op.Range(op.const(0), reach, op.const(step)), [1])
        taken = op.Gather(X, op.Add(windows, inside), axis=2 + place)
        X = op.ReduceMax(taken, axes=[3 + place], keepdims=0)  # noqa: N806
    return X
