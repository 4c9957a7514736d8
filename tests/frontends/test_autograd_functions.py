"""Autograd Functions without a symbolic function, by trace: their bodies are graphs of their own inside the trace.

Those that call a module which they are given are plain functions there.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.harness import Row, f32
from tests.row_plans import Plan, row_params, run_row


class Swish(torch.autograd.Function):
    """Several calls, so that the body has as many values as the graph around it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        y = x * scale
        return x * torch.sigmoid(y + y.pow(3) * 0.04)


class Twice(torch.autograd.Function):
    """Applies another Function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        y = Swish.apply(x, 2.0)
        return y, Swish.apply(y + 1, 0.5)


class Model(nn.Module):
    """The weights are used before and after the Functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = Swish.apply(self.first(x), 1.5)
        one, other = Twice.apply(self.second(y) + x)
        return self.last(one - other + self.first(y))


class Reversible(torch.autograd.Function):
    """Calls the layers that it is given, as reversible networks and checkpoints do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: nn.ModuleList) -> tuple[Tensor, bool]:
        one, other = x.chunk(2, -1)
        for layer in layers:
            one, other = other, one + layer(other)
        ctx.save_for_backward(one.detach())
        ctx.layers = layers
        return torch.cat([one, other], -1), any(ctx.needs_input_grad)


class Separate(torch.autograd.Function):
    """Has its context in a method of its own."""

    @staticmethod
    def forward(x: Tensor, layer: nn.Module) -> Tensor:
        return layer(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.layer = inputs[1]


class OfModules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        found, needs = Reversible.apply(x, self.layers)
        return Separate.apply(found[:, :2], self.layers[0]) * (1 + needs)


ROWS = [
    Row("given-modules", OfModules, f32(3, 4), dynamic="batch", opsets=(17,), routes=("trace",)),
    Row("values-of-the-body", Model, f32(2, 4), dynamic="batch", opsets=(17,), routes=("trace", "export")),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
