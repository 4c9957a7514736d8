"""LSTM, GRU and RNN for dtypes without a kernel: a Loop over the steps for each direction, with the equations of the
ONNX operators.

What the input adds to the gates is one product over all steps; the body of the Loop adds what the state gives.  Where a
sequence has ended its state stays and its output is zero, so the reverse direction begins at each sequence's own end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema.legalization.sizes import numbers_below, value_of
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.running import form
from purexport.lowering.support.common import full


def _parts(op: Emitter, value: Value, count: int, size: int) -> tuple[Value, ...]:
    """The last axis in parts of one size."""
    return op.multi("Split", value, outputs=count, axis=-1, split=[size] * count) if count > 1 else (value,)


def _lstm(op: Emitter, given: Value, held: Sequence[Value], states: Sequence[Value], size: int) -> list[Value]:
    hidden, cell = states
    enter, leave, keep, new = _parts(op, op.Add(given, _gates(op, hidden, held)), 4, size)
    cell = op.Add(op.Mul(op.Sigmoid(keep), cell), op.Mul(op.Sigmoid(enter), op.Tanh(new)))
    return [op.Mul(op.Sigmoid(leave), op.Tanh(cell)), cell]


def _gru(op: Emitter, given: Value, held: Sequence[Value], states: Sequence[Value], size: int) -> list[Value]:
    (hidden,) = states
    update, reset, new = _parts(op, given, 3, size)
    update_h, reset_h, new_h = _parts(op, _gates(op, hidden, held), 3, size)
    share = op.Sigmoid(op.Add(update, update_h))
    found = op.Tanh(op.Add(new, op.Mul(op.Sigmoid(op.Add(reset, reset_h)), new_h)))
    return [op.Add(found, op.Mul(share, op.Sub(hidden, found)))]


def _gates(op: Emitter, hidden: Value, held: Sequence[Value]) -> Value:
    """What the state adds to the gates, with its bias."""
    return op.Add(op.MatMul(hidden, held[0]), held[1])


@form("LSTM")
def lstm(op: Emitter, x: Value, w: Value, r: Value, *more: Any, hidden_size: int, direction: str, outputs: int) -> Any:
    """Gates in the order i, o, f, c."""
    return _layer(op, _lstm, 4, 2, (x, w, r, *more), hidden_size, direction, outputs)


@form("GRU")
def gru(
    op: Emitter,
    x: Value,
    w: Value,
    r: Value,
    *more: Any,
    hidden_size: int,
    direction: str,
    outputs: int,
    linear_before_reset: int,
) -> Any:
    """Gates in the order z, r, h, with linear_before_reset=1, as rules write it."""
    return _layer(op, _gru, 3, 1, (x, w, r, *more), hidden_size, direction, outputs)


@form("RNN")
def rnn(
    op: Emitter,
    x: Value,
    w: Value,
    r: Value,
    *more: Any,
    hidden_size: int,
    direction: str,
    outputs: int,
    activations: Sequence[str] = ("Tanh",),
) -> Any:
    """One activation for all directions."""

    def step(op: Emitter, given: Value, held: Sequence[Value], states: Sequence[Value], size: int) -> list[Value]:
        return [op.emit(activations[0], op.Add(given, _gates(op, states[0], held)))]

    return _layer(op, step, 1, 1, (x, w, r, *more), hidden_size, direction, outputs)


def _layer(
    op: Emitter,
    step: Any,
    gates: int,
    count: int,
    operands: Sequence[Any],
    size: int,
    direction: str,
    outputs: int,
) -> tuple[Value, ...]:
    """Output [T, D, B, H] and `count` final states [D, B, H]; `operands` are those of the ONNX operators."""
    padded: list[Any] = [*operands, *[None] * (5 + count - len(operands))]
    (x, w, r, bias, lengths), states = padded[:5], padded[5:]
    wide = gates * size
    found = []
    for number in range(2 if direction == "bidirectional" else 1):
        backward = direction == "reverse" or number == 1
        from_input, from_state = (op.Transpose(_one(op, item, number), perm=[1, 0]) for item in (w, r))
        zero = op.like(0, x)
        biases = [zero, zero] if bias is None else _parts(op, _one(op, bias, number), 2, wide)
        given = op.Add(op.MatMul(x, from_input), biases[0])
        batch = op.dim(x, 1)
        begin = [
            full(op, [batch, size], 0, x.dtype or dtypes.DOUBLE) if state is None else _one(op, state, number)
            for state in states
        ]
        found.append(_steps(op, step, given, (from_state, biases[1]), begin, lengths, size, backward))
    joined = []
    for place in range(1 + count):
        axis, items = int(place == 0), [each[place] for each in found]
        wider = [op.Unsqueeze(item, axes=[axis]) for item in items]
        joined.append(wider[0] if len(wider) == 1 else op.Concat(*wider, axis=axis))
    return tuple(joined[:outputs])


def _one(op: Emitter, value: Value, direction: int) -> Value:
    return op.Gather(value, op.const(direction), axis=0)


def _steps(
    op: Emitter,
    step: Any,
    given: Value,
    held: Sequence[Value],
    begin: Sequence[Value],
    lengths: Value | None,
    size: int,
    backward: bool,
) -> list[Value]:
    """Output [T, B, H] and the final states [B, H] of one direction."""
    time = value_of(op, op.dim(given, 0))
    number, condition = Value(dtypes.INT64, (), name="step"), Value(dtypes.BOOL, (), name="condition")
    inner = [Value(state.dtype, (None, size), name="state") for state in begin]
    ends = None if lengths is None else op.Unsqueeze(op.cast(lengths, dtypes.INT64), axes=[1])
    inside = op.subgraph()
    inside.graph.inputs += [number, condition, *inner]
    at = inside.Sub(inside.Sub(time, number), inside.const(1)) if backward else number
    results = step(inside, inside.Gather(given, at, axis=0), held, inner, size)
    shown = results[0]
    if ends is not None:
        runs = inside.Less(at, ends)
        shown = inside.Where(runs, shown, inside.like(0, shown))
        results = [inside.Where(runs, new, old) for new, old in zip(results, inner, strict=True)]
    inside.graph.outputs += [inside.Identity(condition), *map(inside.Identity, results), inside.Identity(shown)]
    last = op.multi("Loop", time, op.const(True, dtypes.BOOL), *begin, outputs=len(begin) + 1, body=inside.graph)
    for value in last:  # the schema of Loop says nothing of the dtypes of its results
        value.dtype = given.dtype
    *finals, collected = last
    if backward:
        order = op.Sub(op.Sub(time, op.const(1)), numbers_below(op, op.dim(given, 0)))
        collected = op.Gather(collected, order, axis=0)
    return [collected, *finals]
