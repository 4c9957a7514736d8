"""Rows of operators on square matrices."""

from __future__ import annotations

import numpy as np

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer
from proto_schema.onnx import TensorProto

LARGEST = 32
"""Rows of a matrix whose elimination is written out: ten nodes a row."""


@down("Det", version=11)
def determinant(node: VersionedNode, op: Writer) -> Result:
    """Elimination with the largest element of each column as the pivot, in double precision."""
    x, rank = node[0], node.need_rank(0)
    known = [size for size in (x.dim(-1), x.dim(-2)) if isinstance(size, int)]
    if not known or not 0 < known[0] <= LARGEST:
        raise RefusedError(f"its matrix has {known[0] if known else 'an unknown number of'} rows")
    rows, columns = rank - 2, rank - 1
    dtype = node.need_dtype(0)
    one, minus = (op.const(np.array(number), TensorProto.DOUBLE) for number in (1.0, -1.0))
    a, total = op.cast(x, TensorProto.DOUBLE), one
    for left in range(known[0], 1, -1):
        first, column = op.Slice(a, [0], [1], [rows]), op.Slice(a, [0], [1], [columns])
        place = op.ArgMax(op.Abs(column), axis=rows, keepdims=1)
        chosen = op.Equal(place, op.const(np.arange(left).reshape(-1, 1)))
        pivots = op.ReduceSum(op.Where(chosen, a, op.like(0, a)), [rows], keepdims=1)
        pivot = op.Slice(pivots, [0], [1], [columns])
        # rows that change places turn the sign
        total = op.Mul(total, op.Mul(pivot, op.Where(op.Equal(place, 0), one, minus)))
        below = op.Slice(op.Where(chosen, first, a), [1], [left], [rows])
        # a pivot of 0 is a column of zeros
        divisor = op.Where(op.Equal(pivot, 0), one, pivot)
        times = op.Div(op.Slice(below, [0], [1], [columns]), divisor)
        a = op.Sub(op.Slice(below, [1], [left], [columns]), op.Mul(times, op.Slice(pivots, [1], [left], [columns])))
    return op.cast(op.Squeeze(op.Mul(total, a), [rows, columns]), dtype)
