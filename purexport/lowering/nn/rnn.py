"""Recurrent layers and cells as ONNX LSTM, GRU and RNN nodes: one node for each layer, with both directions in it.

The order of the gates differs (LSTM: torch has i, f, g, o and ONNX i, o, f, g; GRU: r, z, n and z, r, n), so weights
pass through Split and Concat, which runtimes fold. The nodes have time as their first axis; `batch_first` is a
transpose. A cell is a layer of one step. Packed sequences are packed and unpacked in the graph: see `packed_sequences`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.nn.random import dropout as dropout_rule
from purexport.lowering.support.common import permute
from purexport.lowering.tensor.slices import slice_axis


@dataclass(frozen=True)
class RnnKind:
    """An ONNX operator, its gates as positions in torch's order, and its attributes."""

    op_type: str
    gates: tuple[int, ...]
    attributes: dict[str, Any]


LSTM = RnnKind("LSTM", (0, 3, 1, 2), {})
GRU = RnnKind("GRU", (1, 0, 2), {"linear_before_reset": 1})
RNN_TANH = RnnKind("RNN", (0,), {"activations": ["Tanh"]})
RNN_RELU = RnnKind("RNN", (0,), {"activations": ["Relu"]})


@dataclass(frozen=True)
class RnnWeights:
    """The weights of one direction of one layer, as torch lists them."""

    input: Value
    hidden: Value
    biases: tuple[Value, Value] | None = None
    projection: Value | None = None


@dataclass(frozen=True)
class Stack:
    """The options of a call that runs several layers."""

    kind: RnnKind
    layers: int
    directions: int
    dropout: float

    def weights(self, params: Sequence[Value], has_biases: bool) -> list[list[RnnWeights]]:
        """`params` by layer and direction."""
        size = len(params) // (self.layers * self.directions)
        found = []
        for start in range(0, len(params), size):
            own = params[start : start + size]
            biases = (own[2], own[3]) if has_biases else None
            projected = size == (5 if has_biases else 3)
            found.append(RnnWeights(own[0], own[1], biases, own[-1] if projected else None))
        return [found[at : at + self.directions] for at in range(0, len(found), self.directions)]

    def run(
        self, op: Emitter, value: Value, states: Sequence[Value], weights: list[list[RnnWeights]], lengths: Value | None
    ) -> tuple[Value, ...]:
        """Output [T, B, D * H] and final states [L * D, B, H] from `value` [T, B, I]."""
        finals: list[tuple[Value, ...]] = []
        for index, layer in enumerate(weights):
            if index and self.dropout:
                value = dropout_rule(op, value, self.dropout, True)
            first = index * self.directions
            own = [_rows(op, state, first, self.directions, self.layers) for state in states]
            value, *last = run_layer(op, self.kind, value, own, layer, lengths)
            finals.append(tuple(last))
        together = [items[0] if len(items) == 1 else op.Concat(*items, axis=0) for items in zip(*finals, strict=True)]
        return value, *together


def _rows(op: Emitter, state: Value, first: int, count: int, layers: int) -> Value:
    return state if layers == 1 else slice_axis(op, state, 0, first, first + count)


def run_layer(
    op: Emitter, kind: RnnKind, value: Value, states: Sequence[Value], weights: list[RnnWeights], lengths: Value | None
) -> tuple[Value, ...]:
    """One layer of one or two directions: output [T, B, D * H] and final states [D, B, H]."""
    if weights[0].projection is not None:
        return _projected(op, kind, value, states, weights, lengths)
    together, *finals = _node(op, kind, value, states, weights, lengths)
    if len(weights) == 1:
        return op.Squeeze(together, [1]), *finals
    return op.Reshape(op.Transpose(together, perm=[0, 2, 1, 3]), [0, 0, -1]), *finals


def _node(
    op: Emitter,
    kind: RnnKind,
    value: Value,
    states: Sequence[Value],
    weights: list[RnnWeights],
    lengths: Value | None,
    reverse: bool = False,
) -> tuple[Value, ...]:
    """The ONNX node: output [T, D, B, H] and final states [D, B, H]."""
    attributes = dict(kind.attributes)
    direction = "bidirectional" if len(weights) == 2 else "reverse" if reverse else "forward"
    if "activations" in attributes:
        attributes["activations"] = attributes["activations"] * len(weights)
    biases = None
    if weights[0].biases is not None:
        pairs = [item.biases for item in weights if item.biases is not None]
        biases = _by_direction(op, [op.Concat(*(_reordered(op, one, kind) for one in pair), axis=0) for pair in pairs])
    return op.multi(
        kind.op_type,
        value,
        _by_direction(op, [_reordered(op, item.input, kind) for item in weights]),
        _by_direction(op, [_reordered(op, item.hidden, kind) for item in weights]),
        biases,
        lengths,
        *states,
        outputs=1 + len(states),
        hidden_size=_hidden_size(weights[0], kind),
        direction=direction,
        **attributes,
    )


def _hidden_size(weights: RnnWeights, kind: RnnKind) -> int:
    return weights.input.sizes[0] // len(kind.gates)


def _reordered(op: Emitter, value: Value, kind: RnnKind) -> Value:
    """A weight or bias whose first axis holds the gates, with the gates in ONNX's order."""
    count = len(kind.gates)
    if count == 1:
        return value
    size = value.sizes[0] // count
    gates = op.multi("Split", value, outputs=count, axis=0, split=[size] * count)
    return op.Concat(*(gates[gate] for gate in kind.gates), axis=0)


def _by_direction(op: Emitter, items: Sequence[Value]) -> Value:
    wide = [op.Unsqueeze(item, [0]) for item in items]
    return wide[0] if len(wide) == 1 else op.Concat(*wide, axis=0)


def _projected(
    op: Emitter, kind: RnnKind, value: Value, states: Sequence[Value], weights: list[RnnWeights], lengths: Value | None
) -> tuple[Value, ...]:
    """An LSTM whose hidden state is projected, h = P h'; ONNX has no such operator.

    The state h' is that of an ordinary LSTM whose recurrent weight is R P. Only the initial h is not P h' for some h'.
    It is given as an additional input at the first step, with R as its input weight.
    """
    outputs, hidden, cells = [], [], []
    for direction, item in enumerate(weights):
        assert item.projection is not None
        h0, c0 = (_rows(op, state, direction, 1, len(weights)) for state in states)
        beside = _at_first_step(op, h0, value, lengths, reverse=direction == 1)
        wide = op.Concat(item.input, item.hidden, axis=1)
        recurrent = op.MatMul(item.hidden, item.projection)
        inner, zeros = RnnWeights(wide, recurrent, item.biases), op.Sub(c0, c0)
        output, last, cell = _node(
            op, kind, op.Concat(value, beside, axis=2), [zeros, c0], [inner], lengths, reverse=direction == 1
        )
        across = op.Transpose(item.projection, perm=[1, 0])
        outputs.append(op.MatMul(op.Squeeze(output, [1]), across))
        hidden.append(op.MatMul(last, across))
        cells.append(cell)
    return (
        outputs[0] if len(outputs) == 1 else op.Concat(*outputs, axis=2),
        hidden[0] if len(hidden) == 1 else op.Concat(*hidden, axis=0),
        cells[0] if len(cells) == 1 else op.Concat(*cells, axis=0),
    )


def _at_first_step(op: Emitter, state: Value, value: Value, lengths: Value | None, reverse: bool) -> Value:
    """[T, B, P]: `state` [1, B, P] at the step that runs first, zeros at the others."""
    time = op.dim(value, 0)
    end = op.const(time) if isinstance(time, int) else time
    steps = op.Unsqueeze(op.Range(op.const(0), end, op.const(1)), [1, 2])
    first: Value = op.const(0)
    if reverse and lengths is None:
        first = op.Sub(end, op.const(1))
    elif reverse and lengths is not None:
        first = op.Unsqueeze(op.Sub(op.cast(lengths, dtypes.INT64), op.const(1)), [0, 2])
    return op.Mul(state, op.cast(op.Equal(steps, first), state.dtype))


# Layers -------------------------------------------------------------------------------------------------------------


def _layers(
    op: Emitter,
    kind: RnnKind,
    input: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    stack = Stack(kind, num_layers, 2 if bidirectional else 1, dropout if train else 0)
    value = permute(op, input, [1, 0, 2]) if batch_first else input
    output, *finals = stack.run(op, value, states, stack.weights(params, has_biases), None)
    return op.Transpose(output, perm=[1, 0, 2]) if batch_first else output, *finals


@lower("aten::lstm.input")
def lstm(
    op: Emitter,
    input: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    """aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout,
    bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)

    The results are the output and the final hidden and cell states. `dropout` is between the layers, and only in
    training.
    """
    return _layers(op, LSTM, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def _register_layers(target: str, kind: RnnKind) -> None:
    @lower(target)
    def rule(
        op: Emitter,
        input: Value,
        hx: Value,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Value, ...]:
        return _layers(
            op, kind, input, [hx], params, has_biases, num_layers, dropout, train, bidirectional, batch_first
        )


for _target, _kind in {"aten::gru": GRU, "aten::rnn_tanh": RNN_TANH, "aten::rnn_relu": RNN_RELU}.items():
    _register_layers(f"{_target}.input", _kind)


# Cells --------------------------------------------------------------------------------------------------------------


def _cell(
    op: Emitter,
    kind: RnnKind,
    value: Value,
    states: Sequence[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None,
    b_hh: Value | None,
) -> list[Value]:
    biases = (b_ih, b_hh) if b_ih is not None and b_hh is not None else None
    first = [op.Unsqueeze(state, [0]) for state in states]
    _, *finals = _node(op, kind, op.Unsqueeze(value, [0]), first, [RnnWeights(w_ih, w_hh, biases)], None)
    return [op.Squeeze(state, [0]) for state in finals]


@lower("aten::lstm_cell")
def lstm_cell(
    op: Emitter,
    input: Value,
    hx: Sequence[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> tuple[Value, ...]:
    """aten::lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)
    -> (Tensor, Tensor)
    """
    return tuple(_cell(op, LSTM, input, hx, w_ih, w_hh, b_ih, b_hh))


def _register_cell(target: str, kind: RnnKind) -> None:
    @lower(target)
    def rule(
        op: Emitter,
        input: Value,
        hx: Value,
        w_ih: Value,
        w_hh: Value,
        b_ih: Value | None = None,
        b_hh: Value | None = None,
    ) -> Value:
        return _cell(op, kind, input, [hx], w_ih, w_hh, b_ih, b_hh)[0]


for _target, _kind in {"aten::gru": GRU, "aten::rnn_tanh": RNN_TANH, "aten::rnn_relu": RNN_RELU}.items():
    _register_cell(f"{_target}_cell", _kind)
