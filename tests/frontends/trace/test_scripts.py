"""Scripts that the model calls: what they decide by sizes or elements is decided by the file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.tiers import dealt


@torch.jit.script
def turned(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        return x * 2
    return -x


@torch.jit.script
def repeated(x: Tensor, times: int) -> Tensor:
    for step in range(times):
        x = x * 0.5 + step
    return x


@torch.jit.script
def halved(x: Tensor) -> Tensor:
    while bool(x.abs().max() > 1):
        x = x / 2
    return x


@torch.jit.script
def both(x: Tensor, factor: float) -> dict[str, list[Tensor]]:
    y = x * factor
    if bool(x.sum() > 0):
        y = y + 1
    return {"sums": [y.sum(0), y.sum(1)], "whole": [y]}


@torch.jit.script
def counts(x: Tensor) -> int:
    found = 0
    if bool(x.sum() > 0):
        found = int((x > 0).sum())
    return found


@torch.jit.script
def written(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        x += 1
    return x


@torch.jit.script
def positive(x: Tensor) -> Tensor:
    found = x[x > 0]
    if found.numel() > 2:
        found = found * 3
    return found


@torch.jit.script_if_tracing
def of_traces(x: Tensor, rows: int) -> Tensor:
    if bool(x.mean() > 0):
        for _ in range(rows):
            x = x + 1
    return x


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor, places: list[Tensor]) -> Tensor:
        for place in places:
            if bool(place.sum() > 1):
                x = self.layer(x) + place
        return x


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.first = torch.jit.script(Gate()), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.gate(x, [x.sum(0), -x.sum(0), x[0]]) + self.gate.layer(x)


def copied(x: Tensor) -> Tensor:
    y = x.clone()
    return written(y) * 2 + y


def parts(x: Tensor) -> Tensor:
    found = both(x, 0.5)
    return found["whole"][0] + found["sums"][0] + found["sums"][1][:, None]


ROWS: dict[str, Callable[[Tensor], Any]] = {
    "a branch": lambda x: turned(x + 1) * x,
    "a loop": halved,
    "steps of a size": lambda x: repeated(x, x.shape[0]) + x,
    "steps of a size that follows": lambda x: repeated(torch.cat([x, x]), x.shape[0] - 1),
    "lists in a dict": parts,
    "a number": lambda x: x * counts(x),
    "a write": copied,
    "as many as the data decides": lambda x: positive(x).sum() + x,
    "a script in a trace": lambda x: of_traces(x, x.shape[0]) * 2,
    "twice": lambda x: turned(turned(x.t()) + 1),
    "a module": Around(),
}


@pytest.mark.parametrize("name", dealt(ROWS, 3))
def test_script(name: str) -> None:
    torch.manual_seed(0)
    model = ROWS[name]
    x = torch.randn(3, 4)
    others: Sequence[Any] = [(torch.randn(5, 4) + 1,), (-torch.rand(2, 4) * 9,), (x * 3,)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        captured = purexport.capture(model, (x,), capture="trace", dynamic_axes={"x": {0: "n"}})
        captured.to_onnx(verify=[(x,), *others])
    assert "prim::If" in str(captured) or "prim::Loop" in str(captured)


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {}
