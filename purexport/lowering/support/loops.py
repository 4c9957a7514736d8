"""Repeated steps (`proto_schema.legalization.loops`) of real and of complex tensors, and Loops that collect parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proto_schema.legalization.loops import repeat
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.support.fields import Operand, flat_parts, grouped_parts


def repeat_in_field(
    op: Emitter, count: Any, step: Callable[..., Sequence[Operand]], *carried: Operand
) -> tuple[Any, ...]:
    """As `repeat`, of real and of complex tensors."""

    def of_parts(op: Emitter, at: Value, *parts: Value) -> list[Value]:
        return flat_parts(step(op, at, *grouped_parts(parts, carried)))

    return tuple(grouped_parts(repeat(op, count, of_parts, *flat_parts(carried)), carried))


def parts_of_steps(op: Emitter, numbers: Value, step: Callable[..., Value], axis: int, last: Value | None) -> Value:
    """The parts `step(op, number)`, for each of the computed `numbers` ([n], one at least if `last` is None), and
    `last` behind them, concatenated along `axis`.

    The parts may differ in size along the axis. A Loop collects them in a sequence, which needs opset 13; before, it
    concatenates each to those before it.
    """
    if not op.takes_sequences("Loop"):
        return _parts_concatenated(op, numbers, step, axis, last)
    at, condition = Value(dtypes.INT64, (), name="step"), Value(dtypes.BOOL, (), name="condition")
    collected = Value(name="collected")
    inside = op.subgraph()
    inside.graph.inputs += [at, condition, collected]
    part = step(inside, inside.Gather(numbers, inside.Unsqueeze(at, [0]), axis=0))
    # no version of the operators of sequences takes bfloat16, which float32 holds exactly
    carried = dtypes.FLOAT if part.dtype == dtypes.BFLOAT16 else part.dtype or dtypes.FLOAT
    kind = carried, (None,) * part.rank if part.shape is not None else None
    collected.element = kind
    more = inside.SequenceInsert(collected, inside.cast(part, carried))
    more.element = kind
    inside.graph.outputs += [inside.Identity(condition), more]
    count = op.Gather(op.Shape(numbers), op.const(0), axis=0)
    empty = op.SequenceEmpty(dtype=carried)
    empty.element = kind
    (found,) = op.multi("Loop", count, op.const(True, dtypes.BOOL), empty, outputs=1, body=inside.graph)
    found.element = kind
    if last is not None:
        found = op.SequenceInsert(found, op.cast(last, carried))
    return op.cast(op.ConcatFromSequence(found, axis=axis), part.dtype)


def _parts_concatenated(
    op: Emitter, numbers: Value, step: Callable[..., Value], axis: int, last: Value | None
) -> Value:
    """A Loop whose value grows: it begins with nothing of `last`, or with the first part."""
    count = op.Gather(op.Shape(numbers), op.const(0), axis=0)
    first = 0 if last is not None else 1
    start = (
        step(op, op.Gather(numbers, op.const([0]), axis=0)) if last is None else op.Slice(last, [0], [0], axes=[axis])
    )
    at, condition = Value(dtypes.INT64, (), name="step"), Value(dtypes.BOOL, (), name="condition")
    shape = start.shape and (*start.shape[:axis], None, *start.shape[axis + 1 :])
    joined = Value(start.dtype, shape, name="joined")
    inside = op.subgraph()
    inside.graph.inputs += [at, condition, joined]
    number = inside.Gather(numbers, inside.Unsqueeze(inside.Add(at, inside.const(first)), [0]), axis=0)
    longer = inside.Concat(joined, inside.cast(step(inside, number), start.dtype), axis=axis)
    inside.graph.outputs += [inside.Identity(condition), longer]
    rest = op.Sub(count, op.const(first))
    (found,) = op.multi("Loop", rest, op.const(True, dtypes.BOOL), start, outputs=1, body=inside.graph)
    return found if last is None else op.Concat(found, last, axis=axis)
