"""Repeated steps: written out where they are few, an ONNX Loop where they are many or their number is computed.

A step is one function of the `op` that writes it, of its number and of the loop-carried values, so both forms compute
the same. Its number is an int64 value of shape [1]. It is a constant when the steps are written out, so that constant
folding computes what depends on it alone.

The body of a Loop sees outer values. A loop-carried value keeps its data type and shape. A step should take sizes from
outside, where they are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from proto_schema.legalization.operators import BOOL, Operators, Value
from proto_schema.legalization.sizes import known, value_of

WRITTEN_OUT = 8  # more steps than these become a Loop

V = TypeVar("V")
Step = Callable[..., Sequence[Value]]


def repeat(op: Operators, count: Any, step: Step, *carried: V, written_out: int = WRITTEN_OUT) -> tuple[V, ...]:
    """`carried = step(op, at, *carried)` for at = 0, 1, ..., count - 1; `count` is an int or a computed value."""
    count = known(count)
    if not isinstance(count, int) or count > written_out:
        return op.loop(value_of(op, count), op.const(True, BOOL), _unconditional(step), carried)
    for at in range(count):
        carried = tuple(step(op, op.const(np.array([at])), *carried))
    return carried


def _unconditional(step: Step) -> Step:
    def steps(op: Operators, at: Value, condition: Value, *carried: Value) -> list[Value]:
        return [condition, *step(op, at, *carried)]

    return steps


def repeat_while(op: Operators, most: Any, going: V, step: Step, *carried: V) -> tuple[V, ...]:
    """`going, *carried = step(op, at, *carried)` while `going`, a zero-dim bool, holds; at most `most` times."""

    def steps(op: Operators, at: Value, condition: Value, *carried: Value) -> Sequence[Value]:
        return step(op, at, *carried)

    return op.loop(value_of(op, most), going, steps, carried)
