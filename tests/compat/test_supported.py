"""What torch.onnx has listed as supported, at the opsets of those years, traced and scripted, with one axis dynamic.

The default tests take a few; `pytest -m sweep` runs all.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.compat.supported import LISTED, MODULES, OPERATORS, OPSETS, ROUTES
from tests.harness import Row, f32, layer, values
from tests.row_plans import run_row
from tests.tiers import Asked

EACH = 89  # of so many, the default tests run one


class Recurrent(nn.Module):
    """A recurrent layer."""

    def __init__(self, kind: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.layer = kind(3, 4, **options)

    def forward(self, x: torch.Tensor):
        return self.layer(x)


class Stated(Recurrent):
    """With its initial state."""

    def forward(self, x: torch.Tensor, h: torch.Tensor):
        return self.layer(x, h)


class StatedLstm(Recurrent):
    """With its initial states."""

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        return self.layer(x, (h, c))


class Packed(Recurrent):
    """On sequences of several lengths, longest first."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor):
        output, states = self.layer(pack_padded_sequence(x, lengths))
        return pad_packed_sequence(output), states


class PackedStated(Recurrent):
    """With its initial state."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, h: torch.Tensor):
        output, states = self.layer(pack_padded_sequence(x, lengths), h)
        return pad_packed_sequence(output), states


class PackedStatedLstm(Recurrent):
    """With its initial states."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        output, states = self.layer(pack_padded_sequence(x, lengths), (h, c))
        return pad_packed_sequence(output), states


class Unsorted(Recurrent):
    """On sequences of several lengths in any order."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor):
        output, states = self.layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
        return pad_packed_sequence(output), states


class UnsortedStated(Recurrent):
    """With its initial state."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, h: torch.Tensor):
        output, states = self.layer(pack_padded_sequence(x, lengths, enforce_sorted=False), h)
        return pad_packed_sequence(output), states


class UnsortedStatedLstm(Recurrent):
    """With its initial states."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        output, states = self.layer(pack_padded_sequence(x, lengths, enforce_sorted=False), (h, c))
        return pad_packed_sequence(output), states


KINDS = {"lstm": (nn.LSTM, {}), "gru": (nn.GRU, {}), "rnn": (nn.RNN, {}), "relu": (nn.RNN, {"nonlinearity": "relu"})}
FORMS: dict[str, tuple[type[Recurrent], type[Recurrent], type[Recurrent]]] = {
    "padded": (Recurrent, Stated, StatedLstm),
    "packed": (Packed, PackedStated, PackedStatedLstm),
    "unsorted": (Unsorted, UnsortedStated, UnsortedStatedLstm),
}


def recurrent(kind: str, layers: int, directions: int, form: str, *, stated: bool) -> Row:
    """A layer in one of its forms: the batch is dynamic, or the steps where the lengths must be sorted."""
    cls, options = KINDS[kind]
    plain, with_state, with_states = FORMS[form]
    module = plain if not stated else with_states if kind == "lstm" else with_state
    lengths = [] if form == "padded" else [values([4, 3, 1], torch.int64)]
    states = [f32(layers * directions, 3, 4)] * (stated * (2 if kind == "lstm" else 1))
    inputs = [f32(4, 3, 3), *lengths, *states]
    dynamic = {0: {0: "time"}}
    if form == "unsorted":
        first = 1 + len(lengths)
        dynamic = {0: {1: "batch"}, 1: {0: "batch"}} | {first + place: {1: "batch"} for place in range(len(states))}
    name = f"{kind}-{layers}-{directions}-{form}{'-stated' * stated}"
    made = layer(module, cls, num_layers=layers, bidirectional=directions == 2, **options)
    return Row(name, made, *inputs, dynamic=dynamic, opsets=OPSETS, routes=ROUTES)


RECURRENT = [
    recurrent(kind, layers, directions, form, stated=stated)
    for kind, layers, directions, form, stated in itertools.product(KINDS, (1, 2, 3), (1, 2), FORMS, (False, True))
]


def _params() -> list[Any]:
    runs = [
        (row, route, opset)
        for row in (*MODULES, *OPERATORS, *RECURRENT)
        for route, opset in itertools.product(ROUTES, OPSETS)
    ]
    # a prime that shares nothing with the number of routes and opsets: each of these comes up
    return [
        pytest.param(*run, id=f"{run[0].name}-{run[1]}-{run[2]}", marks=() if at % EACH == 0 else pytest.mark.sweep)
        for at, run in enumerate(runs)
        if at % EACH == 0 or "sweep" in Asked.tiers
    ]


@pytest.mark.parametrize(("row", "route", "opset"), _params())
def test_row(row: Row, route: str, opset: int) -> None:
    run_row(row, {route: [opset]})


def test_every_listed_name_has_a_row() -> None:
    names = [row.name for row in (*MODULES, *OPERATORS)]
    assert sorted(names) == sorted(LISTED.split())
