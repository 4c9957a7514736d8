"""Linear algebra that ONNX has no operator for: inverse, solve, determinant, Cholesky, triangular, QR, exponential.

Matrices of a known size are worked through step by step, all matrices of a batch at once.  Elimination takes the
largest pivot of its column, as LAPACK does; rows are exchanged by a rank-one update, so nothing depends on values.
"""

# ruff: noqa: N803  A and B are ATen's names of arguments

from __future__ import annotations

import functools

import torch

from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.common import swap_last
from purexport.lowering.emitter import Emitter
from purexport.lowering.linalg import multiply
from purexport.lowering.registry import lower

LIMIT = 64  # steps; each is a dozen nodes


def _order(op: Emitter, value: Value, axis: int = -1) -> int:
    """The number of rows or columns, which must be known."""
    size = op.dim(value, axis)
    if not isinstance(size, int) or size > LIMIT:
        raise UnsupportedForm(f"takes matrices of a known size up to {LIMIT}; compute it outside of the model")
    return size


def _unit(op: Emitter, size: int, at: int, like: Value) -> Value:
    """The unit vector of that size."""
    row = torch.zeros(size, dtype=dtypes.torch_dtype(like.dtype or dtypes.FLOAT))
    row[at] = 1
    return op.const(row)


def _identity(op: Emitter, size: int, like: Value) -> Value:
    return op.const(torch.eye(size, dtype=dtypes.torch_dtype(like.dtype or dtypes.FLOAT)))


def _column(op: Emitter, value: Value, at: int) -> Value:
    """Column ``at`` of [..., n, m], as [..., n, 1]."""
    found = op.Gather(value, op.const([at]), axis=value.rank - 1)
    found.shape = (*(value.shape or ())[:-1], 1)
    return found


def _row(op: Emitter, value: Value, at: int) -> Value:
    """Row ``at`` of [..., n, m], as [..., 1, m]."""
    found = op.Gather(value, op.const([at]), axis=value.rank - 2)
    found.shape = (*(value.shape or ())[:-2], 1, (value.shape or ())[-1])
    return found


def _eliminate(op: Emitter, matrix: Value, beside: Value | None, size: int) -> tuple[Value, list[Value], list[Value]]:
    """Gauss-Jordan on [matrix | beside]: what becomes of it, the pivots and the exchanges' signs, each [..., 1, 1]."""
    current = matrix if beside is None else op.Concat(matrix, beside, axis=matrix.rank - 1)
    current.shape = (*(matrix.shape or ())[:-1], None)
    pivots, signs = [], []
    steps = op.const(torch.arange(size).reshape(size, 1))
    for at in range(size):
        here = op.Unsqueeze(_unit(op, size, at, matrix), [1])
        column = _column(op, current, at)
        left = op.const((torch.arange(size) >= at).reshape(size, 1))
        best = op.ArgMax(op.Where(left, op.Abs(column), op.like(-1, matrix)), axis=matrix.rank - 2, keepdims=1)
        chosen = op.cast(op.Equal(steps, best), matrix.dtype)
        exchange = _like(op.Sub(here, chosen), column)
        moved = op.MatMul(exchange, op.MatMul(swap_last(op, exchange), current))
        current = _like(op.Sub(current, moved), current)
        row = _row(op, current, at)
        pivot = _column(op, row, at)
        zero = op.like(0, matrix)
        is_zero = op.Not(op.Or(op.Less(pivot, zero), op.Greater(pivot, zero)))
        scaled = op.Div(row, op.Where(is_zero, op.like(1, matrix), pivot))
        current = _like(op.Sub(current, op.MatMul(op.Sub(_column(op, current, at), here), scaled)), current)
        pivots.append(pivot)
        kept = op.MatMul(swap_last(op, exchange), exchange)  # 0 where the row stays, 2 where two are exchanged
        signs.append(op.Sub(op.like(1, matrix), kept))
    return current, pivots, signs


def _like(value: Value, other: Value) -> Value:
    value.shape = other.shape
    return value


# Inverse and solve --------------------------------------------------------------------------------------------------


@lower("aten::inverse")
def inverse(op: Emitter, self: Value) -> Value:
    size = _order(op, self)
    unit = op.Expand(_identity(op, size, self), op.shape(self))
    return _right_part(op, _eliminate(op, self, unit, size)[0], size, self.rank)


@lower("aten::linalg_inv")
def linalg_inv(op: Emitter, A: Value) -> Value:
    return inverse(op, A)


def _right_part(op: Emitter, value: Value, start: int, rank: int) -> Value:
    return op.Slice(value, [start], [2**63 - 1], axes=[rank - 1])


@lower("aten::linalg_inv_ex")
def linalg_inv_ex(op: Emitter, A: Value, check_errors: bool = False) -> tuple[Value, Value]:
    return inverse(op, A), _no_errors(op, A)


def _no_errors(op: Emitter, matrix: Value) -> Value:
    """LAPACK's info of each matrix: 0."""
    shape = [op.dim(matrix, axis) for axis in range(matrix.rank - 2)]
    return op.Expand(op.const(0, dtypes.INT32), op.ints(shape)) if shape else op.const(0, dtypes.INT32)


@lower("aten::linalg_solve")
def linalg_solve(op: Emitter, A: Value, B: Value, left: bool = True) -> Value:
    size = _order(op, A)
    vector = B.rank == 1 or (B.rank == A.rank - 1 and B.shape == (A.shape or ())[:-1])
    right = op.Unsqueeze(B, [B.rank]) if vector else B
    right.shape = (*(B.shape or ()), 1) if vector else B.shape
    if not left:
        flipped = swap_last(op, right)
        return swap_last(op, _like(linalg_solve(op, swap_last(op, A), flipped, True), flipped))
    matrix, right = _same_batch(op, A, right)
    found = _right_part(op, _eliminate(op, matrix, right, size)[0], size, matrix.rank)
    return op.Squeeze(found, [matrix.rank - 1]) if vector else found


def _same_batch(op: Emitter, one: Value, other: Value) -> tuple[Value, Value]:
    """Both matrices with the same batch axes."""
    first, second = (one.shape or ())[:-2], (other.shape or ())[:-2]
    if first == second:
        return one, other
    if not one.is_static or not other.is_static:
        raise UnsupportedForm("broadcasts dynamic batch axes, which has no rule yet; expand the operands first")
    batch = torch.broadcast_shapes(one.sizes[:-2], other.sizes[:-2])  # type: ignore[no-untyped-call]
    results = []
    for item in (one, other):
        shape = [*batch, *item.sizes[-2:]]
        results.append(op.Expand(item, shape))
        results[-1].shape = tuple(shape)
    return results[0], results[1]


@lower("aten::linalg_solve_ex")
def linalg_solve_ex(
    op: Emitter,
    A: Value,
    B: Value,
    left: bool = True,
    check_errors: bool = False,
) -> tuple[Value, Value]:
    return linalg_solve(op, A, B, left), _no_errors(op, A)


# Determinants -------------------------------------------------------------------------------------------------------


def _pivots(op: Emitter, matrix: Value) -> tuple[Value, Value]:
    """The pivots [..., n] of elimination, and the sign of all exchanges, [...]."""
    _, pivots, signs = _eliminate(op, matrix, None, _order(op, matrix))
    rank = matrix.rank
    sign = op.Squeeze(functools.reduce(op.Mul, signs), [rank - 2, rank - 1])
    return op.Squeeze(op.Concat(*pivots, axis=rank - 1), [rank - 2]), sign


@lower("aten::det")
def det(op: Emitter, self: Value) -> Value:
    if op.has("Det") and self.dtype == dtypes.FLOAT:
        return op.Det(self)
    pivots, sign = _pivots(op, self)
    return op.Mul(op.ReduceProd(pivots, axes=[self.rank - 2], keepdims=0), sign)


@lower("aten::linalg_det")
def linalg_det(op: Emitter, A: Value) -> Value:
    return det(op, A)


@lower("aten::slogdet")
def slogdet(op: Emitter, self: Value) -> tuple[Value, Value]:
    pivots, sign = _pivots(op, self)
    last = [self.rank - 2]
    signs = op.ReduceProd(op.Sign(pivots), axes=last, keepdims=0)
    return op.Mul(signs, sign), op.ReduceSum(op.Log(op.Abs(pivots)), axes=last, keepdims=0)


@lower("aten::linalg_slogdet")
def linalg_slogdet(op: Emitter, A: Value) -> tuple[Value, Value]:
    return slogdet(op, A)


@lower("aten::logdet")
def logdet(op: Emitter, self: Value) -> Value:
    sign, size = slogdet(op, self)
    # log of a negative number is NaN; of 0 it is -inf
    return op.Where(op.Less(sign, op.like(0, sign)), op.like(float("nan"), size), size)


# Triangular ---------------------------------------------------------------------------------------------------------


@lower("aten::linalg_cholesky")
def linalg_cholesky(op: Emitter, self: Value, upper: bool = False) -> Value:
    size = _order(op, self)
    rest = swap_last(op, self) if upper else self
    rest.shape = self.shape
    columns = []
    for at in range(size):
        below = op.const((torch.arange(size) >= at).reshape(size, 1))
        column = _column(op, rest, at)
        column = _like(op.Where(below, column, op.like(0, self)), column)
        pivot = _row(op, column, at)
        columns.append(_like(op.Div(column, op.Sqrt(pivot)), column))
        rest = _like(op.Sub(rest, op.MatMul(columns[-1], swap_last(op, columns[-1]))), self)
    found = _like(op.Concat(*columns, axis=self.rank - 1), self)
    return swap_last(op, found) if upper else found


@lower("aten::cholesky")
def cholesky(op: Emitter, self: Value, upper: bool = False) -> Value:
    return linalg_cholesky(op, self, upper)


@lower("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(
    op: Emitter, self: Value, upper: bool = False, check_errors: bool = False
) -> tuple[Value, Value]:
    return linalg_cholesky(op, self, upper), _no_errors(op, self)


@lower("aten::linalg_solve_triangular")
def linalg_solve_triangular(
    op: Emitter,
    self: Value,
    B: Value,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Value:
    if not left:
        flipped = swap_last(op, B)
        found = linalg_solve_triangular(op, swap_last(op, self), flipped, not upper, True, unitriangular)
        return swap_last(op, _like(found, flipped))
    size = _order(op, self)
    matrix, rest = _same_batch(op, self, B)
    rows: dict[int, Value] = {}
    for at in reversed(range(size)) if upper else range(size):
        rows[at] = _row(op, rest, at)
        column = _column(op, matrix, at)
        if not unitriangular:
            rows[at] = op.Div(rows[at], _row(op, column, at))
        later = torch.arange(size) < at if upper else torch.arange(size) > at
        masked = op.Where(op.const(later.reshape(size, 1)), column, op.like(0, matrix))
        rest = _like(op.Sub(rest, op.MatMul(masked, rows[at])), rest)
    return op.Concat(*(rows[at] for at in range(size)), axis=matrix.rank - 2)


@lower("aten::triangular_solve")
def triangular_solve(
    op: Emitter,
    self: Value,
    A: Value,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Value, Value]:
    matrix = swap_last(op, A) if transpose else A
    return linalg_solve_triangular(op, matrix, self, upper != transpose, True, unitriangular), A


@lower("aten::cholesky_solve")
def cholesky_solve(op: Emitter, self: Value, input2: Value, upper: bool = False) -> Value:
    lower_part = swap_last(op, input2) if upper else input2
    between = _like(linalg_solve_triangular(op, lower_part, self, False), self)
    return linalg_solve_triangular(op, swap_last(op, lower_part), between, True)


@lower("aten::cholesky_inverse")
def cholesky_inverse(op: Emitter, self: Value, upper: bool = False) -> Value:
    unit = _like(op.Expand(_identity(op, _order(op, self), self), op.shape(self)), self)
    return cholesky_solve(op, unit, self, upper)


# Powers -------------------------------------------------------------------------------------------------------------


@lower("aten::matrix_power", "aten::linalg_matrix_power")
def matrix_power(op: Emitter, self: Value, n: int) -> Value:
    if n < 0:
        return matrix_power(op, _like(inverse(op, self), self), -n)
    if n == 0:
        return op.Expand(_identity(op, _order(op, self), self), op.shape(self))
    powers = [self]
    while 2 ** len(powers) <= n:
        powers.append(multiply(op, powers[-1], powers[-1]))
    chosen = [power for bit, power in enumerate(powers) if n >> bit & 1]
    return functools.reduce(functools.partial(multiply, op), chosen)


@lower("aten::matrix_exp", "aten::linalg_matrix_exp")
def matrix_exp(op: Emitter, self: Value) -> Value:
    """Taylor's series of the matrix halved until it is small, then squared as often; at most 16 times."""
    size = _order(op, self)
    axes = [self.rank - 2, self.rank - 1]
    norm = op.ReduceMax(op.ReduceSum(op.Abs(self), axes=[axes[0]], keepdims=1), axes=[axes[1]], keepdims=1)
    steps = [op.cast(op.Greater(norm, op.like(0.5 * 2**step, self)), self.dtype) for step in range(16)]
    scale = functools.reduce(op.Mul, (op.Sub(op.like(1, self), op.Mul(op.like(0.5, self), step)) for step in steps))
    small = op.Mul(self, scale)
    unit = _identity(op, size, self)
    result = unit
    for term in reversed(range(1, 19 if self.dtype == dtypes.DOUBLE else 11)):
        result = op.Add(unit, op.MatMul(op.Div(small, op.like(term, self)), result))
    for step in reversed(steps):
        squared = op.MatMul(result, result)
        result = op.Where(op.Greater(step, op.like(0, self)), squared, result)
    return result


# QR -----------------------------------------------------------------------------------------------------------------


@lower("aten::linalg_qr")
def linalg_qr(op: Emitter, A: Value, mode: str = "reduced") -> tuple[Value, Value]:
    """Householder reflections, with LAPACK's signs: a diagonal element of R has the sign that its column had not."""
    rows, columns = _order(op, A, -2), _order(op, A)
    r, q = A, _identity(op, rows, A)
    for at in range(min(columns, rows - 1)):
        kept = op.const((torch.arange(rows) >= at).reshape(rows, 1))
        column = _column(op, r, at)
        column = _like(op.Where(kept, column, op.like(0, A)), column)
        first = _row(op, column, at)
        norm = op.ReduceL2(column, axes=[A.rank - 2], keepdims=1)
        positive = op.Not(op.Less(first, op.like(0, A)))
        step = op.Mul(op.Where(positive, op.like(1, A), op.like(-1, A)), norm)
        mirror = _like(op.Add(column, op.Mul(op.Unsqueeze(_unit(op, rows, at, A), [1]), step)), column)
        across = swap_last(op, mirror)
        length = op.MatMul(across, mirror)
        factor = op.Div(op.like(2, A), op.Where(op.Greater(length, op.like(0, A)), length, op.like(1, A)))
        r = _like(op.Sub(r, op.MatMul(op.Mul(mirror, factor), op.MatMul(across, r))), A)
        q = op.Sub(q, op.MatMul(op.MatMul(q, op.Mul(mirror, factor)), across))
    upper = op.const(torch.ones(rows, columns, dtype=torch.bool).triu())
    r = op.Where(upper, r, op.like(0, A))
    if mode == "complete":
        return q, r
    small = min(rows, columns)
    r = op.Slice(r, [0], [small], axes=[A.rank - 2])
    if mode == "r":
        return op.const(torch.empty(0, dtype=dtypes.torch_dtype(A.dtype or dtypes.FLOAT))), r
    return op.Slice(q, [0], [small], axes=[A.rank - 1]), r
