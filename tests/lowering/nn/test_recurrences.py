"""Rows of states that decay and learn: LinearAttention where the opset has it, and a Scan before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from purexport.aten.own_operators import operator
from tests.harness import CAPTURES, Row, f32
from tests.row_plans import Plan, row_params, run_row

AXES = {place: {0: "batch", 1: "tokens"} for place in (0, 1, 2, 4)} | {3: {0: "batch"}}


def gated(query: Any, key: Any, value: Any, state: Any, decay: Any) -> Any:
    return operator("recurrence")(query, key, value, state, -decay.abs(), None, None, 1.0)


def delta(query: Any, key: Any, value: Any, state: Any, decay: Any, beta: Any) -> Any:
    return operator("recurrence")(query, key, value, state, -decay.abs(), None, beta.sigmoid(), 0.0)


def channels(query: Any, key: Any, value: Any, state: Any, decay: Any, rate: Any) -> Any:
    return operator("recurrence")(query, key, value, state, decay.abs(), -rate.abs(), None, 0.5)


def learning_channels(query: Any, key: Any, value: Any, state: Any, decay: Any, beta: Any) -> Any:
    return operator("recurrence")(query, key, value, state, -decay.abs(), None, beta.sigmoid(), 1.0)


VALUE, STATE, DECAY = f32(2, 5, 4, 2), f32(2, 4, 3, 2), f32(2, 5, 4)
NARROW, ROWS_OF_STATE = f32(2, 5, 4, 1), f32(2, 4, 3, 1)
ROWS = [
    Row("gated", gated, f32(2, 5, 2, 3), f32(2, 5, 2, 3), VALUE, STATE, DECAY, dynamic=AXES, routes=CAPTURES),
    Row("gated-of-all", gated, f32(2, 5, 1, 3), f32(2, 5, 4, 3), VALUE, STATE, DECAY, dynamic=AXES, routes=CAPTURES),
    Row("gated-by-size", gated, f32(2, 5, 4, 3), f32(2, 5, 4, 3), VALUE, STATE, f32(2, 5, 4, 3), routes=CAPTURES),
    Row(
        "delta",
        delta,
        f32(2, 5, 4, 3),
        f32(2, 5, 4, 3),
        VALUE,
        STATE,
        DECAY,
        f32(2, 5, 4),
        dynamic={**AXES, 5: {0: "batch", 1: "tokens"}},
        sizes={"batch": 1, "tokens": 1},
        routes=CAPTURES,
    ),
    Row("rate", channels, f32(2, 5, 4, 3), f32(2, 5, 4, 3), VALUE, STATE, DECAY, f32(4, 3), routes=CAPTURES),
    Row(
        "channels",
        channels,
        f32(2, 5, 1, 3),
        f32(2, 5, 1, 3),
        NARROW,
        ROWS_OF_STATE,
        DECAY,
        f32(4, 3),
        dynamic=AXES,
        routes=CAPTURES,
    ),
    Row(
        "channels-that-learn",
        learning_channels,
        f32(2, 5, 4, 3),
        f32(2, 5, 2, 3),
        NARROW,
        ROWS_OF_STATE,
        DECAY,
        f32(2, 5, 4),
        routes=CAPTURES,
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


def test_shapes_alone() -> None:
    """Without values, as models of folders are looked at."""
    args = [torch.empty(2, 5, 4, size, device="meta") for size in (3, 3, 2)]
    found, last = operator("recurrence")(
        *args, torch.empty(2, 4, 3, 2, device="meta"), torch.empty(2, 5, 4, device="meta"), None, None, 1.0
    )
    assert found.shape == (2, 5, 4, 2) and last.shape == (2, 4, 3, 2)
