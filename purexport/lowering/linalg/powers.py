"""Integer powers and the exponential of square matrices."""

from __future__ import annotations

import functools
import math
from typing import cast

from proto_schema.legalization.loops import repeat
from proto_schema.legalization.sizes import times
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_over_fields
from purexport.lowering.linalg.products import multiply
from purexport.lowering.linalg.solve import identity_like, inverse
from purexport.lowering.support.common import reshape
from purexport.lowering.support.fields import T, block_matrix
from purexport.lowering.support.matrices import dim_of, masked, slice_along
from purexport.lowering.support.pairs import Pair


@lower("aten::matrix_power", "aten::linalg_matrix_power")
def matrix_power(op: Emitter, self: Value, n: int) -> Value:
    """aten::matrix_power(Tensor self, int n) -> Tensor

    A negative `n` is a power of the inverse.
    """
    if n < 0:
        return matrix_power(op, inverse(op, self), -n)
    if n == 0:
        return identity_like(op, self)
    powers = [self]
    while 2 ** len(powers) <= n:
        powers.append(multiply(op, powers[-1], powers[-1]))
    chosen = [power for bit, power in enumerate(powers) if n >> bit & 1]
    return functools.reduce(functools.partial(multiply, op), chosen)


# the largest norm for which a number of terms is exact in a dtype: the bounds of torch's kernel, rounded down
_TERMS = 18
_SMALL = {dtypes.FLOAT: 3.0, dtypes.DOUBLE: 1.0}


@lower_over_fields("aten::matrix_exp", "aten::linalg_matrix_exp")
def matrix_exp(op: Emitter, self: T) -> T:
    """aten::matrix_exp(Tensor self) -> Tensor

    Taylor's series by scaling and squaring, as in torch's kernel (Bader, Blanes and Casas 2019): each matrix is halved
    until its norm is small, and the result is squared as often. Of complex matrices it is that of the block matrix, in
    double, because that has a larger norm and is squared more often.
    """
    if 0 in (self.shape or ()):
        return self
    if not isinstance(self, Pair):
        return cast(T, _exponential(op, cast(Value, self)))
    size = dim_of(op, self, -1)
    columns = slice_along(op, _exponential(op, op.cast(block_matrix(op, self), dtypes.DOUBLE)), -1, 0, size)
    columns, whole = op.cast(columns, self.dtype), times(op, size, 2)
    return cast(T, Pair(slice_along(op, columns, -2, 0, size), slice_along(op, columns, -2, size, whole)))


def _exponential(op: Emitter, self: Value) -> Value:
    if self.dtype not in _SMALL:  # a half: torch rounds the result of float32
        return op.cast(_exponential(op, op.cast(self, dtypes.FLOAT)), self.dtype)
    axes, dtype = [self.rank - 2, self.rank - 1], self.dtype or dtypes.FLOAT
    norm = op.ReduceMax(op.ReduceSum(op.Abs(self), axes=[axes[0]], keepdims=1), axes=[axes[1]], keepdims=1)
    excess = op.Div(norm, op.like(_SMALL[dtype], self))
    # a matrix with infinities has no small norm however often it is halved
    halved = op.And(op.Greater(excess, op.like(1, self)), op.Less(excess, op.like(1e30, self)))
    log2 = op.Div(op.Log(masked(op, halved, excess, 1)), op.like(math.log(2), self))
    times = op.Ceil(log2)
    small = op.Mul(self, op.Pow(op.like(0.5, self), times))
    unit = identity_like(op, self)
    # the factors multiply the identity: ONNX Runtime fuses a number next to a MatMul into it, rounded to float32
    shares = [op.Mul(unit, op.like(1 / math.factorial(term), self)) for term in range(_TERMS + 1)]
    result = shares[-1]
    for share in reversed(shares[:-1]):
        result = op.Add(share, op.MatMul(small, result))

    def step(op: Emitter, at: Value, result: Value) -> list[Value]:
        needed = op.Less(op.cast(at, dtype), times)
        return [op.Where(needed, op.MatMul(result, result), result)]

    # the batch may be empty
    counts = op.Concat(reshape(op, times, [-1]), op.const([0.0], dtype), axis=0)
    most = op.cast(op.ReduceMax(counts, axes=[0], keepdims=0), dtypes.INT64)
    return repeat(op, most, step, result)[0]
