"""Rows of the operators that language models are recorded with: what stands for them at any opset."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from purexport.aten.own_operators import operator
from tests.harness import CAPTURES, Row, boolean, f32
from tests.row_plans import Plan, row_params, run_row


def attention(
    query: Any, key: Any, value: Any, mask: Any = None, bias: Any = None, sinks: Any = None, **of: Any
) -> Any:
    chosen = {"scale": 0.3, "softcap": 0.0, "causal": False, **of}
    return operator("attention")(query, key, value, mask, bias, sinks, *chosen.values())


def capped(query: Any, key: Any, value: Any) -> Any:
    return attention(query, key, value, softcap=1.5, causal=True)


def hidden(query: Any, key: Any, value: Any, mask: Any, bias: Any) -> Any:
    """A mask that says that it is causal, and is not: the mask counts, not what it says."""
    return attention(query, key, value, operator("visible")(mask, None, "causal", 0), bias)


def sinking(query: Any, key: Any, value: Any, sinks: Any) -> Any:
    return attention(query, key, value, sinks=sinks)


def rotary(x: Any, cos: Any, sin: Any) -> Any:
    return operator("rotary")(x, cos, sin, False)


def interleaved(x: Any, cos: Any, sin: Any) -> Any:
    return operator("rotary")(x, cos, sin, True)


def written(cache: Any, new: Any, place: Any) -> Any:
    return operator("written")(cache, new, place)


Q, K, V = f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 6)
ROWS = [
    Row("attention", attention, Q, K, V, routes=CAPTURES),
    Row("attention-causal-capped", capped, Q, K, V, routes=CAPTURES, dynamic={0: {2: "queries"}}),
    Row("attention-mask-bias", hidden, Q, K, V, boolean(2, 1, 3, 5), f32(1, 4, 3, 5), routes=CAPTURES),
    Row(
        "attention-sinks",
        sinking,
        Q,
        K,
        V,
        f32(4),
        routes=CAPTURES,
        dynamic={place: {0: "batch"} for place in range(3)},
    ),
    Row("rotary", rotary, f32(2, 4, 3, 8), f32(1, 1, 3, 4), f32(1, 1, 3, 4), routes=CAPTURES),
    Row("rotary-part", rotary, f32(2, 4, 3, 8), f32(1, 1, 3, 3), f32(1, 1, 3, 3), routes=CAPTURES),
    Row("rotary-interleaved", interleaved, f32(2, 4, 3, 8), f32(2, 1, 3, 4), f32(2, 1, 3, 4), routes=CAPTURES),
    Row(
        "rotary-tokens-first",
        rotary,
        f32(2, 3, 4, 8),
        f32(2, 3, 1, 4),
        f32(2, 3, 1, 4),
        routes=CAPTURES,
        dynamic={0: {1: "length"}, 1: {1: "length"}, 2: {1: "length"}},
    ),
    Row(
        "written",  # at opset 24 and later, before, and where no opset has an operator for it
        written,
        f32(3, 2, 16, 4),
        f32(3, 2, 3, 4),
        torch.tensor([5]),
        routes=CAPTURES,
        dynamic={0: {0: "batch"}, 1: {0: "batch", 2: "new"}},
        opsets=(10, 17, 24),
    ),
    Row("written-whole", written, f32(1, 2, 4, 3), f32(1, 2, 4, 3), torch.tensor([0]), routes=CAPTURES),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
