"""unfold and fold with borders, strides, gaps, without a batch axis, and on any size."""

from __future__ import annotations

import pytest
from torch import nn
from torch.nn import functional as F  # noqa: N812

from tests.harness import Row, f32, layer, values
from tests.row_plans import Plan, row_params, run_row

UNFOLD = [
    Row("unfold", layer(nn.Unfold, 2), f32(2, 3, 4, 5), dynamic="batch"),
    Row("unfold-all", layer(nn.Unfold, (2, 3), dilation=(2, 1), padding=(1, 2), stride=(2, 1)), f32(2, 3, 6, 5)),
    Row("unfold-no-batch", layer(nn.Unfold, (3, 2), padding=1), f32(2, 4, 5)),
    Row(
        "unfold-any-size",
        layer(nn.Unfold, 3, padding=1, stride=2),
        f32(1, 2, 6, 7),
        dynamic={0: {0: "batch", 2: "height", 3: "width"}},
    ),
    Row("unfold-infinite", layer(nn.Unfold, 2), values([[[[1.0, float("inf")], [2, 3]]]]), trap="no other is touched"),
]

FOLD = [
    Row("fold", layer(nn.Fold, (4, 5), 2), f32(2, 12, 12), dynamic="batch"),
    Row("fold-all", layer(nn.Fold, (6, 5), (2, 3), dilation=(2, 1), padding=(1, 2), stride=(2, 1)), f32(2, 12, 21)),
    Row("fold-uneven", layer(nn.Fold, (6, 6), 3, stride=2), f32(1, 18, 4), trap="the last row belongs to no patch"),
    Row(
        "fold-any-size",
        lambda x, like: F.fold(x, like.shape[2:], (2, 3), dilation=(1, 2), padding=(1, 2), stride=(2, 1)),
        f32(2, 18, 18),
        f32(1, 1, 5, 6),
        dynamic={0: {2: "windows"}, 1: {2: "h", 3: "w"}},
        sizes={"windows": 16, "h": 7, "w": 4},
        opsets=(9, 16, 18),
    ),
    Row("fold-no-batch", layer(nn.Fold, (3, 3), 2), f32(8, 4)),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*UNFOLD, *FOLD]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
