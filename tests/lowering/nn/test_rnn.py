"""Recurrent layers, cells and packed sequences as native nodes; dynamic batch and time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.harness import Row, check_export, f32, layer, values
from tests.row_plans import Plan, row_params, run_row

RELU = "its RNN does not know Relu"

BATCH = {0: {1: "batch"}}
# torch.export itself holds the number of steps fixed
TIME = {"dynamic": {0: {0: "time", 1: "batch"}}, "routes": ("trace", "script")}
STATES = {1: {1: "batch"}, 2: {1: "batch"}}


class Stated(nn.Module):
    """A layer with its initial state as an input."""

    def __init__(self, kind: type[nn.Module], *sizes: int, **options: Any) -> None:
        super().__init__()
        self.layer = kind(*sizes, **options)

    def forward(self, x: torch.Tensor, h: torch.Tensor):
        return self.layer(x, h)


class StatedLstm(Stated):
    """An LSTM with its initial states as inputs."""

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        return self.layer(x, (h, c))


LAYERS = [
    Row("lstm", layer(nn.LSTM, 3, 4), f32(5, 2, 3), dynamic=BATCH),
    Row("lstm-time", layer(nn.LSTM, 3, 4), f32(5, 2, 3), **TIME),
    Row("lstm-bidirectional", layer(nn.LSTM, 3, 4, bidirectional=True), f32(5, 2, 3), dynamic=BATCH),
    Row("lstm-deep", layer(nn.LSTM, 3, 4, num_layers=3, bidirectional=True), f32(5, 2, 3), **TIME),
    Row("lstm-batch-first", layer(nn.LSTM, 3, 4, batch_first=True, num_layers=2), f32(2, 5, 3), dynamic="batch"),
    Row(
        "lstm-batch-first-time",
        layer(nn.LSTM, 3, 4, batch_first=True, bidirectional=True),
        f32(2, 5, 3),
        dynamic={0: {0: "batch", 1: "time"}},
        routes=("trace", "script"),
    ),
    Row("lstm-no-bias", layer(nn.LSTM, 3, 4, bias=False), f32(5, 2, 3)),
    Row("lstm-no-batch", layer(nn.LSTM, 3, 4), f32(5, 3)),
    Row(
        "lstm-states",
        layer(StatedLstm, nn.LSTM, 3, 4),
        f32(5, 2, 3),
        f32(1, 2, 4),
        f32(1, 2, 4),
        dynamic={**BATCH, **STATES},
    ),
    Row(
        "lstm-states-deep",
        layer(StatedLstm, nn.LSTM, 3, 4, num_layers=2, bidirectional=True),
        f32(5, 2, 3),
        f32(4, 2, 4),
        f32(4, 2, 4),
    ),
    Row("lstm-projected", layer(nn.LSTM, 3, 5, proj_size=2), f32(4, 2, 3), dynamic=BATCH),
    Row(
        "lstm-projected-states",
        layer(StatedLstm, nn.LSTM, 3, 5, proj_size=2, num_layers=2, bidirectional=True),
        f32(4, 2, 3),
        f32(4, 2, 2),
        f32(4, 2, 5),
        trap="the initial state is not the projection of anything",
    ),
    Row("lstm-projected-time", layer(nn.LSTM, 3, 5, proj_size=2, bidirectional=True), f32(4, 2, 3), **TIME),
    Row("lstm-dropout-in-eval", layer(nn.LSTM, 3, 4, num_layers=2, dropout=0.5), f32(5, 2, 3)),
    Row("gru", layer(nn.GRU, 3, 4), f32(5, 2, 3), dynamic=BATCH),
    Row("gru-deep", layer(nn.GRU, 3, 4, num_layers=2, bidirectional=True), f32(5, 2, 3), **TIME),
    Row("gru-states", layer(Stated, nn.GRU, 3, 4, batch_first=True), f32(2, 5, 3), f32(1, 2, 4)),
    Row("gru-no-bias", layer(nn.GRU, 3, 4, bias=False), f32(5, 2, 3)),
    Row("rnn-tanh", layer(nn.RNN, 3, 4), f32(5, 2, 3), dynamic=BATCH),
    Row("rnn-tanh-deep", layer(nn.RNN, 3, 4, num_layers=2, bidirectional=True), f32(5, 2, 3), **TIME),
    Row(
        "rnn-relu",
        layer(nn.RNN, 3, 4, nonlinearity="relu", bidirectional=True),
        f32(5, 2, 3),
        dynamic=BATCH,
        unjudged=RELU,
    ),
    Row("rnn-relu-no-bias", layer(nn.RNN, 3, 4, nonlinearity="relu", bias=False), f32(5, 2, 3), unjudged=RELU),
]

CELLS = [
    Row("lstm-cell", layer(nn.LSTMCell, 3, 4), f32(2, 3), dynamic="batch"),
    Row("lstm-cell-states", layer(StatedLstm, nn.LSTMCell, 3, 4), f32(2, 3), f32(2, 4), f32(2, 4), dynamic="batch"),
    Row("lstm-cell-no-batch", layer(nn.LSTMCell, 3, 4, bias=False), f32(3)),
    Row("gru-cell", layer(Stated, nn.GRUCell, 3, 4), f32(2, 3), f32(2, 4), dynamic="batch"),
    Row("rnn-cell", layer(Stated, nn.RNNCell, 3, 4), f32(2, 3), f32(2, 4)),
    Row("rnn-cell-relu", layer(nn.RNNCell, 3, 4, nonlinearity="relu"), f32(2, 3), dynamic="batch"),
]


class Packed(nn.Module):
    """A layer on sequences of several lengths."""

    def __init__(self, kind: type[nn.Module], *sizes: int, enforce_sorted: bool = True, **options: Any) -> None:
        super().__init__()
        self.layer = kind(*sizes, **options)
        self.batch_first = options.get("batch_first", False)
        self.enforce_sorted = enforce_sorted

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, self.batch_first, self.enforce_sorted)
        result, states = self.layer(packed)
        return pad_packed_sequence(result, self.batch_first, padding_value=7.0), states


LENGTHS = values([4, 3, 1], torch.int64)
# torch.export does not take pack_padded_sequence
PACKED: dict[str, Any] = {"routes": ("trace", "script"), "unjudged": "it knows no sequence_lens"}

VARIABLE = [
    Row("packed-lstm", layer(Packed, nn.LSTM, 3, 4), f32(4, 3, 3), LENGTHS, **PACKED),
    Row(
        "packed-lstm-deep",
        layer(Packed, nn.LSTM, 3, 4, num_layers=2, bidirectional=True),
        f32(5, 3, 3),
        LENGTHS,
        **PACKED,
    ),
    Row("packed-lstm-batch-first", layer(Packed, nn.LSTM, 3, 4, batch_first=True), f32(3, 4, 3), LENGTHS, **PACKED),
    Row(
        "packed-lstm-projected",
        layer(Packed, nn.LSTM, 3, 4, proj_size=2, bidirectional=True),
        f32(4, 3, 3),
        LENGTHS,
        **PACKED,
    ),
    Row("packed-gru", layer(Packed, nn.GRU, 3, 4, bidirectional=True), f32(4, 3, 3), LENGTHS, **PACKED),
    Row("packed-rnn-tanh", layer(Packed, nn.RNN, 3, 4), f32(4, 3, 3), LENGTHS, **PACKED),
    Row("packed-rnn-relu", layer(Packed, nn.RNN, 3, 4, nonlinearity="relu"), f32(4, 3, 3), LENGTHS, **PACKED),
    Row(
        "packed-unsorted",
        layer(Packed, nn.LSTM, 3, 4, enforce_sorted=False),
        f32(4, 3, 3),
        values([1, 4, 2], torch.int64),
        **PACKED,
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*LAYERS, *CELLS, *VARIABLE]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


def test_packed_lengths_are_not_recorded() -> None:
    """The file takes other lengths than those of the example: nothing of a packed sequence's size is held fixed."""
    model = layer(Packed, nn.LSTM, 3, 4, num_layers=2, bidirectional=True).make()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, 3, generator=generator)
    others = [(x, torch.tensor(lengths)) for lengths in ([4, 4, 4], [4, 1, 1])]
    check_export(model, (x, torch.tensor([4, 3, 1])), opset=17, other_args=others)
