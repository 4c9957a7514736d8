"""Autograd Functions without a symbolic function, by trace: their bodies are graphs of their own inside the trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.harness import Row, f32, row_params, run_row


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


ROWS = [Row("values-of-the-body", Model, f32(2, 4), dynamic="batch", opsets=(17,), routes=("trace", "export"))]


@pytest.mark.parametrize(("row", "route", "opset"), row_params(ROWS))
def test_row(row: Row, route: str, opset: int) -> None:
    run_row(row, route, opset)
