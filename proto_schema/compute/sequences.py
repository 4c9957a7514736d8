"""Sequences and optionals. An element whose array does not tell its type goes with its code (`Typed`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import NOTHING, Array, Call, Nothing, Typed
from proto_schema.compute.costs import copied, free, pieces
from proto_schema.compute.rows import row


@row("SequenceConstruct", cost=copied)
def sequence_construct(call: Call, *inputs: Any) -> Any:
    """The inputs as a sequence."""
    return [call.typed(place, value) for place, value in enumerate(inputs)]


@row("SequenceEmpty", cost=free)
def sequence_empty(call: Call) -> Any:
    """A sequence of nothing."""
    return []


def _position(call: Call, sequence: list[Any], position: Array, most: int) -> int:
    at = int(np.asarray(position).reshape(()))
    if not -len(sequence) <= at < most:
        call.fail(f"position {at} is outside of a sequence of {len(sequence)}")
    return at + len(sequence) if at < 0 else at


@row("SequenceAt", cost=free)
def sequence_at(call: Call, sequence: list[Any], position: Array) -> Any:
    """The element at a position, counted from the end where it is negative."""
    return sequence[_position(call, sequence, position, len(sequence))]


@row("SequenceErase", cost=copied)
def sequence_erase(call: Call, sequence: list[Any], position: Array | None = None) -> Any:
    """Without the element at a position, the last one by default."""
    at = len(sequence) - 1 if position is None else _position(call, sequence, position, len(sequence))
    if not sequence:
        call.fail("the sequence has no element to erase")
    return sequence[:at] + sequence[at + 1 :]


@row("SequenceInsert", cost=copied)
def sequence_insert(call: Call, sequence: list[Any], value: Any, position: Array | None = None) -> Any:
    """With a value before the element at a position, at the end by default."""
    at = len(sequence) if position is None else _position(call, sequence, position, len(sequence) + 1)
    return [*sequence[:at], call.typed(1, value), *sequence[at:]]


@row("SequenceLength", cost=free)
def sequence_length(call: Call, sequence: list[Any]) -> Any:
    """The number of elements."""
    return np.array(len(sequence), np.int64)


@row("ConcatFromSequence", cost=copied)
def concat_from_sequence(call: Call, sequence: list[Any]) -> Any:
    """The elements behind one another along an axis, or along a new one."""
    if not sequence:
        call.fail("the sequence has no elements")
    arrays = [item.array if isinstance(item, Typed) else item for item in sequence]
    axis = call.attribute("axis")
    found = np.stack(arrays, axis=axis) if call.attribute("new_axis", 0) else np.concatenate(arrays, axis=axis)
    return Typed(found, sequence[0].dtype) if isinstance(sequence[0], Typed) else found


def _split_cost(call: Call, x: Array, split: Array | None = None) -> Cost:
    longest = max(x.shape, default=0) + (0 if split is None else split.size)
    return Cost(x.nbytes + 2 * pieces(longest), x.nbytes + 256 * longest)


@row("SplitToSequence", cost=_split_cost)
def split_to_sequence(call: Call, x: Array, split: Array | None = None) -> Any:
    """Pieces along an axis: of one size each, of the sizes given, or single elements, whose axis may go."""
    axis = call.axis(call.attribute("axis", 0), x.ndim)
    size = x.shape[axis]
    if split is None:
        each = [np.take(x, at, axis=axis) for at in range(size)]
        pieces = [np.expand_dims(item, axis) for item in each] if call.attribute("keepdims", 1) else each
    elif split.ndim == 0:
        pieces = np.split(x, list(range(int(split), size, int(split))), axis=axis)
    else:
        if int(split.sum()) != size:
            call.fail(f"pieces of {split.tolist()} do not fill an axis of size {size}")
        pieces = np.split(x, np.cumsum(split)[:-1], axis=axis)
    return [call.typed(0, np.asarray(item)) for item in pieces]


@row("Optional", cost=copied)
def optional(call: Call, value: Any = NOTHING) -> Any:
    """An optional with the value, or without one."""
    return call.typed(0, value)


@row("OptionalHasElement", cost=free)
def optional_has_element(call: Call, value: Any = NOTHING) -> Any:
    """Whether there is a value."""
    return np.array(not isinstance(value, Nothing))


@row("OptionalGetElement", cost=copied)
def optional_get_element(call: Call, value: Any = NOTHING) -> Any:
    """The value. Raises MisuseError where there is none."""
    if isinstance(value, Nothing):
        call.fail("the optional has no element; ask OptionalHasElement first")
    return call.typed(0, value)
