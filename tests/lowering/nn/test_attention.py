"""Softmax and attention: masks, causal, scale, shared heads; what a query gets that may see nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.harness import OPSETS, Row, boolean, f16, f32, f64, i64, layer, values
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, **options)


def attend_masked(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, **options: Any
) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, mask, **options)


HIDDEN = "a query that may see nothing gets zeros, not NaN"

SOFTMAX = [
    Row("softmax-last", lambda x: x.softmax(-1), f32(2, 3, 4), dynamic={0: {0: "batch", 2: "width"}}),
    Row("softmax-first", lambda x: x.softmax(0), f32(2, 3, 4), trap="before opset 13 all axes from this one on"),
    Row("softmax-middle", lambda x: x.softmax(1), f32(2, 3, 4), dynamic="batch"),
    Row("softmax-dtype", lambda x: x.softmax(-1, dtype=torch.float32), i64(2, 3)),
    Row("softmax-zero-dim", lambda x: x.softmax(0), f32()),
    Row("softmax-half", lambda x: x.softmax(1), f16(2, 3)),
    Row("softmax-all-hidden", lambda x: x.softmax(1), values([[-math.inf, -math.inf], [0, -math.inf]])),
    Row("softmin", nn.Softmin(1), f32(2, 3)),
    Row("_softmax", lambda x: aten._softmax(x, 1, False), f32(2, 3, 2)),
    Row("special_softmax", lambda x: torch.special.softmax(x, 1), f32(2, 3, 2)),
    Row("_safe_softmax", lambda x: aten._safe_softmax(x, 1), values([[-math.inf, -math.inf], [0, 1]])),
    Row("log-softmax-last", lambda x: x.log_softmax(-1), f32(2, 3, 4), dynamic={0: {0: "batch", 2: "width"}}),
    Row("log-softmax-first", lambda x: x.log_softmax(0), f32(2, 3, 4)),
    Row("log-softmax-double", lambda x: x.log_softmax(1), f64(2, 3)),
    Row("log-softmax-zero-dim", lambda x: x.log_softmax(-1), f32()),
    Row("_log_softmax", lambda x: aten._log_softmax(x, 1, False), f32(2, 3, 2)),
    Row("special_log_softmax", lambda x: torch.special.log_softmax(x, 1), f32(2, 3, 2)),
]

QKV = (f32(2, 3, 4, 8), f32(2, 3, 5, 8), f32(2, 3, 5, 6))
ANY_LENGTH = {
    0: {0: "batch", 2: "length"},
    1: {0: "batch", 2: "source"},
    2: {0: "batch", 2: "source"},
}
SAME_LENGTH = {position: {0: "batch", 2: "length"} for position in range(3)}

ATTENTION = [
    Row("attention", attend, *QKV, dynamic=ANY_LENGTH),
    Row("attention-rank-3", attend, f32(2, 4, 8), f32(2, 5, 8), f32(2, 5, 6), dynamic="batch"),
    Row("attention-rank-2", attend, f32(4, 8), f32(5, 8), f32(5, 6)),
    Row("attention-rank-5", attend, f32(2, 1, 2, 4, 8), f32(2, 1, 2, 5, 8), f32(2, 1, 2, 5, 6)),
    Row("attention-scale", lambda q, k, v: attend(q, k, v, scale=0.3), *QKV),
    Row("attention-causal", lambda q, k, v: attend(q, k, v, is_causal=True), *QKV, trap="counted from the first key"),
    Row(
        "attention-causal-long",
        lambda q, k, v: attend(q, k, v, is_causal=True),
        f32(1, 1, 6, 2),
        f32(1, 1, 3, 2),
        f32(1, 1, 3, 2),
    ),
    Row(
        "attention-causal-any-length",
        lambda q, k, v: attend(q, k, v, is_causal=True),
        f32(2, 3, 4, 8),
        f32(2, 3, 4, 8),
        f32(2, 3, 4, 8),
        dynamic=SAME_LENGTH,
        opsets=[opset for opset in OPSETS if opset >= 11],
    ),
    Row("attention-half", attend, f16(1, 2, 3, 4), f16(1, 2, 3, 4), f16(1, 2, 3, 4)),
    Row(
        "attention-bfloat16",
        lambda q, k, v: functional.scaled_dot_product_attention(
            q.to(torch.bfloat16), k.to(torch.bfloat16), v.to(torch.bfloat16), is_causal=True
        ).float(),
        *(f32(4, 3, 8, low=-6.0, high=6.0), f32(4, 6, 8, low=-6.0, high=6.0), f32(4, 6, 8, low=-6.0, high=6.0)),
        opsets=(13, 20),
        trap="torch keeps the scores in float32",
    ),
    Row("attention-double", attend, f64(1, 2, 3, 4), f64(1, 2, 3, 4), f64(1, 2, 3, 4)),
]

MASKED = [
    Row("mask-bool", attend_masked, *QKV, boolean(2, 1, 4, 5), dynamic="batch"),
    Row("mask-float", attend_masked, *QKV, f32(4, 5)),
    Row(
        "mask-any-length",
        attend_masked,
        *QKV,
        f32(2, 1, 4, 5),
        dynamic={**ANY_LENGTH, 3: {0: "batch", 2: "length", 3: "source"}},
    ),
    Row(
        "mask-bool-hides-all",
        attend_masked,
        f32(1, 1, 3, 2),
        f32(1, 1, 2, 2),
        f32(1, 1, 2, 2),
        values([[True, False], [False, False], [True, True]], torch.bool),
        trap=HIDDEN,
    ),
    Row(
        "mask-float-hides-all",
        attend_masked,
        f32(1, 1, 3, 2),
        f32(1, 1, 2, 2),
        f32(1, 1, 2, 2),
        values([[0, 1], [-math.inf, -math.inf], [-math.inf, 2]]),
        trap=HIDDEN,
    ),
    Row("mask-of-heads", attend_masked, *QKV, boolean(3, 1, 5)),
    Row("mask-of-queries", attend_masked, *QKV, boolean(4, 1)),
    Row(
        "mask-constant",
        lambda q, k, v: attend_masked(q, k, v, torch.ones(4, 5).tril().bool()),
        *QKV,
        traced="no attribute or method 'bool'",
    ),
    Row("mask-constant-float", lambda q, k, v: attend_masked(q, k, v, torch.ones(4, 5).tril()), *QKV),
    Row("mask-scale", lambda q, k, v, m: attend_masked(q, k, v, m, scale=0.2), *QKV, f32(2, 3, 4, 5)),
]

GROUPED = [
    Row(
        "grouped-queries",
        lambda q, k, v: attend(q, k, v, enable_gqa=True),
        f32(2, 6, 4, 8),
        f32(2, 2, 5, 8),
        f32(2, 2, 5, 8),
        dynamic=ANY_LENGTH,
    ),
    Row(
        "grouped-queries-mask",
        lambda q, k, v, m: attend_masked(q, k, v, m, enable_gqa=True),
        f32(2, 6, 4, 8),
        f32(2, 2, 5, 8),
        f32(2, 2, 5, 8),
        boolean(2, 1, 4, 5),
        dynamic={**ANY_LENGTH, 3: {0: "batch", 2: "length", 3: "source"}},
    ),
    Row(
        "grouped-queries-causal",
        lambda q, k, v: attend(q, k, v, is_causal=True, enable_gqa=True),
        f32(1, 4, 5, 2),
        f32(1, 2, 5, 2),
        f32(1, 2, 5, 2),
    ),
    Row(
        "grouped-queries-one-each",
        lambda q, k, v, m: attend_masked(q, k, v, m, enable_gqa=True),
        f32(1, 2, 3, 2),
        f32(1, 2, 3, 2),
        f32(1, 2, 3, 2),
        f32(3, 3),
    ),
]


class SelfAttention(nn.Module):
    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **options)

    def forward(self, x: torch.Tensor, padding: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.attention(x, x, x, key_padding_mask=padding)


LAYERS = [
    Row("multihead", layer(SelfAttention, batch_first=True), f32(2, 5, 8), dynamic={0: {0: "batch", 1: "length"}}),
    Row(
        "multihead-padding",
        layer(SelfAttention, batch_first=True),
        f32(2, 3, 8),
        values([[False, False, True]] * 2, torch.bool),
    ),
    Row("multihead-time-first", layer(SelfAttention, add_bias_kv=True, add_zero_attn=True), f32(3, 2, 8)),
    Row(
        "encoder",
        layer(nn.TransformerEncoderLayer, 8, 2, 16, batch_first=True),
        f32(2, 5, 8),
        dynamic={0: {0: "batch", 1: "length"}},
    ),
    Row(
        "decoder",
        layer(nn.TransformerDecoderLayer, 8, 2, 16, norm_first=True),
        f32(4, 2, 8),
        f32(3, 2, 8),
        opsets=(13, 23),
    ),
    Row(
        "_scaled_dot_product_flash_attention_for_cpu",
        lambda q, k, v: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)[0],
        f32(1, 2, 3, 4),
        f32(1, 2, 3, 4),
        f32(1, 2, 3, 4),
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*SOFTMAX, *ATTENTION, *MASKED, *GROUPED, *LAYERS]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
