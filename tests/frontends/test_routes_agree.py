"""Where several routes take the same program, their files compute the same: closer than each is to torch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from tests.functionalize import test_order, test_writes
from tests.harness import Row, run_ort, tensors_in
from tests.row_plans import export_row
from tests.tiers import dealt
from tests.tolerances import Bounds, assert_near

OPSET = 17
CLOSER = Bounds(times=0.05)
ROWS = [row for row in [*test_order.PROGRAMS, *test_order.VIEW_ROWS, *test_writes.PROGRAMS] if len(row.routes) > 1]


def results(row: Row, route: str) -> list[np.ndarray[Any, Any]]:
    program = export_row(row, route, max(OPSET, *row.opsets) if row.min_opset else max(OPSET, min(row.opsets)))
    feeds = [tensor.numpy() for tensor in tensors_in(row.make_inputs())]
    return run_ort(program.model_proto.SerializeToString(), feeds)


@pytest.mark.parametrize("row", dealt(ROWS, 8, [row.name for row in ROWS]))
def test_routes_agree(row: Row) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, *others = [results(row, route) for route in row.routes]
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            assert_near(mine, theirs, CLOSER)
