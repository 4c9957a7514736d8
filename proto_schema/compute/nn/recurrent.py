"""Rows of RNN, GRU and LSTM.

A direction runs over arrays with time first. All steps' products with the input are one product of matrices before
the loop; a step is one product with the state (two in a GRU without `linear_before_reset`), and elementwise work. A
reversed direction, where sequences have lengths of their own, turns each around within its length. Behind its end a
sequence's output is 0, and its state stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import pieces, products
from proto_schema.compute.nn.numbers import wide
from proto_schema.compute.rows import row
from proto_schema.units import counted

Activation: TypeAlias = Callable[[Array], Array]


def _sigmoid(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-values)))


# by name in lower case: the function of values, alpha and beta, and the defaults of these
_FUNCTIONS: dict[str, tuple[Callable[[Array, Any, Any], Array], tuple[float, ...]]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), ()),
    "tanh": (lambda x, a, b: np.tanh(x), ()),
    "sigmoid": (lambda x, a, b: _sigmoid(x), ()),
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), (0.01,)),
    "thresholdedrelu": (lambda x, a, b: np.where(x > a, x, x.dtype.type(0)), (1.0,)),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), (1.0,)),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), ()),
    "softplus": (lambda x, a, b: np.logaddexp(x, x.dtype.type(0)), ()),
}


@dataclass(frozen=True, slots=True)
class _Layer:
    """The node, as each direction sees it."""

    call: Call
    data: Array  # (length, batch, size)
    lengths: Array | None
    hidden: int
    activations: list[list[Activation]]
    clip: Any

    @property
    def directions(self) -> int:
        return len(self.activations)

    def clipped(self, values: Array) -> Array:
        """The input of an activation."""
        return values if self.clip is None else np.clip(values, -self.clip, self.clip)


def _activations(call: Call, directions: int, names: Sequence[str], kind: np.dtype[Any]) -> list[list[Activation]]:
    """A list a direction. The lists of alpha and beta are used up by those functions that take one."""
    said = call.attributes.get("activations") or ()  # RNN declares two for one direction as the default
    chosen = [name.decode() if isinstance(name, bytes) else str(name) for name in said] or list(names) * directions
    if len(chosen) != len(names) * directions:
        call.fail(f"{len(chosen)} activations, and {len(names) * directions} are needed")
    alphas, betas = iter(call.attribute("activation_alpha") or ()), iter(call.attribute("activation_beta") or ())
    made = []
    for name in chosen:
        if name.lower() not in _FUNCTIONS:
            call.fail(f"activation {name!r} is not one of {', '.join(_FUNCTIONS)}")
        function, defaults = _FUNCTIONS[name.lower()]
        alpha = kind.type(next(alphas, defaults[0])) if defaults else None
        beta = kind.type(next(betas, defaults[1])) if len(defaults) > 1 else None
        made.append(_bound(function, alpha, beta))
    return [made[start : start + len(names)] for start in range(0, len(made), len(names))]


def _bound(function: Callable[[Array, Any, Any], Array], alpha: Any, beta: Any) -> Activation:
    return lambda values: function(values, alpha, beta)


def _direction(call: Call) -> str:
    """The attribute, whose default is misspelled in the first versions."""
    return call.text("direction") if "direction" in call.attributes else "forward"


def _layer(call: Call, data: Array, recurrence: Array, lengths: Array | None, names: Sequence[str]) -> _Layer:
    data = wide(data.swapaxes(0, 1) if call.attribute("layout", 0) else data)
    direction = _direction(call)
    if direction not in ("forward", "reverse", "bidirectional"):
        call.fail(f"direction is {direction!r}, and may be forward, reverse or bidirectional")
    count = 2 if direction == "bidirectional" else 1
    if recurrence.ndim != 3 or recurrence.shape[0] != count or data.ndim != 3:
        call.fail(
            f"data of shape {data.shape} and R of shape {recurrence.shape} do not fit {counted(count, 'direction')}"
        )
    if lengths is not None and (lengths.shape != data.shape[1:2] or (lengths > data.shape[0]).any()):
        call.fail(f"sequence_lens {lengths.tolist()} do not fit {data.shape[1]} sequences of {data.shape[0]} steps")
    clip = call.attribute("clip")
    kind = data.dtype
    if lengths is not None and (lengths == data.shape[0]).all():
        lengths = None
    bound = None if not clip else kind.type(clip)
    return _Layer(call, data, lengths, recurrence.shape[2], _activations(call, count, names, kind), bound)


def _initial(layer: _Layer, given: Array | None, direction: int) -> Array:
    if given is None:
        return np.zeros((layer.data.shape[1], layer.hidden), layer.data.dtype)
    return wide(given[:, direction] if layer.call.attribute("layout", 0) else given[direction])


_Step: TypeAlias = Callable[[Array, "tuple[Array, ...]"], "tuple[Array, ...]"]


def _run(
    layer: _Layer, direction: int, weight: Array, bias: Array, states: tuple[Array, ...], step: _Step
) -> tuple[Array, tuple[Array, ...]]:
    """All steps of a direction: the first state at each, and all states at the end."""
    data, lengths = layer.data, layer.lengths
    length, batch = data.shape[:2]
    backwards = direction == 1 or _direction(layer.call) == "reverse"
    order: Array | None = None
    if backwards:
        steps = np.arange(length)[:, None]
        ends = np.full(batch, length) if lengths is None else lengths
        order = np.where(steps < ends, ends - 1 - steps, steps)
        data = np.take_along_axis(data, order[:, :, None], axis=0)
    inputs = np.matmul(data.reshape(length * batch, -1), wide(weight).T).reshape(length, batch, -1)
    inputs += bias
    outputs = np.zeros((length, batch, layer.hidden), data.dtype)
    for at in range(length):
        new = step(inputs[at], states)
        if lengths is None:
            outputs[at] = new[0]
            states = new
        else:
            alive = (at < lengths)[:, None]
            outputs[at] = np.where(alive, new[0], 0)
            states = tuple(np.where(alive, one, other) for one, other in zip(new, states, strict=True))
    if order is not None:
        outputs = np.take_along_axis(outputs, order[:, :, None], axis=0)
    return outputs, states


def _results(layer: _Layer, found: list[tuple[Array, tuple[Array, ...]]]) -> tuple[Array, ...]:
    """Y of (length, directions, batch, hidden), and each state of (directions, batch, hidden), in their layout."""
    outputs = np.stack([outputs for outputs, _ in found], axis=1)
    states = [np.stack(parts) for parts in zip(*[ends for _, ends in found], strict=True)]
    if layer.call.attribute("layout", 0):
        return outputs.transpose(2, 0, 1, 3), *[state.swapaxes(0, 1) for state in states]
    return outputs, *states


def _biases(layer: _Layer, bias: Array | None, direction: int, gates: int) -> tuple[Array, Array]:
    """The biases of the input and of the recurrence."""
    if bias is None:
        nothing = np.zeros(gates * layer.hidden, layer.data.dtype)
        return nothing, nothing
    if bias.shape != (layer.directions, 2 * gates * layer.hidden):
        layer.call.fail(f"B has shape {bias.shape}, and ({layer.directions}, {2 * gates * layer.hidden}) is needed")
    one, other = np.split(wide(bias[direction]), 2)
    return one, other


def recurrent_cost(call: Call, data: Array, weight: Array, recurrence: Array, *more: Array | None) -> Cost:
    """The products of all steps with the input at once, then those with the state, step by step."""
    if data.ndim != 3 or weight.ndim != 3 or recurrence.ndim != 3:
        call.fail(f"X, W and R have the ranks {data.ndim}, {weight.ndim} and {recurrence.ndim}, not 3")
    count, gated, size = recurrence.shape
    length = data.shape[1] if call.attribute("layout", 0) else data.shape[0]
    rows = data.shape[0] * data.shape[1]
    work = products(rows * count * gated * (data.shape[2] + size), data.dtype) + 20 * rows * count * gated
    results = rows * count * size + 2 * count * rows // max(1, length) * size
    width = max(4, data.itemsize)
    scratch = 2 * data.size + 2 * rows * gated + 2 * results + 2 * (weight.size + recurrence.size) + 8 * results
    return Cost(work + pieces(20 * length * count), results * width, scratch * width)


@row("RNN", cost=recurrent_cost)
def rnn(
    call: Call,
    data: Array,
    weight: Array,
    recurrence: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    initial: Array | None = None,
) -> tuple[Array, ...]:
    """H = f(X W' + H R' + biases). Returns (Y, Y_h)."""
    layer = _layer(call, data, recurrence, lengths, ["Tanh"])
    found = []
    for direction in range(layer.directions):
        into, turned = _biases(layer, bias, direction, 1), wide(recurrence[direction]).T
        (function,) = layer.activations[direction]

        def step(
            inputs: Array, states: tuple[Array, ...], turned: Array = turned, function: Activation = function
        ) -> tuple[Array, ...]:
            return (function(layer.clipped(inputs + states[0] @ turned)),)

        state = _initial(layer, initial, direction)
        found.append(_run(layer, direction, weight[direction], into[0] + into[1], (state,), step))
    return _results(layer, found)


@row("GRU", cost=recurrent_cost)
def gru(
    call: Call,
    data: Array,
    weight: Array,
    recurrence: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    initial: Array | None = None,
) -> tuple[Array, ...]:
    """Gates z, r and h; H = (1 - z) h + z H. Returns (Y, Y_h)."""
    layer = _layer(call, data, recurrence, lengths, ["Sigmoid", "Tanh"])
    size, late = layer.hidden, bool(call.attribute("linear_before_reset", 0))
    found = []
    for direction in range(layer.directions):
        of_input, of_state = _biases(layer, bias, direction, 3)
        if not late:
            of_input, of_state = of_input + of_state, np.zeros_like(of_state)
        step = _gru_step(layer, direction, wide(recurrence[direction]).T, of_state, size, late)
        state = _initial(layer, initial, direction)
        found.append(_run(layer, direction, weight[direction], of_input, (state,), step))
    return _results(layer, found)


def _gru_step(layer: _Layer, direction: int, turned: Array, bias: Array, size: int, late: bool) -> _Step:
    gate, candidate = layer.activations[direction]
    gates, hidden = np.ascontiguousarray(turned[:, : 2 * size]), np.ascontiguousarray(turned[:, 2 * size :])

    def step(inputs: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        state = states[0]
        if late:
            recurrent = state @ turned + bias
            both = gate(layer.clipped(inputs[:, : 2 * size] + recurrent[:, : 2 * size]))
            inner = both[:, size:] * recurrent[:, 2 * size :]
        else:
            both = gate(layer.clipped(inputs[:, : 2 * size] + state @ gates))
            inner = (both[:, size:] * state) @ hidden
        update = both[:, :size]
        new = candidate(layer.clipped(inputs[:, 2 * size :] + inner))
        return ((1 - update) * new + update * state,)

    return step


@row("LSTM", cost=recurrent_cost)
def lstm(
    call: Call,
    data: Array,
    weight: Array,
    recurrence: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    initial: Array | None = None,
    initial_cell: Array | None = None,
    peepholes: Array | None = None,
) -> tuple[Array, ...]:
    """Gates i, o, f and c, which the cell reaches through peepholes (i, o, f). Returns (Y, Y_h, Y_c)."""
    return lstm_of(call, data, weight, recurrence, bias, lengths, (initial, initial_cell), peepholes)


def lstm_of(
    call: Call,
    data: Array,
    weight: Array,
    recurrence: Array,
    bias: Array | None,
    lengths: Array | None,
    initial_states: tuple[Array | None, Array | None],
    peepholes: Array | None,
    before: Activation | None = None,
) -> tuple[Array, ...]:
    """What LSTM gives; `before` goes over the state before each product."""
    layer = _layer(call, data, recurrence, lengths, ["Sigmoid", "Tanh", "Tanh"])
    size, coupled = layer.hidden, bool(call.attribute("input_forget", 0))
    initial, initial_cell = initial_states
    found = []
    for direction in range(layer.directions):
        into = _biases(layer, bias, direction, 4)
        through = None if peepholes is None else wide(peepholes[direction]).reshape(3, size)
        step = _lstm_step(layer, direction, wide(recurrence[direction]).T, through, coupled, before)
        states = (_initial(layer, initial, direction), _initial(layer, initial_cell, direction))
        found.append(_run(layer, direction, weight[direction], into[0] + into[1], states, step))
    return _results(layer, found)


def _lstm_step(
    layer: _Layer, direction: int, turned: Array, through: Array | None, coupled: bool, before: Activation | None
) -> _Step:
    gate, candidate, out = layer.activations[direction]

    def step(inputs: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        state, cell = states
        i, o, f, c = np.split(inputs + (state if before is None else before(state)) @ turned, 4, axis=1)
        if through is not None:
            i, f = i + through[0] * cell, f + through[2] * cell
        i = gate(layer.clipped(i))
        f = 1 - i if coupled else gate(layer.clipped(f))
        cell = f * cell + i * candidate(layer.clipped(c))
        if through is not None:
            o = o + through[1] * cell
        return gate(layer.clipped(o)) * out(cell), cell

    return step
