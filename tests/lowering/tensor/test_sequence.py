"""Lists of tensors whose length only the run knows.  More of their kind is in tests/frontends/script/test_lists.py."""

# ruff: noqa: UP006, UP035  TorchScript knows these forms

from __future__ import annotations

from typing import List

import pytest
import torch
from torch import Tensor

from tests.harness import Row, f32, values
from tests.row_plans import Plan, row_params, run_row


def changed(x: Tensor, n: Tensor) -> Tensor:
    """construct, insert, erase, at, length, stack"""
    items: List[Tensor] = []
    for i in range(int(n)):
        items.append(x + i)
        items.insert(0, x * i)
        x = x + items.pop(0)
    return torch.stack(items) + len(items) * items[-1]


def concatenated(x: Tensor, n: Tensor) -> Tensor:
    items = [x]
    for i in range(int(n)):
        items.append(x[: i + 1])
    return torch.cat(items)


def unbound(x: Tensor) -> Tensor:
    rows = x.unbind(0)
    return rows[-1] * len(rows)


def split(x: Tensor) -> Tensor:
    return x.split(2, -1)[-1]


THREE = values(3, torch.int64)
ROWS = [
    Row("changed in a loop", changed, f32(2, 3), THREE, min_opset=13, routes=["script"]),
    Row("concatenated", concatenated, f32(4, 3), THREE, min_opset=13, routes=["script"], dynamic={0: {0: "n"}}),
    Row("unbound", unbound, f32(4, 3), min_opset=11, routes=["script"], dynamic={0: {0: "n"}}),
    Row("split, the last smaller", split, f32(2, 4), min_opset=11, routes=["script"], dynamic={0: {1: "n"}}),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
