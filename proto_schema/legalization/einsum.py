"""The form of Einsum: one operand after the other, as products of matrices over what both have and the result has not.

An axis has a letter as its name; axes of an ellipsis have numbers, counted from behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from proto_schema.legalization.operators import Operators, RefusedError, Value, rank_of
from proto_schema.legalization.sizes import times
from proto_schema.legalization.table import older

Term: TypeAlias = "list[str]"
Size: TypeAlias = Callable[[str], Any]


@older("Einsum", before=12)
def einsum(op: Operators, Inputs: Sequence[Value], equation: str) -> Value:
    """Products of matrices, of two operands at a time."""
    given, result = axes_of(equation, [rank_of(item) for item in Inputs])
    values, terms = without_ones(op, Inputs, given)

    def size(name: str) -> Any:
        value, term = next((value, term) for value, term in zip(values, terms, strict=True) if name in term)
        return op.dim(value, term.index(name))

    current, names = _alone(op, values[0], terms[0], {*result, *_all(terms[1:])})
    for place in range(1, len(values)):
        later = {*result, *_all(terms[place + 1 :])}
        other, theirs = _alone(op, values[place], terms[place], later | set(names))
        current, names = _alone(op, current, names, later | set(theirs))
        current, names = _pair(op, (current, names), (other, theirs), later, size)
    current, names = _alone(op, current, names, set(result))
    return _turned(op, current, [names.index(name) for name in result])


def axes_of(equation: str, ranks: Sequence[int]) -> tuple[list[Term], Term]:
    """The names of the axes of each operand and of the result: of `"...i,ij"` of ranks 3, 2: `10i`, `ij`, `10j`."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms: list[Term] = []
    widest = 0
    for text, rank in zip(left.split(","), ranks, strict=True):
        head, dots, tail = text.partition("...")
        hidden = rank - len(head) - len(tail) if dots else 0
        widest = max(widest, hidden)
        terms.append([*head, *map(str, range(hidden - 1, -1, -1)), *tail])
    if not arrow:
        once = [name for name in _all(terms) if name.isalpha()]
        right = ("..." if "..." in left else "") + "".join(sorted(name for name in once if once.count(name) == 1))
    head, dots, tail = right.partition("...")
    return terms, [*head, *map(str, range(widest - 1, -1, -1) if dots else ()), *tail]


def _all(terms: Iterable[Term]) -> list[str]:
    return [name for term in terms for name in term]


def without_ones(
    op: Operators, values: Sequence[Value], terms: Sequence[Sequence[str]]
) -> tuple[list[Value], list[Term]]:
    """The operands without axes of size 1 that are broadcast to another size."""
    sizes: dict[str, list[Any]] = {}
    for value, term in zip(values, terms, strict=True):
        for name, size in zip(term, value.shape or (), strict=True):
            sizes.setdefault(name, []).append(size)
    kept, names = [], []
    for value, term in zip(values, terms, strict=True):
        shape = value.shape or ()
        axes = [a for a, name in enumerate(term) if shape[a] == 1 and any(size != 1 for size in sizes[name])]
        kept.append(op.Squeeze(value, axes) if axes else value)
        names.append([name for axis, name in enumerate(term) if axis not in axes])
    return kept, names


def _alone(op: Operators, value: Value, term: Term, needed: set[str]) -> tuple[Value, Term]:
    """The operand without repeated names (their diagonal), and without names that nothing needs (their sum)."""
    names = list(term)
    for name in sorted({item for item in names if names.count(item) > 1}):
        while names.count(name) > 1:
            one, other = names.index(name), len(names) - 1 - names[::-1].index(name)
            size = value.shape[one]
            if not isinstance(size, int):
                raise RefusedError("a letter names two axes whose size is not known")
            shape = [size if axis in (one, other) else 1 for axis in range(len(names))]
            mask = op.const(np.eye(size, dtype=np.bool_).reshape(shape))
            value = op.ReduceSum(op.Where(mask, value, op.like(0, value)), [other], keepdims=0)
            del names[other]
    unused = [axis for axis, name in enumerate(names) if name not in needed]
    if unused:
        value = op.ReduceSum(value, unused, keepdims=0)
    return value, [name for name in names if name in needed]


def _pair(
    op: Operators, one: tuple[Value, Term], other: tuple[Value, Term], needed: set[str], size: Size
) -> tuple[Value, Term]:
    """The product of two operands, summed over the names that both have and nothing else needs."""
    left, right = one[1], other[1]
    batch = [name for name in left if name in right and name in needed]
    summed = [name for name in left if name in right and name not in needed]
    rows = [name for name in left if name not in right]
    columns = [name for name in right if name not in left]
    order = [*batch, *rows, *columns]
    if not summed:
        return op.Mul(_spread(op, *one, order), _spread(op, *other, order)), order
    found = op.MatMul(
        _grouped(op, *one, (batch, rows, summed), size), _grouped(op, *other, (batch, summed, columns), size)
    )
    if len(rows) != 1 or len(columns) != 1:
        found = op.Reshape(found, op.ints([*[0] * len(batch), *map(size, [*rows, *columns])]))
    return found, order


def _spread(op: Operators, value: Value, names: Term, order: Term) -> Value:
    """The axes in that order, with axes of size 1 for names that are not there."""
    value = _turned(op, value, [names.index(name) for name in order if name in names])
    first = next((place for place, name in enumerate(order) if name in names), len(order))  # broadcast those in front
    missing = [place for place, name in enumerate(order[first:]) if name not in names]
    return op.Unsqueeze(value, missing) if missing else value


def _grouped(op: Operators, value: Value, names: Term, groups: tuple[Term, Term, Term], size: Size) -> Value:
    """The operand as [*batch, m, n], where each group of names becomes the axes of the batch or one axis."""
    batch, *matrix = groups
    moved = _turned(op, value, [names.index(name) for name in _all(groups)])
    if all(len(group) == 1 for group in matrix):
        return moved
    return op.Reshape(moved, op.ints([*[0] * len(batch), *(times(op, *map(size, group)) for group in matrix)]))


def _turned(op: Operators, value: Value, order: list[int]) -> Value:
    return value if order == list(range(len(order))) else op.Transpose(value, perm=order)
