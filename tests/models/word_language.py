"""Word language models: recurrent ones with their state as input and output, and a Transformer; time comes first."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.models.case import ROUTES, VOCABULARY, Case, tokens

HIDDEN, LAYERS = 24, 2


class Recurrent(nn.Module):
    """Tokens [time, batch] and the state [layers, batch, hidden] -> logits and the new state."""

    def __init__(self, layer: type[nn.Module], **options: str) -> None:
        super().__init__()
        self.encoder = nn.Embedding(VOCABULARY, 16)
        self.drop = nn.Dropout(0.5)
        self.rnn = layer(16, HIDDEN, LAYERS, dropout=0.5, **options)
        self.decoder = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, words: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        output, hidden = self.rnn(self.drop(self.encoder(words)), hidden)
        decoded = self.decoder(self.drop(output))
        decoded = decoded.view(-1, decoded.size(-1))
        return torch.log_softmax(decoded, dim=1), hidden


class LongShortTerm(nn.Module):
    """The same with an LSTM, whose state is a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Embedding(VOCABULARY, 16)
        self.rnn = nn.LSTM(16, HIDDEN, LAYERS)
        self.decoder = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, words: Tensor, hidden: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, hidden = self.rnn(self.encoder(words), hidden)
        decoded = self.decoder(output)
        decoded = decoded.view(-1, decoded.size(-1))
        return torch.log_softmax(decoded, dim=1), hidden


class Positions(nn.Module):
    """Sines and cosines of the position, added to what is given as [time, batch, width]."""

    def __init__(self, width: int, longest: int = 64) -> None:
        super().__init__()
        table = torch.zeros(longest, width)
        position = torch.arange(0, longest, dtype=torch.float).unsqueeze(1)
        rates = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
        table[:, 0::2] = torch.sin(position * rates)
        table[:, 1::2] = torch.cos(position * rates)
        self.register_buffer("table", table.unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[: x.size(0)]


class TransformerModel(nn.Module):
    """nn.TransformerEncoder under a causal mask made for the length at hand."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.encoder = nn.Embedding(VOCABULARY, width)
        self.positions = Positions(width)
        layer = nn.TransformerEncoderLayer(width, 4, 48, dropout=0.2)
        self.transformer = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.decoder = nn.Linear(width, VOCABULARY)

    def mask(self, length: int) -> Tensor:
        return nn.Transformer.generate_square_subsequent_mask(length)

    def forward(self, words: Tensor) -> Tensor:
        x = self.positions(self.encoder(words) * math.sqrt(self.width))
        output = self.transformer(x, mask=self.mask(words.size(0)))
        return torch.log_softmax(self.decoder(output), dim=-1)


class LogMask(TransformerModel):
    """The mask as the logarithm of a triangle of ones."""

    def mask(self, length: int) -> Tensor:
        return torch.log(torch.tril(torch.ones(length, length)))


class CausalHint(TransformerModel):
    """The mask and the promise that it is causal."""

    def forward(self, words: Tensor) -> Tensor:
        x = self.positions(self.encoder(words) * math.sqrt(self.width))
        output = self.transformer(x, mask=self.mask(words.size(0)), is_causal=True)
        return torch.log_softmax(self.decoder(output), dim=-1)


def _state(batch: int) -> Tensor:
    return torch.randn(LAYERS, batch, HIDDEN)


def _recurrent(time: int, batch: int) -> tuple[Tensor, Tensor]:
    return tokens(time, batch), _state(batch)


def _long_short_term(time: int, batch: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    return tokens(time, batch), (_state(batch), _state(batch))


_AXES = {0: {0: "time", 1: "batch"}}
_SIZES, _OTHERS = {"time": 6, "batch": 3}, [{"time": 1, "batch": 1}, {"time": 11, "batch": 5}]
_RECURRENT = {
    "rnn-tanh": (lambda: Recurrent(nn.RNN, nonlinearity="tanh"), _recurrent),
    "rnn-relu": (lambda: Recurrent(nn.RNN, nonlinearity="relu"), _recurrent),
    "gru": (lambda: Recurrent(nn.GRU), _recurrent),
    "lstm": (LongShortTerm, _long_short_term),
}
_TRANSFORMERS = {
    # torch.export refuses the test whether the mask is causal, which depends on data
    "transformer": (TransformerModel, ("trace",)),
    "transformer-log-mask": (LogMask, ("trace",)),
    "transformer-causal": (CausalHint, ROUTES),
}


def _cases(name: str, make: Callable[[], nn.Module], inputs: Callable[..., tuple[object, ...]]) -> list[Case]:
    """torch.export unrolls the steps, so their number is static there."""
    state = {position: {1: "batch"} for position in (range(1, 3) if name == "lstm" else range(1, 2))}
    return [
        Case(f"word-{name}", make, inputs, {0: _AXES[0], **state}, _SIZES, _OTHERS, ("trace", "script")),
        Case(
            f"word-{name}-batch",
            make,
            functools.partial(inputs, 6),
            {0: {1: "batch"}, **state},
            {"batch": 3},
            [{"batch": 1}, {"batch": 5}],
            ("export",),
        ),
    ]


CASES = [
    *(case for name, (make, inputs) in _RECURRENT.items() for case in _cases(name, make, inputs)),
    *(
        Case(f"word-{name}", make, lambda time, batch: (tokens(time, batch),), {0: _AXES[0]}, _SIZES, _OTHERS, routes)
        for name, (make, routes) in _TRANSFORMERS.items()
    ),
]
