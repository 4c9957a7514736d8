"""Taking elements by position: gather, index_select, embedding, ``x[index]``.

ONNX Gather counts negative positions from the end since opset 11; constants are brought into range here, so that older
opsets agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.common import axis_of
from purexport.lowering.emitter import Emitter
from purexport.lowering.registry import lower


@lower("aten::index.Tensor")
def index(op: Emitter, self: Value, indices: Sequence[Value | None]) -> Value:
    """x[i] with one index tensor, of any rank, in any place; its axes take the place of the indexed one."""
    given = [(axis, item) for axis, item in enumerate(indices) if item is not None]
    if len(given) != 1:
        raise UnsupportedForm("with several index tensors has no rule yet")
    axis, positions = given[0]
    if positions.dtype in (dtypes.BOOL, 2):
        raise UnsupportedForm("with a mask has no rule yet")
    return op.Gather(self, in_range(op, self, positions, axis), axis=axis)


def in_range(op: Emitter, data: Value, positions: Value, axis: int) -> Value:
    """Positions as int64, negative ones counted from the start where that can be done now."""
    positions = op.cast(positions, dtypes.INT64)
    size = op.dim(data, axis)
    if positions.const is not None and isinstance(size, int):
        known = positions.const
        return positions if not bool((known < 0).any()) else op.const(known.where(known >= 0, known + size))
    return positions


@lower("aten::index_select")
def index_select(op: Emitter, self: Value, dim: int, index: Value) -> Value:
    return op.Gather(self, op.cast(index, dtypes.INT64), axis=axis_of(dim, self.rank))


@lower("aten::embedding")
def embedding(
    op: Emitter,
    weight: Value,
    indices: Value,
    padding_idx: Any = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    # padding_idx, scale_grad_by_freq and sparse are about gradients
    return op.Gather(weight, indices, axis=0)


@lower("aten::gather")
def gather(op: Emitter, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    return op.GatherElements(self, op.cast(index, dtypes.INT64), axis=axis_of(dim, self.rank))
