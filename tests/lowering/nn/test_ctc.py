"""CTC loss in all reductions, with lengths as numbers and as tensors."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.harness import Row, f32, i64, values
from tests.row_plans import Plan, row_params, run_row

LABELS = i64(3, 4, low=1, high=6)
REPEATED = values([[1, 1, 2, 2], [3, 3, 3, 3], [1, 2, 1, 2]], torch.int64)
INPUTS, TARGETS = values([8, 6, 8], torch.int64), values([4, 2, 0], torch.int64)
FEW = (9, 13, 20)


def loss(*lengths, **options):
    return lambda x, y, *given: functional.ctc_loss(x.log_softmax(2), y, *lengths, *given, **options)


ROWS = [
    *(
        Row(way, loss([8, 7, 8], [4, 2, 3], reduction=way), f32(8, 3, 6), LABELS, opsets=FEW, traced="List[int]")
        for way in ("none", "mean", "sum")
    ),
    Row(
        "repeats",
        loss([8, 8, 8], [4, 3, 4], reduction="none"),
        f32(8, 3, 6),
        REPEATED,
        opsets=FEW,
        trap="a blank between equals",
        traced="found type 'List[int]'",
    ),
    Row(
        "tensors",
        loss(reduction="none"),
        f32(8, 3, 6),
        LABELS,
        INPUTS,
        TARGETS,
        opsets=FEW,
        trap="no label at all",
    ),
    Row(
        "blank",
        loss([8, 7, 8], [4, 2, 3], blank=5),
        f32(8, 3, 6),
        i64(3, 4, low=0, high=5),
        opsets=FEW,
        traced="found type 'List[int]'",
    ),
    Row(
        "one-row",
        loss([8, 7, 8], [4, 2, 3], reduction="none"),
        f32(8, 3, 6),
        i64(9, low=1, high=6),
        opsets=FEW,
        traced="found type 'List[int]'",
    ),
    Row("one-row-tensors", loss(), f32(8, 3, 6), i64(6, low=1, high=6), INPUTS, TARGETS, opsets=FEW),
    Row(
        "impossible",
        loss([2, 8, 8], [4, 2, 3], reduction="none"),
        f32(8, 3, 6),
        LABELS,
        opsets=(20,),
        traced="found type 'List[int]'",
    ),
    Row(
        "zero-infinity",
        loss([2, 8, 8], [4, 2, 3], zero_infinity=True),
        f32(8, 3, 6),
        LABELS,
        opsets=(20,),
        traced="found type 'List[int]'",
    ),
    Row(
        "alone",
        lambda x, y: functional.ctc_loss(x.log_softmax(1), y, torch.tensor(8), torch.tensor(3), reduction="none"),
        f32(8, 6),
        i64(3, low=1, high=6),
        opsets=(20,),
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
