"""Rows of arithmetic: operands that broadcast, bounds, powers, running sums, products by letters."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import FLOAT, INT64, Writer, is_float
from proto_schema.ir import Value
from proto_schema.legalization.elements import LARGEST
from proto_schema.onnx import TensorProto

DOUBLE = TensorProto.DOUBLE

# Operands of several shapes -------------------------------------------------------------------------------------------


@down("Max", "Mean", "Min", "Sum", version=8)
def same_shapes(node: VersionedNode, op: Writer) -> Result:
    """Operands of one shape: before opset 8 they do not broadcast."""
    values = [item for item in node.inputs if item is not None]
    shapes = [item.shape for item in values]
    if len(values) == 1 or all(shape is not None and shape == shapes[0] for shape in shapes):
        return None
    if node.schema.name == "Sum":
        return functools.reduce(op.Add, values)
    if node.schema.name == "Mean":
        total = functools.reduce(op.Add, values)
        return op.Div(total, float(len(values)))
    known = [item.sizes for item in values]
    if any(item is None for item in known):
        raise RefusedError("its operands broadcast")
    shape = np.broadcast_shapes(*[item for item in known if item is not None])
    return node.with_(inputs=[item if item.sizes == shape else op.Expand(item, list(shape)) for item in values])


@up("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "PRelu", "Sub", "Xor", version=7)
def broadcast_by_rank(node: VersionedNode, op: Writer) -> Result:
    """The second operand was laid beside an axis by attributes, and is laid beside the last axes now."""
    axis = node.attribute("axis")
    if axis is None or not node.attribute("broadcast"):
        return node.with_(drop="axis broadcast")
    rank, own = node.need_rank(0), node.need_rank(1)
    axis = axis + rank if axis < 0 else axis
    behind = rank - axis - own
    other = op.Unsqueeze(node[1], list(range(own, own + behind))) if behind > 0 else node[1]
    return node.with_(inputs=[node[0], other], drop="axis broadcast")


# Clip -----------------------------------------------------------------------------------------------------------------


@up("Clip", version=11)
def clip_by_inputs(node: VersionedNode, op: Writer) -> Result:
    """The bounds become constants. Without an attribute the bound was the largest float32 number."""
    bounds: list[Value | None] = []
    for name in ("min", "max"):
        value = node.attribute(name)
        if not node.given(name) and node[0].dtype not in (FLOAT, DOUBLE):
            bounds.append(None)  # no number of the type lies past it
        else:
            bounds.append(op.like(value, node[0]))
    return node.with_(inputs=[node[0], *bounds], drop="min max")


@down("Clip", version=11)
def clip_by_attributes(node: VersionedNode, op: Writer) -> Result:
    """The bounds as attributes where both are known, and float32 holds them."""
    bounds = [None if not node.has(place) else node[place].number() for place in (1, 2)]
    if any(bound is None for bound in bounds):
        return None
    low, high = (float(bound) for bound in bounds if bound is not None)
    edge = LARGEST[FLOAT]
    rounded = node[0].dtype == DOUBLE and any(float(np.float32(item)) != item for item in (low, high))
    if rounded or abs(low) > edge or abs(high) > edge:
        return None
    return node.with_(inputs=node.inputs[:1], min=low, max=high)


# Powers ---------------------------------------------------------------------------------------------------------------


@down("Pow", version=12)
def power(node: VersionedNode, op: Writer) -> Result:
    """An exponent of the base's type. Powers of integers are products, or exact in double precision."""
    base, exponent = node[0], node[1]
    dtype = node.need_dtype(0)
    if is_float(dtype):
        if exponent.dtype == dtype:
            return None
        if dtype == TensorProto.DOUBLE or not is_float(node.need_dtype(1)):
            return node.with_(inputs=[base, op.cast(exponent, dtype)])
        wide = op.Pow(op.cast(base, DOUBLE), op.cast(exponent, DOUBLE))
        return op.cast(wide, dtype)
    number = exponent.number()
    if number is not None and not exponent.rank and float(number).is_integer() and 1 <= number <= 8:
        return functools.reduce(op.Mul, [base] * int(number))
    if dtype == INT64:
        raise RefusedError("powers of int64 numbers are not exact in older operators")
    return op.cast(op.Pow(op.cast(base, DOUBLE), op.cast(exponent, DOUBLE)), dtype)


# Products by letters --------------------------------------------------------------------------------------------------


@down("Einsum", version=12)
def einsum(node: VersionedNode, op: Writer) -> Result:
    """One operand after the other: axes in one order, a matrix product over what both have and the result has not."""
    equation = node.text("equation").replace(" ", "")
    values = [item for item in node.inputs if item is not None]
    ranks = [node.need_rank(place) for place in range(len(values))]
    terms, result = _letters(equation, ranks)
    operands = [_once(op, value, term) for value, term in zip(values, terms, strict=True)]
    value, letters = operands[0]
    for place in range(1, len(operands)):
        later = {letter for _, term in operands[place + 1 :] for letter in term} | set(result)
        value, letters = _product(op, (value, letters), operands[place], later)
    value, letters = _summed(op, value, letters, set(result))
    order = [letters.index(letter) for letter in result]
    if order != list(range(len(order))):
        value = op.Transpose(value, perm=order)
    return value


def _letters(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The names of the axes of each operand and of the result; axes of an ellipsis have numbers, from behind."""
    left, arrow, right = equation.partition("->")
    terms = []
    widest = 0
    for term, rank in zip(left.split(","), ranks, strict=True):
        head, dots, tail = term.partition("...")
        hidden = rank - len(head) - len(tail) if dots else 0
        widest = max(widest, hidden)
        terms.append([*head, *[str(place) for place in range(hidden - 1, -1, -1)], *tail])
    ellipsis = [str(place) for place in range(widest - 1, -1, -1)]
    if arrow:
        head, dots, tail = right.partition("...")
        return terms, [*head, *(ellipsis if dots else []), *tail]
    count = [letter for term in terms for letter in term if not letter.isdigit()]
    return terms, [*ellipsis, *sorted(letter for letter in set(count) if count.count(letter) == 1)]


def _once(op: Writer, value: Value, term: list[str]) -> tuple[Value, list[str]]:
    """The diagonal, where a letter names several axes."""
    letters = list(term)
    while len(set(letters)) < len(letters):
        letter = next(item for item in letters if letters.count(item) > 1)
        first, second = [place for place, item in enumerate(letters) if item == letter][:2]
        size = value.dim(first)
        if not isinstance(size, int):
            raise RefusedError("a letter names two axes whose size is not known")
        form = [1] * len(letters)
        form[first] = form[second] = size
        mask = op.const(np.eye(size, dtype=np.bool_).reshape(form))
        value = op.ReduceSum(op.Where(mask, value, op.like(0, value)), [second], keepdims=0)
        del letters[second]
    return value, letters


def _summed(op: Writer, value: Value, letters: list[str], kept: set[str]) -> tuple[Value, list[str]]:
    axes = [place for place, letter in enumerate(letters) if letter not in kept]
    if not axes:
        return value, letters
    return op.ReduceSum(value, axes, keepdims=0), [letter for letter in letters if letter in kept]


def _product(
    op: Writer, one: tuple[Value, list[str]], other: tuple[Value, list[str]], later: set[str]
) -> tuple[Value, list[str]]:
    """The product of two operands, summed over the letters that nobody needs any more."""
    left, left_letters = _summed(op, *one, later | set(other[1]))
    right, right_letters = _summed(op, *other, later | set(left_letters))
    shared = [letter for letter in left_letters if letter in right_letters]
    batch = [letter for letter in shared if letter in later]
    inner = [letter for letter in shared if letter not in later]
    rows = [letter for letter in left_letters if letter not in shared]
    columns = [letter for letter in right_letters if letter not in shared]
    if not inner:
        order = [*batch, *rows, *columns]
        return op.Mul(_spread(op, left, left_letters, order), _spread(op, right, right_letters, order)), order
    made = op.MatMul(
        _matrix(op, left, left_letters, batch, rows, inner), _matrix(op, right, right_letters, batch, inner, columns)
    )
    sizes: list[Any] = [_size(op, letter, (left, left_letters), (right, right_letters)) for letter in batch]
    sizes += [op.size(left, left_letters.index(letter)) for letter in rows]
    sizes += [op.size(right, right_letters.index(letter)) for letter in columns]
    if len(rows) != 1 or len(columns) != 1:
        made = op.Reshape(made, op.joined(*sizes) if sizes else op.ints([]))
    return made, [*batch, *rows, *columns]


def _size(op: Writer, letter: str, *operands: tuple[Value, list[str]]) -> Value:
    """The size of an axis of both, one of which may be 1."""
    found = [op.size(value, letters.index(letter)) for value, letters in operands]
    known = [item.ints() for item in found]
    if known[0] is not None and known[0] != [1]:
        return found[0]
    if known[1] is not None and known[1] != [1]:
        return found[1]
    return found[0] if known[1] == [1] else found[1] if known[0] == [1] else op.Max(*found)


def _spread(op: Writer, value: Value, letters: list[str], order: list[str]) -> Value:
    """The axes in that order, with axes of size 1 for what is not there."""
    own = [letter for letter in order if letter in letters]
    places = [letters.index(letter) for letter in own]
    if places != list(range(len(places))):
        value = op.Transpose(value, perm=places)
    missing = [place for place, letter in enumerate(order) if letter not in letters]
    return op.Unsqueeze(value, missing) if missing else value


def _matrix(
    op: Writer, value: Value, letters: list[str], batch: list[str], rows: list[str], columns: list[str]
) -> Value:
    """The axes of the batch, then one of all rows and one of all columns."""
    order = [letters.index(letter) for letter in (*batch, *rows, *columns)]
    if order != list(range(len(order))):
        value = op.Transpose(value, perm=order)
    if len(rows) == 1 and len(columns) == 1:
        return value
    parts: list[Any] = [op.size(value, place) for place in range(len(batch))]
    for start, group in ((len(batch), rows), (len(batch) + len(rows), columns)):
        sizes = [op.size(value, start + place) for place in range(len(group))]
        known = [item.ints() for item in sizes]
        if all(item is not None for item in known):
            parts.append(math.prod(item[0] for item in known if item))
        else:
            parts.append(functools.reduce(op.Mul, sizes))
    return op.Reshape(value, op.joined(*parts))
