"""Sampling an image at positions given by a grid, and making such grids.

These are ONNX GridSample and AffineGrid. A grid names the last axis first: x, then y, then z.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.nn.sampling import moved_grid
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower

_MODES = ("linear", "nearest", "cubic")
_PADDING_MODES = ("zeros", "border", "reflection")


@lower("aten::grid_sampler", "aten::grid_sampler_2d", "aten::grid_sampler_3d")
def grid_sampler(
    op: Emitter, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """aten::grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners)
    -> Tensor

    `interpolation_mode` is 0 bilinear, 1 nearest, 2 bicubic; `padding_mode` is 0 zeros, 1 border, 2 reflection. Nearest
    rounds ties to even.
    """
    if interpolation_mode >= len(_MODES) or padding_mode >= len(_PADDING_MODES):
        raise UnsupportedForm(
            f"of mode {interpolation_mode} and padding {padding_mode} has no ONNX form", code="no-onnx-form"
        )
    mode, padding = _MODES[interpolation_mode], _PADDING_MODES[padding_mode]
    return op.GridSample(input, grid, mode=mode, padding_mode=padding, align_corners=int(align_corners))


@lower("aten::affine_grid_generator")
def affine_grid_generator(op: Emitter, theta: Value, size: Sequence[Any], align_corners: bool) -> Value:
    """aten::affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor

    `theta` is [N, d, d + 1] and `size` [N, C, ...d]; the result is a grid [N, ...d, d]. ONNX Runtime's AffineGrid puts
    a single pixel at -1 when corners are aligned, torch at 0.
    """
    if align_corners and any(isinstance(n, Value) or n == 1 for n in size[2:]):
        found: Value = moved_grid(op, theta, list(size[2:]), True, 0.0)
        return found
    return op.AffineGrid(theta, op.ints(size), align_corners=int(align_corners))
