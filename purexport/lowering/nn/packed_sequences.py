"""Packed sequences: the steps of several sequences in one tensor, without padding.

A packed sequence is `data` [sum of lengths, ...] and `batch_sizes` [T], the number of sequences that are at least t + 1
long for each step t; sequences are sorted by falling length. Recurrent nodes take padded sequences and their lengths.
So a layer on packed data unpacks it, runs, and packs again. The lengths are computed in the graph, never read from the
example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower
from purexport.lowering.nn.rnn import GRU, LSTM, RNN_RELU, RNN_TANH, RnnKind, Stack
from purexport.lowering.support.common import INT64_MAX, permute
from purexport.lowering.tensor.slices import slice_axis


@lower("aten::_pack_padded_sequence")
def pack_padded_sequence(op: Emitter, input: Value, lengths: Value, batch_first: bool) -> tuple[Value, Value]:
    """aten::_pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first) -> (Tensor, Tensor)

    `lengths` must be sorted, longest first, as torch requires.
    """
    value = permute(op, input, [1, 0, *range(2, input.rank)]) if batch_first else input
    longest = op.Gather(lengths, op.const(0), axis=0)
    steps = op.Range(op.const(0), longest, op.const(1))
    exists = op.Less(op.Unsqueeze(steps, [1]), op.Unsqueeze(lengths, [0]))
    inside = slice_axis(op, value, 0, 0, longest)
    return _pack(op, inside, exists, input.rank), _count(op, exists, 1)


@lower("aten::_pad_packed_sequence")
def pad_packed_sequence(
    op: Emitter, data: Value, batch_sizes: Value, batch_first: bool, padding_value: Any, total_length: Any
) -> tuple[Value, Value]:
    """aten::_pad_packed_sequence(Tensor data, Tensor batch_sizes, bool batch_first, Scalar padding_value,
    int total_length) -> (Tensor, Tensor)

    `total_length` of 0 or less means the length of the longest sequence.
    """
    padded, exists = _unpack(op, data, batch_sizes)
    seen = op.Unsqueeze(exists, list(range(2, data.rank + 1))) if data.rank > 1 else exists
    result = op.Where(seen, padded, op.like(padding_value, data))
    total, steps = op.known(total_length), op.Shape(batch_sizes)
    if isinstance(total, Value) or total > 0:
        missing = op.Sub(op.ints([total]), steps)
        zeros = [op.const([0] * (data.rank + 1)), op.const([0] * data.rank)]
        pads = op.Concat(zeros[0], missing, zeros[1], axis=0)
        result = op.Pad(result, pads, constant_value=op.like(padding_value, data), mode="constant")
    if batch_first:
        result = op.Transpose(result, perm=[1, 0, *range(2, data.rank + 1)])
    return result, _count(op, exists, 0)


def _unpack(op: Emitter, data: Value, batch_sizes: Value) -> tuple[Value, Value]:
    """Data as [T, B, ...], and which of its steps exist, [T, B]."""
    sequences = op.Range(op.const(0), op.Gather(batch_sizes, op.const(0), axis=0), op.const(1))
    running = op.Unsqueeze(batch_sizes, [1])
    exists = op.Less(op.Unsqueeze(sequences, [0]), running)
    before = op.Unsqueeze(op.CumSum(batch_sizes, op.const(0), exclusive=1), [1])
    positions = op.Where(exists, op.Add(before, op.Unsqueeze(sequences, [0])), op.const(0))
    return op.Gather(data, positions, axis=0), exists


def _pack(op: Emitter, value: Value, exists: Value, rank: int) -> Value:
    """The existing steps of [T, B, ...] (of that rank), in the order of a packed sequence."""
    tail = op.Slice(op.Shape(value), [2], [INT64_MAX], axes=[0])
    flat = op.Reshape(value, op.Concat(op.const([-1]), tail, axis=0) if rank > 2 else [-1])
    return op.Compress(flat, op.Reshape(exists, [-1]), axis=0)


def _count(op: Emitter, exists: Value, axis: int) -> Value:
    return op.ReduceSum(op.cast(exists, dtypes.INT64), axes=[axis], keepdims=0)


def _layers(
    op: Emitter,
    kind: RnnKind,
    data: Value,
    batch_sizes: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    stack: Stack,
) -> tuple[Value, ...]:
    value, exists = _unpack(op, data, batch_sizes)
    lengths = op.cast(_count(op, exists, 0), dtypes.INT32)
    output, *finals = stack.run(op, value, states, stack.weights(params, has_biases), lengths)
    return _pack(op, output, exists, 3), *finals


@lower("aten::lstm.data")
def packed_lstm(
    op: Emitter,
    data: Value,
    batch_sizes: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Value, ...]:
    """aten::lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers,
    float dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)
    """
    stack = Stack(LSTM, num_layers, 2 if bidirectional else 1, dropout if train else 0)
    return _layers(op, LSTM, data, batch_sizes, hx, params, has_biases, stack)


def _register(target: str, kind: RnnKind) -> None:
    @lower(target)
    def rule(
        op: Emitter,
        data: Value,
        batch_sizes: Value,
        hx: Value,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[Value, ...]:
        stack = Stack(kind, num_layers, 2 if bidirectional else 1, dropout if train else 0)
        return _layers(op, kind, data, batch_sizes, [hx], params, has_biases, stack)


for _target, _kind in {"aten::gru": GRU, "aten::rnn_tanh": RNN_TANH, "aten::rnn_relu": RNN_RELU}.items():
    _register(f"{_target}.data", _kind)
