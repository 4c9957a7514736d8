"""Sums of products over named axes: einsum, and operators that are an einsum.

An equation is first brought to its plain form: one letter for each axis, no ellipsis, the result given explicitly. ONNX
Einsum takes that.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.einsum import axes_of, without_ones
from purexport import dtypes
from purexport.errors import UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_over_fields
from purexport.lowering.support.common import dims_of, full, reshape_to_result
from purexport.lowering.support.fields import Operand, by_products
from purexport.lowering.support.pairs import Pair


@lower_over_fields("aten::einsum")
def einsum_rule(op: Emitter, equation: str, tensors: Sequence[Operand], path: Any = None) -> Operand:
    """aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor

    `path`, the order of the products, is ignored: it changes the speed only. More than two complex operands are
    refused.
    """
    if len(tensors) > 2 and any(isinstance(item, Pair) for item in tensors):
        raise UnsupportedForm(
            "of more than two complex tensors has no rule; write it as einsums of two", code="complex-tensor"
        )
    terms, result = plain_equation(equation, [item.rank for item in tensors])

    def contracted(op: Emitter, *operands: Value) -> Value:
        # torch sums one operand of integers in int64, and autocast makes one dtype of several floats
        if len(operands) > 1 and dtypes.is_floating(op.result_dtype):
            operands = tuple(op.cast(operand, op.result_dtype) for operand in operands)
        return op.cast(contract(op, operands, terms, result), op.result_dtype)

    found: Operand = by_products(op, contracted, *tensors)
    return found


def plain_equation(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result: `"...i,ij"` of ranks 3 and 2 is `["abi", "ij"], "abj"`."""
    terms, result = axes_of(equation, ranks)
    hidden = sorted({name for term in terms for name in term if not name.isalpha()}, key=int, reverse=True)
    free = [letter for letter in string.ascii_letters if letter not in equation]
    if len(hidden) > len(free):
        raise UnsupportedForm("names more than 52 axes", code="form-without-rule")
    letters = dict(zip(hidden, free, strict=False))
    named = ["".join(letters.get(name, name) for name in term) for term in (*terms, result)]
    return named[:-1], named[-1]


def contract(op: Emitter, operands: Sequence[Value], terms: Sequence[str], result: str) -> Value:
    """The product of `operands` with axes `terms`, summed over the letters that `result` does not name."""
    values, names = without_ones(op, operands, terms)
    return op.Einsum(*values, equation=f"{','.join(map(''.join, names))}->{result}")


# Operators that are an einsum ---------------------------------------------------------------------------------------


@lower("aten::tensordot")
def tensordot(op: Emitter, self: Value, other: Value, dims_self: Sequence[int], dims_other: Sequence[int]) -> Value:
    """aten::tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor"""
    if self.is_static and other.is_static and 0 in (*self.sizes, *other.sizes):  # sums over an empty axis
        kept = [
            [s for axis, s in enumerate(v.sizes) if axis not in [dim % v.rank for dim in dims]]
            for v, dims in ((self, dims_self), (other, dims_other))
        ]
        return full(op, [*kept[0], *kept[1]], 0, self.dtype or dtypes.FLOAT)
    left = list(string.ascii_lowercase[: self.rank])
    right = list(string.ascii_uppercase[: other.rank])
    for one, two in zip(dims_self, dims_other, strict=True):
        right[two % other.rank] = left[one % self.rank]
    summed = {left[axis % self.rank] for axis in dims_self}
    result = "".join(letter for letter in (*left, *right) if letter not in summed)
    return contract(op, [self, other], ["".join(left), "".join(right)], result)


@lower("aten::inner", promote="self other")
def inner(op: Emitter, self: Value, other: Value) -> Value:
    """aten::inner(Tensor self, Tensor other) -> Tensor"""
    if self.rank == 0 or other.rank == 0:
        return op.Mul(self, other)
    return tensordot(op, self, other, [-1], [-1])


@lower("aten::bilinear")
def bilinear(op: Emitter, input1: Value, input2: Value, weight: Value, bias: Value | None = None) -> Value:
    """aten::bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor

    `input1` is [..., i], `input2` [..., j], `weight` [o, i, j] and `bias` [o]; the result is [..., o].
    """
    found = contract(op, [_rows(op, input1), weight, _rows(op, input2)], ["ni", "oij", "nj"], "no")
    found = found if bias is None else op.Add(found, bias)
    return found if input1.rank == 2 else reshape_to_result(op, found, [*dims_of(op, input1)[:-1], op.dim(weight, 0)])


def _rows(op: Emitter, value: Value) -> Value:
    if value.rank == 2:
        return value
    return op.Reshape(value, op.ints([-1, op.dim(value, -1)]))
