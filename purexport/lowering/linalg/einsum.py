"""Sums of products over named axes: einsum, and operators that are an einsum.

An equation is first brought to its plain form: one letter for each axis, no ellipsis, the result given explicitly. ONNX
Einsum takes that since opset 12. Before, operands are multiplied pair by pair as batched matrix products.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import torch

from proto_schema.legalization.sizes import times, value_of
from purexport import dtypes
from purexport.errors import OpsetError, UnsupportedForm
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower, lower_over_fields
from purexport.lowering.support.common import dims_of, full, permute, reshape_to_result
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
        # torch sums one operand of integers in int64
        return op.cast(contract(op, operands, terms, result), op.result_dtype)

    found: Operand = by_products(op, contracted, *tensors)
    return found


def plain_equation(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result: `"...i,ij"` of ranks 3 and 2 is `["abi", "ij"], "abj"`."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    wide = max((count for count, term in zip(hidden, terms, strict=True) if "..." in term), default=0)
    if wide > len(free):
        raise UnsupportedForm("names more than 52 axes", code="form-without-rule")
    dots = "".join(free[:wide])
    named = [
        term.replace("...", dots[wide - count :]) if "..." in term else term
        for term, count in zip(terms, hidden, strict=True)
    ]
    if not arrow:
        once = sorted({letter for letter in left if letter.isalpha() and left.count(letter) == 1})
        right = "..." + "".join(once) if "..." in left else "".join(once)
    return named, right.replace("...", dots)


def contract(op: Emitter, operands: Sequence[Value], terms: Sequence[str], result: str) -> Value:
    """The product of `operands` with axes `terms`, summed over the letters that `result` does not name."""
    operands, terms = _without_ones(op, operands, terms)
    if op.has("Einsum"):
        return op.Einsum(*operands, equation=f"{','.join(terms)}->{result}")
    sizes = _sizes(op, operands, terms)
    current, letters = _alone(op, operands[0], terms[0], "".join([*terms[1:], result]))
    for index in range(1, len(operands)):
        later = "".join([*terms[index + 1 :], result])
        other, theirs = _alone(op, operands[index], terms[index], letters + later)
        current, letters = _alone(op, current, letters, theirs + later)
        current, letters = _pair(op, current, letters, other, theirs, later, sizes)
    current, letters = _alone(op, current, letters, result)
    return permute(op, current, [letters.index(letter) for letter in result])


def _without_ones(op: Emitter, operands: Sequence[Value], terms: Sequence[str]) -> tuple[list[Value], list[str]]:
    """The operands without axes of size 1 that are broadcast to another size."""
    sizes: dict[str, list[Any]] = {}
    for value, term in zip(operands, terms, strict=True):
        for letter, size in zip(term, value.shape or (), strict=True):
            sizes.setdefault(letter, []).append(size)
    kept, letters = [], []
    for value, term in zip(operands, terms, strict=True):
        shape = value.shape or ()
        axes = [a for a, one in enumerate(term) if shape[a] == 1 and any(size != 1 for size in sizes[one])]
        kept.append(op.Squeeze(value, axes) if axes else value)
        letters.append("".join(letter for axis, letter in enumerate(term) if axis not in axes))
    return kept, letters


def _sizes(op: Emitter, operands: Sequence[Value], terms: Sequence[str]) -> dict[str, Any]:
    """The size of each letter."""
    return {
        letter: op.dim(value, axis)
        for value, term in zip(operands, terms, strict=True)
        for axis, letter in enumerate(term)
    }


def _alone(op: Emitter, value: Value, letters: str, needed: str) -> tuple[Value, str]:
    """`value` without repeated letters (their diagonal), and without letters that nothing needs any more
    (their sum).
    """
    for letter in sorted({item for item in letters if letters.count(item) > 1}):
        one, other = letters.index(letter), letters.rindex(letter)
        size = op.dim(value, one)
        if not isinstance(size, int):
            raise OpsetError("ONNX Einsum, which takes the diagonal of dynamic axes, came later", 12)
        shape = [size if axis in (one, other) else 1 for axis in range(len(letters))]
        diagonal = torch.eye(size, dtype=dtypes.torch_dtype(value.dtype or dtypes.FLOAT)).reshape(shape)
        value = op.ReduceSum(op.Mul(value, op.const(diagonal)), axes=[other], keepdims=0)
        letters = letters[:other] + letters[other + 1 :]
    unused = [axis for axis, letter in enumerate(letters) if letter not in needed]
    if unused:
        value = op.ReduceSum(value, axes=unused, keepdims=0)
    return value, "".join(letter for letter in letters if letter in needed)


def _pair(
    op: Emitter, one: Value, left: str, other: Value, right: str, needed: str, sizes: dict[str, Any]
) -> tuple[Value, str]:
    """The product of two operands, summed over the letters that both have and nothing else needs."""
    batch = "".join(letter for letter in left if letter in right and letter in needed)
    summed = "".join(letter for letter in left if letter in right and letter not in needed)
    rows = "".join(letter for letter in left if letter not in right)
    columns = "".join(letter for letter in right if letter not in left)
    first = _grouped(op, one, left, (batch, rows, summed), sizes)
    second = _grouped(op, other, right, (batch, summed, columns), sizes)
    found = op.MatMul(first, second)
    if len(rows) != 1 or len(columns) != 1:
        found = op.Reshape(found, op.ints([*[0] * len(batch), *(sizes[letter] for letter in rows + columns)]))
    return found, batch + rows + columns


def _grouped(op: Emitter, value: Value, letters: str, groups: tuple[str, str, str], sizes: dict[str, Any]) -> Value:
    """`value` as [*batch, m, n], where each group of letters becomes the axes of the batch or one axis."""
    batch, *matrix = groups
    moved = op.Transpose(value, perm=[letters.index(letter) for letter in "".join(groups)]) if letters else value
    if all(len(group) == 1 for group in matrix):
        return moved
    shape = [*[0] * len(batch), *(value_of(op, times(op, *[sizes[letter] for letter in group])) for group in matrix)]
    return op.Reshape(moved, op.ints(shape))


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
