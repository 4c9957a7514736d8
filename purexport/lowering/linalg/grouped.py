"""Grouped matrix products: each segment of one axis is multiplied by a matrix of its own, as mixtures of experts do.

`offs` holds the end of each segment; a segment begins where the one before it ends. So rows that are sorted by their
expert are multiplied with no more work than the rows need. A few segments are written out. More become a Loop over
those that are not empty, which reads no weights of experts without rows. The parts of the result are kept as a sequence
and concatenated once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from proto_schema.legalization.loops import WRITTEN_OUT
from proto_schema.legalization.sizes import minus, numbers_below
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.linalg.products import multiply
from purexport.lowering.support.common import INT64_MAX, full
from purexport.lowering.support.loops import parts_of_steps
from purexport.lowering.tensor.slices import slice_axis

Part = Callable[[Emitter, Value, Value, Value], Value]  # of the group's number, its start and its end, each [1]


@lower("aten::_grouped_mm")
def grouped_mm(
    op: Emitter, self: Value, mat2: Value, offs: Value | None = None, out_dtype: torch.dtype | None = None
) -> Value:
    """aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None)
    -> Tensor

    The segments are rows of `self` [S, K] for matrices [G, K, N], columns of `mat2` for matrices [G, M, K], or both
    along K, which gives [G, M, N]. torch leaves what is behind the last segment uninitialized; here it is zero.
    """
    if offs is None:
        return op.cast(multiply(op, self, mat2), op.result_dtype)
    if self.rank == mat2.rank == 2:
        return op.cast(_along_terms(op, self, mat2, offs), op.result_dtype)
    rows = self.rank == 2
    segmented, axis = (self, 0) if rows else (mat2, 1)

    def part(op: Emitter, group: Value, start: Value, end: Value) -> Value:
        matrix = op.Squeeze(op.Gather(mat2 if rows else self, group, axis=0), [0])
        segment = op.Slice(segmented, start, end, axes=[axis])
        return multiply(op, segment, matrix) if rows else multiply(op, matrix, segment)

    size, other = op.dim(segmented, axis), op.dim(mat2 if rows else self, 2 if rows else 1)
    behind = minus(op, size, op.Squeeze(slice_axis(op, op.cast(offs, dtypes.INT64), 0, -1, INT64_MAX), [0]))
    rest = full(op, [behind, other] if rows else [other, behind], 0, self.dtype or dtypes.FLOAT)
    result = _joined(op, part, offs, axis, rest, only_filled=True)
    return op.cast(result, op.result_dtype)


@lower("transformers::grouped_mm_fallback")
def grouped_mm_fallback(op: Emitter, input: Value, weight: Value, offs: Value) -> Value:
    """transformers::grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor

    The rows behind the last segment are zero.
    """
    return grouped_mm(op, input, weight, offs)


def _along_terms(op: Emitter, self: Value, mat2: Value, offs: Value) -> Value:
    def part(op: Emitter, group: Value, start: Value, end: Value) -> Value:
        product = multiply(op, op.Slice(self, start, end, axes=[1]), op.Slice(mat2, start, end, axes=[0]))
        # ONNX Runtime (1.31) leaves some results of sums over an empty axis uninitialized
        filled = op.Where(op.Less(start, end), product, op.like(0, product))
        return op.Unsqueeze(filled, [0])

    return _joined(op, part, offs, 0, None, only_filled=False)


def _joined(op: Emitter, part: Part, offs: Value, axis: int, rest: Value | None, *, only_filled: bool) -> Value:
    """The parts of all groups along `axis`, and `rest` behind them; of those that are not empty with `only_filled`."""
    ends = op.cast(offs, dtypes.INT64)
    starts = op.Concat(op.const([0]), slice_axis(op, ends, 0, 0, -1), axis=0)
    count = op.dim(offs, 0)

    def step(op: Emitter, group: Value) -> Value:
        return part(op, group, op.Gather(starts, group, axis=0), op.Gather(ends, group, axis=0))

    if isinstance(count, int) and count <= WRITTEN_OUT:
        parts = [step(op, op.const([group])) for group in range(count)]
        return op.Concat(*parts, *([rest] if rest is not None else []), axis=axis)
    groups = op.Reshape(op.NonZero(op.Less(starts, ends)), [-1]) if only_filled else numbers_below(op, count)
    return parts_of_steps(op, groups, step, axis, rest)
