"""Writing into a copy: what the functionalization makes of writes through views.

``slice_scatter`` is three pieces put together again; it needs no index tensors and works at every opset.
"""

from __future__ import annotations

from typing import Any

from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.common import INT64_MAX, axis_of
from purexport.lowering.emitter import Emitter
from purexport.lowering.parts import slice_axis
from purexport.lowering.registry import lower


@lower("aten::slice_scatter")
def slice_scatter(
    op: Emitter, self: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Value:
    """self with ``self[start:end:step]`` along one axis replaced by src."""
    axis = axis_of(dim, self.rank)
    size = op.dim(self, axis)
    begin, stop, stride = op.known(start or 0), op.known(INT64_MAX if end is None else end), op.known(step)
    if not isinstance(begin, int) or not isinstance(stop, int) or stride != 1:
        raise UnsupportedForm("writes to a slice with computed bounds or a step, which has no rule yet")
    if not isinstance(size, int):
        if begin < 0 or 0 <= stop < INT64_MAX:
            # past the end these would reach into src: where the end lies is not known
            raise UnsupportedForm("writes to a part of a dynamic axis, which has no rule yet")
        size = INT64_MAX
    begin, stop, _ = slice(begin, stop).indices(size) if size != INT64_MAX else (begin, stop, 1)
    pieces = [slice_axis(op, self, axis, 0, begin)] if begin > 0 else []
    pieces.append(op.cast(src, self.dtype))
    if stop < size:
        pieces.append(slice_axis(op, self, axis, stop, INT64_MAX))
    return pieces[0] if len(pieces) == 1 else op.Concat(*pieces, axis=axis)


@lower("aten::select_scatter")
def select_scatter(op: Emitter, self: Value, src: Value, dim: int, index: Any) -> Value:
    """self with ``self[index]`` along one axis replaced by src."""
    axis = axis_of(dim, self.rank)
    position = op.known(index)
    if not isinstance(position, int):
        raise UnsupportedForm("writes to a computed position, which has no rule yet")
    thick = op.Unsqueeze(src, [axis])
    size = op.dim(self, axis)
    if isinstance(size, int):
        position %= size
        return slice_scatter(op, self, thick, axis, position, position + 1)
    cut = INT64_MAX if position == -1 else position + 1
    front = slice_axis(op, self, axis, 0, position)
    return op.Concat(front, op.cast(thick, self.dtype), slice_axis(op, self, axis, cut, INT64_MAX), axis=axis)
