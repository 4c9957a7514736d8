"""Matrix products.  A transposed weight is a Transpose node: runtimes fold it, and the file holds the weight once."""

from __future__ import annotations

from typing import Any

from purexport.graph.ir import Value
from purexport.lowering.common import swap_last
from purexport.lowering.emitter import Emitter
from purexport.lowering.registry import lower


@lower("aten::linear")
def linear(op: Emitter, input: Value, weight: Value, bias: Value | None = None) -> Value:
    if input.rank == 2 and weight.rank == 2 and op.takes("Gemm", input.dtype):
        return op.Gemm(input, weight, bias if bias is not None else _no_bias(op, input), transB=1)
    product = op.MatMul(input, swap_last(op, weight) if weight.rank > 1 else weight)
    return product if bias is None else op.Add(product, bias)


def _no_bias(op: Emitter, value: Value) -> Value | None:
    """Gemm's C is optional since opset 11; before that a zero stands for it."""
    return None if op.optional("Gemm", "C") else op.like(0, value)


@lower("aten::matmul")
def matmul(op: Emitter, self: Value, other: Value) -> Value:
    return op.MatMul(self, other)


@lower("aten::mm", "aten::bmm")
def mm(op: Emitter, self: Value, mat2: Value) -> Value:
    return op.MatMul(self, mat2)


@lower("aten::addmm")
def addmm(op: Emitter, self: Value, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    return op.Gemm(mat1, mat2, self, alpha=alpha, beta=beta)


@lower("aten::baddbmm")
def baddbmm(op: Emitter, self: Value, batch1: Value, batch2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    product = op.MatMul(batch1, batch2)
    product = product if alpha == 1 else op.Mul(product, op.like(alpha, product))
    return op.Add(product, self if beta == 1 else op.Mul(self, op.like(beta, self)))
